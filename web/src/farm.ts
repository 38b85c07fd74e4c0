// The farm as the pages show it: nodes with their state, books with their sum, what went silent when.

import type { Series } from "./api";
import type { Sample } from "./live";

/** State of a node: it reports, gets no new TFs, has stopped reporting, or is no member for the ICN. */
export type State = "up" | "leaving" | "silent" | "down";

/** When a node was heard. */
export interface Heard {
  id: string;
  role: string;
  index: string;
  host: string;
  /** Time of its latest sample by its own clock, in ms. */
  stamp_ms: number;
  /** Time when a newer sample was seen, by the collector's clock, in ms. */
  changed_ms: number;
  state: State;
  /** When it was lost, in ms; `null` while it is there. */
  lost_ms: number | null;
  /** State that the ICN has it in, such as `gone`; `null` without a word of it. */
  word: string | null;
}

/** Something that happened to a node. */
export interface Happening {
  at_ms: number;
  node: string;
  what: "silent" | "down" | "back" | "joined";
  /** State that the ICN has it in, for `down`. */
  word?: string;
  /** How long it was silent, in seconds, for `back`. */
  after_s?: number;
}

const ROLES = ["icn", "flp", "epn"];
/** States of the ICN in which a node is no member, and in which it gets no new TFs. */
const LOST = ["silent", "cut", "left", "gone"];
const LEAVING = ["leaving", "disabled"];
/** Happenings kept. */
const KEPT = 200;

/** Returns the name of a node by its labels, or `null` if it is none. */
export function nodeName(labels: Readonly<Record<string, string>>): string | null {
  const { node } = labels;
  return node !== undefined && /^\w+:\d+$/.test(node) ? node : null;
}

/** Orders nodes: ICNs, FLPs, EPNs, others; then by number. */
export function compareNodes(left: { role: string; index: string }, right: { role: string; index: string }): number {
  const rank = (role: string) => (ROLES.indexOf(role) + ROLES.length + 1) % (ROLES.length + 1);
  return (
    rank(left.role) - rank(right.role) ||
    left.role.localeCompare(right.role) ||
    Number(left.index) - Number(right.index)
  );
}

/** How long a node that reports every `interval_s` may say nothing. */
export function patience(interval_s: number): number {
  return interval_s * 1500 + 400;
}

/** Follows which nodes report. */
export class Roll {
  private nodes = new Map<string, Heard>();
  /** What happened, newest first. */
  happenings: Happening[] = [];
  private isFirst = true;

  /** Takes the times of the latest samples (in s) at `at_ms`, intervals of nodes (in s), and the states of the ICN. */
  update(
    at_ms: number,
    stamps: Sample[],
    intervals: Map<string, number>,
    words = new Map<string, string>(),
  ): Heard[] {
    for (const { labels, value } of stamps) {
      const id = nodeName(labels);
      if (id === null || value === null) continue;
      const stamp_ms = value * 1000;
      const known = this.nodes.get(id);
      if (!known) {
        const changed_ms = this.isFirst ? Math.min(stamp_ms, at_ms) : at_ms;
        const [role = "", index = ""] = id.split(":");
        this.nodes.set(id, {
          id,
          role,
          index,
          host: labels["host"] ?? "",
          stamp_ms,
          changed_ms,
          state: "up",
          word: null,
          lost_ms: null,
        });
        if (!this.isFirst) this.note({ at_ms, node: id, what: "joined" });
      } else if (stamp_ms > known.stamp_ms) {
        Object.assign(known, { stamp_ms, changed_ms: at_ms, host: labels["host"] ?? known.host });
      }
    }
    for (const node of this.nodes.values())
      this.judge(node, at_ms, intervals.get(node.id) ?? 1, words.get(node.id) ?? null);
    if (stamps.length > 0) this.isFirst = false;
    return [...this.nodes.values()].sort(compareNodes);
  }

  /** Gives a node its state, and notes when it is lost or back. */
  private judge(node: Heard, at_ms: number, interval_s: number, word: string | null): void {
    const isOver = at_ms - node.changed_ms > patience(interval_s);
    const wasLost = node.state === "silent" || node.state === "down";
    node.word = word;
    node.state = isOver
      ? "silent"
      : LOST.includes(word ?? "")
        ? "down"
        : LEAVING.includes(word ?? "")
          ? "leaving"
          : "up";
    const isLost = node.state === "silent" || node.state === "down";
    if (isLost && !wasLost) {
      node.lost_ms = isOver ? node.changed_ms : at_ms;
      if (this.isFirst) return;
      if (isOver) this.note({ at_ms: node.lost_ms, node: node.id, what: "silent" });
      else this.note({ at_ms, node: node.id, what: "down", word: word ?? "" });
    } else if (wasLost && !isLost) {
      this.note({ at_ms, node: node.id, what: "back", after_s: (at_ms - (node.lost_ms ?? at_ms)) / 1000 });
      node.lost_ms = null;
    }
  }

