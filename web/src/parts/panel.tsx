// Boxes of a page: panels, figures, states, messages.

import type { ComponentChildren } from "preact";
import type { Kind } from "../format";
import { useHistory } from "../hooks";
import { Chart, type Line } from "./chart";
import type { State } from "../farm";

/** A box with a title. */
export function Panel({
  title,
  aside,
  children,
  name = "",
}: {
  title: string;
  aside?: ComponentChildren;
  children: ComponentChildren;
  name?: string;
}) {
  return (
    <section class={`panel ${name}`}>
      <header>
        <h2>{title}</h2>
        {aside !== undefined && <div class="aside">{aside}</div>}
      </header>
      {children}
    </section>
  );
}

/** One figure with its name, and a line below it. */
export function Figure({
  name,
  value,
  note,
  tone = "",
}: {
  name: string;
  value: string;
  note?: ComponentChildren;
  tone?: "" | "bad" | "warn" | "good";
}) {
  const [number = "", unit = ""] = value.includes(" ") && !value.includes("min") ? value.split(" ") : [value];
  return (
    <div class={`figure ${tone}`}>
      <dt>{name}</dt>
      <dd>
        {number}
        {unit && <small> {unit}</small>}
      </dd>
      <p>{note ?? "\u00a0"}</p>
    </div>
  );
}

const STATES: Record<State, { sign: string; word: string }> = {
  up: { sign: "●", word: "reports" },
  leaving: { sign: "◐", word: "gets no new TFs" },
  silent: { sign: "✕", word: "silent" },
  down: { sign: "✕", word: "gone for the ICN" },
};

/** State of a node: sign, colour and word, so that none of them is needed alone. */
export function StateSign({ state, hasWord = false }: { state: State; hasWord?: boolean }) {
  const { sign, word } = STATES[state];
  return (
    <span class={`state ${state}`}>
      <i aria-hidden="true">{sign}</i>
      {hasWord ? ` ${word}` : <span class="hidden">{word}</span>}
    </span>
  );
}

/** Text where there is nothing to show, and what to do about it. */
export function Nothing({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty" role="status">
      <h3>{title}</h3>
      {children}
    </div>
  );
}

/** A panel with one chart: one line for each named query, or for each series of one query. */
export function LivePanel({
  title,
  unit,
  lines,
  span_s,
  name,
  aside,
  colors = [],
}: {
  title: string;
  unit: Kind;
  lines: readonly (readonly [name: string, query: string])[];
  span_s: number;
  /** Names a series, where queries have many. */
  name?: (labels: Readonly<Record<string, string>>) => string;
  aside?: ComponentChildren;
  colors?: string[];
}) {
  const { histories, version, shape, error } = useHistory(
    lines.map(([, query]) => query),
    span_s,
  );
  const times = merged(histories.map((one) => one.times));
  const drawn: Line[] = histories.flatMap((one, place) => {
    const fallback = lines[place]?.[0] ?? "";
    const all = one.values.map((values, number) => ({
      name: name && one.labels[number] ? name(one.labels[number]) : fallback,
      values: placed(times, one.times, values),
    }));
    // A line that has no values yet keeps its place and its colour.
    return all.length || name ? all : [{ name: fallback, values: times.map(() => null) }];
  });
  if (name) drawn.sort((left, right) => left.name.localeCompare(right.name, undefined, { numeric: true }));
  drawn.forEach((line, place) => {
    const color = colors[place];
    if (color) line.color = color;
  });
  return (
    <Panel title={title} aside={error ? <span class="bad">{error}</span> : aside}>
      <Chart
        times={times}
        lines={drawn}
        unit={unit}
        version={version}
        shape={`${shape} ${drawn.map((line) => line.name).join()}`}
        span_s={span_s}
        label={`${title}, the last ${Math.round(span_s / 60)} minutes`}
      />
    </Panel>
  );
}

/** Times of several histories as one. */
function merged(all: number[][]): number[] {
  const [first = []] = all;
  if (all.every((times) => times.length === first.length && times.every((at, place) => at === first[place])))
    return first;
  return [...new Set(all.flat())].sort((left, right) => left - right);
}

function placed(times: number[], own: number[], values: (number | null)[]): (number | null)[] {
  if (times === own || times.length === own.length) return values;
  const at = new Map(own.map((time, place) => [time, place]));
  return times.map((time) => {
    const place = at.get(time);
    return place === undefined ? null : (values[place] ?? null);
  });
}
