// Jobs: what is found, what does not move, and acts on many that do exactly what they showed (SECURITY.md S58).

import assert from "node:assert/strict";
import { aServer, check, confirm, open, says, shown } from "./browser.mjs";
import { died, succeeded, until } from "./server.mjs";

const FINISHED = 20_000;
let old = [];
const holder = aServer({}, async (server) => {
  // Fifty stuck ones, then what is in front of them in every list that is sorted by age.
  old = (await server.enqueueMany(Array.from({ length: 50 }, (_, n) => ({ kind: "stuck", queue: "slow", payload: { n } })))).map(({ job }) => job?.id);
  await server.enqueueMany(Array.from({ length: FINISHED }, (_, n) => ({ kind: "quick", queue: "fast", payload: { n } })));
  await server.drain("w-1", ["quick"], succeeded);
  await server.enqueueMany(Array.from({ length: 130 }, (_, n) => ({ kind: "doomed", queue: "bulk", payload: { n } })));
  await server.enqueueMany(Array.from({ length: 7 }, (_, n) => ({ kind: "doomed", queue: "few", payload: { n } })));
  await server.drain("w-1", ["doomed"], () => died("no disk"));
  await server.enqueue("needle", { text: "the haystack has zebra-crossing in it" }, { queue: "one", idempotency_key: "order-17" });
});

const rows = (page) => page.$$eval("main tr[data-key]", (all) => all.map((one) => one.dataset.key));
const selectedRows = (page) => page.locator("main tr[aria-selected=true]").count();

check("50 old queued jobs behind 20,000 finished ones are on the first page", async () => {
  const page = await open(holder.server, { path: "/ui/jobs?status=queued&queue=slow" });
  await page.waitForFunction(() => document.querySelectorAll("tr[data-key]").length === 50);
  await page.visit("/ui/jobs?status=queued");
  await page.waitForFunction(() => document.querySelectorAll("tr[data-key]").length === 51);
  await says(page, /that is all/);
});

check("tabs count exactly", async () => {
  const page = await open(holder.server, { path: "/ui/jobs" });
  await says(page, /succeeded\s+20,000/);
  await says(page, /dead\s+137/);
  await page.visit("/ui/jobs?queue=bulk");
  await says(page, /dead\s+130/);
});

check("filters round-trip through the URL, typed and as chips", async () => {
  const page = await open(holder.server, { path: "/ui/jobs" });
  await page.keyboard.press("/");
  await page.keyboard.type("queue:bulk status:dead kind:doomed ");
  await page.keyboard.press("Enter");
  await page.waitForURL(/queue=bulk/);
  const query = new URL(page.url()).searchParams;
  assert.equal(query.get("status"), "failed_permanent");
  assert.equal(query.get("kind"), "doomed");
  const chips = await page.locator(".chip").allInnerTexts();
  await page.reload();
  await shown(page);
  assert.deepEqual(await page.locator(".chip").allInnerTexts(), chips);
  await page.waitForFunction(() => document.querySelectorAll("tr[data-key]").length === 100);
  await page.locator(".chip button").first().click();
  await page.waitForFunction((n) => document.querySelectorAll(".chip").length === n, chips.length - 1);
  await page.goBack();
  await page.waitForFunction((n) => document.querySelectorAll(".chip").length === n, chips.length);
});

check("a UUID, a key and a text find their job; text says how far it looked", async () => {
  const { server } = holder;
  const [needle] = await server.get("/jobs?kind=needle");
  const page = await open(server, { path: "/ui/jobs" });
  await page.fill("#filter", needle.id);
  await page.keyboard.press("Enter");
  await page.waitForURL(new RegExp(`/ui/jobs/${needle.id}$`));
  await page.visit("/ui/jobs?key=order-17");
  assert.deepEqual(await rows(page), [needle.id]);
  await page.visit("/ui/jobs?text=zebra-crossing");
  await page.waitForFunction((id) => document.querySelector(`tr[data-key="${id}"]`), needle.id);
  await says(page, /looked at [\d,]+ jobs|that is all/);
  await page.visit("/ui/jobs?text=not-in-any-of-them");
  await says(page, /Nothing found so far|No job matches/);
});

check("new jobs do not move rows: the pill shows them; selection, focus, scroll and a dimmed row survive live load", async () => {
  const { server } = holder;
  await server.enqueueMany(Array.from({ length: 50 }, (_, n) => ({ kind: "stuck", queue: "busy", payload: { n } })));
  const page = await open(server, { path: "/ui/jobs?queue=busy" });
  await page.waitForFunction(() => document.querySelectorAll("tr[data-key]").length === 50);
  const before = await rows(page);
  for (const key of ["j", "j", "j", "x", "j", "x"]) await page.keyboard.press(key);
  const focus = await page.evaluate(() => document.activeElement.dataset.key);
  await page.evaluate(() => scrollTo(0, 200));
  const at = await page.evaluate(() => scrollY);
  for (let n = 0; n < 5; n++) await server.enqueueMany(Array.from({ length: 300 }, (_, m) => ({ kind: "stuck", queue: "busy", payload: { n, m } })));
  // One of those in view ends meanwhile.
  await server.ask("POST", `/jobs/${before[10]}/cancel`);
  await page.locator(".newer").waitFor({ timeout: 30_000 });
  assert.deepEqual(await rows(page), before);
  assert.equal(await page.evaluate(() => document.activeElement.dataset.key), focus);
  assert.equal(await selectedRows(page), 2);
  // The pill took its line above the rows; what one looks at stays.
  assert.ok(Math.abs((await page.evaluate(() => scrollY)) - at) <= 40);
  await page.keyboard.press(".");
  await page.waitForFunction((first) => document.querySelector("tr[data-key]")?.dataset.key !== first, before[0]);
});

