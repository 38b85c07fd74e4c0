// Logic of the pages without a browser: formats, the stream, the farm, history, sources, keys.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { matchersOf, readMatchers } from "../../src/alarms";
import { distinguishing, indexOf, placed, written } from "../../src/api";
import { booksOf, compareNodes, happenings, patience, Roll } from "../../src/farm";
import { clock, count, duration, kindOf, short } from "../../src/format";
import { History, SERIES_MAX, stepOf } from "../../src/history";
import { KEYS, wish } from "../../src/keys";
import { backOff, Hub, SILENCE_MS, type Link, type Sample, type Stream, type Update } from "../../src/live";
import * as queries from "../../src/queries";
import { Rates, sorted, type Source } from "../../src/sources";
import { complete, wordAt } from "../../src/words";

test("values have three digits and a prefix", () => {
  const cases: [number | null, string][] = [
    [0, "0"],
    [7, "7"],
    [0.5, "0.50"],
    [0.0123, "0.012"],
    [12.345, "12.3"],
    [999.6, "1.00 k"],
    [1_234_567, "1.23 M"],
    [-2500, "−2.50 k"],
    [0.0001, "1.0e-4"],
    [null, "–"],
    [NaN, "–"],
    [Infinity, "∞"],
  ];
  for (const [value, text] of cases) assert.equal(short(value), text);
  assert.equal(short(333_000_000, "B/s"), "333 MB/s");
  assert.equal(count(1234567), "1\u202f234\u202f567");
});

test("durations and times are written in their natural unit", () => {
  const cases: [number, string][] = [
    [0, "0 s"],
    [0.000_001_5, "1.50 µs"],
    [0.0198, "19.8 ms"],
    [1.5, "1.50 s"],
    [200, "3 min 20 s"],
    [7500, "2 h 5 min"],
    [200_000, "2 d 7 h"],
  ];
  for (const [seconds, text] of cases) assert.equal(duration(seconds), text);
  assert.equal(clock(1_790_000_000_123, true), "14:13:20.1");
});

test("names tell the kind of their values", () => {
  assert.deepEqual(
    [
      "acquire_held_bytes",
      "balance_tf_latency_seconds_p99",
      "balance_tf_latency_seconds_count",
      "build_open_tfs",
    ].map(kindOf),
    ["bytes", "seconds", "plain", "plain"],
  );
});

test("an error of PromQL has its place in the text", () => {
  const { place, text } = placed("1:16: parse error: unexpected end of input");
  assert.deepEqual(place, { line: 1, column: 16 });
  assert.equal(text, "parse error: unexpected end of input");
  assert.equal(placed("too many samples").place, null);
  assert.equal(indexOf("sum(rate(x[5m])", { line: 1, column: 16 }), 15);
  // Columns count bytes: "ä" has two.
  assert.equal(indexOf('a{b="ä"} +', { line: 1, column: 10 }), 8);
  assert.equal(indexOf("a\n+ b)", { line: 2, column: 4 }), 5);
});

test("series are named by what differs between them", () => {
  const of = (index: string, reason: string) => ({
    __name__: "x",
    role: "epn",
    node: `epn:${index}`,
    host: "h",
    reason,
  });
  assert.deepEqual(distinguishing([of("1", "a"), of("2", "a")]), ["epn:1", "epn:2"]);
  assert.deepEqual(distinguishing([of("1", "a"), of("1", "b")]), ["a", "b"]);
  assert.equal(written({ __name__: "x", a: "1" }), 'x{a="1"}');
});

