// Live values: one stream of server-sent events with the expressions that the page shows now.
//
// Parts of a page subscribe to expressions; the hub opens one stream with all of them, and opens it anew when they
// change. A stream that ends or says nothing is opened again after 0.25 s, 0.5 s, … 5 s.

import type { Labels } from "./api";

/** A value now: labels and number, `null` where it is no number. */
export interface Sample {
  labels: Labels;
  value: number | null;
}

/** What a subscriber gets with every frame. */
export interface Update {
  at_ms: number;
  samples: Sample[];
  error: string | null;
}

/** State of the stream. */
export type Link =
  | { state: "idle" }
  | { state: "connecting" }
  | { state: "live"; at_ms: number }
  | { state: "lost"; tries: number; retry_ms: number };

/** A stream as the browser makes it; a test makes its own. */
export interface Stream {
  onEvent(name: string, listener: (data: string) => void): void;
  onError(listener: () => void): void;
  close(): void;
}

/** Timers, so that a test has its own time. */
export interface Timers {
  set(run: () => void, ms: number): number;
  clear(id: number): void;
}

/** A stream that sends nothing for so long is taken for lost. */
export const SILENCE_MS = 3000;
/** Expressions of one stream, as the collector bounds them. */
export const QUERIES_MAX = 64;

/** Returns how long to wait before try `tries` (from 0). */
export function backOff(tries: number): number {
  return Math.min(250 * 2 ** tries, 5000);
}

/** Subscriptions of a page, and the stream that carries them. */
export class Hub {
  private wanted = new Map<string, Set<(update: Update) => void>>();
  private last = new Map<string, Update>();
  private watchers = new Set<(link: Link) => void>();
  private stream: Stream | null = null;
  private queries: string[] = [];
  private known: Labels[][] = [];
  private errors: (string | null)[] = [];
  private timer: number | null = null;
  private watchdog: number | null = null;
  private tries = 0;
  /** State of the stream now. */
  link: Link = { state: "idle" };

  constructor(
    private readonly open: (url: string) => Stream,
    private readonly timers: Timers,
    private readonly hz = 5,
  ) {}

  /** Calls `listener` with each frame of `query`; returns the end of it. */
  subscribe(query: string, listener: (update: Update) => void): () => void {
    const listeners = this.wanted.get(query) ?? new Set();
    this.wanted.set(query, listeners.add(listener));
    const known = this.last.get(query);
    if (known) listener(known);
    this.change();
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0 && this.wanted.get(query) === listeners) {
        this.wanted.delete(query);
        this.last.delete(query);
        this.change();
      }
    };
  }

  /** Calls `watcher` with every change of the state of the stream. */
  watch(watcher: (link: Link) => void): () => void {
    this.watchers.add(watcher);
    watcher(this.link);
    return () => this.watchers.delete(watcher);
  }

  /** Tries at once, as when the machine comes back from sleep. */
  now(): void {
    if (this.link.state === "lost") this.connect();
  }

  private say(link: Link): void {
    this.link = link;
    for (const watcher of this.watchers) watcher(link);
  }

  /** Opens the stream anew if its expressions are others. All changes of one turn are one. */
  private change(): void {
    if (this.link.state === "lost" || this.timer !== null) return;
    this.timer = this.timers.set(() => {
      this.timer = null;
      const wanted = [...this.wanted.keys()].slice(0, QUERIES_MAX);
      const isSame = wanted.length === this.queries.length && wanted.every((query) => this.queries.includes(query));
      if (!isSame || !this.stream) this.connect();
    }, 20);
  }

  private connect(): void {
    this.end();
    this.queries = [...this.wanted.keys()].slice(0, QUERIES_MAX);
    this.known = this.queries.map(() => []);
    this.errors = this.queries.map(() => null);
    if (this.queries.length === 0) return this.say({ state: "idle" });
    const params = new URLSearchParams(this.queries.map((query) => ["q", query]));
    params.set("hz", String(this.hz));
    const stream = this.open(`/api/live?${params}`);
    this.stream = stream;
    if (this.link.state !== "live" || this.tries > 0) this.say({ state: "connecting" });
    stream.onEvent("series", (data) => this.series(JSON.parse(data)));
    stream.onEvent("failed", (data) => this.failed(JSON.parse(data)));
    stream.onEvent("frame", (data) => this.frame(JSON.parse(data)));
    stream.onError(() => {
      if (this.stream === stream) this.lose();
    });
    this.expect();
  }

  private series({ q, labels }: { q: number; labels: Labels[] }): void {
    this.known[q] = labels;
    this.errors[q] = null;
  }

  private failed({ q, error }: { q: number; error: string }): void {
    this.errors[q] = error;
  }

  private frame({ at_ms, v }: { at_ms: number; v: (number | null)[][] }): void {
    this.tries = 0;
    this.expect();
    this.queries.forEach((query, number) => {
      const values = v[number] ?? [];
      const labels = this.known[number] ?? [];
      const samples = labels.map((one, place) => ({ labels: one, value: values[place] ?? null }));
      const error = this.errors[number] ?? null;
      this.errors[number] = null;
      const update = { at_ms, samples: error ? [] : samples, error };
      this.last.set(query, update);
      for (const listener of [...(this.wanted.get(query) ?? [])]) listener(update);
    });
    this.say({ state: "live", at_ms });
  }

  /** Starts to wait for the next frame. */
  private expect(): void {
    if (this.watchdog !== null) this.timers.clear(this.watchdog);
    this.watchdog = this.timers.set(() => this.lose(), SILENCE_MS);
  }

  private lose(): void {
    this.end();
    const retry_ms = backOff(this.tries);
    this.tries += 1;
    this.say({ state: "lost", tries: this.tries, retry_ms });
    this.timer = this.timers.set(() => {
      this.timer = null;
      this.connect();
    }, retry_ms);
  }

  private end(): void {
    for (const id of [this.timer, this.watchdog]) if (id !== null) this.timers.clear(id);
    this.timer = this.watchdog = null;
    this.stream?.close();
    this.stream = null;
  }
}

/** Opens a stream of the browser. */
export function browserStream(url: string): Stream {
  const source = new EventSource(url);
  return {
    onEvent: (name, listener) =>
      source.addEventListener(name, (event) => listener((event as MessageEvent<string>).data)),
    onError: (listener) => source.addEventListener("error", listener),
    close: () => source.close(),
  };
}
