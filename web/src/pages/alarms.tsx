// Alarms: what fires now, what changed when, and silences.

import { useState } from "preact/hooks";
import {
  matchersOf,
  otherLabels,
  readMatchers,
  signOf,
  type Alarm,
  type Alarms as Now,
  type Entry,
  type Past,
  type Silence,
} from "../alarms";
import { Failure, json, written } from "../api";
import { clock, count, moment, ongoing, short } from "../format";
import { useNow, usePolled } from "../hooks";
import { Figure, Nothing, Panel } from "../parts/panel";

const PERIOD_MS = 1000;
const LASTS: [string, number][] = [
  ["15 min", 900_000],
  ["1 h", 3_600_000],
  ["4 h", 14_400_000],
  ["24 h", 86_400_000],
];

/** The page `/alarms`. */
export function Alarms() {
  const { value, failure, again } = usePolled(() => json<Now>("/api/alarms"), PERIOD_MS);
  const past = usePolled(() => json<Past>("/api/alarms/history?limit=200"), PERIOD_MS);
  const silences = usePolled(() => json<{ silences: Silence[] }>("/api/silences"), PERIOD_MS);
  const [draft, setDraft] = useState("");
  if (failure instanceof Failure && failure.status === 404) {
    return (
      <Nothing title="This collector has no alarms">
        <p>
          It answers 404 at <code>/api/alarms</code>: its program is older than these pages, or was built without
          rules of alarms.
        </p>
        <p>
          Values can be looked at in the <a href="/explore">explorer</a>; rules for a Sheaf farm are in{" "}
          <code>config/rules/sheaf.yml</code>.
        </p>
      </Nothing>
    );
  }
  if (!value) return <Nothing title={failure ? `No alarms: ${failure.message}` : "Waiting for alarms"} />;
  const renew = () => [again, past.again, silences.again].forEach((one) => one());
  const { counts, alarms, rules, notifications } = value;
  return (
    <div class="alarms">
      {failure && (
        <p class="wrong" role="alert">
          ✕ {failure.message}; these are the alarms of {clock(value.at_ms)}.
        </p>
      )}
      <dl class="figures">
        <Figure
          name="Firing"
          value={count(counts["firing"] ?? 0)}
          tone={counts["firing"] ? "bad" : "good"}
          note={counts["firing"] ? "somebody should look" : "all is quiet"}
        />
        <Figure
          name="Without data"
          value={count(counts["nodata"] ?? 0)}
          tone={counts["nodata"] ? "warn" : ""}
          note="the rule gets no values"
        />
        <Figure
          name="Pending"
          value={count(counts["pending"] ?? 0)}
          tone={counts["pending"] ? "warn" : ""}
          note="true, not yet for long enough"
        />
        <Figure
          name="Rules"
          value={count(rules.length)}
          note={`${rules.filter(({ online }) => online).length} on arrival`}
        />
        <Figure
          name="Notifications"
          value={count(notifications.delivered)}
          tone={notifications.failed ? "warn" : ""}
          note={`${count(notifications.failed)} failed, ${count(notifications.waiting)} wait`}
        />
      </dl>
      <Panel title="Alerts">
        {alarms.length === 0 ? (
          <p class="quiet">No rule is violated.</p>
        ) : (
          <ul class="alerts">
            {alarms.map((alarm) => (
              <Alert key={alarm.id} alarm={alarm} silence={() => setDraft(matchersOf(alarm.labels).join(", "))} />
            ))}
          </ul>
        )}
      </Panel>
      <Silences silences={silences.value?.silences ?? []} draft={draft} setDraft={setDraft} renew={renew} />
      <Panel
        title="History"
        aside={past.value?.left_out ? `${count(past.value.left_out)} older are not kept` : "newest first, UTC"}
      >
        {past.value?.entries.length ? (
          <ol class="log">
            {past.value.entries.map((entry, place) => (
              <Line key={`${entry.at_ms} ${place}`} entry={entry} />
            ))}
          </ol>
        ) : (
          <p class="quiet">{past.failure?.message ?? "Nothing has changed yet."}</p>
        )}
      </Panel>
      <Panel title="Rules">
        {rules.length === 0 ? (
          <p class="quiet">No rules are loaded.</p>
        ) : (
          <div class="scroll">
            <table>
              <thead>
                <tr>
                  <th>state</th>
                  <th>rule</th>
                  <th>expression</th>
                  <th>evaluated</th>
                  <th class="number">alerts</th>
                </tr>
              </thead>
              <tbody>
                {rules.map(({ group, alert, expr, online, state, alerts, error }) => (
                  <tr key={`${group} ${alert} ${expr}`}>
                    <td>
                      <span class={`alarm-state ${state}`}>
                        {signOf(state)} {state}
                      </span>
                    </td>
                    <td>
                      {alert} <span class="dim">{group}</span>
                    </td>
                    <td>
                      <a href={`/explore?q=${encodeURIComponent(expr)}`}>
                        <code>{expr}</code>
                      </a>
                      {error && <p class="bad">{error}</p>}
                    </td>
                    <td class="dim">{online ? "on arrival" : "by query"}</td>
                    <td class="number">{alerts}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Panel>
    </div>
  );
}

function Alert({ alarm, silence }: { alarm: Alarm; silence: () => void }) {
  const now = useNow(1000);
  const { alert, state, severity, labels, annotations, value, since_ms, hidden } = alarm;
  const text = annotations["summary"] ?? annotations["description"];
  return (
    <li class={`alert ${state} ${hidden || alarm.silence !== null ? "muted" : ""}`}>
      <span class={`alarm-state ${state}`}>
        {signOf(state)} {state}
      </span>
      <div>
        <h3>
          {alert}
          {severity && <small>{severity}</small>}
          {alarm.silence !== null && <small>silenced by {alarm.silence}</small>}
          {hidden && <small>inhibited</small>}
        </h3>
        {text && <p>{text}</p>}
        {annotations["action"] && <p class="dim">→ {annotations["action"]}</p>}
        <p class="labels">
          {otherLabels(labels).map(([name, one]) => (
            <span key={name}>
              {name}=<b>{one}</b>
            </span>
          ))}
        </p>
      </div>
      <div class="when">
        <b>{short(value)}</b>
        <span title={`${moment(since_ms)} UTC`}>for {ongoing((now - since_ms) / 1000)}</span>
      </div>
      <button type="button" onClick={silence}>
        silence…
      </button>
    </li>
  );
}

function Line({ entry }: { entry: Entry }) {
  const time = <time title={`${moment(entry.at_ms)} UTC`}>{clock(entry.at_ms, true)}</time>;
  if (entry.kind === "order")
    return (
      <li class="order">
        {time}
        <span class="alarm-state order">→ {entry.outcome}</span>
        <b>{entry.order}</b>
        <span>
          by {entry.alert}
          {entry.reason && `: ${entry.reason}`}
        </span>
      </li>
    );
  const { alert, labels, from, to, value } = entry;
  const { alertname: _name, ...rest } = labels;
  return (
    <li>
      {time}
      <span class={`alarm-state ${to}`}>
        {signOf(to)} {to}
      </span>
      <b>{alert}</b>
      <span class="dim">
        was {from}
        {value !== null && `, value ${short(value)}`} {Object.keys(rest).length > 0 && written(rest)}
      </span>
    </li>
  );
}

function Silences({
  silences,
  draft,
  setDraft,
  renew,
}: {
  silences: Silence[];
  draft: string;
  setDraft: (text: string) => void;
  renew: () => void;
}) {
  const [for_ms, setFor] = useState(3_600_000);
  const [author, setAuthor] = useState(localStorage.getItem("sheaf-author") ?? "");
  const [comment, setComment] = useState("");
  const [failure, setFailure] = useState("");
  const send = async (event: Event) => {
    event.preventDefault();
    try {
      const body = JSON.stringify({ matchers: readMatchers(draft), for_ms, author, comment });
      await json("/api/silences", { method: "POST", headers: { "Content-Type": "application/json" }, body });
      localStorage.setItem("sheaf-author", author);
      setDraft("");
      setComment("");
      setFailure("");
      renew();
    } catch (error) {
      setFailure((error as Error).message);
    }
  };
  const end = (id: number) =>
    json(`/api/silences/${id}`, { method: "DELETE" }).then(renew, (error: Error) => setFailure(error.message));
  const shown = silences.filter(({ state }) => state !== "expired");
  return (
    <Panel title="Silences" aside={shown.length ? `${shown.length} in force or to come` : "none in force"}>
      <form class="silence" onSubmit={send}>
        <label>
          Labels
          <input
            required
            value={draft}
            placeholder={'alertname="Hot", epn=~"1|2"'}
            onInput={(event) => setDraft(event.currentTarget.value)}
            data-key="filter"
          />
        </label>
        <label>
          For
          <select value={for_ms} onChange={(event) => setFor(Number(event.currentTarget.value))}>
            {LASTS.map(([label, ms]) => (
              <option key={ms} value={ms}>
                {label}
              </option>
            ))}
          </select>
        </label>
        <label>
          Your name
          <input required value={author} onInput={(event) => setAuthor(event.currentTarget.value)} />
        </label>
        <label>
          Why
          <input required value={comment} onInput={(event) => setComment(event.currentTarget.value)} />
        </label>
        <button type="submit" class="primary">
          Silence
        </button>
      </form>
      {failure && (
        <p class="wrong" role="alert">
          ✕ {failure}
        </p>
      )}
      {shown.length > 0 && (
        <div class="scroll">
          <table>
            <thead>
              <tr>
                <th>labels</th>
                <th>until, UTC</th>
                <th>by</th>
                <th>why</th>
                <th />
              </tr>
            </thead>
            <tbody>
              {shown.map(({ id, matchers, to_ms, author: by, comment: why, state }) => (
                <tr key={id}>
                  <td>
                    <code>{matchers.join(", ")}</code>
                    {state === "pending" && <span class="dim"> to come</span>}
                  </td>
                  <td>{moment(to_ms)}</td>
                  <td>{by}</td>
                  <td>{why}</td>
                  <td class="number">
                    <button type="button" onClick={() => end(id)}>
                      end now
                    </button>
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