/** A hub with streams and time that the test moves. */
function bench() {
  let now = 0;
  let next = 1;
  const timers = new Map<number, { at: number; run: () => void }>();
  const streams: { url: string; isOpen: boolean; send: (name: string, data: unknown) => void; fail: () => void }[] =
    [];
  const open = (url: string): Stream => {
    const listeners = new Map<string, (data: string) => void>();
    let failed = () => {};
    const stream = {
      url,
      isOpen: true,
      send: (name: string, data: unknown) => listeners.get(name)?.(JSON.stringify(data)),
      fail: () => failed(),
    };
    streams.push(stream);
    return {
      onEvent: (name, listener) => listeners.set(name, listener),
      onError: (listener) => (failed = listener),
      close: () => (stream.isOpen = false),
    };
  };
  const hub = new Hub(open, {
    set: (run, ms) => (timers.set(next, { at: now + ms, run }), next++),
    clear: (id) => timers.delete(id),
  });
  const pass = (ms: number) => {
    const until = now + ms;
    for (;;) {
      const due = [...timers].filter(([, { at }]) => at <= until).sort((left, right) => left[1].at - right[1].at)[0];
      if (!due) break;
      timers.delete(due[0]);
      now = due[1].at;
      due[1].run();
    }
    now = until;
  };
  const state = (): string => hub.link.state;
  const queriesOf = (place: number) => new URL(streams[place]!.url, "http://x").searchParams.getAll("q");
  return { hub, streams, pass, state, queriesOf };
}

test("one stream carries all expressions, and only those that are shown", () => {
  const { hub, streams, pass, queriesOf } = bench();
  const ends = ["a", "b"].map((query) => hub.subscribe(query, () => {}));
  hub.subscribe("a", () => {});
  pass(50);
  assert.equal(streams.length, 1);
  assert.deepEqual(queriesOf(0), ["a", "b"]);
  ends[1]!();
  pass(50);
  assert.deepEqual([streams.length, streams[0]!.isOpen, queriesOf(1)], [2, false, ["a"]]);
  ends[0]!();
  pass(50);
  assert.equal(streams.length, 2, "another subscriber of a is left");
});

test("frames reach their subscribers with labels, nulls and errors", () => {
  const { hub, streams, pass } = bench();
  const got: Update[] = [];
  hub.subscribe("a", (update) => got.push(update));
  pass(50);
  streams[0]!.send("series", { q: 0, labels: [{ h: "1" }, { h: "2" }] });
  streams[0]!.send("frame", { at_ms: 5, v: [[1.5, null]] });
  streams[0]!.send("failed", { q: 0, error: "too much" });
  streams[0]!.send("frame", { at_ms: 6, v: [[]] });
  streams[0]!.send("frame", { at_ms: 7, v: [[2, 3]] });
  assert.deepEqual(
    got.map(({ samples }) => samples.map(({ value }) => value)),
    [[1.5, null], [], [2, 3]],
  );
  assert.deepEqual(
    got.map(({ error }) => error),
    [null, "too much", null],
  );
});

test("a lost stream is tried again later and later, and says so", () => {
  const { hub, streams, pass, state } = bench();
  const links: Link["state"][] = [];
  hub.watch((link) => links.push(link.state));
  hub.subscribe("a", () => {});
  pass(50);
  streams[0]!.fail();
  assert.equal(state(), "lost");
  pass(249);
  assert.equal(streams.length, 1);
  pass(1);
  assert.equal(streams.length, 2);
  streams[1]!.fail();
  pass(499);
  assert.equal(streams.length, 2);
  pass(1);
  streams[2]!.send("frame", { at_ms: 1, v: [[]] });
  assert.equal(state(), "live");
  // The next loss begins anew with the shortest wait.
  streams[2]!.fail();
  pass(250);
  assert.equal(streams.length, 4);
  assert.ok(links.includes("lost") && links.includes("connecting"));
  assert.deepEqual([0, 1, 4, 5, 50].map(backOff), [250, 500, 4000, 5000, 5000]);
});

test("a stream that says nothing is lost; an event of a stream that was left changes nothing", () => {
  const { hub, streams, pass, state } = bench();
  hub.subscribe("a", () => {});
  pass(50);
  streams[0]!.send("frame", { at_ms: 1, v: [[]] });
  pass(SILENCE_MS - 1);
  assert.equal(state(), "live");
  pass(1);
  assert.equal(state(), "lost");
  pass(250);
  streams[1]!.send("frame", { at_ms: 2, v: [[]] });
  streams[0]!.fail();
  assert.equal(state(), "live");
});

const stamp = (index: string, value: number): Sample => ({ labels: { node: `epn:${index}`, host: "h" }, value });

