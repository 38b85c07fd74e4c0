// Sources: who sends how much, what is lost on the way, bad or refused and why, whose clock is off.

import { useMemo, useState } from "preact/hooks";
import { json } from "../api";
import { clock, count, duration, short } from "../format";
import { usePolled } from "../hooks";
import { Figure, Nothing, Panel } from "../parts/panel";
import { keyOf, Rates, sorted, sum, type Column, type Row, type Sources as Answer } from "../sources";

/** Rows drawn at most; the filter reaches the others. */
const ROWS_MAX = 500;
/** A clock that is further off is marked. */
const OFFSET_MS = 500;
/** A source that says nothing for longer is marked. */
const LAG_MS = 10_000;

interface Stats {
  store: {
    series: number;
    samples: number;
    refused: number;
    log_bytes: number;
    table_bytes: number;
    head_samples: number;
    is_full: boolean;
    is_on_disk: boolean;
  };
  queue_samples: number;
  queue_samples_max: number;
}

const COLUMNS: [Column, string][] = [
  ["source", "source"],
  ["rate", "samples/s"],
  ["byteRate", "bytes/s"],
  ["series", "series"],
  ["lost", "lost"],
  ["dropped", "dropped there"],
  ["bad", "bad, by code"],
  ["refused", "refused, by reason"],
  ["lag_ms", "lag"],
  ["clock_offset_ms", "clock"],
];

/** The page `/sources`. */
export function Sources() {
  const rates = useMemo(() => new Rates(), []);
  const answer = usePolled(async () => {
    const { sources, sources_total, missing } = await json<Answer>("/api/sources");
    return { rows: rates.update(Date.now(), sources), total: sources_total, missing: missing ?? [] };
  }, 1000);
  const stats = usePolled(() => json<Stats>("/api/stats"), 1000).value;
  const [[column, isTurned], setOrder] = useState<[Column | null, boolean]>([null, false]);
  const [filter, setFilter] = useState("");
  if (!answer.value)
    return <Nothing title={answer.failure ? `No sources: ${answer.failure.message}` : "Waiting for sources"} />;
  const { rows, total, missing } = answer.value;
  const add = (of: (row: Row) => number | null) => rows.reduce((all, row) => all + (of(row) ?? 0), 0);
  const found = rows.filter(({ source }) => source.toLowerCase().includes(filter.toLowerCase()));
  const shown = (
    column
      ? sorted(found, column, isTurned)
      : [...found].sort(
          (left, right) =>
            right.trouble - left.trouble || left.source.localeCompare(right.source, undefined, { numeric: true }),
        )
  ).slice(0, ROWS_MAX);
  const stored = stats ? stats.store.log_bytes + stats.store.table_bytes : null;
  const lost = add((row) => row.lost);
  const sent = add((row) => row.sent);
  const bad = add((row) => sum(row.bad) + sum(row.refused));
  return (
    <div class="sources">
      <dl class="figures">
        <Figure
          name="Sources"
          value={count(total)}
          note={`${count(rows.filter((row) => row.lag_ms > LAG_MS).length)} silent for 10 s`}
        />
        <Figure
          name="Samples"
          value={
            rows.some((row) => row.rate !== null)
              ? short(
                  add((row) => row.rate),
                  "/s",
                )
              : "–"
          }
          note={`${short(add((row) => row.byteRate))}B/s`}
        />
        <Figure
          name="Lost on the way"
          value={count(lost)}
          tone={lost ? "bad" : "good"}
          note={
            sent ? `${((100 * lost) / sent).toFixed(3)} % of ${short(sent)} sent` : "no source reports what it sent"
          }
        />
        <Figure name="Bad or refused" value={count(bad)} tone={bad ? "warn" : ""} note="each with its code" />
        <Figure
          name="Store"
          value={short(stats?.store.series)}
          tone={stats?.store.is_full ? "bad" : ""}
          note={
            stats
              ? stats.store.is_full
                ? "the disk is full"
                : `series, ${stats.store.is_on_disk ? `${short(stored, "B")} on disk` : "in memory only"}`
              : undefined
          }
        />
        <Figure
          name="Queue to the store"
          value={short(stats?.queue_samples)}
          note={stats ? `of ${short(stats.queue_samples_max)}` : undefined}
        />
      </dl>
      <Panel
        title="Sources"
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
        {answer.failure && (
          <p class="wrong" role="alert">
            ✕ {answer.failure.message}
          </p>
        )}
        {missing.map((text) => (
          <p class="wrong" role="alert" key={text}>
            ✕ {text}
          </p>
        ))}
        {rows.length === 0 ? (
          <Nothing title="Nothing has been received">
            <p>
              Send a line to see one:{" "}
              <code>echo 'load,host=pi1 value=0.7' &gt; /dev/udp/{location.hostname}/8089</code>
            </p>
          </Nothing>
        ) : (
          <div class="scroll">
            <table class="wide">
              <thead>
                <tr>
                  {COLUMNS.map(([key, label]) => (
                    <th
                      key={key}
                      class={key === "source" || key === "bad" || key === "refused" ? "" : "number"}
                      aria-sort={column === key ? (isTurned ? "ascending" : "descending") : "none"}
                    >
                      <button
                        type="button"
                        onClick={() => setOrder(column === key ? [key, !isTurned] : [key, false])}
                      >
                        {label}
                        {column === key ? (isTurned ? " ↑" : " ↓") : ""}
                      </button>
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {shown.map((row) => (
                  <One key={keyOf(row)} row={row} />
                ))}
              </tbody>
            </table>
          </div>
        )}
        {(found.length > shown.length || total > rows.length) && (
          <p class="quiet">
            {count(shown.length)} of {count(total)} are shown.
          </p>
        )}
      </Panel>
    </div>
  );
}

function One({ row }: { row: Row }) {
  const offset = row.clock_offset_ms;
  return (
    <tr class={row.trouble ? "troubled" : ""}>
      <td>
        {row.trouble > 0 && <span class="warn">▲ </span>}
        {row.source}
        {row.collector && <span class="dim"> at {row.collector}</span>}
        {row.cut_offs > 0 && <span class="bad"> ✕ cut off {count(row.cut_offs)} times</span>}
      </td>
      <td class="number">{short(row.rate)}</td>
      <td class="number">{short(row.byteRate, "B")}</td>
      <td class="number">{count(row.series)}</td>
      <td class={`number ${row.lost ? "bad" : ""}`}>
        {row.sent ? (
          count(row.lost)
        ) : (
          <span class="dim" title="This source does not report what it sent">
            unknown
          </span>
        )}
      </td>
      <td class="number">{count(row.dropped)}</td>
      <td>
        <Codes counts={row.bad} />
      </td>
      <td>
        <Codes counts={row.refused} />
      </td>
      <td class={`number ${row.lag_ms > LAG_MS ? "warn" : ""}`} title={`latest at ${clock(row.seen_ms)} UTC`}>
        {duration(row.lag_ms / 1000)}
      </td>
      <td class={`number ${offset !== null && Math.abs(offset) > OFFSET_MS ? "warn" : "dim"}`}>
        {offset === null ? "no times" : `${offset > 0 ? "+" : ""}${duration(offset / 1000)}`}
      </td>
    </tr>
  );
}

function Codes({ counts }: { counts: Record<string, number> }) {
  const all = Object.entries(counts).filter(([, number]) => number > 0);
  if (all.length === 0) return <span class="dim">–</span>;
  return (
    <>
      {all.map(([code, number]) => (
        <span class="code" key={code}>
          {code} <b>{count(number)}</b>
        </span>
      ))}
    </>
  );
}
