// The map of nodes: a tile each while there are few, a small square each when there are many.

import type { Heard } from "../farm";
import { clock, duration, short } from "../format";
import { StateSign } from "./panel";

/** What a tile shows; `null` where there is no value. */
export interface NodeValues {
  /** TFs or STFs a second. */
  rate: number | null;
  /** Payload a second. */
  bytes: number | null;
  /** Cores in use. */
  cpu: number | null;
  memory: number | null;
}

/** A group with more nodes than this has squares. */
const TILES_MAX = 48;
const NAMES: Record<string, string> = {
  icn: "ICN: chooses",
  flp: "FLP: read out",
  epn: "EPN: build",
};

/** Draws all nodes by role. */
export function NodeMap({
  nodes,
  values,
  open,
}: {
  nodes: Heard[];
  values: (node: Heard) => NodeValues;
  open: (id: string) => void;
}) {
  const roles = [...new Set(nodes.map(({ role }) => role))];
  return (
    <div class="map">
      {roles.map((role) => {
        const group = nodes.filter((node) => node.role === role);
        const all = group.map((node) => ({ node, of: values(node) }));
        const most = Math.max(0, ...all.map(({ of }) => of.bytes ?? 0));
        const isDense = group.length > TILES_MAX;
        const up = group.filter(({ state }) => state === "up" || state === "leaving").length;
        return (
          <div class="role" key={role}>
            <h3>
              {NAMES[role] ?? role}{" "}
              <span>
                {up} of {group.length}
              </span>
            </h3>
            <ul class={isDense ? "squares" : "tiles"}>
              {all.map(({ node, of }) =>
                isDense ? (
                  <Square key={node.id} node={node} of={of} most={most} open={open} />
                ) : (
                  <Tile key={node.id} node={node} of={of} most={most} open={open} />
                ),
              )}
            </ul>
          </div>
        );
      })}
    </div>
  );
}

interface One {
  node: Heard;
  of: NodeValues;
  most: number;
  open: (id: string) => void;
}

function link(id: string, open: (id: string) => void) {
  return {
    href: `/node/${id}`,
    onClick: (event: MouseEvent) => {
      if (event.ctrlKey || event.metaKey || event.button !== 0) return;
      event.preventDefault();
      open(id);
    },
  };
}

function Tile({ node, of, most, open }: One) {
  const { id, state, changed_ms, lost_ms, word } = node;
  const isUp = state === "up" || state === "leaving";
  return (
    <li>
      <a
        class={`tile ${state}`}
        {...link(id, open)}
        data-node={id}
        data-state={state}
        title={node.host ? `${id} on ${node.host}` : id}
      >
        <div class="head">
          <StateSign state={state} />
          <b>{id}</b>
          <span class="host">{node.host}</span>
        </div>
        {isUp ? (
          <div class="main">{of.bytes === null ? short(of.rate, "TF/s") : short(of.bytes, "B/s")}</div>
        ) : (
          <div class="main">
            {word ?? "silent"} since {clock(lost_ms ?? changed_ms)}
          </div>
        )}
        <div class="meter">
          <span style={{ width: `${isUp && most ? Math.round(((of.bytes ?? 0) / most) * 100) : 0}%` }} />
        </div>
        <div class="foot">
          {isUp ? (
            <>
              <span>{of.bytes === null ? "announced" : short(of.rate, "/s")}</span>
              <span>{short(of.cpu === null ? null : of.cpu * 100)} % CPU</span>
              <span>{short(of.memory, "B")}</span>
            </>
          ) : (
            <span>last heard at {clock(changed_ms, true)} UTC</span>
          )}
        </div>
      </a>
    </li>
  );
}

function Square({ node, of, most, open }: One) {
  const { id, state, index, changed_ms } = node;
  const share = most && of.bytes !== null ? of.bytes / most : 0;
  const text =
    state === "up"
      ? `${id}: ${short(of.bytes, "B/s")}, ${short(of.rate, "/s")}`
      : `${id}: silent since ${clock(changed_ms)} (${duration((Date.now() - changed_ms) / 1000)})`;
  return (
    <li>
      <a
        class={`square ${state}`}
        {...link(id, open)}
        data-node={id}
        data-state={state}
        title={text}
        aria-label={text}
        style={{ "--share": share.toFixed(2) }}
      >
        {state === "up" || state === "leaving" ? index : "✕"}
      </a>
    </li>
  );
}
