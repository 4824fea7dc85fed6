// Text of callers is only ever text (SECURITY.md S53), and what cannot be seen is shown (S56): the corpus goes in through payload,
// error, progress, key, group, worker's info, token names and URLs, and every screen that shows it is looked at.

import assert from "node:assert/strict";
import { aServer, check, open, says, text } from "./browser.mjs";
import { died, until } from "./server.mjs";

const CORPUS = [
  "<script>globalThis.owned = 1</script>",
  "<img src=x onerror=\"globalThis.owned = 2\">",
  "\"><svg onload=globalThis.owned=3>",
  "'-globalThis.owned=4-'",
  "javascript:globalThis.owned=5",
  "<iframe srcdoc=\"<script>parent.owned=6</script>\"></iframe>",
  "<a href=\"javascript:globalThis.owned=7\">click</a>",
  "</script><script>globalThis.owned = 8</script>",
  "{{constructor.constructor('globalThis.owned=9')()}} ${globalThis.owned=9}",
  "<style>*{display:none}</style><base href=//evil.example/>",
  "<!--<math><mi//xlink:href=\"data:x,<script>globalThis.owned=10</script>\">",
];
const ALL = CORPUS.join(" ");
const BIDI = "user\u202egpj.exe\u2066\u0007\ufeff end";

let made = {};
const holder = aServer({}, async (server) => {
  await server.ask("PUT", "/kinds/xss", { queue: "xss" });
  const payload = Object.fromEntries(CORPUS.map((one, n) => [`${one}${n}`, [one]]));
  const dead = await server.enqueue("xss", payload, { idempotency_key: `<img src=x onerror=globalThis.owned=11>`, group_key: "<svg/onload=globalThis.owned=12>" });
  const leased = await server.lease("w-1", { kinds: ["xss"], info: { host: "<script>owned=13</script>", language: "<b>x</b>", version: "\"><img src=x onerror=owned=14>", pid: 1, concurrency: 1 } });
  await server.settle("w-1", [[leased[0], died(`${ALL}\n${BIDI}`)]]);
  const running = await server.enqueue("xss", { text: BIDI, lone: "?" });
  const [lease] = await server.lease("w-1", { kinds: ["xss"], lease_ms: 600_000 });
  await server.ask("POST", "/leases/heartbeat", { worker: "w-1", lease_ms: 600_000, leases: [{ job_id: lease.job.id, lease_token: lease.lease_token, progress: { percent: 3, message: CORPUS[1] } }] });
  const token = await server.token("<img src=x onerror=owned=15>", ["read"]);
  const lone = await server.call("POST", "/jobs", '{"kind":"xss","payload":{"lone":"\\ud800 and \\udc00"}}');
  const large = await server.enqueue("xss", { text: "<script>owned=16</script>".repeat(9_000), rows: Array.from({ length: 500 }, (_, n) => n) });
  const operation = await server.ask("POST", "/operations", { action: "redrive", filter: { error: "0123456789abcdef", status: "failed_permanent" }, reason: CORPUS[0] }).catch(() => null);
  await server.ask("PUT", `/errors/${(await server.get(`/jobs/${dead.id}`)).error_group}/snooze`, { for_ms: 3_600_000, note: CORPUS[1] });
  await until("the worker is known", async () => (await server.call("GET", "/workers/w-1")).status === 200);
  made = { dead: dead.id, running: running.id, large: large.id, lone: lone.data?.id, group: (await server.get(`/jobs/${dead.id}`)).error_group, token: token.token, operation: operation?.id };
});

const untouched = async (page, where) => {
  assert.equal(await page.evaluate(() => globalThis.owned ?? null), null, where);
  const odd = await page.evaluate(() => [...document.querySelectorAll("main script, main iframe, main base, main math, main style, main img, main a[href^='javascript:' i], [onerror], [onload], [onclick]")].map((one) => one.outerHTML.slice(0, 120)));
  assert.deepEqual(odd, [], where);
};

check("S53 the corpus is harmless on every screen that shows it", async () => {
  const page = await open(holder.server, { load: false });
  const paths = ["/ui/", "/ui/jobs", "/ui/jobs?queue=xss", `/ui/jobs/${made.dead}`, `/ui/jobs/${made.running}`, "/ui/errors?snoozed=true", `/ui/errors/${made.group}`, "/ui/queues/xss", "/ui/kinds/xss", "/ui/workers", "/ui/workers/w-1", "/ui/tokens", "/ui/audit", "/ui/operations", ...(made.operation ? [`/ui/operations/${made.operation}`] : [])];
  for (const path of paths) {
    await page.visit(path);
    await untouched(page, path);
  }
  await page.visit(`/ui/jobs/${made.dead}`);
  const shown = await text(page);
  for (const one of CORPUS) assert.ok(shown.includes(one), `it is shown as it is: ${one}`);
});

check("S53 the corpus in the URL is harmless, in a path, a query and a filter", async () => {
  const page = await open(holder.server, { allow: [/(400|404|422) \(/] });
  for (const one of CORPUS) {
    const part = encodeURIComponent(one);
    for (const path of [`/ui/queues/${part}`, `/ui/jobs?text=${part}`, `/ui/jobs?queue=${part}`, `/ui/${part}`]) {
      await page.visit(path);
      await untouched(page, path);
    }
  }
  await page.visit("/ui/jobs");
  await page.fill("#filter", CORPUS[1]);
  await page.keyboard.press("Enter");
  await page.waitForURL(/text=/);
  await untouched(page, "the filter field");
});

check("S53 a token with a hostile name is shown by that name", async () => {
  const page = await open(holder.server, { token: made.token });
  assert.match(await text(page, ".who"), /<img src=x onerror=owned=15>/);
  await untouched(page, "the header");
});

check("S56 control and bidi characters are shown, not obeyed", async () => {
  const page = await open(holder.server, { path: `/ui/jobs/${made.running}` });
  await says(page, /⟨202E⟩gpj\.exe⟨2066⟩/);
  const raw = await page.evaluate(() => document.querySelector("main").textContent);
  assert.doesNotMatch(raw, /[\u202a-\u202e\u2066-\u2069\u0007]/);
  await page.visit(`/ui/jobs/${made.dead}`);
  await says(page, /⟨202E⟩gpj\.exe/);
});

check("a payload of 256 KiB starts folded, and lone surrogates are refused or shown", async () => {
  const page = await open(holder.server, { path: `/ui/jobs/${made.large}` });
  await says(page, /22\d[.,]?\d* (kB|KiB)/);
  assert.equal(await page.locator(".json details[open]").count(), 0);
  await untouched(page, "large");
  await page.locator(".json summary").first().click();
  await says(page, /rows/);
  if (made.lone) {
    await page.visit(`/ui/jobs/${made.lone}`);
    await untouched(page, "lone");
  }
});
