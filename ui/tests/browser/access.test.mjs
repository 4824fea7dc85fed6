// Who may look and act: login, scopes, revocation, the cookie and its proofs (SECURITY.md S49–S52, S57).

import assert from "node:assert/strict";
import http from "node:http";
import { after } from "node:test";
import { aServer, check, confirm, open, says, shown, text } from "./browser.mjs";
import { ADMIN, died, startServer, until } from "./server.mjs";

const SECRET = "hunter2-is-not-shown";
let dead;
const holder = aServer({}, async (server) => {
  await server.ask("PUT", "/kinds/charge", { hidden: ["/card"], queue: "billing" });
  await server.enqueueMany(Array.from({ length: 8 }, (_, n) => ({ kind: "charge", payload: { card: SECRET, amount: n } })));
  await server.drain("till-1", ["charge"], () => died("declined"));
  [dead] = await server.get("/jobs?status=failed_permanent&limit=1");
});

const refused = [/40[13] \((Unauthorized|Forbidden)\)/];
const logIn = async (page, token) => {
  await page.fill("input[name=token]", token);
  await page.keyboard.press("Enter");
};

check("S49 login: a wrong token is refused and said; the right one leads where one wanted to go", async () => {
  const { server } = holder;
  const page = await open(server, { token: null, load: false, allow: refused });
  await page.goto(page.at("/ui/queues/billing"));
  await page.waitForURL(/\/ui\/login\?to=/);
  await logIn(page, "not-a-token");
  await page.locator(".login .notice").waitFor();
  assert.match(await text(page, ".login .notice"), /token/i);
  await logIn(page, ADMIN);
  await page.waitForURL(/\/ui\/queues\/billing$/);
  await shown(page);
  assert.equal(await text(page, "main h1"), "billing");
  // S57: the token is nowhere in the page afterwards.
  const left = await page.evaluate(() => JSON.stringify([location.href, { ...localStorage }, { ...sessionStorage }, document.cookie, document.documentElement.outerHTML, history.state]));
  assert.ok(!left.includes(ADMIN));
});

