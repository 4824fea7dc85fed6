// A server with something on every screen: jobs in every state, three causes of death, a worker, a schedule, limits, an operation.

import { died, succeeded, until } from "./server.mjs";

export const CAUSES = ["smtp 451 greylisted, try again", "no such mailbox: user 17 at mx-3", "template has no block named header"];

export async function fill(server) {
  await server.ask("PUT", "/kinds/welcome", { queue: "mail", max_attempts: 3, schema: { type: "object" }, retry: { base_ms: 60_000, cap_ms: 600_000, factor: 2 } });
  await server.ask("PUT", "/kinds/report", { queue: "reports", concurrency: 4 });
  await server.ask("PUT", "/queues/mail", { concurrency: 8, rate: { limit: 100, per_ms: 1000 } });
  await server.enqueueMany(Array.from({ length: 30 }, (_, n) => ({ kind: "welcome", payload: { user: n, host: `mx-${n % 3}` }, max_attempts: 1 })));
  let n = 0;
  await server.drain("mx-1", ["welcome"], () => died(CAUSES[n++ % 3]));
  await server.enqueueMany(Array.from({ length: 5 }, (_, n) => ({ kind: "welcome", payload: { user: 100 + n } })));
  await server.drain("mx-1", ["welcome"], succeeded);
  await server.enqueue("welcome", { user: 1000 });
  await server.drain("mx-1", ["welcome"], () => ({ outcome: "failed", error: "later", retry_after_ms: 600_000 }));
  await server.enqueueMany(Array.from({ length: 12 }, (_, n) => ({ kind: "report", payload: { month: n }, group_key: "acme" })));
  const [running] = await server.lease("books-1", { kinds: ["report"], lease_ms: 600_000, info: { host: "books", pid: 7, language: "python", version: "3.12", concurrency: 4 } });
  await server.ask("POST", "/leases/heartbeat", { worker: "books-1", lease_ms: 600_000, leases: [{ job_id: running.job.id, lease_token: running.lease_token, progress: { percent: 40, message: "page 2 of 5" } }] });
  const cancelled = await server.enqueue("report", { month: 99 });
  await server.ask("POST", `/jobs/${cancelled.id}/cancel`);
  await server.ask("PUT", "/schedules/nightly", { cron: "30 2 * * *", tz: "Europe/Berlin", job: { kind: "report", payload: { all: true } } });
  await server.ask("POST", "/queues/reports/pause", {});
  // Workers are written down every 10 s.
  await until("the worker is known", async () => (await server.call("GET", "/workers/books-1")).status === 200);
  const groups = await server.get("/errors?dead=true");
  const group = groups.find(({ title }) => title.startsWith("smtp"));
  const [other] = await server.get(`/jobs?error=${groups.find(({ title }) => title.startsWith("template")).fingerprint}&limit=1`);
  const [dead] = await server.get(`/jobs?error=${group.fingerprint}&limit=1`);
  const [waiting] = await server.get("/jobs?status=queued&queue=reports&limit=1");
  const operation = await server.ask("POST", "/operations", { action: "redrive", ids: [other.id], rate: 1, reason: "to see one" });
  return { group: group.fingerprint, dead: dead.id, running: running.job.id, waiting: waiting.id, operation: operation.id };
}

/** Every screen by its path, and what its headline must say. */
export const screens = (world) => [
  ["/ui/", /problem|keeping up|waited|waits|nothing due/i],
  ["/ui/jobs", /^Jobs$/],
  ["/ui/jobs?status=failed_permanent", /^Jobs$/],
  [`/ui/jobs/${world.dead}`, /^welcome$/],
  [`/ui/jobs/${world.running}`, /^report$/],
  [`/ui/jobs/${world.waiting}`, /^report$/],
  ["/ui/errors", /^Dead letters$/],
  [`/ui/errors/${world.group}`, /died of this$/],
  ["/ui/queues", /^Queues$/],
  ["/ui/queues/mail", /^mail$/],
  ["/ui/kinds", /^Kinds$/],
  ["/ui/kinds/welcome", /^welcome$/],
  ["/ui/workers", /^Workers$/],
  ["/ui/workers/books-1", /^books-1$/],
  ["/ui/operations", /^Operations$/],
  [`/ui/operations/${world.operation}`, /^redrive/],
  ["/ui/schedules", /^Schedules$/],
  ["/ui/schedules/nightly", /^nightly$/],
  ["/ui/limits", /^Limits$/],
  ["/ui/audit", /^Audit$/],
  ["/ui/tokens", /^Tokens$/],
];
