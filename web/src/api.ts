// Requests to the collector: the query API of Prometheus and the routes of the pages.

/** Labels of a series. */
export type Labels = Readonly<Record<string, string>>;

/** A series with values over time; `null` where there is none. Times are seconds since 1970. */
export interface Series {
  labels: Labels;
  points: [number, number | null][];
}

/** A refusal or failure of a request: what is wrong, with the place in an expression if there is one. */
export class Failure extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly place: Place | null = null,
  ) {
    super(message);
  }
}

/** Place in an expression; both count from 1, columns count bytes of UTF-8. */
export interface Place {
  line: number;
  column: number;
}

/** Takes the place off the front of an error of PromQL: `1:5: parse error: …`. */
export function placed(message: string): { place: Place | null; text: string } {
  const found = /^(\d+):(\d+): (.*)$/s.exec(message);
  if (!found) return { place: null, text: message };
  return { place: { line: Number(found[1]), column: Number(found[2]) }, text: found[3] ?? "" };
}

/** Returns the index in `text` of a place, which counts bytes. */
export function indexOf(text: string, place: Place): number {
  const lines = text.split("\n");
  const before = lines.slice(0, place.line - 1).reduce((sum, line) => sum + line.length + 1, 0);
  let bytes = 1;
  let index = 0;
  for (const letter of lines[place.line - 1] ?? "") {
    if (bytes >= place.column) break;
    bytes += new TextEncoder().encode(letter).length;
    index += letter.length;
  }
  return Math.min(before + index, text.length);
}

/** Requests `path` and reads the JSON of its answer. */
export async function json<T>(path: string, init: RequestInit = {}): Promise<T> {
  let answer: Response;
  try {
    answer = await fetch(path, { ...init, cache: "no-store" });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Failure("the collector does not answer", 0);
  }
  const text = await answer.text();
  if (answer.ok) return (text ? JSON.parse(text) : null) as T;
  throw refusal(answer.status, text);
}

function refusal(status: number, text: string): Failure {
  try {
    const body = JSON.parse(text) as { error?: string };
    const { place, text: rest } = placed(body.error ?? text);
    return new Failure(rest, status, place);
  } catch {
    return new Failure(text.trim() || `status ${status}`, status);
  }
}

interface Matrix {
  data: { resultType: string; result: { metric: Labels; values: [number, string][] }[] };
}

/** Evaluates `query` from `start` to `end` (seconds since 1970) in steps of `step` seconds. */
export async function range(
  query: string,
  start: number,
  end: number,
  step: number,
  signal?: AbortSignal,
): Promise<Series[]> {
  const body = new URLSearchParams({ query, start: String(start), end: String(end), step: String(step) });
  const answer = await json<Matrix>("/api/v1/query_range", { method: "POST", body, ...(signal ? { signal } : {}) });
  return answer.data.result.map(({ metric, values }) => ({
    labels: metric,
    points: values.map(([at, text]) => [at, number(text)]),
  }));
}

function number(text: string): number | null {
  const value = Number(text.replace("Inf", "Infinity"));
  return Number.isFinite(value) ? value : null;
}

/** Evaluates `query` once, to see whether it can be shown live; returns the kind of its value. */
export async function kind(query: string, signal?: AbortSignal): Promise<string> {
  const body = new URLSearchParams({ query });
  const answer = await json<{ data: { resultType: string } }>("/api/v1/query", {
    method: "POST",
    body,
    ...(signal ? { signal } : {}),
  });
  return answer.data.resultType;
}

/** Lists the names of metrics. */
export async function names(): Promise<string[]> {
  return (await json<{ data: string[] }>("/api/v1/label/__name__/values")).data;
}

/** Writes labels as PromQL does, the name in front. */
export function written(labels: Labels): string {
  const { __name__: name = "", ...rest } = labels;
  const pairs = Object.entries(rest).map(([key, value]) => `${key}="${value}"`);
  return pairs.length ? `${name}{${pairs.join(", ")}}` : name || "{}";
}

/** Shortens the labels of many series to those that differ between them. */
export function distinguishing(all: Labels[]): string[] {
  const keys = [...new Set(all.flatMap((labels) => Object.keys(labels)))].sort();
  const differing = keys.filter((key) => new Set(all.map((labels) => labels[key] ?? "")).size > 1);
  return all.map((labels) => {
    const { __name__: name } = labels;
    const parts = name && (differing.includes("__name__") || differing.length === 0) ? [name] : [];
    for (const key of differing) {
      // The name of a node has its role in it.
      if (key === "__name__" || (key === "role" && labels["node"] !== undefined && differing.includes("node")))
        continue;
      const value = labels[key];
      if (value !== undefined) parts.push(value);
    }
    return parts.join(" ") || written(labels);
  });
}
