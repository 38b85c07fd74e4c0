// Expressions of the pages: everything that is asked of the collector about a farm stands here.
//
// Metrics and labels are those of docs/reference/metrics.md; a test holds the names against that page. Values count
// while they are fresh, so that a former run or a dead node does not add to what is there now.

/** What expressions depend on: the farm, and how old a sample may be. */
export interface Scope {
  /** Value of the label `farm`; empty for all. */
  farm: string;
  /** Seconds within which a node reports at least twice. */
  window_s: number;
}

/** Returns the scope for nodes that report every `interval_s` seconds. */
export function scope(farm: string, interval_s: number): Scope {
  return { farm, window_s: Math.max(5, Math.ceil(interval_s * 3)) };
}

function select(name: string, { farm }: Scope, more = ""): string {
  const matchers = [farm && `farm=${JSON.stringify(farm)}`, more].filter(Boolean).join(",");
  return matchers ? `${name}{${matchers}}` : name;
}

/** Rate a second of a counter. */
export function rate(name: string, scope: Scope, more = ""): string {
  return `rate(${select(name, scope, more)}[${scope.window_s}s])`;
}

/** Latest value, if it is fresh. */
export function fresh(name: string, scope: Scope, more = ""): string {
  return `last_over_time(${select(name, scope, more)}[${scope.window_s}s])`;
}

/** Longest interval in which a node reports, in seconds. */
export const INTERVAL = "max(monitor_client_interval_seconds)";

/** Time of the latest sample of each node, in seconds since 1970; there for five minutes after it. */
export function heard(scope: Scope): string {
  return `max by (node, host) (timestamp(${select("node_loop_turns_total", scope)}))`;
}

/** Interval in which each node reports, in seconds. */
export function intervals(scope: Scope): string {
  return `max by (node) (${select("monitor_client_interval_seconds", scope)})`;
}

/** State of each FLP and EPN as the ICN that leads has it, with the label `state`. */
export function states(scope: Scope): string {
  return `max by (node, state) (${fresh("balance_node_state", scope)}) == 1`;
}

/** Counters of the ICN that add up: announced, and each fate. */
export function books(scope: Scope): string {
  const parts = ["announced", "complete", "incomplete", "dropped"].map((part) => `balance_tf_${part}_total`);
  const names = `__name__=~"${[...parts, "balance_tf_in_flight", "balance_tf_queued"].join("|")}"`;
  return fresh("", scope, names);
}

const PER_NODE = "sum by (node)";

/** Values shown on the map of nodes, by what they are. */
export function ofNodes(
  scope: Scope,
): Record<"built" | "made" | "bytesBuilt" | "bytesMade" | "cpu" | "memory", string> {
  return {
    built: `${PER_NODE} (${rate("build_tf_complete_total", scope)})`,
    made: `${PER_NODE} (${rate("acquire_stf_made_total", scope)})`,
    bytesBuilt: `${PER_NODE} (${rate("build_tf_bytes_total", scope)})`,
    bytesMade: `${PER_NODE} (${rate("acquire_stf_made_bytes_total", scope)})`,
    cpu: `${PER_NODE} (${rate("process_cpu_seconds_total", scope)})`,
    memory: `max by (node) (${fresh("process_resident_memory_bytes", scope)})`,
  };
}

/** Figures of the whole farm. */
export function ofFarm(scope: Scope) {
  const total = 'stage="total"';
  return {
    announced: `sum(${rate("balance_tf_announced_total", scope)})`,
    complete: `sum(${rate("balance_tf_complete_total", scope)})`,
    incomplete: `sum(${rate("balance_tf_incomplete_total", scope)})`,
    dropped: `sum(${rate("balance_tf_dropped_total", scope)})`,
    goodput: `sum(${rate("balance_tf_bytes_total", scope)})`,
    latencyMedian: `max(${fresh("balance_tf_latency_seconds_p50", scope, total)})`,
    latency99: `max(${fresh("balance_tf_latency_seconds_p99", scope, total)})`,
    latencyMax: `max(${fresh("balance_tf_latency_seconds_max", scope, total)})`,
    stages: `max by (stage) (${fresh("balance_tf_latency_seconds_p50", scope, 'stage!="total"')})`,
    reassigned: `sum(${rate("balance_tf_reassigned_total", scope)})`,
    refused: `sum by (reason) (${rate("balance_refused_total", scope)}) > 0`,
    held: `sum(${fresh("acquire_held_bytes", scope)})`,
    goodputByEpn: `${PER_NODE} (${rate("build_tf_bytes_total", scope)})`,
    inFlight: `max(${fresh("balance_tf_in_flight", scope)})`,
  };
}

