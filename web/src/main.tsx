// The pages: head with links and the state of the stream, one page below it by the path.

import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import "uplot/dist/uPlot.min.css";
import "./style.css";
import "./panels.css";
import "./tables.css";
import { json } from "./api";
import type { Alarms as AlarmsNow } from "./alarms";
import { clock } from "./format";
import { go, hub, useLink, useLive, useNow, usePath, usePolled, useTheme } from "./hooks";
import { KEYS, wish } from "./keys";
import type { Link } from "./live";
import { Alarms } from "./pages/alarms";
import { Explore } from "./pages/explore";
import { Farm } from "./pages/farm";
import { Files } from "./pages/files";
import { Node } from "./pages/node";
import { Sources } from "./pages/sources";
import { Dark } from "./parts/chart";
import { Nothing } from "./parts/panel";
import { INTERVAL, scope as scopeOf, type Scope } from "./queries";

const TABS: [path: string, name: string][] = [
  ["/", "Farm"],
  ["/explore", "Explore"],
  ["/alarms", "Alarms"],
  ["/sources", "Sources"],
  ["/files", "Files"],
];

function App() {
  const { path, search } = usePath();
  const { theme, isDark, next } = useTheme();
  const [isHelp, setHelp] = useState(false);
  const farm = search.get("farm") ?? "";
  const interval = useLive(INTERVAL)?.samples[0]?.value ?? 1;
  useKeys(next, setHelp);
  useLinks();
  useEffect(() => {
    const name = path.startsWith("/node/")
      ? decodeURIComponent(path.slice(6))
      : TABS.find(([one]) => one === path)?.[1];
    document.title = name ? `${name} · Sheaf` : "Sheaf";
    window.scrollTo(0, 0);
  }, [path]);
  return (
    <Dark.Provider value={isDark}>
      <header class="top">
        <a class="mark" href="/">
          <img src="/icon.svg" alt="" />
          Sheaf
        </a>
        <nav aria-label="Pages">
          {TABS.map(([to, name], place) => (
            <a
              key={to}
              href={to}
              aria-current={to === path || (to === "/" && path.startsWith("/node/")) ? "page" : undefined}
            >
              {name}
              {name === "Alarms" && <Firing />}
              <kbd>{place + 1}</kbd>
            </a>
          ))}
        </nav>
        <StreamState />
        <Clock />
        <button
          type="button"
          class="plain"
          onClick={next}
          aria-label={`Colours: ${theme}`}
          title={`Colours: ${theme} (t)`}
        >
          {isDark ? "☾" : "☀"}
        </button>
        <button type="button" class="plain" onClick={() => setHelp(true)} aria-label="Keys" title="Keys (?)">
          ?
        </button>
      </header>
      <main>
        <Page path={path} search={search} scope={scopeOf(farm, interval)} />
      </main>
      {isHelp && <Help close={() => setHelp(false)} />}
    </Dark.Provider>
  );
}

function Page({ path, search, scope }: { path: string; search: URLSearchParams; scope: Scope }) {
  if (path === "/") return <Farm scope={scope} />;
  if (path === "/explore") return <Explore search={search} />;
  if (path === "/alarms") return <Alarms />;
  if (path === "/sources") return <Sources />;
  if (path === "/files") return <Files scope={scope} />;
  if (path.startsWith("/node/")) {
    const name = decodeURIComponent(path.slice(6));
    return <Node key={name} name={name} scope={scope} />;
  }
  return (
    <Nothing title={`There is no page ${path}`}>
      <p>
        There are <a href="/">the farm</a>, <a href="/explore">the explorer</a>, <a href="/alarms">alarms</a>,{" "}
        <a href="/sources">sources</a> and <a href="/files">files</a>.
      </p>
    </Nothing>
  );
}

function Clock() {
  const now = useNow(1000);
  return (
    <time class="clock" title="Time of this machine, UTC">
      {clock(now)}
      <small> UTC</small>
    </time>
  );
}

/** Number of alarms that fire; nothing where the collector has no alarms. */
function Firing() {
  const { value } = usePolled(() => json<AlarmsNow>("/api/alarms"), 5000);
  const firing = value?.counts["firing"] ?? 0;
  return firing > 0 ? <b class="badge">{firing}</b> : null;
}

function textOf(link: Link): [tone: string, text: string] {
  switch (link.state) {
    case "live":
      return ["good", "live"];
    case "lost":
      return ["bad", "no collector"];
    case "connecting":
      return ["warn", "connecting"];
    case "idle":
      return ["dim", "idle"];
  }
}

function StreamState() {
  const link = useLink();
  const [tone, text] = textOf(link);
  return (
    <>
      <span class={`stream ${tone}`} data-stream={link.state} role="status">
        <i aria-hidden="true">{tone === "bad" ? "✕" : "●"}</i> {text}
      </span>
      {link.state === "lost" && (
        <p class="outage" role="alert">
          The collector does not answer: values below are the last ones known. Try {link.tries}, next in{" "}
          {(link.retry_ms / 1000).toFixed(link.retry_ms < 1000 ? 2 : 0)} s.
          <button type="button" onClick={() => hub.now()}>
            try now
          </button>
        </p>
      )}
    </>
  );
}

function Help({ close }: { close: () => void }) {
  return (
    <div class="veil" onClick={close}>
      <div
        class="help"
        role="dialog"
        aria-label="Keys"
        aria-modal="true"
        onClick={(event) => event.stopPropagation()}
      >
        <h2>Keys</h2>
        <dl>
          {KEYS.map(({ key, text }) => (
            <div key={key}>
              <dt>
                <kbd>{key}</kbd>
              </dt>
              <dd>{text}</dd>
            </div>
          ))}
        </dl>
        <button type="button" autofocus onClick={close}>
          close
        </button>
      </div>
    </div>
  );
}

function useKeys(theme: () => void, setHelp: (isShown: boolean) => void) {
  useEffect(() => {
    const listener = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const field = event.target instanceof HTMLElement && /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
      const wanted = wish(event.key, field);
      if (!wanted) return;
      if ("go" in wanted) go(wanted.go);
      else if ("press" in wanted) document.querySelector<HTMLElement>(`[data-key="${wanted.press}"]`)?.click();
      else if ("focus" in wanted) {
        event.preventDefault();
        document.querySelector<HTMLElement>(`[data-key="${wanted.focus}"]`)?.focus();
      } else if (wanted.do === "theme") theme();
      else if (wanted.do === "help") setHelp(true);
      else {
        setHelp(false);
        if (field) (event.target as HTMLElement).blur();
      }
    };
    window.addEventListener("keydown", listener);
    return () => window.removeEventListener("keydown", listener);
  }, [theme, setHelp]);
}

/** Follows links to pages without loading them anew. */
function useLinks() {
  useEffect(() => {
    const listener = (event: MouseEvent) => {
      const link = event.target instanceof Element ? event.target.closest("a") : null;
      if (!link || event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey)
        return;
      if (link.origin !== location.origin || link.target) return;
      event.preventDefault();
      go(link.pathname + link.search);
    };
    document.addEventListener("click", listener);
    return () => document.removeEventListener("click", listener);
  }, []);
}

const root = document.getElementById("root");
if (root) render(<App />, root);