test("a node that stops reporting is silent once its interval is over, and comes back", () => {
  const roll = new Roll();
  const quick = new Map([
    ["epn:1", 0.2],
    ["epn:2", 0.2],
  ]);
  roll.update(10_000, [stamp("1", 9.9), stamp("2", 9.9)], quick);
  assert.ok(patience(0.2) < 1000, "a node that reports five times a second is missed within a second");
  const later = 9_900 + patience(0.2) + 1;
  const states = roll
    .update(later, [stamp("1", 10.4), stamp("2", 9.9)], quick)
    .map(({ id, state }) => `${id} ${state}`);
  assert.deepEqual(states, ["epn:1 up", "epn:2 silent"]);
  assert.deepEqual(roll.happenings, [{ at_ms: 9_900, node: "epn:2", what: "silent" }]);
  roll.update(20_000, [stamp("1", 19.9), stamp("2", 19.9)], quick);
  assert.equal(roll.happenings[0]?.what, "back");
  assert.equal(Math.round(roll.happenings[0]?.after_s ?? 0), 10);
});

test("the word of the ICN is taken at once, and a node that leaves is not lost", () => {
  const roll = new Roll();
  const none = new Map<string, number>();
  roll.update(1000, [stamp("1", 0.9)], none, new Map([["epn:1", "up"]]));
  assert.equal(roll.update(1100, [stamp("1", 0.9)], none, new Map([["epn:1", "leaving"]]))[0]?.state, "leaving");
  assert.equal(roll.happenings.length, 0);
  assert.equal(roll.update(1200, [stamp("1", 0.9)], none, new Map([["epn:1", "gone"]]))[0]?.state, "down");
  // That it is silent as well is no second loss.
  assert.equal(roll.update(9000, [stamp("1", 0.9)], none, new Map([["epn:1", "gone"]]))[0]?.state, "silent");
  assert.deepEqual(roll.happenings, [{ at_ms: 1200, node: "epn:1", what: "down", word: "gone" }]);
  roll.update(9500, [stamp("1", 9.4)], none, new Map([["epn:1", "up"]]));
  const latest: unknown = roll.happenings[0];
  assert.deepEqual(latest, { at_ms: 9500, node: "epn:1", what: "back", after_s: 8.3 });
});

test("a clock that is off makes no node silent, and a pause of the collector neither", () => {
  const roll = new Roll();
  const none = new Map<string, number>();
  roll.update(100_000, [stamp("1", 70)], none);
  assert.equal(roll.update(101_000, [stamp("1", 71)], none)[0]?.state, "up");
  roll.resume(200_000);
  assert.equal(roll.update(200_100, [stamp("1", 71)], none)[0]?.state, "up");
});

test("nodes are in the order of the data path", () => {
  const names = ["epn:10", "x:1", "epn:2", "icn:0", "flp:3"].map((name) => ({
    role: name.split(":")[0]!,
    index: name.split(":")[1]!,
  }));
  assert.deepEqual(
    names.sort(compareNodes).map(({ role, index }) => `${role}:${index}`),
    ["icn:0", "flp:3", "epn:2", "epn:10", "x:1"],
  );
});

test("silences of the past are found in the times of samples", () => {
  const labels = { node: "epn:2" };
  const points: [number, number][] = [
    [0, 0],
    [5, 5],
    [10, 9],
    [15, 9],
    [20, 9],
    [25, 24],
    [30, 29],
  ];
  assert.deepEqual(happenings([{ labels, points }], 31, 8), [
    { at_ms: 24_000, node: "epn:2", what: "back", after_s: 15 },
    { at_ms: 9_000, node: "epn:2", what: "silent" },
  ]);
  assert.equal(happenings([{ labels, points }], 60, 8)[0]?.at_ms, 29_000, "silent at the end");
  assert.deepEqual(
    happenings(
      [
        {
          labels,
          points: [
            [0, 0],
            [5, 5],
            [10, 10],
          ],
        },
      ],
      12,
      8,
    ),
    [],
  );
});