/** What writers of files report: by node, and by stream. */
export function ofFiles(scope: Scope) {
  const minute = { ...scope, window_s: Math.max(60, scope.window_s) };
  const free = fresh("write_free_bytes", scope);
  const lost = `deriv(${select("write_free_bytes", scope)}[${minute.window_s}s])`;
  return {
    rate: `${PER_NODE} (${rate("write_written_bytes_total", scope)})`,
    queued: `${PER_NODE} (${fresh("write_queued_bytes", scope)})`,
    lag: `max by (node) (${fresh("write_lag_seconds", scope)})`,
    open: `${PER_NODE} (${fresh("write_open_files", scope)})`,
    failures: `${PER_NODE} (${fresh("write_failures_total", scope)})`,
    free: `min by (node) (${free})`,
    /** Seconds until the disk is full, if it goes on as in the last minute. */
    full: `min by (node) (${free} / (0 - (${lost} < 0)))`,
    rateOfStreams: `sum by (stream) (${rate("write_written_bytes_total", scope)})`,
    tfsOfStreams: `sum by (stream) (${rate("write_written_total", scope)})`,
    inFlight: `sum by (stream) (${fresh("write_taken_total", scope)} - ${fresh("write_written_total", scope)})`,
    filesClosed: `sum by (stream) (${rate("write_files_closed_total", minute)} * 60)`,
  };
}

/** A chart of a node: title, kind of values, expressions with names. */
export interface Chart {
  title: string;
  unit: "plain" | "bytes" | "seconds";
  lines: [name: string, query: string][];
}

/** Charts of the node `name`, such as `epn:3`. */
export function chartsOf(name: string, scope: Scope): Chart[] {
  const node = `node=${JSON.stringify(name)}`;
  const per = (metric: string) => `sum(${rate(metric, scope, node)})`;
  const now = (metric: string, more = "") => `max(${fresh(metric, scope, more ? `${node},${more}` : node)})`;
  const machine: Chart[] = [
    { title: "Processor, cores", unit: "plain", lines: [["used", per("process_cpu_seconds_total")]] },
    {
      title: "Memory",
      unit: "bytes",
      lines: [
        ["resident", now("process_resident_memory_bytes")],
        ["arena in use", now("transport_arena_used_bytes")],
      ],
    },
    {
      title: "Network a second",
      unit: "bytes",
      lines: [
        ["in", per("transport_bytes_in_total")],
        ["out", per("transport_bytes_out_total")],
        ["lanes in", per("transport_lent_bytes_in_total")],
        ["lanes out", per("transport_lent_bytes_out_total")],
      ],
    },
  ];
  return [...(OWN[name.split(":")[0] ?? ""]?.(per, now) ?? []), ...machine];
}

type Make = (per: (name: string) => string, now: (name: string, more?: string) => string) => Chart[];

const OWN: Record<string, Make> = {
  icn: (per, now) => [
    {
      title: "TFs a second",
      unit: "plain",
      lines: [
        ["announced", per("balance_tf_announced_total")],
        ["complete", per("balance_tf_complete_total")],
        ["incomplete", per("balance_tf_incomplete_total")],
        ["dropped", per("balance_tf_dropped_total")],
      ],
    },
    {
      title: "Latency of a TF",
      unit: "seconds",
      lines: [
        ["median", now("balance_tf_latency_seconds_p50", 'stage="total"')],
        ["99 %", now("balance_tf_latency_seconds_p99", 'stage="total"')],
      ],
    },
    {
      title: "TFs without a verdict",
      unit: "plain",
      lines: [
        ["in flight", now("balance_tf_in_flight")],
        ["queued", now("balance_tf_queued")],
      ],
    },
  ],
  flp: (per, now) => [
    {
      title: "STFs a second",
      unit: "plain",
      lines: [
        ["made", per("acquire_stf_made_total")],
        ["sent", per("acquire_stf_sent_total")],
        ["released", per("acquire_stf_released_total")],
      ],
    },
    {
      title: "Payload a second",
      unit: "bytes",
      lines: [
        ["made", per("acquire_stf_made_bytes_total")],
        ["sent", per("acquire_stf_sent_bytes_total")],
      ],
    },
    { title: "Held until a verdict", unit: "bytes", lines: [["held", now("acquire_held_bytes")]] },
  ],
  epn: (per, now) => [
    {
      title: "TFs a second",
      unit: "plain",
      lines: [
        ["complete", per("build_tf_complete_total")],
        ["incomplete", per("build_tf_incomplete_total")],
        ["discarded", per("build_tf_discarded_total")],
      ],
    },
    {
      title: "Payload a second",
      unit: "bytes",
      lines: [
        ["accepted", per("build_stf_accepted_bytes_total")],
        ["built", per("build_tf_bytes_total")],
      ],
    },
    {
      title: "In building",
      unit: "bytes",
      lines: [
        ["open", now("build_open_bytes")],
        ["with the consumer", now("build_sink_bytes")],
      ],
    },
  ],
};
