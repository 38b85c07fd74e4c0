// How values, times and durations are written: three significant digits, SI prefixes, never a layout jump.

const PREFIXES = ["", "k", "M", "G", "T", "P"];
/** Stands where there is no value. */
export const NONE = "–";

/** Writes `value` with three significant digits and a prefix: `1234567` is `1.23 M`. */
export function short(value: number | null | undefined, unit = ""): string {
  if (value == null || Number.isNaN(value)) return NONE;
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  let size = Math.abs(value);
  let step = 0;
  while (size >= 999.5 && step < PREFIXES.length - 1) {
    size /= 1000;
    step += 1;
  }
  const prefix = PREFIXES[step] ?? "";
  const sign = value < 0 ? "−" : "";
  if (size === 0) return unit ? `0 ${unit}` : "0";
  if (step === 0 && Number.isInteger(size)) return joined(sign + String(size), prefix + unit);
  if (step === 0 && size < 0.001) return joined(sign + size.toExponential(1), unit);
  const digits = size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.0995 ? 2 : size >= 0.00995 ? 3 : 4;
  return joined(sign + size.toFixed(digits), prefix + unit);
}

function joined(text: string, unit: string): string {
  return unit ? `${text} ${unit}` : text;
}

/** Writes a count in full, in groups of three: `1 234 567`. */
export function count(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value)) return NONE;
  return Math.round(value)
    .toString()
    .replace("-", "−")
    .replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}

/** Writes a duration given in seconds: `1.50 ms`, `12.3 s`, `3 min 20 s`, `2 h 5 min`. */
export function duration(seconds: number | null | undefined): string {
  if (seconds == null || !Number.isFinite(seconds)) return NONE;
  const size = Math.abs(seconds);
  const sign = seconds < 0 ? "−" : "";
  if (size === 0) return "0 s";
  if (size < 1e-3) return `${sign}${three(size * 1e6)} µs`;
  if (size < 1) return `${sign}${three(size * 1e3)} ms`;
  if (size < 60) return `${sign}${three(size)} s`;
  const whole = Math.round(size);
  if (whole < 3600) return `${sign}${Math.floor(whole / 60)} min ${whole % 60} s`;
  const minutes = Math.round(whole / 60);
  if (minutes < 1440) return `${sign}${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${sign}${Math.floor(minutes / 1440)} d ${Math.floor((minutes % 1440) / 60)} h`;
}

/** Writes a time that goes on, in whole seconds at least, so that it does not flicker. */
export function ongoing(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  return whole < 60 ? `${whole} s` : duration(whole);
}

function three(value: number): string {
  return value.toFixed(value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2);
}

/** Writes a time of day in UTC, with tenths of a second if `tenths`. */
export function clock(ms: number, tenths = false): string {
  if (!Number.isFinite(ms)) return NONE;
  return new Date(ms).toISOString().slice(11, tenths ? 21 : 19);
}

/** Writes a date and time in UTC. */
export function moment(ms: number): string {
  if (!Number.isFinite(ms)) return NONE;
  return new Date(ms).toISOString().slice(0, 19).replace("T", " ");
}

/** Kind of a metric by its name: decides how its values are written. */
export type Kind = "bytes" | "seconds" | "plain";

/** Returns the kind of values of the metric `name`. */
export function kindOf(name: string): Kind {
  if (/_bytes(_|$)/.test(name)) return "bytes";
  if (/start_time_seconds/.test(name)) return "plain";
  if (/_seconds(_|$)/.test(name) && !/_count$/.test(name)) return "seconds";
  return "plain";
}

/** Writes `value` of a metric of `kind`. */
export function of(kind: Kind, value: number | null | undefined): string {
  if (kind === "bytes") return short(value, "B");
  if (kind === "seconds") return duration(value);
  return short(value);
}
