// Pictures of the screens, for the documentation and to be looked at: light and dark, desktop and phone. Made by a program, so that they
// can be made again.
//
//   target/debug/steadfast demo & node ui/screenshots.mjs http://127.0.0.1:8080 /tmp/pictures [/ui/ /ui/jobs …]
//
// A server with tokens: STEADFAST_TOKEN. Chromium is Debian's; CHROMIUM names another one. Nothing here is shipped.

import { mkdir } from "node:fs/promises";
import { chromium } from "playwright-core";

const [url = "http://127.0.0.1:8080", out = "pictures", ...given] = process.argv.slice(2);
const flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const SIZES = { desktop: { width: 1280, height: 800 }, phone: { width: 390, height: 844 } };

const get = async (path) => (await fetch(new URL(path, url), { headers: process.env.STEADFAST_TOKEN ? { authorization: `Bearer ${process.env.STEADFAST_TOKEN}` } : {}, signal: AbortSignal.timeout(10_000) })).json();

/** Every screen, with something on it. */
async function everything() {
  const [[dead], [waiting], [group], [worker]] = await Promise.all([get("/jobs?status=failed_permanent&limit=1&view=summary"), get("/jobs?status=queued&limit=1&view=summary"), get("/errors?dead=true&limit=1"), get("/workers?limit=1")]);
  return ["/ui/", "/ui/jobs", "/ui/jobs?status=failed_permanent", dead && `/ui/jobs/${dead.id}`, waiting && `/ui/jobs/${waiting.id}`, "/ui/errors?dead=true", group && `/ui/errors/${group.fingerprint}`, "/ui/queues", waiting && `/ui/queues/${waiting.queue}`, "/ui/kinds", waiting && `/ui/kinds/${waiting.kind}`, "/ui/workers", worker && `/ui/workers/${worker.worker}`, "/ui/operations", "/ui/schedules", "/ui/limits", "/ui/audit", "/ui/tokens", "/ui/login"].filter(Boolean);
}

const paths = given.length > 0 ? given : await everything();
await mkdir(out, { recursive: true });
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: flags });
let wrong = 0;
for (const [size, viewport] of Object.entries(SIZES)) {
  for (const colorScheme of ["light", "dark"]) {
    const context = await browser.newContext({ viewport, colorScheme });
    const page = await context.newPage();
    page.on("pageerror", (error) => void (wrong++, console.error(error.stack)));
    if (process.env.STEADFAST_TOKEN) {
      await page.goto(`${url}/ui/login`);
      await page.fill("input[name=token]", process.env.STEADFAST_TOKEN);
      await page.keyboard.press("Enter");
      await page.waitForSelector("body:not(.bare)");
    }
    for (const path of paths) {
      await page.goto(url + path);
      await page.waitForSelector("main h1", { timeout: 15_000 });
      // Charts and lists come a little later.
      await page.waitForTimeout(1200);
      const name = path.replace(/^\/ui\//, "").replace(/[0-9a-f]{8}-[0-9a-f-]{27}/, "id").replace(/[^a-z0-9]+/gi, "-").replace(/^-|-$/g, "") || "overview";
      await page.screenshot({ path: `${out}/${name}-${size}-${colorScheme}.png` });
      const aside = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      if (aside > 0) wrong++, console.error(`${path} is ${aside} px too wide (${size})`);
    }
    await context.close();
  }
}
await browser.close();
console.log(`${paths.length} screens in ${out}`);
process.exit(wrong ? 1 : 0);