test("the books add up, by the ICN that has announced most", () => {
  const of = (name: string, value: number, more = {}) => ({
    labels: { __name__: `balance_tf_${name}`, node: "icn:0", run: "r", ...more },
    value,
  });
  const leader = [
    of("announced_total", 100),
    of("complete_total", 90),
    of("incomplete_total", 2),
    of("dropped_total", 3, { reason: "a" }),
    of("dropped_total", 0, { reason: "b" }),
    of("dropped_total", 1, { reason: "c" }),
    of("in_flight", 4),
  ];
  const standby = [of("announced_total", 7, { node: "icn:1" }), of("complete_total", 7, { node: "icn:1" })];
  const books = booksOf([...standby, ...leader]);
  assert.deepEqual(
    [books?.announced, books?.dropped, books?.missing, books?.reasons],
    [
      100,
      4,
      0,
      [
        ["a", 3],
        ["c", 1],
      ],
    ],
  );
  assert.equal(booksOf([of("announced_total", 10), of("complete_total", 8)])?.missing, 2);
  assert.equal(booksOf([]), null);
});

test("a history goes on live, keeps its span, and draws no line across a gap", () => {
  const history = new History(60, 1);
  history.load([
    {
      labels: { a: "1" },
      points: [
        [0, 1],
        [1, 2],
        [10, 3],
      ],
    },
  ]);
  assert.deepEqual(history.times, [0, 1, 2, 10]);
  assert.deepEqual(history.values[0], [1, 2, null, 3]);
  assert.equal(history.push(10.2, [{ labels: { a: "1" }, value: 4 }]), false);
  assert.equal(history.push(11.2, [{ labels: { a: "2" }, value: 5 }]), true);
  assert.deepEqual(
    history.values.map((column) => column.at(-1)),
    [null, 5],
  );
  for (let at = 12; at < 400; at += 1) history.push(at, [{ labels: { a: "1" }, value: at }]);
  assert.ok(
    history.times.length < 100 && history.times[0]! >= 400 - 60 - 34,
    `${history.times.length} ${history.times[0]}`,
  );
  assert.ok(history.values.every((column) => column.length === history.times.length));
  const many = Array.from({ length: SERIES_MAX + 5 }, (_, place) => ({
    labels: { a: String(place) },
    points: [[0, 1]] as [number, number][],
  }));
  history.load(many);
  assert.deepEqual([history.values.length, history.left_out], [SERIES_MAX, 5]);
  assert.deepEqual([300, 900, 86_400].map(stepOf), [1, 3, 288]);
});

const source = (name: string, samples: number, more: Partial<Source> = {}): Source => ({
  source: name,
  samples,
  taken: samples,
  bad: {},
  refused: {},
  lost: 0,
  sent: 0,
  dropped: 0,
  series: 1,
  datagrams: 1,
  bytes: samples * 50,
  cut_offs: 0,
  seen_ms: 900,
  clock_offset_ms: null,
  ...more,
});

test("sources have rates over three seconds, also after a restart", () => {
  const rates = new Rates();
  assert.equal(rates.update(1000, [source("a", 0)])[0]?.rate, null);
  for (let at = 2000; at <= 8000; at += 1000) rates.update(at, [source("a", at - 1000)]);
  const [row] = rates.update(9000, [source("a", 8000, { bad: { "no-value": 2 }, lost: 1 })]);
  assert.deepEqual([row?.rate, row?.trouble, row?.lag_ms], [1000, 3, 8100]);
  assert.ok((rates.update(10_000, [source("a", 5)])[0]?.rate ?? -1) >= 0);
});

test("a source that went to another collector has rates at each", () => {
  const rates = new Rates();
  const at = (here: number, there: number) => [source("a", here), source("a", there, { collector: "http://b:9470" })];
  rates.update(1000, at(0, 0));
  assert.deepEqual(
    rates.update(2000, at(5, 700)).map((row) => row.rate),
    [5, 700],
  );
});

