// Dead letters: causes, not jobs; a redrive that is paced, can be paused, slowed and stopped, survives a kill, and stops by itself
// when its canary dies.

import assert from "node:assert/strict";
import { aServer, check, confirm, open, says } from "./browser.mjs";
import { STORE, died, succeeded, until } from "./server.mjs";

const CAUSES = [(n) => `connect to 10.0.0.${n % 250}:5432 timed out after ${n} ms`, (n) => `no such user ${n}`, () => "template has no header"];
const EACH = STORE === "sqlite" ? 3334 : 500;
const holder = aServer({}, async (server) => {
  await server.enqueueMany(Array.from({ length: 3 * EACH }, (_, n) => ({ kind: "mail", queue: "mail", payload: { n }, max_attempts: 1 })));
  await server.drain("mx-1", ["mail"], ({ job }) => died(CAUSES[job.payload.n % 3](job.payload.n)));
});

const dies = async (server, kind, n) => {
  await server.enqueueMany(Array.from({ length: n }, (_, at) => ({ kind, queue: kind, payload: { at }, max_attempts: 1 })));
  await server.drain("mx-1", [kind], () => died(`${kind} does not work`));
  return (await server.get(`/errors?kind=${kind}`))[0].fingerprint;
};

/** Through the dialog, as a person does it. */
async function redrive(page, { rate, canary = false, number }) {
  await page.keyboard.press("r");
  await page.locator("dialog[open] .note").waitFor();
  await page.locator("dialog[open] .rates label", { hasText: rate }).first().click();
  const box = page.locator("dialog[open] label", { hasText: "canary" }).locator("input");
  if ((await box.count()) > 0 && (await box.isChecked()) !== canary) await box.click();
  if (number) await page.locator("dialog[open] .typed").fill(String(number));
  await confirm(page);
  await page.waitForURL(/\/ui\/operations\/[0-9a-f-]{36}$/);
  return page.url().split("/").at(-1);
}

check("thousands of failures of three causes are three groups, each with its exact number", async () => {
  const page = await open(holder.server, { path: "/ui/errors?kind=mail" });
  await page.waitForFunction(() => document.querySelectorAll("main tr[data-key]").length === 3);
  const numbers = await page.$$eval("main td.c-dead", (cells) => cells.map((one) => Number(one.innerText.replace(/\D/g, ""))));
  assert.deepEqual(numbers, [EACH, EACH, EACH]);
});

check("a paced redrive takes its time, pauses, slows down, goes on and stops", async () => {
  const { server } = holder;
  const group = await dies(server, "paced", 60);
  const page = await open(server, { path: `/ui/errors/${group}` });
  const id = await redrive(page, { rate: /^\s*1\s*$/ });
  const operation = () => server.get(`/operations/${id}`);
  await until("it has begun", async () => (await operation()).counts.changed >= 1);
  assert.ok((await operation()).counts.changed < 30, "one a second is not all at once");
  await page.getByRole("button", { name: "pause" }).click();
  await until("it is paused", async () => (await operation()).state === "paused");
  await says(page, /paused/);
  const { counts } = await operation();
  await page.locator("main .rates label", { hasText: "10" }).first().click();
  await until("it has another rate", async () => (await operation()).rate === 10);
  assert.equal((await operation()).counts.changed, counts.changed, "it stands still");
  await page.getByRole("button", { name: "resume" }).click();
  await until("it goes on", async () => (await operation()).counts.changed > counts.changed);
  await page.getByRole("button", { name: /^stop/ }).click();
  await confirm(page, /Stop it/);
  await until("it is stopped", async () => (await operation()).finished_at);
  await says(page, /stopped/);
  const end = await operation();
  assert.ok(end.counts.changed < 60);
  assert.equal((await server.get("/queues/paced")).counts.queued, end.counts.changed, "none twice, none lost");
});

check("the server is killed in the middle of a redrive: it goes on, none twice, none left out", async () => {
  const { server } = holder;
  const group = await dies(server, "killed", 80);
  const page = await open(server, { path: `/ui/errors/${group}`, allow: [/ERR_|Failed to load|net::/] });
  const id = await redrive(page, { rate: /^\s*10\s*$/ });
  await until("some are done", async () => (await server.get(`/operations/${id}`)).counts.changed >= 5);
  await server.restart();
  const end = await until("it is done", async () => {
    const now = await server.get(`/operations/${id}`);
    return now.finished_at && now;
  }, 60_000);
  assert.equal(end.counts.changed, 80);
  const { counts } = await server.get("/queues/killed");
  assert.equal(counts.queued, 80);
  assert.equal(counts.failed_permanent, 0);
  const log = await server.get(`/audit?target=operation:${id}`);
  assert.ok(log.length >= 1, "who did it is known after the kill");
  await says(page, /80 jobs changed/);
});

check("the canary stops a redrive that would only kill again; what died again is not redriven again", async () => {
  const { server } = holder;
  const group = await dies(server, "canary", 20);
  const worker = server.work("mx-1", ["canary"], () => died("canary does not work"));
  const page = await open(server, { path: `/ui/errors/${group}` });
  const id = await redrive(page, { rate: /^\s*50\s*$/, canary: true });
  await until("it has paused itself", async () => (await server.get(`/operations/${id}`)).state === "paused");
  await says(page, /paused/);
  const now = await server.get(`/operations/${id}`);
  assert.equal(now.counts.changed, 5);
  assert.ok(now.note, "it says why");
  await worker.stop();
  const seen = await Promise.all((await server.get("/jobs?kind=canary&limit=100")).map(async ({ id: job }) => (await server.get(`/jobs/${job}/attempts`)).length));
  assert.ok(Math.max(...seen) <= 2, "nothing went in a circle");
  assert.equal(seen.filter((n) => n === 2).length, 5);
});

check("a canary that succeeds lets the rest follow", async () => {
  const { server } = holder;
  const group = await dies(server, "healed", 20);
  const worker = server.work("mx-1", ["healed"], succeeded);
  const page = await open(server, { path: `/ui/errors/${group}` });
  const id = await redrive(page, { rate: /all at once/, canary: true });
  await until("all are redriven", async () => (await server.get(`/operations/${id}`)).counts.changed === 20);
  await until("all have succeeded", async () => (await server.get("/queues/healed")).counts.succeeded === 20);
  await worker.stop();
});

check("a cause that is snoozed is apart, says until when, and comes back when the snooze is ended", async () => {
  const { server } = holder;
  const group = await dies(server, "snoozy", 4);
  const page = await open(server, { path: `/ui/errors/${group}` });
  await page.keyboard.press("s");
  await page.locator("dialog[open] label", { hasText: /24 h|1 d/ }).first().click();
  const button = page.locator("dialog[open] footer button[type=submit]");
  await page.waitForFunction(() => document.querySelector("dialog[open] input[type=text]"));
  assert.equal(await button.isDisabled(), true, "longer than 4 h needs a note");
  await page.locator("dialog[open] input[type=text]").fill("known, INC-7");
  await confirm(page, /Snooze/);
  await says(page, /Snoozed.*INC-7/s);
  await page.visit("/ui/errors?kind=snoozy&dead=true&snoozed=false");
  await says(page, /No dead letters|Nothing/);
  await page.visit("/ui/errors?snoozed=true");
  await says(page, /snoozy does not work/);
  await page.visit(`/ui/errors/${group}`);
  await page.getByRole("button", { name: "end the snooze" }).click();
  await page.getByRole("button", { name: /^snooze/ }).waitFor();
  assert.equal((await server.get(`/errors/${group}`)).snoozed, null);
});
