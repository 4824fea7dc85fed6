// A worker in plain JavaScript: lease, work, heartbeat, settle. Start as many as you like; kill them whenever you like.
// Ctrl-C or SIGTERM: takes no more jobs, lets running ones finish for GRACE_S seconds, gives the others back, exits 0.
import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

const { STEADFAST_URL: url = "http://127.0.0.1:8080", STEADFAST_TOKEN: token } = process.env;
const { SLOTS = "10", LEASE_MS = "30000", GRACE_S = "20" } = process.env;
const [slots, leaseMs, graceMs] = [Number(SLOTS), Number(LEASE_MS), Number(GRACE_S) * 1000];
const beatMs = Math.floor(leaseMs / 3);
const worker = `js-${process.pid}-${randomBytes(4).toString("hex")}`; // a name that no other process has
const headers = { "content-type": "application/json", ...(token && { authorization: `Bearer ${token}` }) };

class Permanent extends Error {} // throw it where another attempt cannot help

async function welcome(payload, signal) { // yours goes here. signal is an AbortSignal: once aborted, end soon by throwing
  if (!Number.isInteger(payload.user)) throw new Permanent("payload.user is not a number");
  await sleep(payload.takes_ms ?? 100, null, { signal }); // stands for the work
  return { welcomed: payload.user };
}

const handlers = { welcome }; // only these kinds are asked for

class Refused extends Error {} // the server said no, and would say it again

const running = new Map(); // lease token → { job, key, stop, told }; told: why it must stop, as an outcome; or "lost"
let stopping = false;

const log = (...words) => console.error(worker, ...words);
const backoffMs = (tries) => Math.min(5000, 100 * 2 ** tries) * (0.5 + Math.random() / 2); // not the same for all workers

function tell(lease, why) {
  lease.told ??= why;
  lease.stop.abort();
}

async function call(path, body, timeoutMs = 30000) { // null: no answer, or one that says try again
  let refused;
  try {
    const request = { method: "POST", headers, body: JSON.stringify({ worker, ...body }) };
    const response = await fetch(url + path, { ...request, signal: AbortSignal.timeout(timeoutMs) });
    if (response.ok) return await response.json();
    refused = `${path}: ${response.status} ${await response.text()}`;
    if (response.status < 500 && response.status !== 429) throw new Refused(refused);
  } catch (error) {
    if (error instanceof Refused) throw error;
    refused = `${path}: ${error.cause ?? error}`;
  }
  log(`${refused}; trying again`);
  return null;
}

async function settle(lease, report) { // may be sent again: it is recorded once
  for (let tries = 1; ; tries++) {
    const answer = await call("/leases/settle", { outcomes: [{ ...lease.key, ...report }] });
    if (answer) return log(lease.job.id, report.outcome, answer.outcomes[0].status, report.error ?? "");
    await sleep(backoffMs(tries));
  }
}

async function report(lease) {
  try {
    lease.stop.signal.throwIfAborted();
    const result = await handlers[lease.job.kind](lease.job.payload, lease.stop.signal);
    JSON.stringify(result); // a result that is no JSON is a failed attempt
    return { outcome: "succeeded", result };
  } catch (error) {
    if (lease.told) return { outcome: lease.told }; // it ended because it was told to
    return { outcome: "failed", error: String(error), permanent: error instanceof Permanent };
  }
}

async function run(lease) { // one job
  try {
    const outcome = await report(lease);
    if (lease.told !== "lost") await settle(lease, outcome); // what is lost belongs to another worker
  } catch (error) {
    log(error.message, "(the lease runs out and the job starts again)");
  } finally {
    running.delete(lease.key.lease_token);
  }
}

async function heartbeat() { // for all leases at once, also while their outcomes are on the way
  const leases = [...running.values()].filter((lease) => lease.told !== "lost");
  if (leases.length === 0) return;
  const beats = { leases: leases.map((lease) => lease.key) };
  const answer = await call("/leases/heartbeat", beats, beatMs).catch((error) => log(error.message));
  if (answer?.worker === "drain") stopping = true;
  answer?.leases.forEach(({ job_id, status }, index) => {
    if (status === "ok") return;
    log(job_id, status);
    tell(leases[index], status === "cancel" ? "cancelled" : "lost");
  });
}

async function work() { // until it is told to stop
  for (let tries = 0; !stopping; ) {
    if (running.size === slots) {
      await sleep(20);
      continue;
    }
    // A short poll: it cannot be interrupted without losing what it may bring.
    const ask = { kinds: Object.keys(handlers), max: slots - running.size, lease_ms: leaseMs, wait_ms: 2000 };
    const answer = await call("/leases", ask);
    for (const { job, lease_token } of answer?.leases ?? []) {
      const lease = { job, key: { job_id: job.id, lease_token }, stop: new AbortController() };
      running.set(lease_token, lease);
      if (stopping) tell(lease, "released");
      run(lease);
    }
    tries = answer ? 0 : tries + 1;
    if (tries) await sleep(backoffMs(tries));
  }
}

async function allEnd(withinMs) {
  for (const end = Date.now() + withinMs; running.size > 0 && Date.now() < end; ) await sleep(50);
}

async function finish() {
  log(`stopping; ${running.size} jobs run`);
  await allEnd(graceMs);
  for (const lease of running.values()) tell(lease, "released");
  await allEnd(2000);
  for (const lease of running.values()) { // its handler does not listen
    if (lease.told !== "lost") await call("/leases/settle", { outcomes: [{ ...lease.key, outcome: lease.told }] });
  }
}

for (const [signal, number] of [["SIGINT", 2], ["SIGTERM", 15]]) {
  process.on(signal, () => {
    if (stopping) process.exit(128 + number); // the second signal; leases run out
    stopping = true;
  });
}
setInterval(heartbeat, beatMs);
const refused = await work().catch((error) => error); // a wrong token, say: no reason to drop what runs
if (refused) log(refused.message);
await finish();
process.exit(refused ? 1 : 0);
