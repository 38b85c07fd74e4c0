// The pages in headless Chromium, at a collector of the real program: SHEAF_BIN, or the newest that was built.
// Without Chromium, or without the program, every test is skipped by name. Screenshots go to build/shots.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { after, before, test } from "node:test";
import { chromium, type Browser, type Page } from "playwright-core";
import { chromium as browserPath, Collector, Farm, program } from "./collector";

const path = program();
const executablePath = browserPath();
const skip = !executablePath
  ? "skipped: no chromium"
  : !path
    ? "skipped: no program sheaf (cargo build, or SHEAF_BIN)"
    : false;
const shots = "build/shots";

let collector: Collector;
let farm: Farm;
let browser: Browser;

before(async () => {
  if (skip) return;
  mkdirSync(shots, { recursive: true });
  collector = new Collector(path ?? "");
  await collector.start();
  farm = new Farm(collector, 3, 6);
  farm.run();
  // As root, Chromium has no sandbox.
  browser = await chromium.launch({
    executablePath: executablePath ?? "",
    args: process.getuid?.() === 0 ? ["--no-sandbox"] : [],
  });
});

after(async () => {
  farm?.end();
  await browser?.close();
  await collector?.end();
});

/** Opens a page and collects what goes wrong in it. */
async function open(
  route: string,
  width = 1280,
  colorScheme: "light" | "dark" = "dark",
): Promise<{ page: Page; wrong: string[] }> {
  const context = await browser.newContext({
    viewport: { width, height: Math.round(width < 600 ? 850 : (width * 9) / 16) },
    colorScheme,
  });
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  const wrong: string[] = [];
  page.on("pageerror", (error) => wrong.push(error.message));
  page.on("console", (message) => {
    // A collector without alarms answers 404, and the page says so.
    const isKnown =
      message.location().url.includes("/api/alarms") || message.location().url.includes("/api/silences");
    if (message.type() === "error" && !isKnown) wrong.push(`${message.text()} ${message.location().url}`);
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(collector.pages) && !request.url().startsWith("data:"))
      wrong.push(`outside address ${request.url()}`);
  });
  await page.goto(collector.pages + route);
  return { page, wrong };
}

const ROUTES: [route: string, sign: string][] = [
  ["/", '[data-node="epn:5"][data-state="up"]'],
  ["/node/epn:1", 'h1:has-text("epn:1")'],
  ["/explore?q=sum%20by%20(node)%20(rate(build_tf_bytes_total%5B5s%5D))&span=300", 'h2:has-text("6 series")'],
  ["/alarms", ".empty h3, .alarms"],
  ["/sources", "tbody tr"],
  ["/files", 'td a:has-text("epn:5")'],
];

const NARROW_AND_WIDE = [
  [400, "light"],
  [1920, "dark"],
] as const;
const ALL_WIDTHS = [...NARROW_AND_WIDE, [1280, "light"], [3840, "dark"]] as const;

for (const [route, sign] of ROUTES) {
  test(
    `${route.split("?")[0]} loads with no error and no outside address, narrow and wide, light and dark`,
    { skip },
    async () => {
      for (const [width, scheme] of route === "/" ? ALL_WIDTHS : NARROW_AND_WIDE) {
        const { page, wrong } = await open(route, width, scheme);
        await page.waitForSelector(sign);
        await page.waitForSelector('[data-stream="live"]');
        await page.waitForFunction(
          "document.querySelectorAll('canvas').length === document.querySelectorAll('.plot').length",
        );
        const excess = await page.evaluate<number>(
          "document.documentElement.scrollWidth - document.documentElement.clientWidth",
        );
        assert.ok(excess <= 0, `${route} is ${excess} pixels wider than ${width}`);
        assert.equal(await page.getAttribute("html", "data-theme"), scheme);
        const name = route.split("?")[0]?.replace(/\W+/g, "-").replace(/^-/, "") || "farm";
        await page.screenshot({ path: `${shots}/${name}-${width}-${scheme}.png`, fullPage: width < 600 });
        assert.deepEqual(wrong, []);
        await page.context().close();
      }
    },
  );
}

test("values change while they are looked at, and the books hold", { skip }, async () => {
  const { page, wrong } = await open("/");
  const announced = () => page.innerText(".term.announced b");
  await page.waitForSelector(".term.announced b");
  const first = await announced();
  await page.waitForFunction((text) => document.querySelector(".term.announced b")?.textContent !== text, first);
  assert.match(await page.innerText(".books .aside"), /the sum holds/);
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test("a node that dies is shown within a second", { skip }, async () => {
  const { page } = await open("/");
  await page.waitForSelector('[data-node="epn:2"][data-state="up"]');
  farm.kill("epn:2");
  const start = Date.now();
  await page.waitForSelector('[data-node="epn:2"]:not([data-state="up"])', { timeout: 10_000 });
  const took_ms = Date.now() - start;
  console.log(`shown ${took_ms} ms after the kill`);
  // On a machine that is busy with other tests the bound is another; the time is printed.
  assert.ok(took_ms < 1000 * Number(process.env["SHEAF_TEST_SLACK"] ?? 3), `${took_ms} ms`);
  await page.waitForSelector('.log li.down:has-text("epn:2"), .log li.silent:has-text("epn:2")');
  await page.screenshot({ path: `${shots}/killed.png` });
  await page.context().close();
});

test("an error of an expression stands at its place", { skip }, async () => {
  const { page } = await open("/explore");
  await page.fill("textarea", "sum(rate(build_tf_bytes_total[5s])");
  await page.keyboard.press("Enter");
  await page.waitForSelector('.wrong:has-text("line 1, column")');
  await page.fill("textarea", "build_open_bytes[5m]");
  await page.keyboard.press("Enter");
  await page.waitForSelector('.wrong:has-text("range vector")');
  await page.fill("textarea", "build_open_bytes");
  await page.keyboard.press("Enter");
  await page.waitForSelector("h2:has-text('series')");
  await page.context().close();
});

test("keys lead through the pages", { skip }, async () => {
  const { page } = await open("/");
  await page.waitForSelector(".tile");
  await page.keyboard.press("?");
  await page.waitForSelector('[role="dialog"]');
  await page.keyboard.press("Escape");
  await page.waitForSelector('[role="dialog"]', { state: "detached" });
  await page.keyboard.press("4");
  await page.waitForSelector("tbody tr");
  await page.keyboard.press("/");
  await page.keyboard.type("no such source");
  await page.waitForSelector("tbody tr", { state: "detached" });
  await page.keyboard.press("Escape");
  await page.keyboard.press("t");
  assert.equal(await page.getAttribute("html", "data-theme"), "light");
  await page.context().close();
});

test("the page survives a restart of the collector", { skip }, async () => {
  const { page } = await open("/");
  await page.waitForSelector(".term.announced b");
  await collector.stop("SIGKILL");
  await page.waitForSelector('[data-stream="lost"]');
  await page.waitForSelector('.outage:has-text("does not answer")');
  assert.match(await page.innerText(".term.announced b"), /\d/);
  await collector.start();
  await page.waitForSelector('[data-stream="live"]');
  await page.waitForSelector(".outage", { state: "detached" });
  await page.waitForSelector('[data-node="epn:1"][data-state="up"]');
  const known = await page.innerText(".term.announced b");
  await page.waitForFunction((text) => document.querySelector(".term.announced b")?.textContent !== text, known);
  await page.context().close();
});
