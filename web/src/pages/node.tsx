// One node: state, charts of its role, and every value that it reports.

import { useMemo, useState } from "preact/hooks";
import { count, kindOf, moment, ongoing, of as writtenOf, short } from "../format";
import { useLive, useNumber } from "../hooks";
import { Figure, LivePanel, Nothing, Panel, StateSign } from "../parts/panel";
import { chartsOf, fresh, rate, type Scope } from "../queries";
import { useRoll } from "./farm";

const SPAN_S = 600;

/** The page `/node/ROLE:INDEX`. */
export function Node({ name, scope }: { name: string; scope: Scope }) {
  const { nodes, events } = useRoll(scope);
  const matcher = `node=${JSON.stringify(name)}`;
  const start = useNumber(`max(last_over_time(process_start_time_seconds{${matcher}}[5m]))`);
  const cpu = useNumber(`sum(${rate("process_cpu_seconds_total", scope, matcher)})`);
  const memory = useNumber(`max(${fresh("process_resident_memory_bytes", scope, matcher)})`);
  const program = useLive(`last_over_time(sheaf_build_info{${matcher}}[5m])`)?.samples[0]?.labels;
  const node = nodes?.find(({ id }) => id === name);
  if (nodes === null) return <Nothing title="Waiting for values" />;
  if (!node) {
    return (
      <Nothing title={`${name} has not reported in the last five minutes`}>
        <p>
          Nodes that report:{" "}
          {nodes.length
            ? nodes.map(({ id }) => (
                <a key={id} href={`/node/${id}`}>
                  {" "}
                  {id}
                </a>
              ))
            : "none"}
          .
        </p>
      </Nothing>
    );
  }
  const place = nodes.indexOf(node);
  const neighbour = (step: number) => nodes[(place + step + nodes.length) % nodes.length]?.id;
  const own = events.filter((one) => one.node === name).slice(0, 1)[0];
  return (
    <div class="node">
      <div class="title">
        <h1>{name}</h1>
        <StateSign state={node.state} hasWord />
        <span class="dim">{node.host}</span>
        <nav aria-label="Other nodes">
          <a href={`/node/${neighbour(-1)}`} data-key="previous">
            ‹ {neighbour(-1)}
          </a>
          <a href={`/node/${neighbour(1)}`} data-key="next">
            {neighbour(1)} ›
          </a>
        </nav>
      </div>
      <dl class="figures">
        <Figure
          name="State"
          value={node.state === "up" ? "reports" : "silent"}
          tone={node.state === "up" ? "good" : "bad"}
          note={
            node.state === "up"
              ? own?.what === "back"
                ? `again since ${moment(own.at_ms).slice(11)}`
                : "no silence in the last hour"
              : `since ${moment(node.changed_ms)} UTC`
          }
        />
        <Figure
          name="Running for"
          value={start === null ? "–" : ongoing((node.state === "up" ? Date.now() : node.changed_ms) / 1000 - start)}
          note={start === null ? undefined : `since ${moment(start * 1000)} UTC`}
        />
        <Figure name="Processor" value={short(cpu === null ? null : cpu * 100, "%")} note="of one core" />
        <Figure name="Memory" value={short(memory, "B")} note="resident" />
        <Figure name="Program" value={program?.["version"] ?? "–"} note={program?.["commit"]?.slice(0, 12)} />
      </dl>
      <div class="charts">
        {chartsOf(name, scope).map(({ title, unit, lines }) => (
          <LivePanel key={title} title={title} unit={unit} lines={lines} span_s={SPAN_S} />
        ))}
      </div>
      <Values matcher={matcher} scope={scope} />
    </div>
  );
}

/** Every value of a node, now. */
function Values({ matcher, scope }: { matcher: string; scope: Scope }) {
  const update = useLive(`last_over_time({${matcher}}[${scope.window_s}s])`);
  const [filter, setFilter] = useState("");
  const inExplorer = (name: string) => {
    const series = `${name}{${matcher}}`;
    return /_total$/.test(name) ? `rate(${series}[${scope.window_s}s])` : series;
  };
  const rows = useMemo(() => {
    const all = (update?.samples ?? []).map(({ labels, value }) => {
      const { __name__: name = "", role: _role, node: _node, host: _host, run: _run, farm: _farm, ...rest } = labels;
      const details = Object.entries(rest)
        .map(([key, text]) => `${key}=${text}`)
        .join(" ");
      return { name, details, value };
    });
    const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
    const isWanted = (text: string) => words.every((word) => text.includes(word));
    return all
      .filter(({ name, details }) => isWanted(`${name} ${details}`))
      .sort((left, right) => left.name.localeCompare(right.name) || left.details.localeCompare(right.details));
  }, [update, filter]);
  return (
    <Panel
      title="All values"
      name="values"
      aside={
        <input
          type="search"
          placeholder="filter  ( / )"
          aria-label="Filter by name"
          value={filter}
          onInput={(event) => setFilter(event.currentTarget.value)}
          data-key="filter"
        />
      }
    >
      {rows.length === 0 ? (
        <p class="quiet">{filter ? "No name has all of these words." : "No fresh values."}</p>
      ) : (
        <div class="scroll">
          <table>
            <thead>
              <tr>
                <th>metric</th>
                <th>labels</th>
                <th class="number">value</th>
                <th class="number">exactly</th>
              </tr>
            </thead>
            <tbody>
              {rows.map(({ name, details, value }) => (
                <tr key={name + details}>
                  <td>
                    <a href={`/explore?q=${encodeURIComponent(inExplorer(name))}`}>{name}</a>
                  </td>
                  <td class="dim">{details}</td>
                  <td class="number">
                    {/start_time/.test(name) && value ? moment(value * 1000) : writtenOf(kindOf(name), value)}
                  </td>
                  <td class="number dim">
                    {value !== null && Number.isInteger(value) ? count(value) : (value ?? "–")}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}
