// A collector of its own for a test, and a farm that reports to it: the names and labels that roles of Sheaf send.

import { spawn, type ChildProcess } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

/** Returns the program `sheaf`: `SHEAF_BIN`, else the newest profile that was built. */
export function program(): string | null {
  const target = process.env["CARGO_TARGET_DIR"] ?? "../target";
  const places = [
    process.env["SHEAF_BIN"],
    ...["ci", "release", "debug"].map((profile) => `${target}/${profile}/sheaf`),
  ];
  return places.find((place): place is string => place !== undefined && existsSync(place)) ?? null;
}

/** Returns the browser: `CHROMIUM`, else that of Debian. */
export function chromium(): string | null {
  const places = [
    process.env["CHROMIUM"],
    "/usr/bin/chromium",
    "/usr/bin/chromium-browser",
    "/usr/bin/google-chrome",
  ];
  return places.find((place): place is string => place !== undefined && existsSync(place)) ?? null;
}

async function firstLine(child: ChildProcess): Promise<string> {
  if (!child.stdout) throw new Error("the process has no standard output");
  const lines = createInterface({ input: child.stdout });
  return new Promise<string>((resolve, reject) => {
    lines.once("line", resolve);
    child.once("exit", (code) => reject(new Error(`the process ended with ${code} before it listened`)));
  });
}

/** A collector as a process. */
export class Collector {
  private child: ChildProcess | null = null;
  private readonly data = mkdtempSync(join(tmpdir(), "sheaf-pages-"));
  private dev: ChildProcess | null = null;
  /** Address, such as `http://127.0.0.1:9470`; the same after a restart. */
  url = "";
  /** Address of the pages: the collector, or with `SHEAF_PAGES=dist` a server of dist/ before it. */
  pages = "";
  /** Address of line protocol over UDP. */
  udp = "";

  constructor(private readonly path: string) {}

  /** Starts it, at the address that it had before. */
  async start(): Promise<void> {
    const http = this.url ? this.url.slice("http://".length) : "127.0.0.1:0";
    const args = ["monitor", "--http", http, "--udp", "127.0.0.1:0", "--data", this.data];
    this.child = spawn(this.path, args, { stdio: ["ignore", "pipe", "ignore"] });
    const child = this.child;
    const { http: address, udp } = JSON.parse(await firstLine(child)) as { http: string; udp: string[] };
    this.url = `http://${address}`;
    this.udp = udp[0] ?? "";
    if (this.pages) return;
    this.pages = this.url;
    if (process.env["SHEAF_PAGES"] === "dist") {
      this.dev = spawn("node", ["dev.mjs", "0", this.url], { stdio: ["ignore", "pipe", "inherit"] });
      this.pages = await firstLine(this.dev);
    }
  }

  /** Stops it with `signal` and waits for its end. */
  async stop(signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
    const child = this.child;
    this.child = null;
    if (!child || child.exitCode !== null) return;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill(signal);
    await ended;
  }

  /** Stops it and removes its samples. */
  async end(): Promise<void> {
    await this.stop("SIGKILL");
    this.dev?.kill();
    rmSync(this.data, { recursive: true, force: true });
  }
}

/** Period in which the nodes of the farm report. */
const PERIOD_MS = 200;

/** A farm that reports by HTTP: its nodes count as those of Sheaf do, at steady rates. */
export class Farm {
  private timer: NodeJS.Timeout | null = null;
  private ticks = 0;
  private readonly dead = new Set<string>();
  private readonly start_s = Math.floor(Date.now() / 1000);

  constructor(
    private readonly collector: Collector,
    private readonly flps: number,
    private readonly epns: number,
  ) {}

  /** Nodes, such as `epn:2`. */
  get nodes(): string[] {
    const of = (role: string, count: number) => Array.from({ length: count }, (_, index) => `${role}:${index}`);
    return [...of("icn", 1), ...of("flp", this.flps), ...of("epn", this.epns)];
  }

