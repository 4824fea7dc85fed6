// The overview: one true sentence, problems that come and go with their cause, and the button that mends them.
//
// Those that take an hour to come (paused_long, limit_saturated, schedule_late, storage) are tested where the clock can be held:
// src/job/problems/tests.rs.

import assert from "node:assert/strict";
import { aServer, check, confirm, open, says, text } from "./browser.mjs";
import { died, succeeded, until } from "./server.mjs";

const minutesAgo = (n) => new Date(Date.now() - n * 60_000).toISOString();
let beating;
const holder = aServer({}, async (server) => {
  await server.enqueueMany(Array.from({ length: 20 }, (_, n) => ({ kind: "fine", queue: "fine", payload: { n } })));
  // Two workers for the tests at the end: one that is never heard of again, one that beats and does not fetch although it could.
  await server.ask("POST", "/leases", { worker: "vanished-1", kinds: ["vanishing"], max: 1 });
  await server.enqueueMany(Array.from({ length: 2 }, (_, n) => ({ kind: "unheard", queue: "unheard", payload: { n } })));
  const [lease] = await server.lease("deaf-1", { kinds: ["unheard"], lease_ms: 600_000, info: { concurrency: 4, host: "h", pid: 1, language: "js", version: "1" } });
  const beat = () => server.ask("POST", "/leases/heartbeat", { worker: "deaf-1", lease_ms: 600_000, leases: [{ job_id: lease.job.id, lease_token: lease.lease_token }] }).catch(() => {});
  beating = setInterval(beat, 2000);
  beating.unref();
});

const problem = (page, pattern) => page.locator("ul.problems li", { hasText: pattern });

check("the sentence when all is well", async () => {
  const { server } = holder;
  await server.drain("w-1", ["fine"], succeeded);
  const page = await open(server);
  await says(page, /Everything is keeping up|nothing due waits/i, "main h1");
  assert.doesNotMatch(await page.title(), /^\(/);
});

check("no worker: it appears with its cause and in the title, its button mends it, and it goes", async () => {
  const { server } = holder;
  const page = await open(server);
  await server.enqueue("orphan", {}, { queue: "orphans", run_at: minutesAgo(5) });
  await problem(page, /No live worker takes orphan from orphans/).waitFor({ timeout: 60_000 });
  await says(page, /\d+ problems?\./, "main h1");
  await page.waitForFunction(() => /^\(\d+\) /.test(document.title));
  await problem(page, /orphan/).getByRole("button", { name: /pause orphans/ }).click();
  await confirm(page, /pause orphans/);
  await problem(page, /No live worker takes orphan/).waitFor({ state: "detached" });
  assert.equal((await server.get("/queues/orphans")).paused, true);
  await server.ask("POST", "/queues/orphans/resume", {});
  await problem(page, /No live worker takes orphan/).waitFor();
  const worker = server.work("w-1", ["orphan"], succeeded);
  await problem(page, /No live worker takes orphan/).waitFor({ state: "detached", timeout: 60_000 });
  await worker.stop();
});

check("a new cause of death: told, redriven by its button after a preview; snoozed it is silent, and comes back", async () => {
  const { server } = holder;
  await server.enqueueMany(Array.from({ length: 5 }, (_, n) => ({ kind: "novel", queue: "novel", payload: { n }, max_attempts: 1 })));
  await server.drain("w-1", ["novel"], () => died("a wall nobody saw before"));
  const page = await open(server);
  const row = problem(page, /a wall nobody saw before/);
  await row.waitFor({ timeout: 60_000 });
  const [group] = await server.get("/errors?kind=novel");
  await server.ask("PUT", `/errors/${group.fingerprint}/snooze`, { for_ms: 3_600_000 });
  await row.waitFor({ state: "detached", timeout: 60_000 });
  await says(page, /1 snoozed/);
  await server.ask("DELETE", `/errors/${group.fingerprint}/snooze`);
  await row.waitFor({ timeout: 60_000 });
  await row.getByRole("button", { name: /redrive/ }).click();
  await says(page, /novel 5/, "dialog[open]");
  await confirm(page, /Redrive 5 jobs/);
  await until("they are queued again", async () => (await server.get("/queues/novel")).counts.queued === 5);
});

check("a spike of one cause, and dead letters that grow", async () => {
  const { server } = holder;
  await server.enqueueMany(Array.from({ length: 40 }, (_, n) => ({ kind: "spiky", queue: "spiky", payload: { n }, max_attempts: 1 })));
  await server.drain("w-1", ["spiky"], () => died("the same again"));
  const page = await open(server);
  await problem(page, /the same again.*(within 10 min|is new)/).waitFor({ timeout: 60_000 });
  await problem(page, /spiky/).first().waitFor();
});

check("leases that ran out are told", async () => {
  const { server } = holder;
  await server.enqueue("lost", {}, { queue: "lost", max_attempts: 1 });
  await server.lease("w-lost", { kinds: ["lost"], lease_ms: 1000 });
  const page = await open(server);
  await problem(page, /lease.* expired/).waitFor({ timeout: 90_000 });
});

check("a worker that was not heard of is gone, not live", async () => {
  const { server } = holder;
  const page = await open(server, { path: "/ui/workers" });
  await until("the server says so", async () => (await server.get("/workers/vanished-1")).state === "gone", 90_000);
  await page.waitForFunction(() => /gone/.test(document.querySelector('tr[data-key="vanished-1"]')?.innerText ?? ""));
});

check("a worker that beats but does not fetch is deaf, on its screen and as a problem; draining it is the remedy", async () => {
  const { server } = holder;
  await until("the server says so", async () => (await server.get("/workers/deaf-1")).state === "deaf", 110_000);
  const page = await open(server);
  const row = problem(page, /deaf-1/);
  await row.first().waitFor({ timeout: 60_000 });
  await page.visit("/ui/workers/deaf-1");
  await says(page, /deaf/);
  await page.visit("/ui/");
  await row.getByRole("button", { name: /drain deaf-1/ }).first().click();
  await confirm(page, /drain/);
  await until("it is told", async () => (await server.get("/workers/deaf-1")).told === "drain");
  clearInterval(beating);
});

check("what is done on the overview is among what was done lately", async () => {
  const page = await open(holder.server);
  await says(page, /Done lately/);
  assert.match(await text(page), /admin/);
});
