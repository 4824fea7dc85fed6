/** The worker against a scripted server: what it says, in which order, and what it makes of answers that are rare. */
import assert from "node:assert/strict";
import { syncBuiltinESMExports } from "node:module";
import test from "node:test";
import workerThreads from "node:worker_threads";
import { Client, Problem, Worker, type Context, type StopReason, type WorkerOptions } from "steadfast-queue";
import { gate, keptLogs, scriptedServer, until, type Scripted, type Seen } from "./support.js";

const HEARTBEATS = ["thread", "inline"] as const;

/** Leases jobs once each, and records outcomes; what a test scripts comes first. */
class Script {
  readonly beats: Seen[] = [];
  readonly leases: Seen[] = [];
  readonly settles: Seen[] = [];
  readonly waiting: { payload: unknown; timeout_ms?: number }[] = [];
  closed = false;
  #count = 0;

  constructor(private readonly own: (seen: Seen) => Scripted | undefined = () => undefined) {}

  get outcomes(): any[] {
    return this.settles.flatMap((seen) => seen.body.outcomes);
  }

  answer = (seen: Seen): Scripted => {
    if (seen.path === "/leases") this.leases.push(seen);
    if (seen.path === "/leases/heartbeat") this.beats.push(seen);
    if (seen.path === "/leases/settle") this.settles.push(seen);
    const own = this.own(seen);
    if (own) return own;
    if (seen.path === "/leases") return this.#lease(seen);
    if (seen.path === "/leases/heartbeat") return { body: { worker: "run", leases: seen.body.leases.map((beat: any) => ({ job_id: beat.job_id, status: "ok" })) } };
    if (seen.path === "/leases/settle") return { body: { outcomes: seen.body.outcomes.map((one: any) => ({ job_id: one.job_id, status: "recorded" })) } };
    return { body: [] };
  };

  #lease(seen: Seen): Scripted {
    const jobs = this.waiting.splice(0, seen.body.max);
    const leases = jobs.map(({ payload, timeout_ms = null }) => {
      const id = `job-${++this.#count}`;
      return { lease_token: `token-${id}`, lease_ms: seen.body.lease_ms, attempt: 1, job: { id, kind: "k", payload, max_attempts: 3, timeout_ms } };
    });
    // A long poll: it ends with the test, or when there is something.
    if (leases.length > 0) return { body: { leases } };
    return { body: { leases: [] }, after: until("a job waits", () => this.closed || this.waiting.length > 0) };
  }
}

interface Running {
  worker: Worker;
  lines: string[];
}

async function running(
  script: Script, handler: (payload: any, ctx: Context) => unknown, options: WorkerOptions, body: (running: Running) => Promise<void>,
): Promise<void> {
  const server = await scriptedServer(script.answer);
  const { logger, lines } = keptLogs();
  const worker = new Worker(new Client({ url: server.url, token: "t" }), { leaseMs: 3_000, graceMs: 200, declare: false, logger, ...options });
  worker.handle("k", handler);
  try {
    await worker.start();
    await body({ worker, lines });
  } finally {
    script.closed = true;
    await worker.stop();
    server.close();
  }
}

test("a lease call asks for exactly the free slots and the kinds that have handlers", async () => {
  const script = new Script();
  const hold = gate();
  script.waiting.push({ payload: 1 }, { payload: 2 });
  await running(script, () => hold.promise, { concurrency: 5, queues: ["a", "b"], waitMs: 7_000 }, async ({ worker }) => {
    const [first, second] = await until("two calls", () => script.leases.length >= 2 && script.leases);
    assert.deepEqual(first!.body.kinds, ["k"]);
    assert.deepEqual(first!.body.queues, ["a", "b"]);
    assert.deepEqual([first!.body.max, first!.body.wait_ms, first!.body.worker], [5, 7_000, worker.name]);
    assert.equal(first!.body.info.concurrency, 5);
    assert.equal(second!.body.max, 3);
    hold.open();
  });
});