  /** Moves the time of all nodes on, as after a pause of the collector: none is silent for that alone. */
  resume(at_ms: number): void {
    for (const node of this.nodes.values()) if (node.state !== "silent") node.changed_ms = at_ms;
  }

  /** Adds what happened before the page was opened. */
  remember(before: Happening[]): void {
    this.happenings = [...this.happenings, ...before]
      .sort((left, right) => right.at_ms - left.at_ms)
      .filter((one, place, all) => all.findIndex((other) => isSame(one, other)) === place)
      .slice(0, KEPT);
  }

  private note(happening: Happening): void {
    this.remember([happening]);
  }
}

function isSame(left: Happening, right: Happening): boolean {
  return left.node === right.node && left.what === right.what && Math.abs(left.at_ms - right.at_ms) < 5000;
}

/**
 * Finds when nodes went silent and came back, in times of their latest samples (in s) that were asked for in steps.
 *
 * A stamp that stands still for longer than `allowed_s` is a silence from that stamp on.
 */
export function happenings(stamps: Series[], end_s: number, allowed_s: number): Happening[] {
  const found: Happening[] = [];
  for (const { labels, points } of stamps) {
    const node = nodeName(labels);
    if (node === null) continue;
    const values = points.flatMap(([, value]) => (value === null ? [] : [value]));
    values.forEach((stamp, place) => {
      const before = values[place - 1];
      if (before === undefined || stamp <= before) return;
      if (stamp - before > allowed_s) {
        found.push({ at_ms: before * 1000, node, what: "silent" });
        found.push({ at_ms: stamp * 1000, node, what: "back", after_s: stamp - before });
      }
    });
    const last = values.at(-1);
    if (last !== undefined && end_s - last > allowed_s) found.push({ at_ms: last * 1000, node, what: "silent" });
  }
  return found.sort((left, right) => right.at_ms - left.at_ms).slice(0, KEPT);
}

/** Fates of all announced TFs of a run. */
export interface Books {
  announced: number;
  complete: number;
  incomplete: number;
  dropped: number;
  inFlight: number;
  queued: number;
  /** Dropped TFs by reason, most first; without those that are zero. */
  reasons: [reason: string, count: number][];
  /** Announced TFs without a fate; 0 if the books hold. */
  missing: number;
}

/** Adds up the books of the ICN that leads: of several the one that has announced most. */
export function booksOf(samples: Sample[]): Books | null {
  const byIcn = new Map<string, Sample[]>();
  for (const sample of samples) {
    const { node = "", run = "" } = sample.labels;
    const key = `${node} ${run}`;
    byIcn.set(key, [...(byIcn.get(key) ?? []), sample]);
  }
  const all = [...byIcn.values()].map(added);
  all.sort((left, right) => right.announced - left.announced);
  return all[0] ?? null;
}

function added(samples: Sample[]): Books {
  const sum = (name: string) =>
    samples.reduce((total, { labels, value }) => (labels["__name__"] === name ? total + (value ?? 0) : total), 0);
  const reasons = samples
    .filter(({ labels, value }) => labels["__name__"] === "balance_tf_dropped_total" && (value ?? 0) > 0)
    .map(({ labels, value }): [string, number] => [labels["reason"] ?? "", value ?? 0])
    .sort((left, right) => right[1] - left[1]);
  const books = {
    announced: sum("balance_tf_announced_total"),
    complete: sum("balance_tf_complete_total"),
    incomplete: sum("balance_tf_incomplete_total"),
    dropped: sum("balance_tf_dropped_total"),
    inFlight: sum("balance_tf_in_flight"),
    queued: sum("balance_tf_queued"),
  };
  const { announced, complete, incomplete, dropped, inFlight } = books;
  return { ...books, reasons, missing: announced - complete - incomplete - dropped - inFlight };
}

/** Returns values by the name of their node. */
export function byNode(samples: Sample[]): Map<string, number> {
  const values = new Map<string, number>();
  for (const { labels, value } of samples) {
    const id = nodeName(labels);
    if (id !== null && value !== null) values.set(id, value);
  }
  return values;
}

/** Returns the states of nodes as the ICN has them, by the name of the node. */
export function wordsOf(samples: Sample[]): Map<string, string> {
  const words = new Map<string, string>();
  for (const { labels } of samples) {
    const id = nodeName(labels);
    if (id !== null) words.set(id, labels["state"] ?? "");
  }
  return words;
}
