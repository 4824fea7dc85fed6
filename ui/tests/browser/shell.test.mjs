// The shell: every screen by URL, click and Back; below a path prefix; assets; a new version.

import assert from "node:assert/strict";
import { gzipSync } from "node:zlib";
import { aServer, check, open, says, shown } from "./browser.mjs";
import { proxy } from "./proxy.mjs";
import { fill, screens } from "./world.mjs";

let world;
const holder = aServer({}, async (server) => {
  world = await fill(server);
});

const headline = (page) => page.locator("main h1").first().innerText();

check("every screen loads by its URL", async () => {
  const page = await open(holder.server);
  for (const [path, pattern] of screens(world)) {
    await page.visit(path);
    assert.match(await headline(page), pattern, path);
  }
});

check("every screen of the rail is reached by a click, and Back leads where one came from", async () => {
  const page = await open(holder.server);
  const names = await page.locator("nav.rail > ul > li > a > span:first-child").allInnerTexts();
  assert.deepEqual(names, ["Overview", "Jobs", "Dead letters", "Queues", "Kinds", "Workers", "Operations", "Schedules", "Limits", "Audit", "Tokens"]);
  const seen = [page.url()];
  for (const name of names.slice(1)) {
    await page.locator("nav.rail > ul > li > a", { hasText: name }).first().click();
    await page.waitForFunction((before) => location.href !== before, seen.at(-1));
    await shown(page);
    assert.equal(await page.locator("nav.rail > ul > li > a[aria-current=page] span").first().innerText(), name);
    seen.push(page.url());
  }
  for (const before of seen.slice(0, -1).reverse()) {
    await page.goBack();
    await page.waitForURL(before);
    await shown(page);
  }
});

check("a row leads to its thing, and Back to the list where it was", async () => {
  const page = await open(holder.server, { path: "/ui/jobs" });
  await page.locator("tr[data-key]").nth(20).waitFor();
  await page.evaluate(() => scrollTo(0, 300));
  const scrolled = await page.evaluate(() => scrollY);
  assert.ok(scrolled > 0);
  await page.locator("tr[data-key] th a").nth(20).click();
  await page.waitForURL(/\/ui\/jobs\/[0-9a-f-]{36}$/);
  await shown(page);
  await page.goBack();
  await page.waitForURL(/\/ui\/jobs$/);
  await page.waitForFunction((at) => Math.abs(scrollY - at) < 60, scrolled);
});

check("a thing that is not there is said to be so, under a headline", async () => {
  const page = await open(holder.server, { allow: [/404 \(Not Found\)/] });
  for (const path of ["/ui/jobs/01a1ee7f-d1c3-765b-8dc7-58a013be3c16", "/ui/errors/0123456789abcdef", "/ui/queues/nothing", "/ui/kinds/nothing", "/ui/workers/nothing", "/ui/operations/01a1ee7f-d1c3-765b-8dc7-58a013be3c16", "/ui/schedules/nothing", "/ui/nowhere"]) {
    await page.visit(path);
    assert.equal(await page.locator("main h1").count(), 1, path);
    await says(page, /no |not |nothing|never|None/i);
  }
});

check("it works below a path prefix, through a proxy", async (t) => {
  const below = await proxy(holder.server.url, { prefix: "/tools/queue" });
  t.after(() => below.end());
  const page = await open(holder.server, { url: below.url, path: "/tools/queue/ui/jobs" });
  const outside = [];
  page.on("response", (answer) => {
    if (!new URL(answer.url()).pathname.startsWith("/tools/queue/")) outside.push(answer.url());
  });
  await page.locator("nav.rail a", { hasText: "Queues" }).first().click();
  await page.waitForURL(/\/tools\/queue\/ui\/queues$/);
  await shown(page);
  await page.locator("tr[data-key] a", { hasText: "mail" }).first().click();
  await page.waitForURL(/\/tools\/queue\/ui\/queues\/mail$/);
  await shown(page);
  assert.equal(await headline(page), "mail");
  await page.reload();
  await shown(page);
  assert.equal(await headline(page), "mail");
  assert.deepEqual(outside, []);
});

check("hashed assets are immutable, the shell is not, and all of it stays within its bytes (S54)", async () => {
  const { server } = holder;
  const page = await open(server, { load: false });
  const loaded = [];
  page.on("response", (answer) => loaded.push(answer));
  await page.visit("/ui/");
  const shell = await server.call("GET", "/ui/", undefined, { headers: { accept: "text/html" } });
  assert.match(shell.headers.get("cache-control"), /no-cache/);
  const policy = shell.headers.get("content-security-policy");
  for (const part of ["default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:", "font-src 'self'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"]) assert.ok(policy.includes(part), part);
  assert.doesNotMatch(policy, /unsafe/);
  assert.equal(shell.headers.get("x-content-type-options"), "nosniff");
  assert.equal(shell.headers.get("referrer-policy"), "no-referrer");
  assert.equal(shell.headers.get("cross-origin-opener-policy"), "same-origin");
  assert.equal(shell.headers.get("cross-origin-resource-policy"), "same-origin");
  const sizes = { html: 0, css: 0, js: 0 };
  for (const answer of loaded) {
    const { pathname } = new URL(answer.url());
    if (!pathname.startsWith("/ui/")) continue;
    const part = pathname.endsWith(".js") ? "js" : pathname.endsWith(".css") ? "css" : pathname.endsWith("/") ? "html" : null;
    if (pathname.includes("/_/")) assert.match(answer.headers()["cache-control"], /immutable/, pathname);
    if (part === "html") sizes.html += gzipSync(await answer.body()).length;
    else if (part) sizes[part] += (await answer.request().sizes()).responseBodySize;
  }
  assert.ok(sizes.html > 0 && sizes.html <= 2048, `HTML ${sizes.html}`);
  assert.ok(sizes.css > 0 && sizes.css <= 10 * 1024, `CSS ${sizes.css}`);
  assert.ok(sizes.js > 0 && sizes.js <= 40 * 1024, `JS ${sizes.js}`);
});

check("a new version of the server asks for a reload", async (t) => {
  // The same server behind a proxy that tells of other assets, as one does after an update.
  const updated = await proxy(holder.server.url, { change: (body) => body.replace(/"assets":(null|"[^"]*")/g, '"assets":"anewone"') });
  t.after(() => updated.end());
  const page = await open(holder.server, { url: updated.url });
  await page.getByRole("button", { name: "new version: reload" }).waitFor();
}, { only: "sqlite" });
