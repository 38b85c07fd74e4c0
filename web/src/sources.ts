// Sources as the collector counts them, and their rates.

/** One row of `GET /api/sources`. */
export interface Source {
  source: string;
  samples: number;
  taken: number;
  bad: Record<string, number>;
  refused: Record<string, number>;
  lost: number;
  sent: number;
  dropped: number;
  series: number;
  datagrams: number;
  bytes: number;
  cut_offs: number;
  seen_ms: number;
  clock_offset_ms: number | null;
  /** URL of the collector side by side that has it; absent for this one. */
  collector?: string;
}

/** `GET /api/sources` */
export interface Sources {
  sources_total: number;
  sources: Source[];
  /** A sentence for each collector side by side that does not answer. */
  missing?: string[];
}

/** Key of a row: a source that went to another collector has one at each. */
export function keyOf(one: Source): string {
  return `${one.collector ?? ""} ${one.source}`;
}

/** A source with what it does now. */
export interface Row extends Source {
  /** Samples a second; `null` until there are two answers. */
  rate: number | null;
  /** Bytes a second. */
  byteRate: number | null;
  /** Lost, dropped, bad and refused samples together. */
  trouble: number;
  /** Ms since its latest sample. */
  lag_ms: number;
}

/** Sum of counts by code. */
export function sum(counts: Record<string, number>): number {
  return Object.values(counts).reduce((total, one) => total + one, 0);
}

/** Time over which rates are taken. */
const OVER_MS = 3000;

/** Makes rates of answers: the growth over the last three seconds. */
export class Rates {
  private past: { at_ms: number; of: Map<string, Source> }[] = [];

  /** Takes an answer that came at `at_ms`. */
  update(at_ms: number, sources: Source[]): Row[] {
    this.past.push({ at_ms, of: new Map(sources.map((one) => [keyOf(one), one])) });
    while (this.past.length > 2 && at_ms - (this.past[1]?.at_ms ?? at_ms) >= OVER_MS) this.past.shift();
    const first = this.past[0];
    return sources.map((one) => {
      const before = first && first.at_ms < at_ms ? first.of.get(keyOf(one)) : undefined;
      const seconds = first ? (at_ms - first.at_ms) / 1000 : 0;
      // A collector that was started again counts from zero.
      const growth = (now: number, then: number) => (now < then ? now : now - then) / seconds;
      return {
        ...one,
        rate: before ? growth(one.samples, before.samples) : null,
        byteRate: before ? growth(one.bytes, before.bytes) : null,
        trouble: one.lost + one.dropped + sum(one.bad) + sum(one.refused),
        lag_ms: Math.max(0, at_ms - one.seen_ms),
      };
    });
  }
}

/** Columns by which rows can be sorted. */
export type Column =
  "source" | "rate" | "byteRate" | "series" | "lost" | "dropped" | "bad" | "refused" | "lag_ms" | "clock_offset_ms";

/** Sorts rows by a column: names upwards, figures downwards, turned if `isTurned`. */
export function sorted(rows: Row[], column: Column, isTurned: boolean): Row[] {
  const figure = (row: Row): number => {
    if (column === "source") return 0;
    if (column === "bad" || column === "refused") return sum(row[column]);
    const value = row[column];
    return column === "clock_offset_ms" ? Math.abs(value ?? -1) : (value ?? -1);
  };
  const compare = (left: Row, right: Row) =>
    figure(right) - figure(left) || left.source.localeCompare(right.source, undefined, { numeric: true });
  return [...rows].sort((left, right) => (isTurned ? compare(right, left) : compare(left, right)));
}