test("outcomes that end together are one call, and the next batch is what ended meanwhile", async () => {
  const slow = gate();
  let calls = 0;
  const script = new Script((seen) => (seen.path === "/leases/settle" && ++calls === 1 ? { ...new Script().answer(seen), after: slow.promise } : undefined));
  script.waiting.push(...Array.from({ length: 20 }, (_, payload) => ({ payload })));
  await running(script, (payload) => payload, { concurrency: 10 }, async () => {
    await until("all jobs were leased", () => script.waiting.length === 0);
    slow.open();
    await until("all are settled", () => script.outcomes.length === 20);
    assert.deepEqual(script.settles.map((seen) => seen.body.outcomes.length), [10, 10]);
    assert.deepEqual(script.outcomes.map((one) => one.result).filter((result) => result !== undefined), Array.from({ length: 20 }, (_, n) => n));
  });
});

test("one outcome that the server refuses does not hold up the others", async () => {
  const refuses = (seen: Seen): Scripted | undefined =>
    seen.path === "/leases/settle" && JSON.stringify(seen.body).includes("poison") ? { status: 400, body: { code: "bad_json", detail: "lone surrogate" } } : undefined;
  const script = new Script(refuses);
  script.waiting.push(...Array.from({ length: 10 }, (_, n) => ({ payload: n === 4 ? "poison" : n })));
  await running(script, (payload) => payload, { concurrency: 10 }, async () => {
    const good = await until("all are settled", () => {
      const recorded = script.settles.filter((seen) => !refuses(seen)).flatMap((seen) => seen.body.outcomes);
      return recorded.length === 10 && recorded;
    });
    const failed = good.filter((one: any) => one.outcome === "failed");
    assert.equal(failed.length, 1);
    assert.equal(failed[0].permanent, true);
    assert.match(failed[0].error, /refused the outcome succeeded: lone surrogate/);
  });
});

test("a settle without an answer is repeated as it was", async () => {
  let calls = 0;
  const script = new Script((seen) => (seen.path === "/leases/settle" && ++calls <= 2 ? (calls === 1 ? { hangUp: true } : { status: 500, body: {} }) : undefined));
  script.waiting.push({ payload: "same" });
  await running(script, (payload) => payload, {}, async () => {
    await until("three settles", () => script.settles.length === 3);
    assert.deepEqual(script.settles[0]?.body, script.settles[2]?.body);
  });
});

for (const heartbeat of HEARTBEATS) {
  test(`heartbeats (${heartbeat}) carry all leases and the newest progress, and what they say reaches the handler`, async () => {
    let told = "ok";
    const script = new Script((seen) => (seen.path === "/leases/heartbeat" ? { body: { worker: "run", leases: seen.body.leases.map((beat: any) => ({ job_id: beat.job_id, status: beat.job_id === "job-1" ? told : "ok" })) } } : undefined));
    script.waiting.push({ payload: 1 }, { payload: 2 });
    const ends: (StopReason | undefined)[] = [];
    const handler = async (payload: number, ctx: Context): Promise<void> => {
      for (let n = 1; n <= 30; n++) ctx.progress(n, `step ${n}`);
      await new Promise((resolve) => ctx.signal.addEventListener("abort", resolve));
      ends.push(ctx.stopReason);
      if (payload === 1) ctx.check();
    };
    await running(script, handler, { heartbeat, concurrency: 2 }, async () => {
      const beat = await until("a beat", () => script.beats[0]);
      assert.deepEqual(beat.body.leases.map((one: any) => one.progress), Array(2).fill({ percent: 30, message: "step 30" }));
      const next = await until("another", () => script.beats[1]);
      assert.deepEqual(next.body.leases.map((one: any) => one.progress), [undefined, undefined], "progress is sent once");
      told = "cancel";
      const [outcome] = await until("the outcome", () => script.outcomes.length > 0 && script.outcomes);
      assert.deepEqual([outcome.job_id, outcome.outcome, ends], ["job-1", "cancelled", ["cancel"]]);
    });
  });

  test(`a lease (${heartbeat}) that the server calls lost is dropped: the handler is told, nothing is settled`, async () => {
    const script = new Script((seen) => (seen.path === "/leases/heartbeat" ? { body: { worker: "run", leases: seen.body.leases.map((beat: any) => ({ job_id: beat.job_id, status: "lost" })) } } : undefined));
    script.waiting.push({ payload: 1 });
    const reason = gate<StopReason | undefined>();
    const handler = (_: unknown, ctx: Context): Promise<unknown> =>
      new Promise((resolve) => ctx.signal.addEventListener("abort", () => (reason.open(ctx.stopReason), resolve("too late"))));
    await running(script, handler, { heartbeat }, async ({ worker }) => {
      assert.equal(await reason.promise, "lost");
      await worker.stop();
      assert.deepEqual(script.outcomes, []);
      assert.equal(script.beats.length, 1, "and it gets no more heartbeats");
    });
  });

  test(`a lease (${heartbeat}) without an answer to its heartbeats for as long as it lasts is lost`, async () => {
    const script = new Script((seen) => (seen.path === "/leases/heartbeat" ? { status: 503, body: {} } : undefined));
    script.waiting.push({ payload: 1 });
    const lost = gate<number>();
    let started = 0;
    const handler = (_: unknown, ctx: Context): Promise<unknown> => {
      started = performance.now();
      return new Promise((_, reject) => ctx.signal.addEventListener("abort", () => (lost.open(performance.now()), reject(ctx.signal.reason))));
    };
    await running(script, handler, { heartbeat }, async ({ worker, lines }) => {
      const after = (await lost.promise) - started;
      assert.ok(after > 2_500, `lost after ${after} ms of a lease of 3,000 ms`);
      assert.ok(script.beats.length >= 2, "it has tried again meanwhile");
      await worker.stop();
      assert.deepEqual(script.outcomes, []);
      assert.ok(lines.some((line) => line.includes("a lease is lost")));
    });
  });
}

