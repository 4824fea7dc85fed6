/**
 * Jobs per second of one worker process with a handler that does nothing: this client against BullMQ on Redis, in one run,
 * interleaved. Each round preloads JOBS jobs, then starts a fresh worker process, which ends when the last one has
 * succeeded; the clock runs in that process, from its first job to the end of the last.
 *
 *   npm run build && STEADFAST_BIN=target/release/steadfast node clients/typescript/bench/noop.mjs
 *
 * JOBS (20000), ROUNDS (3), CONCURRENCY (100), PREFETCH (0,400: two variants). BullMQ is installed into target/, Redis is
 * `redis-server` of the distribution, started here on the loopback in a temporary directory, with `appendonly yes` and
 * `appendfsync always`: a job that was acknowledged is on disk, as with Steadfast.
 */
import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Client, VERSION } from "../dist/index.js";

const BULLMQ = "6.7.0";
const { JOBS = "20000", ROUNDS = "3", CONCURRENCY = "100", PREFETCH = "0,400", STEADFAST_BIN } = process.env;
const jobs = Number(JOBS);
const work = fileURLToPath(new URL("../../../target/clients/typescript/bench", import.meta.url));
const temporary = mkdtempSync(join(tmpdir(), "steadfast-bench-"));
const running = [];

if (!STEADFAST_BIN) throw new Error("set STEADFAST_BIN to the server binary, of a release build");

async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

async function until(what, look) {
  for (const end = performance.now() + 60_000; performance.now() < end; await sleep(50)) if (await look()) return;
  throw new Error(`waited in vain: ${what}`);
}

function start(command, args, env = {}) {
  const child = spawn(command, args, { cwd: temporary, env: { ...process.env, ...env }, stdio: ["ignore", "ignore", "inherit"] });
  running.push(child);
}

async function steadfast() {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  start(STEADFAST_BIN, ["serve"], { API_BIND_ADDR: `127.0.0.1:${port}`, STEADFAST_EXECUTOR: "none", RUST_LOG: "error", DATABASE_URL: `sqlite://${temporary}/jobs.db` });
  await until("Steadfast is ready", () => fetch(`${url}/readyz`).then((answer) => answer.ok, () => false));
  const client = new Client({ url });
  await client.kinds.declare("noop");
  return async (prefetch) => {
    const queue = `q${Math.random().toString(36).slice(2)}`;
    await client.enqueueMany(Array.from({ length: jobs }, (_, n) => ({ kind: "noop", queue, payload: { n } })));
    return worker("steadfast", { STEADFAST_URL: url, QUEUE: queue, PREFETCH: String(prefetch) });
  };
}

async function bullmq() {
  if (!existsSync(join(work, "node_modules", "bullmq"))) {
    mkdirSync(work, { recursive: true });
    execFileSync("npm", ["install", "--prefix", work, "--no-save", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", `bullmq@${BULLMQ}`, "ioredis@6.0.0"], { stdio: "inherit" });
  }
  const port = await freePort();
  start("redis-server", ["--port", String(port), "--bind", "127.0.0.1", "--dir", temporary, "--appendonly", "yes", "--appendfsync", "always", "--save", "", "--loglevel", "warning"]);
  const { Queue } = (await import(join(work, "node_modules", "bullmq", "dist", "cjs", "index.js"))).default;
  const connection = { host: "127.0.0.1", port, maxRetriesPerRequest: null };
  return async () => {
    const name = `q${Math.random().toString(36).slice(2)}`;
    const queue = new Queue(name, { connection });
    queue.on("error", () => undefined);
    for (let from = 0; from < jobs; from += 1_000) {
      await queue.addBulk(Array.from({ length: Math.min(1_000, jobs - from) }, (_, n) => ({ name: "noop", data: { n: from + n } })));
    }
    await queue.close();
    return worker("bullmq", { REDIS_PORT: String(port), QUEUE: name, BULLMQ: join(work, "node_modules", "bullmq", "dist", "cjs", "index.js") });
  };
}

/** A fresh process; its only line is jobs per second. */
function worker(which, env) {
  const script = fileURLToPath(new URL(`./noop-${which}.mjs`, import.meta.url));
  return Number(execFileSync(process.execPath, [script], { env: { ...process.env, JOBS, CONCURRENCY, ...env }, stdio: ["ignore", "pipe", "inherit"] }).toString());
}

const middle = (numbers) => [...numbers].sort((a, b) => a - b)[Math.floor(numbers.length / 2)];

try {
  const ours = await steadfast();
  const theirs = await bullmq();
  const rows = new Map();
  const note = (name, rate) => rows.set(name, [...(rows.get(name) ?? []), Math.round(rate)]);
  for (let round = 0; round < Number(ROUNDS); round++) {
    for (const prefetch of PREFETCH.split(",")) note(`steadfast-queue ${VERSION}, SQLite, prefetch ${prefetch}`, await ours(Number(prefetch)));
    note(`BullMQ ${BULLMQ}, Redis, appendfsync always`, await theirs());
  }
  console.log(`${jobs} jobs, one worker process, concurrency ${CONCURRENCY}, Node ${process.version}, ${availableParallelism()} cores; jobs/s, median of ${ROUNDS}`);
  for (const [name, rates] of rows) console.log(`${String(middle(rates)).padStart(7)}  ${name}  (${rates.join(", ")})`);
} finally {
  for (const child of running) child.kill("SIGKILL");
  rmSync(temporary, { recursive: true, force: true });
}
