// Overview of a farm: figures, books, map of nodes, charts, what went silent when.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { range } from "../api";
import { booksOf, byNode, happenings, wordsOf, Roll, type Books, type Happening, type Heard } from "../farm";
import { clock, count, duration, moment, short } from "../format";
import { go, useComebacks, useLive, useNumber } from "../hooks";
import { Figure, LivePanel, Nothing, Panel, StateSign } from "../parts/panel";
import { NodeMap, type NodeValues } from "../parts/nodes";
import { books, heard, intervals, ofFarm, ofNodes, states, type Scope } from "../queries";

const SPAN_S = 600;
const HISTORY_S = 3600;
const HISTORY_STEP_S = 5;

/** Follows the nodes of a farm and what happens to them. */
export function useRoll(scope: Scope): { nodes: Heard[] | null; events: Happening[] } {
  const roll = useMemo(() => new Roll(), [scope.farm]);
  const stamps = useLive(heard(scope));
  const spans = useLive(intervals(scope));
  const words = useLive(states(scope));
  const comebacks = useComebacks();
  const seen = useRef(0);
  const [, redraw] = useState(0);
  useEffect(() => {
    const end = Date.now() / 1000;
    range(heard(scope), end - HISTORY_S, end, HISTORY_STEP_S).then(
      (series) => {
        roll.remember(happenings(series, end, HISTORY_STEP_S + scope.window_s));
        redraw((number) => number + 1);
      },
      () => {}, // Live values go on without what was before.
    );
  }, [roll, scope.window_s]);
  if (seen.current !== comebacks && stamps) {
    seen.current = comebacks;
    roll.resume(stamps.at_ms);
  }
  const nodes = stamps
    ? roll.update(stamps.at_ms, stamps.samples, byNode(spans?.samples ?? []), wordsOf(words?.samples ?? []))
    : null;
  return { nodes, events: roll.happenings };
}

/** The page `/`. */
export function Farm({ scope }: { scope: Scope }) {
  const { nodes, events } = useRoll(scope);
  if (nodes === null) return <Nothing title="Waiting for values" />;
  if (nodes.length === 0) {
    const backend = `influxdb-udp://${location.hostname}:8089`;
    return (
      <Nothing title="No node reports here">
        <p>Nodes of Sheaf send to this collector with a line in their farm file, or on the command line:</p>
        <pre>{`[metrics]\nbackends = ["${backend}"]\n\nsheaf demo --metrics-to ${backend}`}</pre>
        <p>
          Values of other programs are in the <a href="/explore">explorer</a>.
        </p>
      </Nothing>
    );
  }
  return (
    <div class="farm">
      <Figures scope={scope} nodes={nodes} />
      <BooksPanel scope={scope} />
      <Nodes scope={scope} nodes={nodes} />
      <Charts scope={scope} />
      <Events events={events} nodes={nodes} />
    </div>
  );
}

function Figures({ scope, nodes }: { scope: Scope; nodes: Heard[] }) {
  const of = ofFarm(scope);
  const announced = useNumber(of.announced);
  const complete = useNumber(of.complete);
  const goodput = useNumber(of.goodput);
  const median = useNumber(of.latencyMedian);
  const p99 = useNumber(of.latency99);
  const incomplete = useNumber(of.incomplete);
  const dropped = useNumber(of.dropped);
  const held = useNumber(of.held);
  const up = nodes.filter(({ state }) => state === "up" || state === "leaving").length;
  const isShort = up < nodes.length;
  const lost = incomplete === null && dropped === null ? null : (incomplete ?? 0) + (dropped ?? 0);
  return (
    <dl class="figures">
      <Figure
        name="Nodes"
        value={`${up} / ${nodes.length}`.replaceAll(" ", "\u2009")}
        tone={isShort ? "bad" : "good"}
        note={isShort ? `${nodes.length - up} silent or gone` : "all report"}
      />
      <Figure name="Complete TFs" value={short(complete, "/s")} note={`${short(announced)} announced a second`} />
      <Figure name="Goodput" value={short(goodput, "B/s")} note="payload of built TFs" />
      <Figure name="Latency, median" value={duration(median)} note={`99 %: ${duration(p99)}`} />
      <Figure
        name="Not complete"
        value={short(lost, "/s")}
        tone={lost ? "bad" : ""}
        note={`${short(dropped)} dropped, ${short(incomplete)} incomplete`}
      />
      <Figure name="Held at FLPs" value={short(held, "B")} note="until a verdict" />
    </dl>
  );
}