test("the server's refusal of a token ends the worker with what it said", async () => {
  const script = new Script(() => ({ status: 401, body: { code: "unauthorized", detail: "this token was revoked" } }));
  await running(script, () => null, {}, async ({ worker }) => {
    await assert.rejects(worker.stopped(), (error) => error instanceof Problem && error.detail === "this token was revoked");
  });
});

test("a server that fails is asked again, and the worker goes on", async () => {
  let calls = 0;
  const script = new Script((seen) => (seen.path === "/leases" && ++calls <= 3 ? [{ hangUp: true }, { status: 500, body: {} }, { status: 503, body: {} }][calls - 1] : undefined));
  script.waiting.push({ payload: 1 });
  await running(script, () => null, {}, async () => {
    await until("the job is settled", () => script.outcomes.length === 1);
  });
});

test("kinds are declared when the server is back, and one that is refused does not hold up the others", async () => {
  const declared: string[] = [];
  let asked = 0;
  const server = await scriptedServer((seen) => {
    if (seen.path === "/kinds") return ++asked === 1 ? { status: 503, body: {} } : { body: [] };
    if (seen.method !== "PUT") return { status: 503, body: {} };
    declared.push(seen.path);
    return seen.path === "/kinds/a" ? { status: 422, body: { code: "invalid_schema", detail: "too deep" } } : { status: 201, body: {} };
  });
  const { logger, lines } = keptLogs();
  const worker = new Worker(new Client({ url: server.url, retryForMs: 0 }), { logger });
  worker.handle("a", () => null);
  worker.handle("b", { maxAttempts: 3 }, () => null);
  await worker.start();
  assert.deepEqual(declared, []);
  await until("both were sent", () => declared.length === 2);
  assert.deepEqual(declared, ["/kinds/a", "/kinds/b"]);
  assert.ok(lines.some((line) => line.includes("too deep")));
  await worker.stop();
  server.close();
});

test("a declaration contains only what can be declared, however much the server shows of a kind", async () => {
  const shown = { kind: "k", built_in: false, hidden: ["/card"], queue: null, concurrency: 3, counts: { queued: 1 }, of_a_later_version: true };
  let declaration: unknown;
  const server = await scriptedServer((seen) => {
    if (seen.path === "/kinds") return { body: [shown] };
    if (seen.method === "PUT") declaration = seen.body;
    return { status: seen.method === "PUT" ? 200 : 503, body: {} };
  });
  const worker = new Worker(new Client({ url: server.url, retryForMs: 0 }), { logger: keptLogs().logger });
  worker.handle("k", { maxAttempts: 7 }, () => null);
  await worker.declare();
  assert.deepEqual(declaration, { hidden: ["/card"], concurrency: 3, max_attempts: 7 });
  server.close();
});