test("sources are sorted by a column and turned round", () => {
  const rows = new Rates().update(1000, [
    source("n10", 1, { lost: 1 }),
    source("n2", 2),
    source("n1", 3, { lost: 5 }),
  ]);
  const by = (...args: Parameters<typeof sorted>) => sorted(...args).map((row) => row.source);
  assert.deepEqual(by(rows, "source", false), ["n1", "n2", "n10"]);
  assert.deepEqual(by(rows, "lost", false), ["n1", "n10", "n2"]);
  assert.deepEqual(by(rows, "lost", true), ["n2", "n10", "n1"]);
});

test("matchers of a silence are read with commas in their values", () => {
  const typed = matchersOf({ alertname: "Hot", text: 'a,"b' });
  assert.deepEqual(typed, ['alertname="Hot"', 'text="a,\\"b"']);
  assert.deepEqual(readMatchers(typed.join(", ")), typed);
  assert.deepEqual(readMatchers(" "), []);
});

test("every key that is listed does something, and within a field only Esc", () => {
  const asked = KEYS.flatMap(({ key }) => key.split(/\s+/))
    .map((key) => (key === "Esc" ? "Escape" : key))
    .filter((key) => key !== "Tab");
  for (const key of asked) assert.notEqual(wish(key, false), null, key);
  assert.equal(wish("t", true), null);
  assert.deepEqual(wish("Escape", true), { do: "close" });
});

test("names are completed at the caret", () => {
  const word = wordAt("sum(rate(bui", 12);
  assert.deepEqual(word, { text: "bui", from: 9, to: 12 });
  assert.deepEqual(complete("tf_by", ["build_tf_bytes_total", "up"]), ["build_tf_bytes_total"]);
  assert.deepEqual(complete("x", ["xy"]), []);
});

/** Names of metrics in an expression: words with an underscore that are neither labels nor functions. */
function metricsIn(expression: string): string[] {
  const bare = expression.replace(/"[^"]*"/g, (text) => (/balance_tf_/.test(text) ? text.replace(/["|]/g, " ") : ""));
  const words = bare.match(/\b[a-z]+_[a-z0-9_]+\b/g) ?? [];
  return words.filter((word) => !/_over_time$/.test(word) && word !== "__name__");
}

test("every metric that the pages and the dashboards ask for exists", () => {
  const read = (path: string) => readFileSync(new URL(`../../../${path}`, import.meta.url), "utf8");
  const documented = read("docs/reference/metrics.md") + read("docs/how-to/metrics-from-your-program.md");
  // Parts of that page are generated from the program, and may be older than it.
  const sources = ["crates/services/monitor/src/metrics.rs", "crates/services/node/src/icn/node_states.rs"];
  const known = new Set([documented, ...sources.map(read)].join().match(/\b[a-z]+_[a-z0-9_]+\b/g));
  const scope = queries.scope("north", 1);
  const own = [
    queries.INTERVAL,
    queries.heard(scope),
    queries.intervals(scope),
    queries.books(scope),
    queries.states(scope),
    ...Object.values(queries.ofNodes(scope)),
    ...Object.values(queries.ofFarm(scope)),
    ...Object.values(queries.ofFiles(scope)),
    ...["icn:0", "flp:0", "epn:0", "other:0"]
      .flatMap((name) => queries.chartsOf(name, scope))
      .flatMap(({ lines }) => lines.map(([, query]) => query)),
  ];
  const boards = ["farm", "node", "collector"].flatMap((name) => {
    const board = JSON.parse(read(`deploy/grafana/${name}.json`)) as {
      panels: { targets?: { expr: string }[] }[];
      templating: { list: { query: { query: string } | string }[] };
    };
    const variables = board.templating.list
      .map(({ query }) => (typeof query === "string" ? query : query.query))
      .filter((text) => text.startsWith("label_values"));
    return [
      ...board.panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr)),
      ...variables.map((text) => text.replace("label_values", "")),
    ];
  });
  assert.ok(own.length > 40 && boards.length > 20, `${own.length} ${boards.length}`);
  const missing = [...own, ...boards].flatMap(metricsIn).filter((name) => {
    // A histogram is sent with what is derived of it.
    const base = name.replace(/_(count|sum|bucket|avg|max|p50|p99)$/, "");
    return !known.has(name) && !known.has(base);
  });
  assert.deepEqual([...new Set(missing)], []);
});
