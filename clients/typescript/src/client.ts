/**
 * The client: put jobs in, look at them, wait for them, step in. Uses only `fetch` and `crypto.randomUUID`, so it runs
 * wherever those exist. It runs no jobs: that is worker.ts. Calls about queues, kinds, schedules, errors, operations,
 * workers and tokens are in operator.ts; retries are in http.ts.
 */
import { JobFailed, WaitTimeout } from "./errors.js";
import { callWithRetries, delay, type Answer, type Call, type Server } from "./http.js";
import { defined, newJob, type EnqueueOptions, type JobSpec } from "./kind.js";
import { Errors, Hooks, Kinds, Operations, Queues, Schedules, Tokens, Workers } from "./operator.js";
import { pages, remove, seg } from "./routes.js";
import type {
  Attempt, AuditEntry, BatchResults, CancelAnswer, Job, JobExplanation, JobSummary, KnownJob, NewJob, Stats, Status,
} from "./wire.js";

export { Cancelled, JobFailed, PayloadMismatch, Permanent, Problem, Retry, Snooze, Unreachable, WaitTimeout } from "./errors.js";
export { defineKind, JobKind } from "./kind.js";
export type { EnqueueOptions, JobSpec, KindOptions, UniqueOptions } from "./kind.js";
export type { Answer, Call } from "./http.js";
export type { InputOf, OutputOf, PayloadSchema } from "./payload.js";
export type { Job, JobSummary, Attempt, Status } from "./wire.js";
export type * as wire from "./wire.js";

/** The server takes as many in one call. */
const BATCH_MAX = 1_000;
/** 7 MiB of the 8 MiB that the server takes, to leave room for what is around the jobs. */
const BATCH_MAX_BYTES = 7 * 1024 * 1024;
/** `wait` asks after this long at first, */
const WAIT_FIRST_MS = 100;
/** and every 2 s in the end. */
const WAIT_LONGEST_MS = 2_000;

export interface ClientOptions {
  /** `STEADFAST_URL`, or `http://127.0.0.1:8080`. */
  url?: string;
  /** `STEADFAST_TOKEN`, or what the file `STEADFAST_TOKEN_FILE` contains. */
  token?: string;
  /** Of one request; 30 s. */
  timeoutMs?: number;
  /** A call that fails for the moment (429, 503, no connection) is repeated for this long; 30 s. 0: never. */
  retryForMs?: number;
}

/** What an enqueue answers. A token without the scope `read` sees only the first four of a job that was there before. */
export interface Enqueued extends Partial<Omit<Job, "id" | "status">> {
  id: string;
  status: Status;
  /** False: the key was seen before, or `unique` found a job. */
  created: boolean;
  /** True: `unique` replaced what waited. */
  replaced: boolean;
}

/** Which jobs to list. What is given must all hold. */
export interface JobsQuery {
  status?: Status | readonly Status[];
  kind?: string | readonly string[];
  queue?: string | readonly string[];
  worker?: string;
  group?: string;
  /** A fingerprint of `GET /errors`. */
  error?: string;
  /** An idempotency key. */
  key?: string;
  createdAfter?: Date | string;
  createdBefore?: Date | string;
  finishedAfter?: Date | string;
  finishedBefore?: Date | string;
  /** In the payload or the last error. */
  text?: string;
  order?: "newest" | "oldest" | "next";
  /** Jobs per page, 1 to 200. Pages are fetched as they are needed. */
  pageSize?: number;
}

export interface AuditQuery {
  action?: string;
  token?: string;
  target?: string;
  since?: Date | string;
  before?: Date | string;
}

export class Client {
  /** Where and how to call. The worker uses it, too. */
  readonly server: Server;
  readonly queues: Queues;
  readonly kinds: Kinds;
  readonly schedules: Schedules;
  readonly errors: Errors;
  readonly hooks: Hooks;
  readonly operations: Operations;
  readonly workers: Workers;
  readonly tokens: Tokens;

