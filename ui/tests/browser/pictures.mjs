// The pictures of README.md and docs/dashboard.md: the overview of `steadfast demo`, light and dark, at most 200 kB each. Made by a
// program, so that they stay true.
//
//   STEADFAST_BIN=target/release/steadfast node ui/tests/browser/pictures.mjs [DIRECTORY, docs if not given]

import { spawn } from "node:child_process";
import { mkdtemp, rm, stat } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { until } from "./server.mjs";

const out = process.argv[2] ?? join(dirname(fileURLToPath(import.meta.url)), "../../../docs");
const BYTES_MAX = 200_000;
const MINUTES = 3;
const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

// The demo fills itself over HTTP, so it must know its port before it has it.
const port = await new Promise((resolve) => {
  const free = createServer().listen(0, "127.0.0.1", () => {
    const { port } = free.address();
    free.close(() => resolve(port));
  });
});
const directory = await mkdtemp(join(tmpdir(), "steadfast-pictures-"));
const demo = spawn(process.env.STEADFAST_BIN ?? "target/debug/steadfast", ["demo", "--bind", `127.0.0.1:${port}`], { cwd: directory, stdio: ["ignore", "pipe", "pipe"] });
let said = "";
for (const stream of [demo.stdout, demo.stderr]) stream.on("data", (data) => (said = (said + data).slice(-20_000)));
let browser;
try {
  const url = await until("the demo is ready", () => {
    if (demo.exitCode !== null) throw Object.assign(new Error(`the demo ended: ${said}`), { isFinal: true });
    return /(http:\/\/127\.0\.0\.1:\d+)/.exec(said)?.[1];
  }, 120_000);
  // A picture is worth taking once there is something to see: a chart with some minutes in it, and a red problem.
  await until("there is something to see", async () => {
    const read = async (path) => (await fetch(url + path, { signal: AbortSignal.timeout(10_000) })).json();
    const [series, problems] = await Promise.all([read("/series"), read("/problems")]);
    return series.enqueued.filter((n) => n > 0).length >= MINUTES && problems.some(({ severity }) => severity === "red");
  }, 60_000 * (MINUTES + 3));
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: FLAGS });
  for (const colorScheme of ["light", "dark"]) {
    const page = await browser.newPage({ viewport: { width: 1280, height: 860 }, colorScheme, timezoneId: "UTC" });
    await page.goto(`${url}/ui/`);
    await page.waitForSelector("ul.problems li");
    await page.waitForFunction(() => document.querySelectorAll("main .chart path").length > 0 && document.querySelector('table[aria-label="causes of death"]'));
    const path = join(out, `dashboard-${colorScheme}.png`);
    await page.screenshot({ path });
    const { size } = await stat(path);
    if (size > BYTES_MAX) throw new Error(`${path} has ${size} bytes, ${BYTES_MAX} at most`);
    console.log(`${path}: ${size} bytes`);
    await page.close();
  }
} finally {
  await browser?.close();
  demo.kill("SIGKILL");
  await rm(directory, { recursive: true, force: true });
}
