// A worker in plain JavaScript: lease, work, heartbeat, settle. Start as many as you like; kill them whenever you like.
import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

const url = process.env.STEADFAST_URL ?? "http://127.0.0.1:8080";
const leaseMs = Number(process.env.LEASE_MS ?? 30000);
const worker = `js-${process.pid}-${randomBytes(4).toString("hex")}`; // a name that no other process has
const headers = { "content-type": "application/json" };
if (process.env.STEADFAST_TOKEN) headers.authorization = `Bearer ${process.env.STEADFAST_TOKEN}`;

async function call(path, body) {
  for (;;) { // heartbeats and settles may be sent again; a lease whose answer got lost expires
    const request = { method: "POST", headers, body: JSON.stringify({ worker, ...body }) };
    const response = await fetch(url + path, request).catch(() => null);
    if (response?.ok) return response.json();
    if (response && response.status < 500 && response.status !== 429) throw new Error(await response.text());
    await sleep(1000);
  }
}

async function work(job) { // yours goes here; an exception is a failed attempt
  await sleep(job.payload.ms);
  return { worked_on: job.payload };
}

const key = (lease) => ({ job_id: lease.job.id, lease_token: lease.lease_token });

const outcome = (lease) => work(lease.job).then(
  (result) => ({ ...key(lease), outcome: "succeeded", result }),
  (error) => ({ ...key(lease), outcome: "failed", error: String(error) }),
);

for (;;) {
  const { leases } = await call("/leases", { max: 10, lease_ms: leaseMs, wait_ms: 10000 });
  if (leases.length === 0) continue;
  const beats = setInterval(() => call("/leases/heartbeat", { leases: leases.map(key) }), leaseMs / 3);
  await call("/leases/settle", { outcomes: await Promise.all(leases.map(outcome)) });
  clearInterval(beats);
}