  constructor(options: ClientOptions = {}) {
    this.server = {
      url: (options.url ?? environment("STEADFAST_URL") ?? "http://127.0.0.1:8080").replace(/\/+$/, ""),
      token: options.token ?? environment("STEADFAST_TOKEN") ?? tokenFile(),
      timeoutMs: options.timeoutMs ?? 30_000,
      retryForMs: options.retryForMs ?? 30_000,
    };
    const call = this.call.bind(this);
    this.queues = new Queues(call);
    this.kinds = new Kinds(call);
    this.schedules = new Schedules(call);
    this.errors = new Errors(call);
    this.hooks = new Hooks(call);
    this.operations = new Operations(call);
    this.workers = new Workers(call);
    this.tokens = new Tokens(call);
  }

  /** Any call, with retries. For routes that have no method here. */
  call<T>(call: Call): Promise<Answer<T>> {
    return callWithRetries<T>(this.server, call);
  }

  /** Resolves when the job is on stable storage. */
  async enqueue(kind: string, payload: unknown, options: EnqueueOptions = {}): Promise<Enqueued> {
    const job = newJob({ ...options, kind, payload });
    const ours = options.idempotencyKey === undefined;
    const repeat = job.idempotency_key === undefined ? "unsent" : "always";
    const answer = await this.call<Partial<Job> & KnownJob>({ method: "POST", path: "/jobs", body: job, repeat });
    // Our own key seen before means that an earlier try of this very call has stored the job.
    const replay = answer.headers.get("idempotent-replayed") === "true";
    return enqueued(answer.body, answer.status === 201 || (ours && replay));
  }

  /** In batches of 1,000, each stored as a whole or not at all. Answers are in the order of the jobs. */
  async enqueueMany(jobs: Iterable<JobSpec> | AsyncIterable<JobSpec>): Promise<Enqueued[]> {
    const answers: Enqueued[] = [];
    let batch: string[] = [];
    /** Keys that only this call knows. */
    let ours: (string | undefined)[] = [];
    let bytes = 0;
    let repeat: "always" | "unsent" = "always";
    const send = async (): Promise<void> => {
      const json = `{"jobs":[${batch.join(",")}]}`;
      const { body } = await this.call<BatchResults>({ method: "POST", path: "/jobs/batch", json, repeat });
      body.results.forEach(({ job, created, replaced }, index) => {
        const known = { ...job, ...defined({ replaced }) } as Partial<Job> & KnownJob;
        // As for one job: seen before, but by an earlier try of this very call.
        const byEarlierTry = ours[index] !== undefined && known.idempotency_key === ours[index];
        answers.push(enqueued(known, created || byEarlierTry));
      });
      [batch, ours, bytes, repeat] = [[], [], 0, "always"];
    };
    for await (const spec of jobs) {
      const job: NewJob = newJob(spec);
      const json = JSON.stringify(job);
      // At most three bytes per UTF-16 unit: never too few.
      if (batch.length === BATCH_MAX || (batch.length > 0 && bytes + 3 * json.length > BATCH_MAX_BYTES)) await send();
      batch.push(json);
      ours.push(spec.idempotencyKey === undefined ? (job.idempotency_key ?? undefined) : undefined);
      bytes += 3 * json.length;
      if (job.idempotency_key === undefined) repeat = "unsent";
    }
    if (batch.length > 0) await send();
    return answers;
  }

  async job(id: string): Promise<Job> {
    return (await this.call<Job>({ method: "GET", path: `/jobs/${seg(id)}` })).body;
  }

  /** The job once it has succeeded. Throws `JobFailed` if it failed or was cancelled, `WaitTimeout` if it takes longer. */
  async wait(id: string, options: { timeoutMs?: number; signal?: AbortSignal } = {}): Promise<Job> {
    const timeoutMs = options.timeoutMs ?? 60_000;
    const end = performance.now() + timeoutMs;
    for (let pause = WAIT_FIRST_MS; ; pause = Math.min(WAIT_LONGEST_MS, pause * 1.5)) {
      const { body: job } = await this.call<Job>({ method: "GET", path: `/jobs/${seg(id)}`, signal: options.signal });
      if (job.status === "succeeded") return job;
      if (job.status === "failed_permanent" || job.status === "cancelled") throw new JobFailed(job);
      const left = end - performance.now();
      if (left <= 0) throw new WaitTimeout(id, timeoutMs, job);
      await delay(Math.min(pause, left), options.signal);
    }
  }

