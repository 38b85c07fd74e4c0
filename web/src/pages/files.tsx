// Files: what writers have written, what waits, and how long their disks last.

import { count, duration, short } from "../format";
import { byNode } from "../farm";
import { useLive } from "../hooks";
import { Figure, LivePanel, Nothing, Panel } from "../parts/panel";
import { ofFiles, type Scope } from "../queries";

const SPAN_S = 600;
/** A writer whose oldest TF waits for longer is marked. */
const LAG_S = 5;
/** A disk that is full sooner is marked. */
const FULL_S = 3600;

/** Returns the newest value of `query` for each node. */
function useByNode(query: string): Map<string, number> {
  return byNode(useLive(query)?.samples ?? []);
}

/** The page `/files`. */
export function Files({ scope }: { scope: Scope }) {
  const of = ofFiles(scope);
  const update = useLive(of.free);
  const free = byNode(update?.samples ?? []);
  const [rate, queued, lag] = [useByNode(of.rate), useByNode(of.queued), useByNode(of.lag)];
  const [open, failures, full] = [useByNode(of.open), useByNode(of.failures), useByNode(of.full)];
  if (update === null) return <Nothing title="Waiting for values" />;
  if (free.size === 0) {
    return (
      <Nothing title="No node writes files">
        <p>
          An EPN with the sink <code>streams</code> does:{" "}
          <code>sheaf demo --sink streams:/tmp/files --metrics-to …</code>
        </p>
      </Nothing>
    );
  }
  const nodes = [...free.keys()].sort((left, right) => left.localeCompare(right, undefined, { numeric: true }));
  const add = (all: Map<string, number>) => [...all.values()].reduce((sum, one) => sum + one, 0);
  const [oldest, failed] = [Math.max(0, ...lag.values()), add(failures)];
  const next = [...full].sort(([, left], [, right]) => left - right)[0];
  const byStream = (labels: Readonly<Record<string, string>>) => labels["stream"] ?? "";
  return (
    <div class="files">
      <dl class="figures">
        <Figure name="Writers" value={count(nodes.length)} note={`${count(add(open))} files open`} />
        <Figure name="Written" value={`${short(add(rate), "B")}/s`} note={`${short(add(queued), "B")} wait`} />
        <Figure
          name="Oldest TF that waits"
          value={duration(oldest)}
          tone={oldest > LAG_S ? "bad" : "good"}
          note={oldest > LAG_S ? "writing is slow or has stopped" : "writing keeps up"}
        />
        <Figure
          name="Failed writes"
          value={count(failed)}
          tone={failed ? "warn" : "good"}
          note="each is tried again until it works"
        />
        <Figure
          name="Full next"
          value={next ? duration(next[1]) : "–"}
          tone={next && next[1] < FULL_S ? "warn" : ""}
          note={next ? `the disk of ${next[0]}, as in the last minute` : "no disk gets fuller"}
        />
      </dl>
      <div class="charts">
        <LivePanel
          title="Written a second, by stream"
          unit="bytes"
          lines={[["", of.rateOfStreams]]}
          span_s={SPAN_S}
          name={byStream}
        />
        <LivePanel
          title="TFs a second, by stream"
          unit="plain"
          lines={[["", of.tfsOfStreams]]}
          span_s={SPAN_S}
          name={byStream}
        />
        <LivePanel
          title="TFs in flight, by stream"
          unit="plain"
          lines={[["", of.inFlight]]}
          span_s={SPAN_S}
          name={byStream}
        />
        <LivePanel
          title="Files closed a minute, by stream"
          unit="plain"
          lines={[["", of.filesClosed]]}
          span_s={SPAN_S}
          name={byStream}
        />
      </div>
      <Panel title="Writers">
        <div class="scroll">
          <table class="wide">
            <thead>
              <tr>
                <th>node</th>
                <th class="number">written/s</th>
                <th class="number">wait</th>
                <th class="number">oldest</th>
                <th class="number">files open</th>
                <th class="number">failed writes</th>
                <th class="number">free</th>
                <th class="number">full in</th>
              </tr>
            </thead>
            <tbody>
              {nodes.map((node) => {
                const [waits, until] = [lag.get(node) ?? 0, full.get(node)];
                const isTroubled = waits > LAG_S || (until !== undefined && until < FULL_S);
                return (
                  <tr key={node} class={isTroubled ? "troubled" : ""}>
                    <td>
                      {isTroubled && <span class="warn">▲ </span>}
                      <a href={`/node/${node}`}>{node}</a>
                    </td>
                    <td class="number">{short(rate.get(node), "B")}</td>
                    <td class="number">{short(queued.get(node), "B")}</td>
                    <td class={`number ${waits > LAG_S ? "bad" : ""}`}>{duration(waits)}</td>
                    <td class="number">{count(open.get(node))}</td>
                    <td class={`number ${failures.get(node) ? "warn" : ""}`}>{count(failures.get(node))}</td>
                    <td class="number">{short(free.get(node), "B")}</td>
                    <td class={`number ${until !== undefined && until < FULL_S ? "warn" : ""}`}>
                      {until === undefined ? "–" : duration(until)}
                    </td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      </Panel>
    </div>
  );
}