function BooksPanel({ scope }: { scope: Scope }) {
  const update = useLive(books(scope));
  const latest = useRef<{ books: Books; at_ms: number } | null>(null);
  const unequalSince = useRef<number | null>(null);
  const now = update ? booksOf(update.samples) : null;
  if (now && update) latest.current = { books: now, at_ms: update.at_ms };
  const shown = latest.current;
  if (!shown)
    return (
      <Panel title="Books" name="books">
        <Nothing title="No ICN reports">
          <p>Only the ICN knows the fate of every timeframe.</p>
        </Nothing>
      </Panel>
    );
  const { announced, complete, incomplete, dropped, inFlight, reasons, missing } = shown.books;
  // Parts of one report may be seen before the others; what stays for two seconds is a finding.
  if (missing === 0) unequalSince.current = null;
  else unequalSince.current ??= shown.at_ms;
  const isWrong = unequalSince.current !== null && shown.at_ms - unequalSince.current > 2000;
  const isOld = update !== null && now === null;
  const parts = [
    { name: "complete", value: complete, sign: "=" },
    { name: "incomplete", value: incomplete, sign: "+" },
    { name: "dropped", value: dropped, sign: "+" },
    { name: "in flight", value: inFlight, sign: "+" },
  ];
  const verdict = isOld ? (
    <span class="warn">▲ no ICN reports since {clock(shown.at_ms)}</span>
  ) : isWrong ? (
    <span class="bad">✕ {count(missing)} without a fate</span>
  ) : (
    <span class="good">✓ the sum holds</span>
  );
  return (
    <Panel title="Books" name="books" aside={verdict}>
      <div class="equation">
        <div class="term announced">
          <b>{count(announced)}</b>
          <span>announced</span>
        </div>
        {parts.map(({ name, value, sign }) => (
          <div class={`term ${name.replace(" ", "-")} ${value ? "some" : ""}`} key={name}>
            <i aria-hidden="true">{sign}</i>
            <b>{count(value)}</b>
            <span>{name}</span>
          </div>
        ))}
      </div>
      <div class="bar" role="img" aria-label={parts.map(({ name, value }) => `${name} ${count(value)}`).join(", ")}>
        {parts.map(
          ({ name, value }) =>
            value > 0 && (
              <span key={name} class={name.replace(" ", "-")} style={{ flexGrow: value / Math.max(1, announced) }} />
            ),
        )}
      </div>
      <p class="reasons">
        {reasons.length === 0
          ? "Nothing dropped in this run."
          : reasons.map(([reason, number]) => (
              <span key={reason}>
                <b>{count(number)}</b> {reason}
              </span>
            ))}
      </p>
    </Panel>
  );
}

function Nodes({ scope, nodes }: { scope: Scope; nodes: Heard[] }) {
  const of = ofNodes(scope);
  const built = byNode(useLive(of.built)?.samples ?? []);
  const made = byNode(useLive(of.made)?.samples ?? []);
  const bytesBuilt = byNode(useLive(of.bytesBuilt)?.samples ?? []);
  const bytesMade = byNode(useLive(of.bytesMade)?.samples ?? []);
  const announced = useNumber(ofFarm(scope).announced);
  const cpu = byNode(useLive(of.cpu)?.samples ?? []);
  const memory = byNode(useLive(of.memory)?.samples ?? []);
  const values = (node: Heard): NodeValues => ({
    rate: node.role === "icn" ? announced : (built.get(node.id) ?? made.get(node.id) ?? null),
    bytes: bytesBuilt.get(node.id) ?? bytesMade.get(node.id) ?? null,
    cpu: cpu.get(node.id) ?? null,
    memory: memory.get(node.id) ?? null,
  });
  return (
    <Panel
      title="Nodes"
      name="nodes"
      aside={
        <span>
          <StateSign state="up" hasWord /> &ensp; <StateSign state="silent" hasWord />
        </span>
      }
    >
      <NodeMap nodes={nodes} values={values} open={(id) => go(`/node/${id}`)} />
    </Panel>
  );
}

function Charts({ scope }: { scope: Scope }) {
  const of = ofFarm(scope);
  return (
    <div class="charts">
      <LivePanel
        title="TFs a second"
        unit="plain"
        span_s={SPAN_S}
        lines={[
          ["complete", of.complete],
          ["incomplete", of.incomplete],
          ["dropped", of.dropped],
        ]}
        colors={["var(--good)", "var(--warn)", "var(--bad)"]}
      />
      <LivePanel
        title="Goodput by EPN, a second"
        unit="bytes"
        span_s={SPAN_S}
        lines={[["", of.goodputByEpn]]}
        name={(labels) => labels["node"] ?? ""}
      />
      <LivePanel
        title="Latency from announce to commit"
        unit="seconds"
        span_s={SPAN_S}
        lines={[
          ["median", of.latencyMedian],
          ["99 %", of.latency99],
          ["most", of.latencyMax],
        ]}
      />
      <LivePanel title="TFs in flight" unit="plain" span_s={SPAN_S} lines={[["in flight", of.inFlight]]} />
    </div>
  );
}

const WORDS = {
  silent: "stopped reporting",
  down: "is no member for the ICN:",
  back: "reports again",
  joined: "reports for the first time",
};

function Events({ events, nodes }: { events: Happening[]; nodes: Heard[] }) {
  const silent = nodes.filter(({ state }) => state === "silent" || state === "down");
  return (
    <Panel
      title="What happened"
      name="events"
      aside={
        silent.length ? <span class="bad">✕ away now: {silent.map(({ id }) => id).join(", ")}</span> : "the last hour"
      }
    >
      {events.length === 0 ? (
        <p class="quiet">No node has gone silent or come back in the last hour.</p>
      ) : (
        <ol class="log">
          {events.slice(0, 60).map(({ at_ms, node, what, word, after_s }) => (
            <li key={`${at_ms}${node}${what}`} class={what}>
              <time dateTime={new Date(at_ms).toISOString()} title={`${moment(at_ms)} UTC`}>
                {clock(at_ms, true)}
              </time>
              <StateSign state={what === "silent" || what === "down" ? what : "up"} />
              <a href={`/node/${node}`}>{node}</a>
              <span>
                {WORDS[what]}
                {word && ` ${word}`}
                {after_s !== undefined && ` after ${duration(after_s)}`}
              </span>
            </li>
          ))}
        </ol>
      )}
    </Panel>
  );
}