  /** Jobs that match, page by page. */
  async *jobs(query: JobsQuery = {}): AsyncGenerator<Job, void, undefined> {
    yield* pages<Job>((call) => this.call(call), "/jobs", jobsQuery(query));
  }

  /** The same without payloads and results: much less to send. */
  async *jobSummaries(query: JobsQuery = {}): AsyncGenerator<JobSummary, void, undefined> {
    yield* pages<JobSummary>((call) => this.call(call), "/jobs", { ...jobsQuery(query), view: "summary" });
  }

  /** `cancelled`: it will not run. `pending`: it runs, and its worker is told. */
  async cancel(id: string): Promise<"cancelled" | "pending"> {
    const { body } = await this.call<CancelAnswer>({ method: "POST", path: `/jobs/${seg(id)}/cancel` });
    return body.status === "pending" ? "pending" : "cancelled";
  }

  /** A failed or cancelled job starts over. */
  async redrive(id: string): Promise<Job> {
    return (await this.call<Job>({ method: "POST", path: `/jobs/${seg(id)}/redrive` })).body;
  }

  /** Removes a finished job. */
  async delete(id: string): Promise<void> {
    await remove((call) => this.call(call), `/jobs/${seg(id)}`);
  }

  /** The newest 1,000, oldest first. */
  async attempts(id: string): Promise<Attempt[]> {
    return (await this.call<Attempt[]>({ method: "GET", path: `/jobs/${seg(id)}/attempts` })).body;
  }

  /** Why it is not running. */
  async explain(id: string): Promise<JobExplanation> {
    return (await this.call<JobExplanation>({ method: "GET", path: `/jobs/${seg(id)}/explain` })).body;
  }

  /** Counts of the first queues by name, totals of all. */
  async stats(): Promise<Stats> {
    return (await this.call<Stats>({ method: "GET", path: "/stats" })).body;
  }

  /** What operators did, newest first. */
  async *audit(query: AuditQuery = {}): AsyncGenerator<AuditEntry, void, undefined> {
    const { since, before, ...rest } = query;
    yield* pages<AuditEntry>((call) => this.call(call), "/audit", { ...rest, since: time(since), before: time(before) });
  }
}

function enqueued(body: Partial<Job> & KnownJob, created: boolean): Enqueued {
  return { ...body, created, replaced: body.replaced ?? false };
}

function jobsQuery(query: JobsQuery): Record<string, string | number | undefined> {
  const { status, kind, queue, createdAfter, createdBefore, finishedAfter, finishedBefore, pageSize, ...rest } = query;
  return {
    ...rest,
    status: list(status),
    kind: list(kind),
    queue: list(queue),
    created_after: time(createdAfter),
    created_before: time(createdBefore),
    finished_after: time(finishedAfter),
    finished_before: time(finishedBefore),
    limit: pageSize ?? 200,
  };
}

function list(values: string | readonly string[] | undefined): string | undefined {
  return typeof values === "object" ? values.join(",") : values;
}

function time(value: Date | string | undefined): string | undefined {
  return value instanceof Date ? value.toISOString() : value;
}

interface MaybeProcess {
  env?: Record<string, string | undefined>;
  getBuiltinModule?: (name: string) => { readFileSync(path: string, encoding: "utf8"): string } | undefined;
}

function maybeProcess(): MaybeProcess | undefined {
  return (globalThis as { process?: MaybeProcess }).process;
}

function environment(name: string): string | undefined {
  return maybeProcess()?.env?.[name] || undefined;
}

function tokenFile(): string | undefined {
  const path = environment("STEADFAST_TOKEN_FILE");
  if (path === undefined) return undefined;
  const files = maybeProcess()?.getBuiltinModule?.("node:fs");
  if (!files) throw new Error("STEADFAST_TOKEN_FILE cannot be read in this runtime; pass the token to new Client({ token })");
  return files.readFileSync(path, "utf8").trim();
}