check("S49 the cookie: HttpOnly, SameSite=Strict, not to be read by the page, new at every login (S50), gone after logout", async () => {
  const { server } = holder;
  const page = await open(server);
  const [cookie] = await page.context().cookies();
  assert.equal(await page.evaluate(() => document.cookie), "");
  const set = (await server.call("POST", "/session", { token: ADMIN }, { token: null })).headers.get("set-cookie");
  assert.match(set, /^steadfast=[^;]{32,};/);
  for (const flag of [/; HttpOnly/i, /; SameSite=Strict/i, /; Path=\//i]) assert.match(set, flag);
  assert.doesNotMatch(set, /Secure/i, "over http there is no Secure, or the browser would not send it");
  assert.ok(!set.includes(cookie.value));
  await page.getByRole("button", { name: "log out" }).click();
  await page.waitForURL(/\/ui\/login/);
  assert.deepEqual(await page.context().cookies(), []);
  const { status } = await server.call("GET", "/stats", undefined, { token: null, headers: { cookie: `${cookie.name}=${cookie.value}` } });
  assert.equal(status, 401);
});

check("S49 behind https the cookie is __Host- and Secure", async () => {
  const server = await startServer({ env: { STEADFAST_PUBLIC_URL: "https://queue.example" } });
  after(() => server.end());
  const answer = await server.call("POST", "/session", { token: ADMIN }, { token: null, headers: { host: "queue.example" } });
  assert.match(answer.headers.get("set-cookie") ?? `${answer.status} ${JSON.stringify(answer.data)}`, /^__Host-steadfast=.*; Secure/i);
}, { only: "sqlite" });

check("S51 the CSRF matrix: a cookie counts only with every proof, on every unsafe route", async () => {
  const { server } = holder;
  const { name, value } = await server.session();
  const all = { cookie: `${name}=${value}`, "sec-fetch-site": "same-origin", origin: server.url, "x-steadfast-session": "1" };
  const without = (...names) => Object.fromEntries(Object.entries(all).filter(([header]) => !names.includes(header)));
  const unsafe = [["POST", "/queues/billing/pause", {}], ["POST", "/queues/billing/resume", {}], ["POST", `/jobs/${dead.id}/redrive`, {}], ["DELETE", `/jobs/${dead.id}`], ["POST", "/jobs", { kind: "charge", payload: {} }], ["POST", "/tokens", { name: "x", scopes: ["admin"] }], ["POST", "/operations", { action: "delete", ids: [dead.id] }], ["PUT", "/kinds/evil", {}], ["PUT", "/schedules/evil", { every_ms: 1000, job: { kind: "charge", payload: {} } }], ["DELETE", "/session"]];
  const proofs = {
    "no session header": without("x-steadfast-session"),
    "neither Origin nor Sec-Fetch-Site": without("origin", "sec-fetch-site"),
    "another Origin": { ...without("sec-fetch-site"), origin: "https://evil.example" },
    "cross-site": { ...all, "sec-fetch-site": "cross-site" },
    "same-site is not same-origin": { ...all, "sec-fetch-site": "same-site" },
    "Origin null": { ...without("sec-fetch-site"), origin: "null" },
  };
  for (const [method, path, body] of unsafe) {
    for (const [what, headers] of Object.entries(proofs)) {
      const { status } = await server.call(method, path, body, { token: null, headers });
      assert.equal(status, 403, `${method} ${path} with ${what}`);
    }
  }
  assert.equal((await server.call("POST", "/queues/billing/pause", {}, { token: null, headers: all })).status, 200);
  assert.equal((await server.call("POST", "/queues/billing/resume", {}, { token: null, headers: without("origin") })).status, 200);
  assert.equal((await server.get(`/jobs/${dead.id}`)).status, "failed_permanent");
});

check("S51 a page of another site can neither act nor read with the cookie, but its link opens the page logged in", async () => {
  const { server } = holder;
  const other = http.createServer((_, answer) => answer.writeHead(200, { "content-type": "text/html" }).end(`<form id="f" method="post" action="${server.url}/queues/billing/pause"></form><a href="${server.url}/ui/queues">the queue</a>`));
  await new Promise((resolve) => other.listen(0, "127.0.0.1", resolve));
  try {
    // Another host name is another site.
    const elsewhere = `http://localhost:${other.address().port}`;
    const page = await open(server, { load: false, allow: [/40[13] \(/, /CORS|blocked|ERR_FAILED|favicon/i] });
    page.origins.add(elsewhere);
    await page.goto(elsewhere);
    const outcome = await page.evaluate(async (url) => {
      const tried = {};
      for (const [how, init] of Object.entries({ plain: { method: "POST", mode: "no-cors", credentials: "include" }, header: { method: "POST", credentials: "include", headers: { "x-steadfast-session": "1" } }, read: { credentials: "include" } })) {
        tried[how] = await fetch(`${url}${how === "read" ? "/stats" : "/queues/billing/pause"}`, init).then((answer) => answer.type, () => "refused");
      }
      return tried;
    }, server.url);
    assert.equal(outcome.header, "refused");
    assert.equal(outcome.read, "refused");
    await page.evaluate(() => document.querySelector("form").submit());
    await page.waitForURL(/pause$/);
    assert.equal((await server.get("/queues/billing")).paused, false);
    await page.goto(elsewhere);
    await page.click("a");
    await page.waitForURL(/\/ui\/queues$/);
    await shown(page);
    assert.equal(await text(page, "main h1"), "Queues");
  } finally {
    other.closeAllConnections();
    other.close();
  }
});

check("S52 a read token sees no buttons, and the API refuses what they would do", async () => {
  const { server } = holder;
  const { token } = await server.token("onlooker", ["read"]);
  const page = await open(server, { token, path: `/ui/jobs/${dead.id}`, allow: [/403 \(Forbidden\)/] });
  assert.match(await text(page, ".who"), /read-only/);
  const acts = async () => (await page.locator("main .acts button, main button.danger, main button.primary").allInnerTexts()).filter((one) => !/^(none|copy)$/.test(one));
  for (const path of [`/ui/jobs/${dead.id}`, "/ui/queues/billing", "/ui/errors", `/ui/errors/${dead.error_group}`, "/ui/schedules", "/ui/kinds/charge", "/ui/limits"]) {
    await page.visit(path);
    assert.deepEqual(await acts(), [], path);
  }
  await page.visit("/ui/jobs");
  await page.locator("tr[data-key] input").first().click();
  assert.deepEqual(await acts(), []);
  await page.keyboard.press("r");
  assert.equal(await page.locator("dialog[open]").count(), 0);
  assert.deepEqual(await page.locator("nav.rail a", { hasText: /Audit|Tokens/ }).count(), 0);
  const answer = await page.evaluate(async (id) => (await fetch(`/jobs/${id}/redrive`, { method: "POST", headers: { "x-steadfast-session": "1" } })).status, dead.id);
  assert.equal(answer, 403);
});

check("S52 operate may redrive and pause, not delete, not make tokens", async () => {
  const { server } = holder;
  const { token } = await server.token("on-call", ["operate"]);
  const page = await open(server, { token, path: `/ui/jobs/${dead.id}`, allow: [/403 \(Forbidden\)/] });
  const buttons = (await page.locator("main .acts button").allInnerTexts()).join();
  assert.match(buttons, /redrive/);
  assert.doesNotMatch(buttons, /delete|run again/);
  await page.visit("/ui/queues/billing");
  await page.getByRole("button", { name: /^pause/ }).click();
  await confirm(page, /pause/i);
  await until("the queue is paused", async () => (await server.get("/queues/billing")).paused);
  await says(page, /resume/);
  await server.ask("POST", "/queues/billing/resume", {});
  const rows = await server.get("/audit?limit=20&target=queue:billing");
  assert.ok(rows.some((one) => one.token_name === "on-call" && one.action.startsWith("pause")), JSON.stringify(rows));
  const refusals = await page.evaluate(async (id) => {
    const send = async (method, path, body) => (await fetch(path, { method, headers: { "x-steadfast-session": "1", "content-type": "application/json" }, body })).status;
    return [await send("DELETE", `/jobs/${id}`), await send("POST", "/tokens", JSON.stringify({ name: "x", scopes: ["admin"] })), await send("POST", "/operations", JSON.stringify({ action: "delete", ids: [id] }))];
  }, dead.id);
  assert.deepEqual(refusals, [403, 403, 403]);
  await page.visit("/ui/tokens");
  assert.match(await text(page), /Not allowed/);
});

check("S50 revoking a token ends its tab within 2 s", async () => {
  const { server } = holder;
  const { token, id } = await server.token("leaver", ["read"]);
  const page = await open(server, { token, allow: refused });
  await says(page, /.+/, ".line");
  const began = Date.now();
  await server.ask("DELETE", `/tokens/${id}`);
  await page.waitForURL(/\/ui\/login/, { timeout: 15_000 });
  // The claim is 2 s; a busy machine gets a little more, but a poll of 5 s would not do.
  assert.ok(Date.now() - began < 4_000, `${Date.now() - began} ms`);
});

check("hidden payload fields are in no response and in no page of a token without admin", async () => {
  const { server } = holder;
  const { token } = await server.token("reader", ["operate"]);
  const page = await open(server, { token, load: false });
  const bodies = [];
  page.on("response", (answer) => {
    // A stream has no end; what it says is what /pulse says.
    if (!answer.url().endsWith("/pulse/stream")) bodies.push(answer.text().catch(() => ""));
  });
  for (const path of ["/ui/jobs", `/ui/jobs/${dead.id}`, `/ui/errors/${dead.error_group}`, "/ui/audit", "/ui/queues/billing"]) {
    await page.visit(path);
    assert.ok(!(await page.content()).includes(SECRET), path);
  }
  await page.visit(`/ui/jobs/${dead.id}`);
  await says(page, /hidden/);
  bodies.push(server.call("GET", "/pulse", undefined, { token }).then(({ data }) => JSON.stringify(data)));
  for (const body of await Promise.all(bodies)) assert.ok(!body.includes(SECRET));
});

check("an open loopback server needs no login and says that it is open", async () => {
  const server = await startServer({ open: true });
  after(() => server.end());
  const page = await open(server, { path: "/ui/jobs" });
  assert.match(await text(page, ".who"), /open on loopback/);
  await says(page, /No job was ever enqueued/);
  assert.match((await server.call("GET", "/", undefined, { headers: { accept: "text/html" } })).headers.get("location"), /^\/?(\.\/)?ui\/$/);
});

check("a link to elsewhere in ?to= is not followed after the login", async () => {
  const { server } = holder;
  const page = await open(server, { token: null, load: false, allow: refused });
  await page.goto(page.at(`/ui/login?to=${encodeURIComponent("//evil.example/ui/")}`));
  await page.waitForSelector("input[name=token]");
  await logIn(page, ADMIN);
  await page.waitForFunction(() => !location.pathname.endsWith("/login"));
  assert.equal(new URL(page.url()).origin, server.url);
});
