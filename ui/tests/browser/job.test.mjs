// One job: why it does not run, its attempts, its payload to the digit, run again with changes, cancel while it runs.

import assert from "node:assert/strict";
import { aServer, check, confirm, open, says, text } from "./browser.mjs";
import { died, succeeded, until } from "./server.mjs";

const holder = aServer({ env: { STEADFAST_REAP_INTERVAL_MS: "500" } });

check("why: no worker, paused, not due, backoff, behind a full limit, running, finished", async () => {
  const { server } = holder;
  const page = await open(server);
  const why = async (id, pattern) => {
    await page.visit(`/ui/jobs/${id}`);
    await says(page, pattern);
  };
  const lonely = await server.enqueue("lonely", {});
  await why(lonely.id, /Why:.*worker/s);
  await server.ask("POST", "/queues/halted/pause", {});
  await why((await server.enqueue("any", {}, { queue: "halted" })).id, /Why:.*paused/s);
  await why((await server.enqueue("any", {}, { delay_ms: 3_600_000 })).id, /Planned in default.*Why:/s);
  const again = await server.enqueue("again", {}, { queue: "again" });
  const [lease] = await server.lease("w-1", { kinds: ["again"] });
  await server.settle("w-1", [[lease, { outcome: "failed", error: "once", retry_after_ms: 3_600_000 }]]);
  await why(again.id, /to be tried again in (59|60) min|tried again in 1 h/);
  await server.ask("PUT", "/queues/narrow", { concurrency: 1 });
  const first = await server.enqueue("narrow", {}, { queue: "narrow" });
  const second = await server.enqueue("narrow", {}, { queue: "narrow" });
  const [held] = await server.lease("w-1", { kinds: ["narrow"], lease_ms: 600_000 });
  assert.equal(held.job.id, first.id);
  await why(second.id, /Why:.*(limit|at the same time|places|full|1 of 1)/is);
  await why(first.id, /Running on w-1/);
  await server.settle("w-1", [[held, succeeded()]]);
  await says(page, /Succeeded/);
  assert.doesNotMatch(await text(page), /Why:/);
});

check("the timeline of released, snoozed, expired and redriven attempts", async () => {
  const { server } = holder;
  const job = await server.enqueue("story", {}, { max_attempts: 5 });
  const take = async (lease_ms = 60_000) => (await until("it can be leased", async () => (await server.lease("w-1", { kinds: ["story"], lease_ms }))[0]));
  await server.settle("w-1", [[await take(), { outcome: "released" }]]);
  await server.settle("w-1", [[await take(), { outcome: "snoozed", delay_ms: 1 }]]);
  await take(1000);
  await until("its lease has expired", async () => (await server.get(`/jobs/${job.id}/attempts`)).some(({ outcome }) => outcome === "lease_expired"));
  await server.settle("w-1", [[await take(), died("at last")]]);
  await server.ask("POST", `/jobs/${job.id}/redrive`);
  await server.settle("w-1", [[await take(), succeeded()]]);
  const page = await open(server, { path: `/ui/jobs/${job.id}` });
  const outcomes = await page.$$eval("table[aria-label=attempts] tbody td:nth-child(2)", (cells) => cells.map((one) => one.innerText.trim()));
  assert.match(outcomes.join(), /succeeded.*failed.*expired.*snoozed.*released/s);
  assert.doesNotMatch(await text(page), /-\d+ ?(ms|s)\b/);
  assert.ok((await page.locator("svg.timeline .run").count()) >= 3);
});

check("60 attempts: the newest 50, older ones on demand", async () => {
  const { server } = holder;
  const job = await server.enqueue("stubborn", {}, { max_attempts: 100 });
  for (let n = 0; n < 60; n++) {
    const [lease] = await until("it is due", async () => { const got = await server.lease("w-1", { kinds: ["stubborn"] }); return got.length > 0 && got; });
    await server.settle("w-1", [[lease, { outcome: "failed", error: `try ${n}`, retry_after_ms: n === 59 ? 3_600_000 : 0 }]]);
  }
  const page = await open(server, { path: `/ui/jobs/${job.id}` });
  const shownRows = () => page.locator("table[aria-label=attempts] tbody tr").count();
  assert.equal(await shownRows(), 50);
  await page.getByRole("button", { name: "10 older attempts" }).click();
  await page.waitForFunction(() => document.querySelectorAll("table[aria-label=attempts] tbody tr").length === 60);
});