check("a row that no longer matches stays, dimmed", async () => {
  const { server } = holder;
  await server.enqueueMany(Array.from({ length: 3 }, (_, n) => ({ kind: "later", queue: "dims", payload: { n } })));
  const page = await open(server, { path: "/ui/jobs?status=queued&queue=dims" });
  await page.waitForFunction(() => document.querySelectorAll("tr[data-key]").length === 3);
  const [first] = await rows(page);
  await server.ask("POST", `/jobs/${first}/cancel`);
  await page.waitForFunction((id) => document.querySelector(`tr[data-key="${id}"]`)?.classList.contains("dimmed"), first, { timeout: 30_000 });
  assert.equal((await rows(page)).length, 3);
});

check("Shift selects a range, by mouse and by key; all that match are counted exactly", async () => {
  const page = await open(holder.server, { path: "/ui/jobs?status=failed_permanent&queue=bulk" });
  await page.waitForFunction(() => document.querySelectorAll("tr[data-key]").length === 100);
  await page.locator("tr[data-key] input").nth(2).click();
  await page.locator("tr[data-key] input").nth(9).click({ modifiers: ["Shift"] });
  assert.equal(await selectedRows(page), 8);
  await page.keyboard.press("Escape");
  assert.equal(await selectedRows(page), 0);
  await page.locator("tr[data-key]").first().focus();
  await page.keyboard.press("x");
  for (const key of ["j", "j", "j"]) await page.keyboard.press(key);
  await page.keyboard.press("Shift+X");
  assert.equal(await selectedRows(page), 4);
  await page.keyboard.press("a");
  await says(page, /100 selected/, ".selection");
  await page.getByRole("button", { name: /select all 130 matching/ }).click();
  await says(page, /all 130 matching/, ".selection");
});

check("S58 the preview equals what is done, and more than 100 must be typed", async () => {
  const { server } = holder;
  const page = await open(server, { path: "/ui/jobs?status=failed_permanent&queue=bulk" });
  await page.locator("tr[data-key]").first().focus();
  await page.keyboard.press("a");
  await page.getByRole("button", { name: /select all/ }).click();
  await page.keyboard.press("r");
  await says(page, /130.*doomed 130/s, "dialog[open]");
  const button = page.locator("dialog[open] footer button[type=submit]");
  await page.waitForFunction(() => document.activeElement?.matches(".typed"));
  assert.equal(await button.isDisabled(), true);
  await page.keyboard.type("13");
  assert.equal(await button.isDisabled(), true);
  await page.keyboard.type("0");
  await page.locator("dialog[open] label", { hasText: "all at once" }).click();
  await page.locator("dialog[open] label", { hasText: "canary" }).click();
  await confirm(page, /Redrive 130 jobs/);
  await page.waitForFunction(() => !document.querySelector("dialog[open]"));
  const [operation] = await until("it is done", async () => {
    const all = await server.get("/operations?limit=1");
    return all[0]?.finished_at && all;
  });
  assert.equal(operation.counts.changed, 130);
  const stats = await server.get("/queues/bulk");
  assert.equal(stats.counts.queued, 130);
  assert.equal(stats.counts.failed_permanent, 0);
});

check("S58 jobs that changed since the preview are left alone and said", async () => {
  const { server } = holder;
  const page = await open(server, { path: "/ui/jobs?status=failed_permanent&queue=few" });
  await page.waitForFunction(() => document.querySelectorAll("tr[data-key]").length === 7);
  const ids = await rows(page);
  await page.locator("tr[data-key]").first().focus();
  await page.keyboard.press("a");
  await page.keyboard.press("r");
  await page.waitForFunction(() => document.querySelector("dialog[open] .note"));
  for (const id of ids.slice(0, 2)) await server.ask("POST", `/jobs/${id}/redrive`);
  await page.locator("dialog[open] label", { hasText: "all at once" }).click();
  await page.locator("dialog[open] label", { hasText: "canary" }).click();
  await confirm(page);
  await page.locator(".toast a").click();
  await says(page, /5 jobs changed/);
  await says(page, /left alone\s*2/);
});

check("a click right after the dialog opens does nothing, and a double click acts once", async () => {
  const { server } = holder;
  const job = await server.enqueue("twice", {}, { queue: "twice" });
  const page = await open(server, { path: `/ui/jobs/${job.id}` });
  const posts = [];
  page.on("request", (request) => request.method() === "POST" && posts.push(request.url()));
  await page.getByRole("button", { name: /^cancel/ }).click();
  // In the same task as the opening: no time has passed.
  const early = await page.evaluate(() => {
    document.querySelector("dialog[open]")?.close();
    [...document.querySelectorAll("main .acts button")].find((one) => one.textContent.includes("cancel")).click();
    const submit = document.querySelector("dialog[open] footer button[type=submit]");
    submit.click();
    document.querySelector("dialog[open] form").requestSubmit();
    return submit.disabled;
  });
  assert.equal(early, true);
  assert.deepEqual(posts, []);
  await page.waitForFunction(() => document.querySelector("dialog[open] footer button[type=submit]:not([disabled])"));
  await page.locator("dialog[open] footer button[type=submit]").dblclick();
  await until("it is cancelled", async () => (await server.get(`/jobs/${job.id}`)).status === "cancelled");
  await page.waitForFunction(() => !document.querySelector("dialog[open]"));
  assert.equal(posts.length, 1);
  assert.equal((await server.get(`/audit?target=job:${job.id}`)).length, 1);
});
