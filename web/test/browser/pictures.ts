// Takes the pictures of the docs: the demo of Sheaf with an EPN that is killed, as the collector shows it.
//     npm run pictures        with SHEAF_BIN, or the newest program that was built; into docs/img

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { chromium as browserPath, Collector, program } from "./collector";

const PICTURES: [name: string, route: string, scheme: "light" | "dark", width: number, height: number][] = [
  ["pages-files", "/files", "dark", 1440, 860],
  ["pages-farm", "/", "dark", 1440, 1010],
  ["pages-farm-light", "/", "light", 1440, 1010],
  ["pages-node", "/node/epn:1", "light", 1440, 900],
  ["pages-explore", "/explore?q=sum%20by%20(node)%20(rate(build_tf_bytes_total[5s]))&span=300", "dark", 1440, 760],
  ["pages-sources", "/sources", "light", 1440, 420],
  ["pages-alarms", "/alarms", "light", 1440, 760],
];
/** Parts of this demo are in the pictures: it runs long enough for a history, and one EPN is killed. */
const DEMO = [
  "demo",
  "--rate",
  "50",
  "--orbits-per-tf",
  "4",
  "--duration",
  "150s",
  "--kill",
  "epn:2@40s",
  "--start",
  "epn:2@60s",
  "--kill",
  "epn:3@88s",
];
const WAIT_MS = 95_000;

const path = program();
const executablePath = browserPath();
if (!path || !executablePath) throw new Error("pictures need the program sheaf (SHEAF_BIN) and chromium");
const collector = new Collector(path);
await collector.start();
const files = mkdtempSync(join(tmpdir(), "sheaf-files-"));
const demo = spawn(path, [...DEMO, "--sink", `streams:${files}`, "--metrics-to", `influxdb-udp://${collector.udp}`], {
  stdio: "ignore",
});
const browser = await chromium.launch({
  executablePath,
  args: process.getuid?.() === 0 ? ["--no-sandbox"] : [],
});
try {
  await new Promise((resolve) => setTimeout(resolve, WAIT_MS));
  for (const [name, route, colorScheme, width, height] of PICTURES) {
    const page = await browser.newPage({ viewport: { width, height }, colorScheme });
    await page.goto(collector.pages + route);
    await page.waitForSelector('[data-stream="live"]');
    await page.waitForTimeout(4000);
    await page.screenshot({ path: `../docs/img/${name}.png` });
    await page.close();
  }
} finally {
  await browser.close();
  demo.kill("SIGINT");
  await new Promise((resolve) => demo.once("exit", resolve));
  await collector.end();
  rmSync(files, { recursive: true, force: true });
}
