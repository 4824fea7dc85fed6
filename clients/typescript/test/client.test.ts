/** The producer half against a scripted server: keys, retries, batches, lists, and that every route has a method. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { Client, JobFailed, Problem, Unreachable, WaitTimeout } from "steadfast-queue";
import { gate, scriptedServer, type Scripted, type Seen } from "./support.js";

const UNAVAILABLE: Scripted = { status: 503, body: { code: "store_unavailable", detail: "later" } };
const JOB = { id: "0190-1", status: "queued" };

async function withServer(answer: (seen: Seen, count: number) => Scripted, body: (client: Client, seen: Seen[]) => Promise<void>): Promise<void> {
  const server = await scriptedServer(answer);
  try {
    await body(new Client({ url: server.url, token: "secret" }), server.seen);
  } finally {
    server.close();
  }
}

test("an enqueue whose answer was lost is repeated with the same random key and creates one job", async () => {
  const answer = (_: Seen, count: number): Scripted => (count === 1 ? { hangUp: true } : { status: 200, headers: { "idempotent-replayed": "true" }, body: JOB });
  await withServer(answer, async (client, seen) => {
    const job = await client.enqueue("welcome", { user: 42 });
    assert.equal(job.created, true, "the first try has created it");
    assert.equal(seen.length, 2);
    assert.match(seen[0]?.body.idempotency_key, /^[0-9a-f-]{36}$/);
    assert.equal(seen[0]?.body.idempotency_key, seen[1]?.body.idempotency_key);
    assert.equal(seen[0]?.headers.authorization, "Bearer secret");
  });
});

test("two calls have two keys; a key of the caller's is sent as it is, and a replay of it says so", async () => {
  await withServer(() => ({ status: 200, headers: { "idempotent-replayed": "true" }, body: JOB }), async (client, seen) => {
    await client.enqueue("welcome", {});
    await client.enqueue("welcome", {});
    const third = await client.enqueue("welcome", {}, { idempotencyKey: "mine" });
    assert.notEqual(seen[0]?.body.idempotency_key, seen[1]?.body.idempotency_key);
    assert.equal(seen[2]?.body.idempotency_key, "mine");
    assert.equal(third.created, false);
  });
});

test("an enqueue without a key is not repeated once it may have arrived", async () => {
  await withServer(() => ({ hangUp: true }), async (client, seen) => {
    await assert.rejects(client.enqueue("welcome", {}, { idempotencyKey: null }), (error) => error instanceof Unreachable && error.maybeSent);
    assert.equal(seen.length, 1);
    assert.equal("idempotency_key" in seen[0]!.body, false);
  });
});

test("503 and 429 are repeated and Retry-After is honoured", async () => {
  const limited: Scripted = { status: 429, headers: { "retry-after": "1" }, body: { code: "queue_full" } };
  await withServer((_, count) => (count === 1 ? UNAVAILABLE : count === 2 ? limited : { status: 201, body: JOB }), async (client, seen) => {
    const before = performance.now();
    await client.enqueue("welcome", {});
    assert.equal(seen.length, 3);
    assert.ok(performance.now() - before >= 1_000, "it came back before Retry-After");
  });
});

test("retries end: what is asked for later than retryForMs is thrown", async () => {
  const server = await scriptedServer(() => ({ ...UNAVAILABLE, headers: { "retry-after": "60" } }));
  const client = new Client({ url: server.url, retryForMs: 500 });
  await assert.rejects(client.enqueue("welcome", {}), (error) => error instanceof Problem && error.code === "store_unavailable");
  assert.equal(server.seen.length, 1);
  server.close();
});

test("an act that may have happened is not repeated; one that was refused for the moment is", async () => {
  const unknown: Scripted = { status: 503, body: { code: "outcome_unknown", detail: "it may have been done" } };
  await withServer(() => unknown, async (client, seen) => {
    await assert.rejects(client.redrive("1"), Problem);
    assert.equal(seen.length, 1);
  });
  await withServer((_, count) => (count === 1 ? UNAVAILABLE : { body: JOB }), async (client, seen) => {
    await client.redrive("1");
    assert.equal(seen.length, 2);
  });
});

test("a delete whose answer was lost and that finds nothing the second time has worked", async () => {
  await withServer((_, count) => (count === 1 ? { hangUp: true } : { status: 404, body: { code: "not_found" } }), async (client) => {
    await client.delete("1");
  });
  await withServer(() => ({ status: 404, body: { code: "not_found" } }), async (client) => {
    await assert.rejects(client.delete("1"), (error) => error instanceof Problem && error.status === 404);
  });
});

test("a refusal is thrown at once with what the server said", async () => {
  const body = { code: "unknown_kind", title: "t", detail: "did you mean welcome?", request_id: "r-1", errors: [{ index: 3, detail: "bad" }] };
  await withServer(() => ({ status: 422, body }), async (client, seen) => {
    const refused = await client.enqueue("welcom", {}).then(() => undefined, (error: unknown) => error);
    assert.ok(refused instanceof Problem);
    assert.deepEqual([refused.status, refused.code, refused.requestId, refused.errors[0]?.index], [422, "unknown_kind", "r-1", 3]);
    assert.match(refused.message, /did you mean welcome/);
    assert.equal(seen.length, 1);
  });
});

test("a redirect is not followed: the token stays here", async () => {
  await withServer(() => ({ status: 307, headers: { location: "http://127.0.0.1:1/" } }), async (client) => {
    await assert.rejects(client.job("1"), /redirected to http:\/\/127\.0\.0\.1:1/);
  });
});

test("a call without an answer ends with its timeout", async () => {
  const never = gate();
  const server = await scriptedServer(() => ({ after: never.promise }));
  const client = new Client({ url: server.url, timeoutMs: 100, retryForMs: 0 });
  await assert.rejects(client.job("1"), /no answer within 100 ms/);
  never.open();
  server.close();
});

test("many jobs go in batches of 1,000 and answers keep their order", async () => {
  const answer = (seen: Seen): Scripted => ({ body: { results: seen.body.jobs.map((job: any) => ({ created: true, job: { id: `id-${job.payload}`, status: "queued" } })) } });
  await withServer(answer, async (client, seen) => {
    async function* specs(): AsyncGenerator<{ kind: string; payload: number }> {
      for (let n = 0; n < 2_500; n++) yield { kind: "k", payload: n };
    }
    const jobs = await client.enqueueMany(specs());
    assert.deepEqual(seen.map((one) => one.body.jobs.length), [1_000, 1_000, 500]);
    assert.deepEqual(jobs.map((job) => job.id), Array.from({ length: 2_500 }, (_, n) => `id-${n}`));
    assert.equal(new Set(seen.flatMap((one) => one.body.jobs.map((job: any) => job.idempotency_key))).size, 2_500);
  });
});

test("a batch whose answer was lost is repeated, and its jobs count as created", async () => {
  const answer = (seen: Seen, count: number): Scripted => (count === 1 ? { hangUp: true } : { body: { results: seen.body.jobs.map((job: any) => ({ created: false, job: { ...JOB, idempotency_key: job.idempotency_key } })) } });
  await withServer(answer, async (client, seen) => {
    const jobs = await client.enqueueMany([{ kind: "k", payload: 1 }, { kind: "k", payload: 2, idempotencyKey: "mine" }]);
    assert.deepEqual(seen[0]?.body, seen[1]?.body);
    assert.deepEqual(jobs.map((job) => job.created), [true, false]);
  });
});

test("batches also end before they are too large for the server", async () => {
  const answer = (seen: Seen): Scripted => ({ body: { results: seen.body.jobs.map(() => ({ created: true, job: JOB })) } });
  await withServer(answer, async (client, seen) => {
    const payload = "x".repeat(200 * 1024);
    await client.enqueueMany(Array.from({ length: 30 }, () => ({ kind: "k", payload })));
    assert.ok(seen.length > 1 && seen.every((one) => one.body.jobs.length * payload.length < 8 * 1024 * 1024));
  });
});

test("options have the names of the API on the wire", async () => {
  await withServer(() => ({ status: 201, body: JOB }), async (client, seen) => {
    const at = new Date("2030-01-01T00:00:00Z");
    await client.enqueue("k", 1, {
      queue: "q", priority: 5, maxAttempts: 2, runAt: at, timeoutMs: 9, idempotencyKey: "i", group: "g", cost: 3, startBy: at, startWithinMs: 4, notify: "h", traceparent: "p", tracestate: "s",
      unique: { key: "u", while: "unfinished", onConflict: "replace", forMs: 1, maxWaitMs: 2 },
    });
    await client.enqueue("k", undefined, { delayMs: 7 });
    assert.deepEqual(seen[0]?.body, {
      kind: "k", payload: 1, queue: "q", priority: 5, max_attempts: 2, run_at: "2030-01-01T00:00:00.000Z", timeout_ms: 9, idempotency_key: "i",
      group_key: "g", cost: 3, start_by: "2030-01-01T00:00:00.000Z", start_within_ms: 4, notify: "h", traceparent: "p", tracestate: "s",
      unique: { key: "u", while: "unfinished", on_conflict: "replace", for_ms: 1, max_wait_ms: 2 },
    });
    assert.equal(seen[1]?.body.payload, null);
    assert.equal(seen[1]?.body.delay_ms, 7);
  });
});

test("a list follows its links, over empty pages, and only to the same server", async () => {
  const answer = (_: Seen, count: number): Scripted => [
    { body: [{ id: "1" }], headers: { link: '<http://somewhere.else/jobs?status=queued&cursor=a%2Fb>; rel="next"' } },
    { body: [], headers: { link: '</jobs?status=queued&cursor=c>; rel="next"' } },
    { body: [{ id: "2" }] },
  ][count - 1] ?? { status: 500 };
  await withServer(answer, async (client, seen) => {
    const ids: string[] = [];
    for await (const job of client.jobs({ status: ["queued", "retrying"], createdAfter: new Date(0) })) ids.push(job.id);
    assert.deepEqual(ids, ["1", "2"]);
    assert.equal(seen[0]?.query.get("status"), "queued,retrying");
    assert.equal(seen[0]?.query.get("created_after"), "1970-01-01T00:00:00.000Z");
    assert.equal(seen[1]?.query.get("cursor"), "a/b");
    assert.equal(seen[2]?.query.get("cursor"), "c");
  });
});

test("waiting for a job ends with its success, its failure, or the timeout", async () => {
  const states = ["queued", "running", "succeeded"];
  await withServer((_, count) => ({ body: { ...JOB, status: states[count - 1], result: 7 } }), async (client) => {
    assert.equal((await client.wait("1")).result, 7);
  });
  await withServer(() => ({ body: { ...JOB, status: "failed_permanent", last_error: "smtp 550" } }), async (client) => {
    await assert.rejects(client.wait("1"), (error) => error instanceof JobFailed && /smtp 550/.test(error.message));
  });
  await withServer(() => ({ body: { ...JOB, status: "running" } }), async (client) => {
    await assert.rejects(client.wait("1", { timeoutMs: 300 }), (error) => error instanceof WaitTimeout && error.job?.status === "running");
    const controller = new AbortController();
    const waiting = client.wait("1", { signal: controller.signal });
    controller.abort(new Error("no longer needed"));
    await assert.rejects(waiting, /no longer needed/);
  });
});

test("URL and token come from the environment unless they are given", () => {
  process.env["STEADFAST_URL"] = "https://jobs.example/steadfast/";
  process.env["STEADFAST_TOKEN_FILE"] = new URL("../package.json", import.meta.url).pathname;
  try {
    const client = new Client();
    assert.equal(client.server.url, "https://jobs.example/steadfast");
    assert.match(client.server.token ?? "", /"steadfast-queue"/);
    process.env["STEADFAST_TOKEN"] = "t";
    assert.equal(new Client().server.token, "t");
    assert.equal(new Client({ url: "http://x", token: "u" }).server.token, "u");
  } finally {
    for (const name of ["STEADFAST_URL", "STEADFAST_TOKEN", "STEADFAST_TOKEN_FILE"]) delete process.env[name];
  }
});

/** Probes, documents, browsers' sessions, and what is for dashboards. */
const NOT_FOR_CLIENTS = /^\/(api-docs|docs|health|livez|readyz|metrics|session|pulse|series|problems|ui)(\/|$)/;

