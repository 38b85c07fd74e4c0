// Hooks by which pages follow live values, routes and requests.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Failure, range } from "./api";
import { History, stepOf } from "./history";
import { browserStream, Hub, type Link, type Update } from "./live";

/** The one stream of this page. */
export const hub = new Hub(browserStream, {
  set: (run, ms) => window.setTimeout(run, ms),
  clear: (id) => window.clearTimeout(id),
});

/** Returns the newest value of `query`; `null` before the first. No query: none. */
export function useLive(query: string | null): Update | null {
  const [update, setUpdate] = useState<{ query: string; update: Update } | null>(null);
  useEffect(() => {
    if (query === null) return;
    return hub.subscribe(query, (one) => setUpdate({ query, update: one }));
  }, [query]);
  // A value of another query is never shown as one of this.
  return update && update.query === query ? update.update : null;
}

/** Returns the one number of `query`. */
export function useNumber(query: string | null): number | null {
  return useLive(query)?.samples[0]?.value ?? null;
}

/** Returns the state of the stream. */
export function useLink(): Link {
  const [link, setLink] = useState(hub.link);
  useEffect(() => hub.watch(setLink), []);
  return link;
}

/** Counts how often the stream came back, so that what was missed can be read again. */
export function useComebacks(): number {
  const [count, setCount] = useState(0);
  const wasLost = useRef(false);
  useEffect(
    () =>
      hub.watch((link) => {
        if (link.state === "lost") wasLost.current = true;
        else if (link.state === "live" && wasLost.current) {
          wasLost.current = false;
          setCount((before) => before + 1);
        }
      }),
    [],
  );
  return count;
}

/**
 * Values of `queries` over the last `span_s` seconds, going on live. `version` changes with the values, `shape` with
 * the series.
 */
export function useHistory(queries: readonly string[], span_s: number, isLive = true) {
  const key = queries.join("\n");
  const histories = useMemo(() => queries.map(() => new History(span_s, stepOf(span_s))), [key, span_s]);
  const [{ version, shape, error }, setState] = useState({ version: 0, shape: 0, error: null as string | null });
  const comebacks = useComebacks();
  useEffect(() => {
    const abort = new AbortController();
    const change = (hasGrown: boolean, failure: string | null = null) =>
      setState((before) => ({
        version: before.version + 1,
        shape: before.shape + (hasGrown ? 1 : 0),
        error: failure,
      }));
    let isLoaded = false;
    const load = async () => {
      const end = Date.now() / 1000;
      const step = stepOf(span_s);
      const answers = await Promise.all(queries.map((query) => range(query, end - span_s, end, step, abort.signal)));
      answers.forEach((series, place) => histories[place]?.load(series));
      isLoaded = true;
      change(true);
    };
    load().catch((failure: unknown) => {
      isLoaded = true;
      if (!abort.signal.aborted) change(true, (failure as Error).message);
    });
    const ends = !isLive
      ? []
      : queries.map((query, place) =>
          hub.subscribe(query, ({ at_ms, samples }) => {
            if (!isLoaded) return;
            const hasGrown = histories[place]?.push(at_ms / 1000, samples) ?? false;
            if (hasGrown || place === queries.length - 1) change(hasGrown);
          }),
        );
    return () => {
      abort.abort();
      for (const end of ends) end();
    };
  }, [key, span_s, comebacks, isLive]);
  return { histories, version, shape, error };
}

/** Calls `ask` now and every `period_ms`, and keeps its last answer when it fails. */
export function usePolled<T>(
  ask: () => Promise<T>,
  period_ms: number,
): { value: T | null; failure: Error | null; again: () => void } {
  const [value, setValue] = useState<T | null>(null);
  const [failure, setFailure] = useState<Error | null>(null);
  const asking = useRef(ask);
  asking.current = ask;
  const poll = useRef<() => void>(() => {});
  useEffect(() => {
    let isOver = false;
    let isMissing = false;
    let timer = 0;
    const turn = async () => {
      window.clearTimeout(timer);
      try {
        const answer = await asking.current();
        if (isOver) return;
        setValue(answer);
        setFailure(null);
      } catch (error) {
        if (!isOver) setFailure(error as Error);
        isMissing = error instanceof Failure && error.status === 404;
      }
      // What is not there is not asked for again.
      if (!isOver && !isMissing) timer = window.setTimeout(turn, period_ms);
    };
    poll.current = () => void turn();
    void turn();
    return () => {
      isOver = true;
      window.clearTimeout(timer);
    };
  }, [period_ms]);
  return { value, failure, again: () => poll.current() };
}

/** Returns the time, anew every `period_ms`. */
export function useNow(period_ms: number): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = window.setInterval(() => setNow(Date.now()), period_ms);
    return () => window.clearInterval(timer);
  }, [period_ms]);
  return now;
}

/** Goes to `path` without a new page. */
export function go(to: string): void {
  // A chosen farm stays chosen.
  const farm = new URLSearchParams(location.search).get("farm");
  const path =
    farm && !/[?&]farm=/.test(to) ? `${to}${to.includes("?") ? "&" : "?"}farm=${encodeURIComponent(farm)}` : to;
  if (path === location.pathname + location.search) return;
  history.pushState(null, "", path);
  window.dispatchEvent(new PopStateEvent("popstate"));
}

/** Returns the path and the search of the address. */
export function usePath(): { path: string; search: URLSearchParams } {
  const [path, setPath] = useState(location.pathname + location.search);
  useEffect(() => {
    const listener = () => setPath(location.pathname + location.search);
    window.addEventListener("popstate", listener);
    return () => window.removeEventListener("popstate", listener);
  }, []);
  const [before = "/", after = ""] = path.split("?");
  return { path: before, search: new URLSearchParams(after) };
}

/** Scheme of colours: as the system has it, or chosen. */
export type Theme = "auto" | "light" | "dark";

const THEME = "sheaf-theme";

/** Returns the chosen scheme of colours, the one in force, and how to choose. */
export function useTheme(): { theme: Theme; isDark: boolean; next: () => void } {
  const [theme, setTheme] = useState<Theme>((localStorage.getItem(THEME) as Theme | null) ?? "auto");
  const system = useMemo(() => window.matchMedia("(prefers-color-scheme: dark)"), []);
  const [isSystemDark, setSystemDark] = useState(system.matches);
  useEffect(() => {
    const listener = () => setSystemDark(system.matches);
    system.addEventListener("change", listener);
    return () => system.removeEventListener("change", listener);
  }, [system]);
  const isDark = theme === "dark" || (theme === "auto" && isSystemDark);
  document.documentElement.dataset["theme"] = isDark ? "dark" : "light";
  const next = () => {
    const chosen: Theme = theme === "auto" ? (isDark ? "light" : "dark") : theme === "light" ? "dark" : "light";
    localStorage.setItem(THEME, chosen);
    setTheme(chosen);
  };
  return { theme, isDark, next };
}
