// Live: the line breaks and comes back, a hidden tab holds none, a server that stops says so, old data stays and is marked.

import assert from "node:assert/strict";
import { after } from "node:test";
import { aServer, check, open, says, text } from "./browser.mjs";
import { ADMIN, startServer, until } from "./server.mjs";

const holder = aServer({}, async (server) => {
  await server.enqueue("first", {});
});
const broken = [/ERR_|net::|Failed to load/];

check("the page turns with the first job, without a reload", async () => {
  const server = await startServer();
  after(() => server.end());
  const page = await open(server);
  await says(page, /No job yet.*Declare a kind.*Enqueue.*Start a worker/s);
  await server.enqueue("first", {}, { queue: "begin" });
  await page.waitForFunction(() => !document.querySelector("main").innerText.includes("No job yet") && document.querySelector("main").innerText.includes("begin"));
});

check("the server is killed: old data stays, marked; it comes back: live again, without a reload", async () => {
  const { server } = holder;
  const page = await open(server, { allow: broken });
  await page.locator(".line[data-state=live], .line[data-state=polling]").waitFor();
  await page.evaluate(() => (globalThis.same = true));
  await server.kill();
  await page.locator(".line[data-state=retrying], .line[data-state=stopping]").waitFor({ timeout: 30_000 });
  assert.match(await text(page), /default/, "what was known stays");
  await server.start();
  await page.locator(".line[data-state=live], .line[data-state=polling]").waitFor({ timeout: 60_000 });
  assert.equal(await page.evaluate(() => globalThis.same), true);
});

check("a failed refresh of a screen says what, when and which request; the rows stay", async () => {
  const { server } = holder;
  const page = await open(server, { path: "/ui/kinds", allow: [...broken, /503/] });
  await says(page, /summarize_text/);
  // The store is away, as a proxy or the server itself would say it.
  await page.route("**/kinds", (route) => route.fulfill({ status: 503, contentType: "application/problem+json", body: JSON.stringify({ status: 503, title: "Unavailable", detail: "the database does not answer", request_id: "0192-req" }) }));
  await says(page, /Data of .* ago: the database does not answer.*0192-req/s);
  assert.match(await text(page), /summarize_text/);
  await page.unroute("**/kinds");
  await page.waitForFunction(() => !document.querySelector("main .notice"), undefined, { timeout: 30_000 });
});

check("a server that shuts down says so and does not wait for tabs", async () => {
  const server = await startServer();
  await server.enqueue("first", {});
  const page = await open(server, { allow: broken });
  await page.locator(".line[data-state=live]").waitFor();
  const began = Date.now();
  const ended = server.kill("SIGTERM");
  await says(page, /stopping|no answer/, ".line");
  await ended;
  assert.ok(Date.now() - began < 10_000, "an open stream does not hold it");
  await server.end();
});

check("a hidden tab has no connection, and a visible one has one", async () => {
  const { server } = holder;
  const page = await open(server);
  await page.locator(".line[data-state=live]").waitFor();
  const asked = [];
  page.on("request", (request) => asked.push(request.url()));
  const hide = (hidden) => page.evaluate((value) => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => value });
    Object.defineProperty(document, "visibilityState", { configurable: true, get: () => (value ? "hidden" : "visible") });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);
  const streams = async () => Number(/(?:^|\n)steadfast_pulse_streams(?:\{[^}]*\})? (\d+)/.exec(await (await fetch(`${server.url}/metrics`, { headers: { authorization: `Bearer ${ADMIN}` } })).text())?.[1] ?? NaN);
  const closed = page.waitForEvent("requestfinished", { predicate: (request) => request.url().endsWith("/pulse/stream"), timeout: 20_000 }).catch(() => null);
  const failed = page.waitForEvent("requestfailed", { predicate: (request) => request.url().endsWith("/pulse/stream"), timeout: 20_000 }).catch(() => null);
  await hide(true);
  const ended = await Promise.race([closed, failed]);
  assert.ok(ended, "the stream was closed");
  const count = await streams();
  if (!Number.isNaN(count)) assert.equal(count, 0);
  asked.length = 0;
  await hide(false);
  await until("it has a stream again", () => asked.some((url) => url.endsWith("/pulse/stream")));
  await page.locator(".line[data-state=live]").waitFor();
});

check("p pauses what is live, and p resumes it", async () => {
  const { server } = holder;
  const page = await open(server);
  await page.locator(".line[data-state=live], .line[data-state=polling]").waitFor();
  await page.keyboard.press("p");
  await page.locator(".line[data-state=paused]").waitFor();
  await server.enqueue("unseen", {}, { queue: "unseen" });
  await page.keyboard.press("p");
  await says(page, /unseen/);
});

check("at the limit of streams it polls instead", async () => {
  const { server } = holder;
  const held = [];
  try {
    const stop = new AbortController();
    held.push(stop);
    let full = false;
    for (let n = 0; n < 300 && !full; n++) {
      const answer = await fetch(`${server.url}/pulse/stream`, { headers: { authorization: `Bearer ${ADMIN}` }, signal: stop.signal });
      full = answer.status === 503;
    }
    assert.ok(full, "there is a limit");
    const page = await open(server, { allow: [/503/] });
    await page.locator(".line[data-state=polling]").waitFor({ timeout: 30_000 });
    await says(page, /default/);
  } finally {
    for (const stop of held) stop.abort();
  }
}, { only: "sqlite" });