test("every route of the API has a method, and every method a route that takes its parameters", async () => {
  const { paths } = JSON.parse(readFileSync(new URL("../../../docs/openapi.json", import.meta.url), "utf8"));
  const routes = Object.entries<any>(paths).filter(([path]) => !NOT_FOR_CLIENTS.test(path)).flatMap(([path, methods]) =>
    Object.entries<any>(methods).map(([method, operation]) => ({
      name: `${method.toUpperCase()} ${path}`, method: method.toUpperCase(), called: false,
      pattern: new RegExp(`^${path.replaceAll(/\{\w+\}/g, "(?!preview$|batch$)[^/]+")}$`),
      query: new Set<string>((operation.parameters ?? []).filter((parameter: any) => parameter.in === "query").map((parameter: any) => parameter.name)),
    })));
  await withServer((one) => ({ body: one.path === "/jobs/batch" ? { results: [] } : [] }), async (client, seen) => {
    const drain = async (items: AsyncIterator<unknown>): Promise<void> => void (await items.next());
    const at = new Date(0);
    await client.enqueue("k", 1);
    await client.enqueueMany([{ kind: "k", payload: 1 }]);
    const query = { status: "queued", kind: "k", queue: "q", worker: "w", group: "g", error: "e", key: "i", createdAfter: at, createdBefore: at, finishedAfter: at, finishedBefore: at, text: "t", order: "next" } as const;
    await drain(client.jobs(query));
    await drain(client.jobSummaries(query));
    for (const call of [client.job("1"), client.cancel("1"), client.redrive("1"), client.delete("1"), client.attempts("1"), client.explain("1"), client.stats()]) await call;
    await drain(client.audit({ action: "a", token: "t", target: "x", since: at, before: at }));
    const { queues, kinds, schedules, errors, hooks, operations, workers, tokens } = client;
    for (const call of [hooks.list(), hooks.get("h"), hooks.set("h", { url: "u" }), hooks.delete("h"), hooks.pause("h"), hooks.resume("h")]) await call;
    for (const list of [queues.list(), queues.limits("q"), schedules.list({ state: "active", kind: "k" }), errors.list({ kind: "k", queue: "q", since: "s", dead: true, snoozed: false }), operations.list({ state: "running" }), workers.list()]) await drain(list);
    for (const call of [queues.get("a/b"), queues.set("q", {}), queues.pause("q"), queues.resume("q"), queues.explain("q"), queues.setGroup("q", "a/b", {}), queues.resetGroup("q", "g")]) await call;
    for (const call of [kinds.list(), kinds.declare("k"), kinds.delete("k"), tokens.list(), tokens.create({ name: "n", scopes: ["read"] }), tokens.revoke("1")]) await call;
    const job = { kind: "k", payload: 1 };
    for (const call of [schedules.get("s"), schedules.set("s", { job }, { revision: 7 }), schedules.delete("s"), schedules.pause("s"), schedules.resume("s"), schedules.run("s"), schedules.ticks("s"), schedules.preview({})]) await call;
    for (const call of [errors.get("f"), errors.snooze("f", { for_ms: 1 }), errors.unsnooze("f"), workers.get("w"), workers.drain("w"), workers.undrain("w")]) await call;
    for (const call of [operations.preview({ action: "cancel" }), operations.begin({ action: "cancel" }), operations.get("1"), operations.setRate("1", 5), operations.pause("1"), operations.resume("1"), operations.stop("1")]) await call;
    assert.equal(seen.find((one) => one.path === "/schedules/s" && one.method === "PUT")?.headers["if-match"], '"7"');
    for (const one of seen) {
      const route = routes.find((candidate) => candidate.method === one.method && candidate.pattern.test(one.path));
      assert.ok(route, `${one.method} ${one.path} is not in docs/openapi.json`);
      route.called = true;
      for (const name of one.query.keys()) assert.ok(route.query.has(name), `${route.name} takes no parameter ${name}`);
    }
    const workers_own = /^POST \/leases/;
    assert.deepEqual(routes.filter((route) => !route.called && !workers_own.test(route.name)).map((route) => route.name), []);
  });
});