  /** Begins to report. */
  run(): void {
    const report = () => {
      this.ticks += 1;
      const body = this.nodes
        .filter((node) => !this.dead.has(node))
        .flatMap((node) => this.lines(node))
        .join("\n");
      // A collector that is away misses the report, as with datagrams.
      fetch(`${this.collector.url}/write?precision=ms`, { method: "POST", body }).catch(() => {});
    };
    report();
    this.timer = setInterval(report, PERIOD_MS);
  }

  /** Kills a node: it reports no more. */
  kill(node: string): void {
    this.dead.add(node);
  }

  /** Ends all reports. */
  end(): void {
    if (this.timer) clearInterval(this.timer);
  }

  private lines(node: string): string[] {
    const [role = "", index = "0"] = node.split(":");
    const at = Date.now();
    const seconds = (this.ticks * PERIOD_MS) / 1000;
    const wave = 1 + 0.2 * Math.sin(this.ticks / 9 + Number(index) * 2);
    const line = (name: string, value: number, more = "") => {
      const of = more.includes(",node=") ? "" : `,node=${node}`;
      return `${name},host=node-${index},role=${role}${of},run=1f${more} value=${value} ${at}`;
    };
    const tfs = Math.floor(350 * seconds);
    const members = this.nodes.filter((one) => !one.startsWith("icn"));
    const states = members.map((one) => [one, this.dead.has(one) ? "gone" : "up"] as const);
    const own: Record<string, string[]> = {
      icn: [
        line("balance_tf_announced_total", tfs + 12),
        line("balance_tf_complete_total", tfs - 5),
        line("balance_tf_incomplete_total", 2),
        line("balance_tf_in_flight", 12),
        line("balance_tf_dropped_total", 3, ",reason=source-died"),
        line("balance_tf_dropped_total", 0, ",reason=stale"),
        line("balance_tf_queued", 0),
        ...states.map(([one, state]) => line("balance_node_state", 1, `,icn=0,node=${one},state=${state}`)),
        line("balance_tf_bytes_total", tfs * 3.3e6),
        line("balance_tf_latency_seconds_p50", 0.0021 * wave, ",stage=total"),
        line("balance_tf_latency_seconds_p99", 0.0117 * wave * wave, ",stage=total"),
        line("balance_tf_latency_seconds_max", 0.019 * wave * wave * wave, ",stage=total"),
      ],
      flp: [
        line("acquire_stf_made_total", tfs),
        line("acquire_stf_made_bytes_total", (tfs * 3.3e6) / this.flps),
        line("acquire_held_bytes", 4e7 * wave),
      ],
      epn: [
        line("build_tf_complete_total", Math.floor(tfs / this.epns)),
        line("build_tf_incomplete_total", 0),
        line("build_tf_bytes_total", (tfs * 3.3e6) / this.epns + 4e6 * wave),
        line("build_open_bytes", 3e7 * wave),
        line("write_free_bytes", 1e12 - (tfs * 3.3e6) / this.epns),
        line("write_queued_bytes", 2e7 * wave),
        line("write_lag_seconds", 0),
        line("write_open_files", 2),
        line("write_failures_total", 0),
        ...["physics", "calib"].flatMap((stream, place) => {
          const share = Math.floor((tfs * (place ? 0.1 : 0.9)) / this.epns);
          const of = `,stream=${stream}`;
          return [
            line("write_taken_total", share + 3, of),
            line("write_written_total", share, of),
            line("write_written_bytes_total", share * 3.3e6, of),
            line("write_files_closed_total", Math.floor(seconds / 10), of),
          ];
        }),
      ],
    };
    return [
      ...(own[role] ?? []),
      line("node_loop_turns_total", this.ticks * 40),
      line("monitor_client_interval_seconds", PERIOD_MS / 1000),
      line("process_cpu_seconds_total", seconds * 0.3 * wave),
      line("process_resident_memory_bytes", 3.6e8 * wave),
      line("process_start_time_seconds", this.start_s),
      line("sheaf_build_info", 1, ",version=0.1.0,commit=test"),
    ];
  }
}
