/** The worker and the client against the real server, on every store there is. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, Problem, Worker, type Context, type StopReason, type WorkerOptions } from "steadfast-queue";
import { z } from "zod";
import { gate, keptLogs, Network, RealServer, STORES, unique, until } from "./support.js";

for (const store of STORES) {
  describe(`with ${store}`, () => {
    let server: RealServer;
    let client: Client;
    before(async () => {
      server = await RealServer.start(store);
      client = new Client({ url: server.url });
    });
    after(() => server.end());

    /** A worker that stops with the test. */
    function makeWorker(options: WorkerOptions = {}, url = server.url): { worker: Worker; lines: string[]; [Symbol.asyncDispose]: () => Promise<void> } {
      const { logger, lines } = keptLogs();
      const worker = new Worker(new Client({ url }), { leaseMs: 2_000, graceMs: 2_000, logger, ...options });
      return { worker, lines, [Symbol.asyncDispose]: () => worker.stop() };
    }

    test("a typed handler declares its kind, runs its job and returns a typed result", async () => {
      await using made = makeWorker();
      const kind = unique("welcome");
      const payload = z.object({ user: z.number().int() });
      const welcome = made.worker.handle(kind, { payload, maxAttempts: 5, timeoutMs: 30_000, retry: { base_ms: 10, cap_ms: 20 } }, ({ user }, ctx) => {
        if (ctx.attempt === 1) throw new Error("once");
        return { welcomed: user };
      });
      await made.worker.start();
      const job = await welcome.enqueue({ user: 42 });
      assert.deepEqual([job.created, job.max_attempts, job.timeout_ms], [true, 5, 30_000]);
      assert.deepEqual((await welcome.wait(job.id)).result, { welcomed: 42 });
      assert.deepEqual((await client.attempts(job.id)).map((attempt) => attempt.outcome), ["failed", "succeeded"]);
      await assert.rejects(client.enqueue(kind, { user: "x" }), (error) => error instanceof Problem && error.status === 422);
    });

    test("declaring a kind keeps the limits and hidden fields that an operator has set", async () => {
      const kind = unique("limited");
      await client.kinds.declare(kind, { concurrency: 3, hidden: ["/card"], max_attempts: 9 });
      await using made = makeWorker();
      made.worker.handle(kind, { timeoutMs: 5_000 }, () => null);
      await made.worker.start();
      const declared = (await client.kinds.list()).find((one) => one.kind === kind);
      assert.deepEqual([declared?.concurrency, declared?.hidden, declared?.max_attempts, declared?.timeout_ms], [3, ["/card"], 9, 5_000]);
    });

    test("operators: pause, resume, explain, cancel, redrive, delete, lists, operations, schedules, audit", async () => {
      const [kind, queue] = [unique("op"), unique("op")];
      await client.kinds.declare(kind);
      await client.queues.pause(queue);
      const jobs = await client.enqueueMany(Array.from({ length: 5 }, (_, n) => ({ kind, payload: { n }, queue, group: "g", cost: 2 })));
      const first = jobs[0]!;
      assert.equal((await client.explain(first.id)).verdict, "queue_paused");
      await client.queues.resume(queue);
      assert.equal((await client.queues.set(queue, { concurrency: 2 })).concurrency, 2);
      assert.equal(await client.cancel(first.id), "cancelled");
      assert.equal((await client.redrive(first.id)).status, "queued");
      assert.equal(await client.cancel(first.id), "cancelled");
      await client.delete(first.id);
      await assert.rejects(client.job(first.id), (error) => error instanceof Problem && error.status === 404);
      const listed: string[] = [];
      for await (const job of client.jobs({ queue, order: "oldest", pageSize: 2 })) listed.push(job.id);
      assert.deepEqual(listed, jobs.slice(1).map((job) => job.id));
      for await (const summary of client.jobSummaries({ queue, pageSize: 3 })) assert.match(summary.payload_preview, /"n"/);
      const filter = { queue };
      const { token, matches } = await client.operations.preview({ action: "cancel", filter });
      assert.equal(matches, 4);
      const operation = await client.operations.begin({ action: "cancel", filter, preview: token, reason: "a test" });
      await until("the operation has finished", async () => (await client.operations.get(operation.id)).state === "finished");
      assert.equal((await client.job(listed[0]!)).status, "cancelled");
      const name = unique("nightly");
      const schedule = await client.schedules.set(name, { cron: "30 2 * * *", tz: "Europe/Berlin", job: { kind, payload: {} } });
      await assert.rejects(client.schedules.set(name, { cron: "30 3 * * *", job: { kind, payload: {} } }, { revision: schedule.revision + 1 }), (error) => error instanceof Problem && error.status === 412);
      assert.equal((await client.schedules.run(name)).kind, kind);
      await client.schedules.delete(name);
      const acts: string[] = [];
      for await (const entry of client.audit({ target: `queue:${queue}` })) acts.push(entry.action);
      assert.deepEqual(acts, ["put_queue", "resume", "pause"]);
    });

    test("unique, start deadlines and idempotency keys are answered as the server answers", async () => {
      const kind = unique("uniq");
      await client.kinds.declare(kind);
      const one = await client.enqueue(kind, {}, { unique: { key: "k" }, startWithinMs: 60_000 });
      const two = await client.enqueue(kind, {}, { unique: { key: "k" } });
      assert.deepEqual([two.id, two.created, typeof one.start_by], [one.id, false, "string"]);
      const key = unique("key");
      const three = await client.enqueue(kind, { n: 1 }, { idempotencyKey: key });
      const four = await client.enqueue(kind, { n: 1 }, { idempotencyKey: key });
      assert.deepEqual([three.created, four.created, four.id], [true, false, three.id]);
      await assert.rejects(client.enqueue(kind, { n: 2 }, { idempotencyKey: key }), (error) => error instanceof Problem && error.code === "idempotency_conflict");
    });

    test("a job carries its trace to its handler, and names the hook that is told of its end", async () => {
      await using made = makeWorker();
      const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
      const hook = await client.hooks.set(unique("hook"), { url: "https://hooks.example/ends", paused: true });
      const traced = made.worker.handle(unique("traced"), (_: null, ctx: Context) => ctx.job.trace);
      await made.worker.start();
      const job = await traced.enqueue(null, { traceparent, notify: hook.name });
      assert.equal(job.notify, hook.name);
      assert.equal((await traced.wait(job.id)).result?.traceparent, traceparent);
      assert.ok((await client.hooks.list()).some((one) => one.name === hook.name && one.paused));
      await client.hooks.delete(hook.name);
    });

    test("a handler that blocks the event loop for three leases keeps its lease", async () => {
      await using made = makeWorker();
      const kind = unique("block");
      const block = made.worker.handle(kind, (ms: number, ctx: Context) => {
        for (const end = performance.now() + ms; performance.now() < end; ) ctx.progress(50, "spinning");
        return ctx.stopReason ?? "not told to stop";
      });
      await made.worker.start();
      const job = await block.enqueue(7_000);
      const done = await block.wait(job.id);
      assert.equal(done.result, "not told to stop");
      assert.equal(done.progress?.message, "spinning");
      assert.deepEqual((await client.attempts(job.id)).map((attempt) => attempt.outcome), ["succeeded"]);
    });

    test("code that blocks the event loop can ask whether it must stop", async () => {
      await using made = makeWorker();
      const kind = unique("ask");
      // The cancel has to come from another process: this one is blocked.
      const script = `fetch(process.argv[1] + "/cancel", { method: "POST" })`;
      const ask = made.worker.handle(kind, (_: null, ctx: Context) => {
        spawn(process.execPath, ["-e", script, `${server.url}/jobs/${ctx.job.id}`], { stdio: "ignore" });
        for (const end = performance.now() + 30_000; performance.now() < end; ) ctx.check();
        return "never told";
      });
      await made.worker.start();
      const job = await ask.enqueue(null);
      const ended = await until("it ends", async () => {
        const now = await client.job(job.id);
        return now.finished_at !== null && now;
      });
      assert.equal(ended.status, "cancelled");
    });

    test("without the thread, blocking the event loop costs the lease: what the thread is for", async () => {
      await using made = makeWorker({ heartbeat: "inline", concurrency: 1 });
      const kind = unique("inline");
      const block = made.worker.handle(kind, { maxAttempts: 3 }, (ms: number, ctx: Context) => {
        if (ctx.attempt === 1) for (const end = performance.now() + ms; performance.now() < end; );
        return ctx.attempt;
      });
      await made.worker.start();
      const job = await block.enqueue(5_000);
      assert.equal((await block.wait(job.id)).result, 2);
      assert.equal((await client.attempts(job.id))[0]?.outcome, "lease_expired");
    });

    test("a cancel is seen within a third of a lease", async () => {
      const leaseMs = 6_000;
      await using made = makeWorker({ leaseMs });
      const kind = unique("cancel");
      const started = gate();
      const seen = gate<number>();
      const long = made.worker.handle(kind, async (_: null, ctx: Context) => {
        started.open();
        ctx.signal.addEventListener("abort", () => seen.open(performance.now()));
        await sleep(60_000, undefined, { signal: ctx.signal });
      });
      await made.worker.start();
      const job = await long.enqueue(null);
      await started.promise;
      assert.equal(await client.cancel(job.id), "pending");
      const asked = performance.now();
      const after = (await seen.promise) - asked;
      assert.ok(after < leaseMs / 3 + 2_000, `seen after ${Math.round(after)} ms of a lease of ${leaseMs} ms`);
      await until("it is cancelled", async () => (await client.job(job.id)).status === "cancelled");
    });

    test("a worker that is cut off notices that its lease is lost, and another one does the job", async () => {
      const network = await Network.to(server.port);
      const kind = unique("cut");
      await client.kinds.declare(kind, { max_attempts: 5 });
      await using cutOff = makeWorker({ declare: false }, network.url);
      const started = gate();
      const reasons: (StopReason | undefined)[] = [];
      cutOff.worker.handle(kind, async (_: null, ctx: Context) => {
        started.open();
        await new Promise((resolve) => ctx.signal.addEventListener("abort", resolve));
        reasons.push(ctx.stopReason);
        return "from the worker that was cut off";
      });
      await cutOff.worker.start();
      const job = await client.enqueue(kind, null);
      await started.promise;
      network.cut();
      await until("it is told", () => reasons.length === 1);
      assert.deepEqual(reasons, ["lost"]);
      await using other = makeWorker();
      other.worker.handle(kind, () => "from the other one");
      await other.worker.start();
      assert.equal((await client.wait(job.id)).result, "from the other one");
      network.mend();
      await cutOff.worker.stop();
      assert.equal((await client.job(job.id)).result, "from the other one");
      assert.deepEqual((await client.attempts(job.id)).map((attempt) => attempt.outcome), ["lease_expired", "succeeded"]);
      network.close();
    });

    test("the server is killed and comes back under a running worker: every job succeeds, and what ran keeps its lease", async () => {
      const own = await RealServer.start(store, { STEADFAST_REAP_INTERVAL_MS: "200" });
      const kind = unique("restart");
      const producer = new Client({ url: own.url });
      await using made = makeWorker({ leaseMs: 10_000, concurrency: 20 }, own.url);
      const released = gate();
      const started = gate();
      const job = made.worker.handle(kind, async (payload: { wait: boolean }) => {
        if (!payload.wait) return null;
        started.open();
        await released.promise;
        return "kept";
      });
      await made.worker.start();
      const held = await job.enqueue({ wait: true });
      await started.promise;
      const early = await producer.enqueueMany(Array.from({ length: 100 }, () => job.job({ wait: false })));
      await own.kill();
      // It is retried until the server is back.
      const late = producer.enqueueMany(Array.from({ length: 100 }, () => job.job({ wait: false })));
      released.open();
      await own.up();
      for (const one of [...early, ...(await late), held]) await producer.wait(one.id, { timeoutMs: 60_000 });
      assert.deepEqual((await producer.attempts(held.id)).map((attempt) => attempt.outcome), ["succeeded"]);
      await made.worker.stop();
      await own.end();
    });

    test("a drained worker finishes what it has, takes no more, and goes on when it may", async () => {
      await using made = makeWorker({ waitMs: 500 });
      const kind = unique("drain");
      const told = gate<StopReason | undefined>();
      const finish = gate();
      const started = gate();
      const handler = made.worker.handle(kind, async (n: number, ctx: Context) => {
        if (n > 1) return n;
        started.open();
        ctx.stopping.addEventListener("abort", () => told.open(ctx.stopReason));
        await finish.promise;
        return n;
      });
      await made.worker.start();
      const first = await handler.enqueue(1);
      await started.promise;
      await until("the server knows the worker", () => client.workers.drain(made.worker.name).then(() => true, () => false));
      assert.equal(await told.promise, "drain");
      const second = await handler.enqueue(2);
      finish.open();
      assert.equal((await handler.wait(first.id)).result, 1);
      assert.equal((await client.job(second.id)).status, "queued");
      await client.workers.undrain(made.worker.name);
      assert.equal((await handler.wait(second.id)).result, 2);
    });
  });
}

