// The other screens: drain, schedules, limits, kinds, tokens, and that every act has its audit row with who did it.

import assert from "node:assert/strict";
import { aServer, check, confirm, open, says, text } from "./browser.mjs";
import { until } from "./server.mjs";

const holder = aServer({});

check("drain reaches a worker: its next call says so, and the screen shows it", async () => {
  const { server } = holder;
  await server.ask("POST", "/leases", { worker: "py-1", max: 1, info: { language: "python", version: "3.12", host: "h", pid: 1, concurrency: 2 } });
  await until("the worker is known", async () => (await server.call("GET", "/workers/py-1")).status === 200);
  const page = await open(server, { path: "/ui/workers/py-1" });
  await page.getByRole("button", { name: /^drain/ }).click();
  await confirm(page, /Drain py-1/);
  await until("its next call is told", async () => (await server.ask("POST", "/leases/heartbeat", { worker: "py-1", leases: [] })).worker === "drain");
  await says(page, /draining/);
});

check("a schedule is changed with its next runs in view, across a change of the clocks", async () => {
  const { server } = holder;
  await server.ask("PUT", "/schedules/monthly", { cron: "0 4 * * *", tz: "Europe/Berlin", job: { kind: "bill", payload: {} } });
  const page = await open(server, { path: "/ui/schedules/monthly" });
  await page.getByRole("button", { name: /change/ }).click();
  // Every month: five runs cross the last Sunday of March or of October.
  await page.locator("dialog[open] label", { hasText: "cron" }).locator("input").fill("30 2 1 */2 *");
  await page.waitForFunction(() => {
    const shown = document.querySelector("dialog[open] ul.plain")?.innerText ?? "";
    return shown.includes("+01:00") && shown.includes("+02:00");
  });
  await confirm(page, /Change it/);
  await until("it is changed", async () => (await server.get("/schedules/monthly")).cron === "30 2 1 */2 *");
  await page.waitForFunction(() => !document.querySelector("dialog"));
  await page.getByRole("button", { name: /^pause/ }).click();
  await until("it is paused", async () => (await server.get("/schedules/monthly")).paused);
  await page.getByRole("button", { name: /^resume/ }).click();
  await until("it is resumed", async () => !(await server.get("/schedules/monthly")).paused);
  await page.getByRole("button", { name: /^run now/ }).click();
  await confirm(page, /Run it now/);
  await until("it has run", async () => (await server.get("/jobs?kind=bill")).length === 1);
  await page.getByRole("button", { name: /^delete/ }).click();
  await confirm(page, /Delete monthly/);
  await page.waitForURL(/\/ui\/schedules$/);
  assert.equal((await server.call("GET", "/schedules/monthly")).status, 404);
});

check("a pattern that is none is said to be so, and cannot be sent", async () => {
  const page = await open(holder.server, { path: "/ui/schedules", allow: [/422/] });
  await page.getByRole("button", { name: /new schedule/ }).click();
  await page.locator("dialog[open] label", { hasText: "cron" }).locator("input").fill("61 2 * *");
  await says(page, /cron|minute|field|61/i, "dialog[open]");
  assert.equal(await page.locator("dialog[open] footer button[type=submit]").isDisabled(), true);
});

check("limits of a queue are changed and shown in use", async () => {
  const { server } = holder;
  await server.enqueueMany(Array.from({ length: 3 }, (_, n) => ({ kind: "narrow", queue: "narrow", payload: { n } })));
  const page = await open(server, { path: "/ui/queues/narrow" });
  await page.getByRole("button", { name: /^limits/ }).click();
  await page.locator("dialog[open] input").first().fill("1");
  await confirm(page);
  await until("it is set", async () => (await server.get("/queues/narrow")).concurrency === 1);
  await server.lease("w-1", { kinds: ["narrow"], max: 3, lease_ms: 600_000 });
  await page.visit("/ui/limits");
  await says(page, /narrow/);
  await says(page, /1 of 1/);
  await says(page, /a place/);
});

check("a token is made, shown once, and revoked", async () => {
  const { server } = holder;
  const page = await open(server, { path: "/ui/tokens" });
  await page.getByRole("button", { name: /new token/ }).click();
  await page.locator("dialog[open] input[type=text]").fill("ci-of-shop");
  await confirm(page, /Make the token/);
  await page.locator("dialog[open] pre").waitFor();
  const secret = (await text(page, "dialog[open] pre")).trim();
  assert.equal((await server.call("POST", "/jobs", { kind: "made", payload: {} }, { token: secret })).status, 201);
  await confirm(page, /I have stored it/);
  await page.waitForFunction(() => !document.querySelector("dialog"));
  await says(page, /ci-of-shop/);
  assert.ok(!(await page.content()).includes(secret));
  await page.locator("tr[data-key]", { hasText: "ci-of-shop" }).getByRole("button", { name: /revoke/ }).click();
  await confirm(page, /Revoke ci-of-shop/);
  await until("it is refused", async () => (await server.call("POST", "/jobs", { kind: "made", payload: {} }, { token: secret })).status === 401);
});

check("a kind is declared and one job of it enqueued from its screen", async () => {
  const { server } = holder;
  await server.ask("PUT", "/kinds/greet", { schema: { type: "object", required: ["name"], properties: { name: { type: "string" } } } });
  const page = await open(server, { path: "/ui/kinds/greet" });
  await page.getByRole("button", { name: /enqueue one/ }).click();
  assert.match(await page.locator("dialog[open] textarea").inputValue(), /"name"/, "the schema suggests what is needed");
  await confirm(page, /Enqueue/);
  await until("it is there", async () => (await server.get("/jobs?kind=greet")).length === 1);
});

check("every act of these tests has its audit row, with who did it", async () => {
  const { server } = holder;
  const page = await open(server, { path: "/ui/audit" });
  await says(page, /save as CSV/);
  const rows = await server.get("/audit?limit=200");
  const did = new Set(rows.map(({ action }) => action.replaceAll("_", " ")));
  for (const [what, pattern] of [["drain", /drain/], ["schedule", /schedule/], ["queue", /queue/], ["token", /token/], ["kind", /kind/]]) assert.ok([...did].some((one) => pattern.test(one)), `${what} is in ${[...did].join(", ")}`);
  for (const row of rows) assert.ok(row.token_name, JSON.stringify(row));
  await page.locator("label", { hasText: "target" }).locator("input").fill("schedule:monthly");
  await page.keyboard.press("Enter");
  await page.waitForURL(/target=schedule/);
  await page.waitForFunction(() => [...document.querySelectorAll("main td.c-target")].every((one) => one.innerText === "schedule:monthly") && document.querySelectorAll("main td.c-target").length >= 4);
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "save as CSV" }).click()]);
  assert.equal(download.suggestedFilename(), "audit.csv");
});

check("the audit row is there when the server is killed right after the act", async () => {
  const { server } = holder;
  await server.enqueue("last", {}, { queue: "last" });
  const page = await open(server, { path: "/ui/queues/last", allow: [/ERR_|net::|Failed to load/] });
  await page.getByRole("button", { name: /^pause/ }).click();
  const answered = page.waitForResponse((answer) => answer.url().endsWith("/pause"));
  await confirm(page);
  assert.ok((await answered).ok());
  await server.restart();
  assert.equal((await server.get("/queues/last")).paused, true);
  const [row] = await server.get("/audit?target=queue:last");
  assert.match(row.action, /pause/);
}, { only: "sqlite" });