test("a timeout is reported when it is reached, and a handler that hangs gives up its slot", async () => {
  const script = new Script();
  script.waiting.push({ payload: "hang", timeout_ms: 100 }, { payload: "next" });
  const handler = (payload: string): unknown => (payload === "hang" ? new Promise(() => undefined) : payload);
  await running(script, handler, { concurrency: 1, abandonAfterMs: 100 }, async ({ lines }) => {
    await until("both are settled", () => script.outcomes.length === 2);
    assert.equal(script.outcomes[0].error, "timed out after 100 ms");
    assert.equal(script.outcomes[1].result, "next");
    assert.ok(lines.some((line) => line.includes("a handler does not stop")));
  });
});

test("stopping goes in steps: no more jobs, a hint, the grace period, an order, a release", async () => {
  const script = new Script();
  script.waiting.push({ payload: "deaf" }, { payload: "prefetched" });
  const steps: string[] = [];
  const times: number[] = [];
  const handler = (_: unknown, ctx: Context): Promise<unknown> => {
    ctx.stopping.addEventListener("abort", () => (times.push(performance.now()), steps.push(`stopping ${ctx.stopReason}`)));
    ctx.signal.addEventListener("abort", () => (times.push(performance.now()), steps.push(`signal ${ctx.stopReason}`)));
    return new Promise(() => undefined);
  };
  await running(script, handler, { concurrency: 1, prefetch: 1, graceMs: 3_000 }, async ({ worker }) => {
    await until("both were leased", () => script.waiting.length === 0);
    await worker.stop();
    assert.deepEqual(steps, ["stopping shutdown", "signal shutdown"]);
    assert.ok((times[1] ?? 0) - (times[0] ?? 0) > 2_500, "the grace period is between the hint and the order");
    assert.deepEqual(script.outcomes.map((one) => one.outcome), ["released", "released"]);
    assert.equal(script.outcomes[0].job_id, "job-2", "what had not started goes first");
    assert.ok(script.beats.length >= 1, "heartbeats go on during the grace period");
    const asked = script.leases.length;
    assert.ok(asked <= 2, `${asked} lease calls`);
  });
});

test("a server that never answers cannot keep the worker from stopping", async () => {
  const never = gate();
  const script = new Script((seen) => (seen.path === "/leases/settle" ? { after: never.promise } : undefined));
  script.waiting.push({ payload: 1 });
  await running(script, () => null, {}, async ({ worker, lines }) => {
    await until("the settle is under way", () => script.settles.length === 1);
    await worker.stop();
    assert.ok(lines.some((line) => line.includes("an outcome is not recorded")));
    never.open();
  });
});

test("if the heartbeat thread ends, the main thread takes over and the lease lives on", async () => {
  const threads: workerThreads.Worker[] = [];
  const Original = workerThreads.Worker;
  workerThreads.Worker = class extends Original {
    constructor(...parameters: ConstructorParameters<typeof Original>) {
      super(...parameters);
      threads.push(this);
    }
  };
  syncBuiltinESMExports();
  const script = new Script();
  const hold = gate();
  script.waiting.push({ payload: 1 });
  try {
    await running(script, () => hold.promise, { leaseMs: 6_000 }, async ({ lines }) => {
      await until("a beat", () => script.beats.length > 0);
      assert.equal(threads.length, 1);
      await threads[0]?.terminate();
      const before = script.beats.length;
      await until("the main thread beats", () => script.beats.length >= before + 2);
      assert.ok(lines.some((line) => line.includes("the heartbeat thread has ended")));
      hold.open();
      await until("the outcome", () => script.outcomes[0]?.outcome === "succeeded");
    });
  } finally {
    workerThreads.Worker = Original;
    syncBuiltinESMExports();
  }
});