test("a token that is revoked ends the worker with what the server says, and tells its handlers", async () => {
  const admin = "an-admin-token-of-some-length";
  const server = await RealServer.start("sqlite", { STEADFAST_ADMIN_TOKEN: admin });
  const operator = new Client({ url: server.url, token: admin });
  const kind = unique("revoked");
  await operator.kinds.declare(kind);
  const { id, token } = await operator.tokens.create({ name: "worker", scopes: ["work"] });
  const { logger, lines } = keptLogs();
  const worker = new Worker(new Client({ url: server.url, token }), { leaseMs: 1_000, graceMs: 10_000, waitMs: 1_000, logger });
  const started = gate();
  const reason = gate<StopReason | undefined>();
  worker.handle(kind, async (_: null, ctx: Context) => {
    started.open();
    await new Promise((resolve) => ctx.signal.addEventListener("abort", resolve));
    reason.open(ctx.stopReason);
  });
  await worker.start();
  assert.ok(lines.some((line) => line.includes("its token may not")), "it may not declare kinds, says so, and works");
  await operator.enqueue(kind, null);
  await started.promise;
  await operator.tokens.revoke(id);
  await assert.rejects(worker.stopped(), (error) => error instanceof Problem && error.status === 401);
  assert.ok(["lost", "shutdown"].includes((await reason.promise) ?? ""));
  await server.end();
});
