// Explorer: type an expression of PromQL, see its values over time and live, errors with their place.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { distinguishing, Failure, indexOf, kind, names } from "../api";
import { kindOf, of as writtenOf, short } from "../format";
import { go, useHistory, useLive } from "../hooks";
import { Chart, lineColor } from "../parts/chart";
import { Nothing, Panel } from "../parts/panel";
import { complete, wordAt } from "../words";

const SPANS: [label: string, seconds: number][] = [
  ["5 min", 300],
  ["15 min", 900],
  ["1 h", 3600],
  ["6 h", 21_600],
  ["24 h", 86_400],
  ["7 d", 604_800],
];
const EXAMPLES: [string, string][] = [
  ["sum by (role) (rate(process_cpu_seconds_total[5s]))", "cores in use by role"],
  ["sum by (node) (rate(build_tf_bytes_total[5s]))", "goodput of each EPN"],
  ["balance_tf_latency_seconds_p99", "slowest 1 % of TFs by stage"],
  ["topk(5, sum by (node) (rate(transport_bytes_in_total[10s])))", "who receives most"],
  ["sum by (reason) (increase(balance_tf_dropped_total[5m])) > 0", "dropped in five minutes, by reason"],
];

/** The page `/explore?q=EXPR&span=S`. */
export function Explore({ search }: { search: URLSearchParams }) {
  const query = search.get("q") ?? "";
  const span_s = Number(search.get("span")) || 900;
  const [text, setText] = useState(query);
  const [checked, setChecked] = useState<{ query: string; isLive: boolean } | null>(null);
  const [failure, setFailure] = useState<{ query: string; error: Failure } | null>(null);
  const [isPaused, setPaused] = useState(false);
  useEffect(() => setText(query), [query]);
  useEffect(() => {
    if (!query.trim()) return setChecked(null);
    const abort = new AbortController();
    kind(query, abort.signal).then(
      (type) => {
        if (type === "vector" || type === "scalar") {
          setFailure(null);
          setChecked({ query, isLive: true });
        } else {
          setFailure({
            query,
            error: new Failure(
              `found a ${type === "matrix" ? "range vector" : type}, expected an instant vector or a scalar: ` +
                "put a function such as rate() around it",
              422,
            ),
          });
          setChecked(null);
        }
      },
      (error: unknown) => {
        if (abort.signal.aborted) return;
        setFailure({ query, error: error instanceof Failure ? error : new Failure(String(error), 0) });
        setChecked(null);
      },
    );
    return () => abort.abort();
  }, [query]);
  const ask = (next: string, span = span_s) => go(`/explore?${new URLSearchParams({ q: next, span: String(span) })}`);
  return (
    <div class="explore">
      <Panel title="Expression" aside={<Spans span_s={span_s} choose={(span) => ask(text, span)} />}>
        <Editor text={text} setText={setText} ask={() => ask(text)} />
        {failure && failure.query === query && <Wrong query={query} error={failure.error} />}
      </Panel>
      {checked ? (
        <Answer query={checked.query} span_s={span_s} isPaused={isPaused} pause={() => setPaused(!isPaused)} />
      ) : (
        <Panel title="Examples">
          <ul class="examples">
            {EXAMPLES.map(([expression, what]) => (
              <li key={expression}>
                <button type="button" onClick={() => ask(expression)}>
                  <code>{expression}</code>
                  <span>{what}</span>
                </button>
              </li>
            ))}
          </ul>
        </Panel>
      )}
    </div>
  );
}

function Spans({ span_s, choose }: { span_s: number; choose: (span_s: number) => void }) {
  return (
    <div class="choices" role="group" aria-label="Time shown">
      {SPANS.map(([label, seconds]) => (
        <button type="button" key={seconds} aria-pressed={seconds === span_s} onClick={() => choose(seconds)}>
          {label}
        </button>
      ))}
    </div>
  );
}

