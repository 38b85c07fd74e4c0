// Alarms as the collector gives them (docs/reference/monitor-api.md), and what the page makes of them.

import type { Labels } from "./api";

/** `GET /api/alarms` */
export interface Alarms {
  at_ms: number;
  counts: Record<string, number>;
  alarms: Alarm[];
  rules: Rule[];
  notifications: { made: number; delivered: number; failed: number; dropped: number; waiting: number };
}

/** An alert that is not inactive. */
export interface Alarm {
  id: string;
  alert: string;
  state: string;
  severity: string;
  labels: Labels;
  annotations: Labels;
  value: number | null;
  since_ms: number;
  active_ms: number | null;
  silence: number | null;
  hidden: boolean;
}

/** A rule and the worst state of its alerts. */
export interface Rule {
  group: string;
  alert: string;
  expr: string;
  online: boolean;
  state: string;
  alerts: number;
  error: string | null;
  evaluated_ms: number | null;
}

/** `GET /api/alarms/history` */
export interface Past {
  left_out: number;
  entries: Entry[];
}

/** A change of state, or an order to the farm. */
export type Entry =
  | {
      kind: "transition";
      at_ms: number;
      alert: string;
      labels: Labels;
      from: string;
      to: string;
      value: number | null;
    }
  | {
      kind: "order";
      at_ms: number;
      id: number | null;
      alert: string;
      order: string;
      outcome: string;
      reason: string | null;
    };

/** `GET /api/silences` */
export interface Silence {
  id: number;
  matchers: string[];
  from_ms: number;
  to_ms: number;
  author: string;
  comment: string;
  state: string;
}

/** Writes a matcher of a label for a silence. */
export function matcher(name: string, value: string): string {
  return `${name}=${JSON.stringify(value)}`;
}

/** Returns the matchers of a silence for exactly this alert. */
export function matchersOf(labels: Labels): string[] {
  return Object.entries(labels).map(([name, value]) => matcher(name, value));
}

/** Reads matchers as they are typed: separated by commas or lines, commas within quotes kept. */
export function readMatchers(text: string): string[] {
  return (text.match(/(?:"(?:[^"\\]|\\.)*"|[^,\n"])+/g) ?? []).map((one) => one.trim()).filter(Boolean);
}

/** Labels of an alert without those that the page shows apart. */
export function otherLabels(labels: Labels): [string, string][] {
  return Object.entries(labels).filter(([name]) => name !== "alertname" && name !== "severity");
}

/** Sign of a state: readable without its colour. */
export function signOf(state: string): string {
  return { firing: "✕", nodata: "?", pending: "▲", resolved: "✓", inactive: "○", ok: "○" }[state] ?? "·";
}
