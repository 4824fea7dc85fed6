// Real servers for the tests in a browser: started on a free loopback port in a directory of their own, killed, started again; and a
// worker that speaks HTTP like any other.
//
// STEADFAST_BIN is the program; STORE is `sqlite` or `postgres` (a schema of its own per server, in the database of
// STEADFAST_TEST_POSTGRES_URL). Waiting is always for a condition, never for a time.

import { execFile, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

export const STORE = process.env.STORE ?? "sqlite";
/** What every server of the tests has, so that none is open unless a test asks for it. */
export const ADMIN = "the-admin-token-of-the-browser-tests";

/** Machines are slow; nothing here measures speed. */
const DEADLINE_MS = 30_000;
const POLL_MS = 40;

/** Waits until `condition` gives something true, and gives it. */
export async function until(what, condition, ms = DEADLINE_MS) {
  const end = Date.now() + ms;
  let last;
  for (;;) {
    try {
      last = await condition();
      if (last) return last;
    } catch (error) {
      if (error.isFinal) throw error;
      last = error;
    }
    if (Date.now() > end) throw new Error(`waited ${ms} ms until ${what}; last: ${last instanceof Error ? last.message : JSON.stringify(last)}`);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

export class Server {
  #child = null;
  #output = "";
  #stopWork = new AbortController();
  #working = [];

  constructor({ env, directory, open }) {
    this.env = env;
    this.directory = directory;
    this.open = open;
    this.url = "";
  }

  async start() {
    const program = process.env.STEADFAST_BIN;
    if (!program) throw new Error("STEADFAST_BIN must name the server program");
    const address = this.url ? new URL(this.url).host : "127.0.0.1:0";
    this.#output = "";
    const child = spawn(program, ["serve", "--api-bind-addr", address], { cwd: this.directory, env: this.env, stdio: ["ignore", "pipe", "pipe"] });
    this.#child = child;
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (this.#output = (this.#output + data).slice(-20_000)));
    await until("the server is ready", () => {
      if (child.exitCode !== null) throw Object.assign(new Error(`the server ended with ${child.exitCode}: ${this.#output}`), { isFinal: true });
      const said = /API\s+(http:\/\/[0-9.]+:\d+)/.exec(this.#output);
      if (said) this.url = said[1];
      return Boolean(said);
    });
    return this;
  }

  get output() {
    return this.#output;
  }

  /** Ends it; SIGKILL is the power cut. */
  async kill(signal = "SIGKILL") {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill(signal);
    await ended;
  }

  async restart() {
    await this.kill();
    return this.start();
  }

  async end() {
    this.#stopWork.abort();
    await Promise.allSettled(this.#working);
    await this.kill();
    await rm(this.directory, { recursive: true, force: true });
  }

  /** A request of a program: with a token, without a cookie. Gives `{status, data, headers}`. */
  async call(method, path, body, { token = this.open ? null : ADMIN, headers = {} } = {}) {
    const answer = await fetch(this.url + path, {
      method,
      headers: { ...(token ? { authorization: `Bearer ${token}` } : {}), ...(body === undefined ? {} : { "content-type": "application/json" }), ...headers },
      body: body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body),
      redirect: "manual",
      signal: AbortSignal.timeout(DEADLINE_MS),
    });
    const text = await answer.text();
    return { status: answer.status, data: text && (answer.headers.get("content-type") ?? "").includes("json") ? JSON.parse(text) : text, headers: answer.headers };
  }

  /** The same, and it must have worked. */
  async ask(method, path, body, options) {
    const { status, data } = await this.call(method, path, body, options);
    if (status >= 300) throw new Error(`${method} ${path} answered ${status}: ${JSON.stringify(data)}`);
    return data;
  }

  get = (path) => this.ask("GET", path);
  enqueue = (kind, payload = {}, rest = {}) => this.ask("POST", "/jobs", { kind, payload, ...rest });

  async enqueueMany(jobs) {
    const made = [];
    for (let at = 0; at < jobs.length; at += 1000) made.push(...(await this.ask("POST", "/jobs/batch", { jobs: jobs.slice(at, at + 1000) })).results);
    return made;
  }

  async token(name, scopes) {
    return this.ask("POST", "/tokens", { name, scopes });
  }

  lease = (worker, rest = {}) => this.ask("POST", "/leases", { worker, max: 1, ...rest }).then(({ leases }) => leases);

  settle(worker, outcomes) {
    return this.ask("POST", "/leases/settle", { worker, outcomes: outcomes.map(([lease, outcome]) => ({ job_id: lease.job.id, lease_token: lease.lease_token, result: null, ...outcome })) });
  }

  /** Leases and settles all that is there of these kinds. */
  async drain(worker, kinds, outcome) {
    let done = 0;
    for (;;) {
      const leases = await this.lease(worker, { kinds, max: 1000 });
      if (leases.length === 0) return done;
      await this.settle(worker, leases.map((lease) => [lease, outcome(lease)]));
      done += leases.length;
    }
  }

  /** A worker that goes on until it is told to stop or the server ends. */
  work(worker, kinds, outcome, { max = 50, info } = {}) {
    const stop = new AbortController();
    const over = () => stop.signal.aborted || this.#stopWork.signal.aborted;
    const loop = async () => {
      while (!over()) {
        try {
          const leases = await this.lease(worker, { kinds, max, wait_ms: 300, ...(info ? { info } : {}) });
          if (leases.length > 0) await this.settle(worker, leases.map((lease) => [lease, outcome(lease)]));
        } catch {
          // A killed server is part of the tests; the worker comes back like a real one.
          await new Promise((resolve) => setTimeout(resolve, 100));
        }
      }
    };
    const working = loop();
    this.#working.push(working);
    return { stop: async () => (stop.abort(), await working) };
  }

  /** A session of a token, as the browser gets it. Gives name and value of the cookie. */
  async session(token = ADMIN) {
    const answer = await this.call("POST", "/session", { token }, { token: null });
    if (answer.status !== 201) throw new Error(`POST /session answered ${answer.status}`);
    const [, name, value] = /^([^=]+)=([^;]*)/.exec(answer.headers.get("set-cookie"));
    return { name, value };
  }
}

export const died = (error = "it did not work") => ({ outcome: "failed", error, permanent: true });
export const succeeded = () => ({ outcome: "succeeded" });

/** A running server. `open`: without a token, so that everybody on this machine may do everything. */
export async function startServer({ open = false, env = {} } = {}) {
  const directory = await mkdtemp(join(tmpdir(), "steadfast-browser-"));
  const settings = {
    PATH: process.env.PATH,
    HOME: directory,
    STEADFAST_ALLOW_UNDECLARED_KINDS: "true",
    STEADFAST_BUILTIN_KINDS: "summarize_text",
    ...(open ? {} : { STEADFAST_ADMIN_TOKEN: ADMIN }),
    ...env,
  };
  if (STORE === "postgres") {
    if (!process.env.STEADFAST_TEST_POSTGRES_URL) throw new Error("STEADFAST_TEST_POSTGRES_URL must name an empty database");
    Object.assign(settings, { DATABASE_URL: process.env.STEADFAST_TEST_POSTGRES_URL, STEADFAST_DATABASE_SCHEMA: `browser_${randomBytes(6).toString("hex")}` });
  } else settings.DATABASE_URL = `sqlite://${join(directory, "jobs.db")}`;
  // PostgreSQL is only migrated when somebody says so.
  if (STORE === "postgres") await promisify(execFile)(process.env.STEADFAST_BIN, ["migrate"], { cwd: directory, env: settings, timeout: DEADLINE_MS });
  return new Server({ env: settings, directory, open }).start();
}