check("numbers are shown as they were sent, also those that no double holds", async () => {
  const { server } = holder;
  const { data, status } = await server.call("POST", "/jobs", '{"kind":"exact","payload":{"big":12345678901234567890,"long":0.1000000000000000055511151231257827,"text":"1e400"}}');
  assert.equal(status, 201);
  // What the store kept is what must be seen: the API's own text decides.
  const raw = await (await fetch(`${server.url}/jobs/${data.id}`, { headers: { authorization: "Bearer the-admin-token-of-the-browser-tests" } })).text();
  const page = await open(server, { path: `/ui/jobs/${data.id}` });
  await says(page, /12345678901234567890/);
  await says(page, /"1e400"/);
  const kept = /"long":([0-9.e+-]+)/.exec(raw)[1];
  assert.ok((await text(page)).includes(kept), kept);
  await page.getByRole("button", { name: "raw" }).first().click();
  await says(page, /12345678901234567890/);
});

check("run again with changes makes a new job that is linked both ways, and shows the schema's complaint", async () => {
  const { server } = holder;
  await server.ask("PUT", "/kinds/strict", { schema: { type: "object", required: ["user"], properties: { user: { type: "integer" } } } });
  const job = await server.enqueue("strict", { user: 1 });
  await server.drain("w-1", ["strict"], () => died("wrong user"));
  const page = await open(server, { path: `/ui/jobs/${job.id}`, allow: [/422/] });
  await page.keyboard.press("e");
  await page.locator("dialog[open] textarea").fill('{"user": "two"}');
  await confirm(page);
  await says(page, /user|integer|schema/i, "dialog[open] .notice");
  await page.locator("dialog[open] textarea").fill('{"user": 2');
  await says(page, /JSON|expected|end/i, "dialog[open] .notice[role=alert]");
  await page.locator("dialog[open] textarea").fill('{"user": 2}');
  await confirm(page);
  await page.waitForFunction((id) => /\/ui\/jobs\/[0-9a-f-]{36}$/.test(location.pathname) && !location.pathname.endsWith(id), job.id);
  await says(page, /made from this one/);
  const made = await server.get(`/jobs/${page.url().split("/").at(-1)}`);
  assert.deepEqual(made.payload, { user: 2 });
  assert.equal(made.idempotency_key, `rerun:${job.id}:1`);
  const before = await server.get(`/jobs/${job.id}`);
  assert.equal(before.status, "failed_permanent");
  assert.deepEqual(before.payload, { user: 1 });
  await page.visit(`/ui/jobs/${job.id}`);
  await says(page, /run again\s*as/);
});

check("cancel while it runs: asked first, cancelled when the worker has stopped", async () => {
  const { server } = holder;
  const job = await server.enqueue("long", {});
  const [lease] = await server.lease("w-1", { kinds: ["long"], lease_ms: 600_000 });
  const page = await open(server, { path: `/ui/jobs/${job.id}` });
  await page.keyboard.press("c");
  await says(page, /worker is told to stop/, "dialog[open]");
  await confirm(page, /Cancel the job/);
  await says(page, /asked to stop/);
  await server.settle("w-1", [[lease, { outcome: "cancelled" }]]);
  await says(page, /Cancelled/);
});

check("a limit that is full is explained on the job that waits for it, with its group", async () => {
  const { server } = holder;
  await server.ask("PUT", "/queues/teams", { groups: { concurrency: 1, order: "fair" } });
  await server.enqueue("team", {}, { queue: "teams", group_key: "acme" });
  const second = await server.enqueue("team", {}, { queue: "teams", group_key: "acme" });
  await server.lease("w-1", { kinds: ["team"], lease_ms: 600_000 });
  const page = await open(server, { path: `/ui/jobs/${second.id}` });
  await says(page, /Why:.*(acme|group)/s);
});
