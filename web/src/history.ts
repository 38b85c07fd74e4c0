// Values over time of one chart: history from the query API, then live values at its end.

import type { Labels, Series } from "./api";
import { written } from "./api";
import type { Sample } from "./live";

/** Series of a chart at most: more cannot be told apart. */
export const SERIES_MAX = 40;

/** Columns of a chart: times in seconds since 1970, and the values of each series at these times. */
export class History {
  times: number[] = [];
  labels: Labels[] = [];
  values: (number | null)[][] = [];
  private places = new Map<string, number>();
  /** Series that did not fit. */
  left_out = 0;

  /** Keeps `span_s` seconds, one column every `step_s`. */
  constructor(
    readonly span_s: number,
    readonly step_s: number,
  ) {}

  /** Replaces all values. */
  load(series: Series[]): void {
    this.left_out = Math.max(0, series.length - SERIES_MAX);
    const shown = series.slice(0, SERIES_MAX);
    const times = new Set(shown.flatMap(({ points }) => points.map(([at]) => at)));
    this.times = withGaps(
      [...times].sort((left, right) => left - right),
      this.step_s,
    );
    const at = new Map(this.times.map((time, place) => [time, place]));
    this.labels = shown.map(({ labels }) => labels);
    this.places = new Map(this.labels.map((labels, place) => [written(labels), place]));
    this.values = shown.map(({ points }) => {
      const column = new Array<number | null>(this.times.length).fill(null);
      for (const [time, value] of points) column[at.get(time) ?? 0] = value;
      return column;
    });
  }

  /** Adds values at `at_s`; within a step they replace the newest column. Tells whether there are new series. */
  push(at_s: number, samples: Sample[]): boolean {
    const last = this.times.at(-1);
    if (last !== undefined && at_s < last) return false;
    const start = this.times.at(-2) ?? last;
    const isNew = last === undefined || start === undefined || at_s - start >= this.step_s || this.times.length < 2;
    if (last !== undefined && at_s - last > Math.max(2.5 * this.step_s, 3)) {
      this.times.push(last + this.step_s);
      for (const column of this.values) column.push(null);
    }
    if (isNew) {
      this.times.push(at_s);
      for (const column of this.values) column.push(null);
    } else {
      this.times[this.times.length - 1] = at_s;
      for (const column of this.values) column[column.length - 1] = null;
    }
    let hasGrown = false;
    for (const { labels, value } of samples) {
      const key = written(labels);
      let place = this.places.get(key);
      if (place === undefined) {
        if (this.values.length >= SERIES_MAX) continue;
        place = this.values.length;
        this.places.set(key, place);
        this.labels.push(labels);
        this.values.push(new Array<number | null>(this.times.length).fill(null));
        hasGrown = true;
      }
      const column = this.values[place];
      if (column) column[column.length - 1] = value;
    }
    this.forget(at_s - this.span_s);
    return hasGrown;
  }

  private forget(before_s: number): void {
    const keep = this.times.findIndex((time) => time >= before_s);
    // A few columns too many cost less than moving all of them with each one.
    if (keep < 32) return;
    this.times = this.times.slice(keep);
    this.values = this.values.map((column) => column.slice(keep));
  }
}

/** Puts a time without values into each gap, so that no line is drawn across it. */
function withGaps(times: number[], step_s: number): number[] {
  return times.flatMap((time, place) => {
    const before = times[place - 1];
    return before !== undefined && time - before > 2.5 * step_s ? [before + step_s, time] : [time];
  });
}

/** Returns the step for `span_s` seconds: about 300 columns, whole seconds. */
export function stepOf(span_s: number): number {
  return Math.max(1, Math.round(span_s / 300));
}
