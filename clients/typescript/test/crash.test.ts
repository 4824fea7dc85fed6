/** Worker processes that are killed, stopped and signalled: no job is lost, none is done by halves. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, type Enqueued, type Job } from "steadfast-queue";
import type { Task } from "./fixtures/worker.js";
import { RealServer, STORES, unique, until, WorkerProcess, type Store } from "./support.js";

const JOBS = 2_000;
const UNFINISHED = ["queued", "running", "retrying"] as const;

interface World {
  server: RealServer;
  client: Client;
  kind: string;
  spawn: (env?: Record<string, string>) => WorkerProcess;
}

async function inWorld(store: Store, body: (world: World) => Promise<void>): Promise<void> {
  const server = await RealServer.start(store);
  const workers: WorkerProcess[] = [];
  try {
    const client = new Client({ url: server.url });
    const kind = unique("task");
    await client.kinds.declare(kind, { max_attempts: 20, retry: { base_ms: 20, cap_ms: 100 } });
    const spawn = (env: Record<string, string> = {}): WorkerProcess => {
      const worker = new WorkerProcess({ STEADFAST_URL: server.url, KIND: kind, ...env });
      workers.push(worker);
      return worker;
    };
    await body({ server, client, kind, spawn });
  } finally {
    for (const worker of workers) worker.kill("SIGKILL");
    await server.end();
  }
}

async function count(client: Client, query: Parameters<Client["jobs"]>[0]): Promise<number> {
  let found = 0;
  for await (const _ of client.jobSummaries(query)) found += 1;
  return found;
}

function many(n: number, kind: string, task: Task): { kind: string; payload: Task }[] {
  return Array.from({ length: n }, () => ({ kind, payload: task }));
}

for (const store of STORES) {
  describe(`with ${store}`, () => {
    test(`of ${JOBS} jobs that fail, snooze, throw, hang and return too much, with workers killed at random, each ends as it must, once`, async () => {
      await inWorld(store, async ({ client, kind, spawn }) => {
        const expected: Record<string, Job["status"]> = {
          ok: "succeeded", "fail once": "succeeded", "throw a string": "succeeded", "snooze once": "succeeded", "retry once": "succeeded",
          permanent: "failed_permanent", hang: "failed_permanent", big: "failed_permanent", sleep: "succeeded",
        };
        const what = Object.keys(expected) as Task["do"][];
        const specs = Array.from({ length: JOBS }, (_, n) => {
          // Few of those that are slow for the server or for the test.
          const task = n % 100 === 0 ? "big" : n % 50 === 1 ? "hang" : (what[n % 5] ?? "ok");
          const payload: Task = { do: n % 10 === 7 ? "permanent" : n % 10 === 9 ? "sleep" : task, ms: 20 };
          return { kind, payload, ...(payload.do === "hang" ? { timeoutMs: 300, maxAttempts: 2 } : {}) };
        });
        const jobs = await client.enqueueMany(specs);
        const fleet = [spawn(), spawn()];
        let kills = 0;
        const deadline = performance.now() + 100_000;
        while ((await count(client, { kind, status: UNFINISHED, pageSize: 200 })) > 0) {
          assert.ok(performance.now() < deadline, "not all jobs have ended in time");
          await sleep(200 + Math.random() * 600);
          const victim = kills < 6 ? kills++ % fleet.length : -1;
          if (victim < 0) continue;
          fleet[victim]?.kill("SIGKILL");
          fleet[victim] = spawn();
        }
        assert.ok(kills >= 3, `only ${kills} workers were killed`);
        for await (const job of client.jobs({ kind })) {
          const task = (job.payload as Task).do;
          assert.equal(job.status, expected[task], `${task}: ${job.last_error}`);
          if (task === "big") assert.match(job.last_error ?? "", /307202 bytes/);
        }
        for (let from = 0; from < JOBS; from += 20) await Promise.all(jobs.slice(from, from + 20).map((job) => endedOnce(client, job)));
        for (const worker of fleet) worker.kill("SIGTERM");
        for (const worker of fleet) assert.equal(await worker.ended(), 0, worker.output);
      });
    });

    test("SIGTERM in the middle of work loses nothing, uses no attempt, and exits 0", async () => {
      await inWorld(store, async ({ client, kind, spawn }) => {
        await client.enqueueMany([...many(30, kind, { do: "sleep", ms: 300 }), ...many(30, kind, { do: "heed", ms: 60_000 }), ...many(60, kind, { do: "ok" })]);
        const worker = spawn({ CONCURRENCY: "40", PREFETCH: "10", LEASE_MS: "30000" });
        await until("jobs run", async () => worker.output.split("start ").length > 40);
        worker.kill("SIGTERM");
        assert.equal(await worker.ended(), 0, worker.output);
        assert.match(worker.output, /ended/);
        assert.equal(await count(client, { kind, status: "running" }), 0);
        for await (const job of client.jobs({ kind })) {
          const attempts = await client.attempts(job.id);
          const used = attempts.filter((attempt) => attempt.outcome !== "released");
          assert.deepEqual(used.map((attempt) => attempt.outcome), job.status === "succeeded" ? ["succeeded"] : [], `job ${job.id}`);
          assert.equal(job.attempts, used.length);
        }
        assert.ok((await count(client, { kind, status: UNFINISHED })) >= 30, "those that heed were given back");
      });
    });

    test("a handler that does not listen is left behind at the end of the grace period: released, exit 0", async () => {
      await inWorld(store, async ({ client, kind, spawn }) => {
        const job = await client.enqueue(kind, { do: "deaf", ms: 3_600_000 } satisfies Task);
        const worker = spawn({ GRACE_MS: "300", LEASE_MS: "30000" });
        await worker.says(`start ${job.id}`);
        worker.kill("SIGINT");
        assert.equal(await worker.ended(), 0, worker.output);
        const { status, attempts } = await client.job(job.id);
        assert.deepEqual([status, attempts], ["queued", 0]);
        assert.deepEqual((await client.attempts(job.id)).map((attempt) => attempt.outcome), ["released"]);
      });
    });
  });
}

test("a second signal exits 1 at once", async () => {
  await inWorld("sqlite", async ({ client, kind, spawn }) => {
    const job = await client.enqueue(kind, { do: "deaf", ms: 3_600_000 } satisfies Task);
    const worker = spawn({ GRACE_MS: "3600000" });
    await worker.says(`start ${job.id}`);
    worker.kill("SIGTERM");
    await worker.says("received SIGTERM");
    worker.kill("SIGTERM");
    assert.equal(await worker.ended(), 1, worker.output);
  });
});

test("a worker that was frozen for longer than its lease is told that it lost its job", async () => {
  await inWorld("sqlite", async ({ client, kind, spawn }) => {
    const job = await client.enqueue(kind, { do: "sleep", ms: 4_000 } satisfies Task);
    // One slot: it does not ask for more while it is frozen, and the server could give the job to that call.
    const frozen = spawn({ CONCURRENCY: "1", LEASE_MS: "3000" });
    await frozen.says(`start ${job.id}`);
    frozen.kill("SIGSTOP");
    const other = spawn({ LEASE_MS: "3000" });
    await other.says(`start ${job.id}`);
    frozen.kill("SIGCONT");
    await frozen.says("a lease is lost");
    await client.wait(job.id);
    assert.deepEqual((await client.attempts(job.id)).map((attempt) => attempt.outcome), ["lease_expired", "succeeded"]);
  });
});

test("a worker without a valid token says so and exits 1", async () => {
  const server = await RealServer.start("sqlite", { STEADFAST_ADMIN_TOKEN: "an-admin-token-of-some-length" });
  const worker = new WorkerProcess({ STEADFAST_URL: server.url, KIND: "task" });
  assert.equal(await worker.ended(), 1, worker.output);
  assert.match(worker.output, /401/);
  await server.end();
});

/** At most one attempt succeeded, and it is the last one. */
async function endedOnce(client: Client, job: Enqueued): Promise<void> {
  const outcomes = (await client.attempts(job.id)).map((attempt) => attempt.outcome);
  const succeeded = outcomes.filter((outcome) => outcome === "succeeded").length;
  assert.ok(succeeded <= 1, `${job.id}: ${outcomes.join(", ")}`);
  if (succeeded === 1) assert.equal(outcomes.at(-1), "succeeded");
}