function Editor({ text, setText, ask }: { text: string; setText: (text: string) => void; ask: () => void }) {
  const [known, setKnown] = useState<string[]>([]);
  const [word, setWord] = useState("");
  const area = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    names().then(setKnown, () => {});
    area.current?.focus();
  }, []);
  const offers = useMemo(() => complete(word, known), [word, known]);
  const look = () => {
    const element = area.current;
    if (element) setWord(wordAt(element.value, element.selectionStart).text);
  };
  const take = (offer: string) => {
    const element = area.current;
    if (!element) return;
    const { from, to } = wordAt(element.value, element.selectionStart);
    setText(element.value.slice(0, from) + offer + element.value.slice(to));
    setWord("");
    requestAnimationFrame(() => {
      element.focus();
      element.setSelectionRange(from + offer.length, from + offer.length);
    });
  };
  const key = (event: KeyboardEvent) => {
    const first = offers[0];
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      setWord("");
      ask();
    } else if (event.key === "Tab" && !event.shiftKey && first !== undefined) {
      event.preventDefault();
      take(first);
    }
  };
  return (
    <div class="editor">
      <textarea
        ref={area}
        rows={Math.max(2, text.split("\n").length)}
        spellcheck={false}
        autocomplete="off"
        autocapitalize="off"
        aria-label="Expression of PromQL"
        placeholder="sum by (node) (rate(build_tf_bytes_total[5s]))"
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          look();
        }}
        onKeyDown={key}
        onClick={look}
        data-key="filter"
      />
      <button type="button" class="primary" onClick={ask}>
        Show <kbd>Enter</kbd>
      </button>
      <div class="offers" aria-live="polite">
        {offers.length > 0 ? (
          offers.map((offer, place) => (
            <button type="button" key={offer} onClick={() => take(offer)}>
              {offer}
              {place === 0 && <kbd>Tab</kbd>}
            </button>
          ))
        ) : (
          <span class="dim">{known.length} metrics known; names are completed as you type</span>
        )}
      </div>
    </div>
  );
}

function Wrong({ query, error }: { query: string; error: Failure }) {
  if (!error.place)
    return (
      <p class="wrong" role="alert">
        ✕ {error.message}
      </p>
    );
  const at = indexOf(query, error.place);
  const start = query.lastIndexOf("\n", at - 1) + 1;
  const end = query.indexOf("\n", at);
  const line = query.slice(start, end < 0 ? undefined : end);
  return (
    <div class="wrong" role="alert">
      <pre>
        {line}
        {"\n"}
        <b>{" ".repeat(at - start)}▲</b>
      </pre>
      <p>
        ✕ line {error.place.line}, column {error.place.column}: {error.message}
      </p>
    </div>
  );
}

function Answer({
  query,
  span_s,
  isPaused,
  pause,
}: {
  query: string;
  span_s: number;
  isPaused: boolean;
  pause: () => void;
}) {
  const { histories, version, shape, error } = useHistory([query], span_s, !isPaused);
  const update = useLive(isPaused ? null : query);
  const [history] = histories;
  if (!history) return null;
  const labels = distinguishing(history.labels);
  const lines = history.values.map((values, place) => ({ name: `${place} ${labels[place] ?? ""}`, values }));
  const unit =
    /rate|increase|delta|count/.test(query) && !/bytes|seconds/.test(query)
      ? "plain"
      : kindOf(/[a-z_:]+_(bytes|seconds)[a-z_0-9]*/.exec(query)?.[0] ?? "");
  // A rate of processor seconds is cores, not a duration.
  const shown = unit === "seconds" && /(rate|increase|deriv)\s*\(/.test(query) ? "plain" : unit;
  const problem = error ?? update?.error ?? null;
  return (
    <Panel
      title={`${history.labels.length} series${history.left_out ? `, ${history.left_out} more are not drawn` : ""}`}
      aside={
        <button type="button" aria-pressed={isPaused} onClick={pause} data-key="pause">
          {isPaused ? "▶ go on" : "❚❚ hold"} <kbd>p</kbd>
        </button>
      }
    >
      {problem && (
        <p class="wrong" role="alert">
          ✕ {problem}
        </p>
      )}
      {history.labels.length === 0 && version > 0 && !problem ? (
        <Nothing title="No series">
          <p>The expression is right, and nothing has had values for it in this time.</p>
        </Nothing>
      ) : (
        <>
          <div class="tall">
            <Chart
              times={history.times}
              lines={lines}
              unit={shown}
              version={version}
              shape={`${shape} ${query}`}
              span_s={span_s}
              label={query}
              hasLegend={false}
            />
          </div>
          <div class="scroll">
            <table>
              <thead>
                <tr>
                  <th>series</th>
                  <th class="number">now</th>
                  <th class="number">least</th>
                  <th class="number">mean</th>
                  <th class="number">most</th>
                </tr>
              </thead>
              <tbody>
                {history.values.map((values, place) => {
                  const there = values.filter((value): value is number => value !== null);
                  const mean = there.reduce((sum, value) => sum + value, 0) / there.length;
                  return (
                    <tr key={labels[place]}>
                      <td>
                        <i class="swatch" style={{ background: lineColor(place) }} />
                        {labels[place]}
                      </td>
                      {[values.at(-1), Math.min(...there), mean, Math.max(...there)].map((value, column) => (
                        <td class="number" key={column}>
                          {there.length ? writtenOf(shown, value) : short(null)}
                        </td>
                      ))}
                    </tr>
                  );
                })}
              </tbody>
            </table>
          </div>
        </>
      )}
    </Panel>
  );
}
