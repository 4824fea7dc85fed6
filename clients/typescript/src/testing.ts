/**
 * Runs handlers without a server: the payload is checked, the handler is called with a context, and what would have been
 * reported is returned. The same code decides the outcome as in the worker, so a test sees what the server would see.
 */
import { Context, Stop } from "./context.js";
import type { StopReason } from "./errors.js";
import type { Logger } from "./logger.js";
import { runHandler, type Middleware } from "./slots.js";
import type { Handler } from "./worker.js";
import type { Job, ProgressReport } from "./wire.js";

export interface HarnessOptions {
  /** 1 by default. */
  attempt?: number;
  /** The handler's own, else 3. */
  maxAttempts?: number;
  /** Other fields of the job that the handler looks at. */
  job?: Partial<Job>;
  middleware?: readonly Middleware[];
  /** Frames of the stack in `error`; false. */
  stackFrames?: boolean;
}

/** What the worker would report. `lost`: nothing, the job belongs to another worker. */
export interface HarnessOutcome<R> {
  outcome: "succeeded" | "failed" | "cancelled" | "released" | "snoozed" | "lost";
  result?: R;
  error?: string;
  permanent: boolean;
  retryAfterMs?: number;
  delayMs?: number;
  errorGroup?: string;
  progress: ProgressReport[];
  logs: string[];
}

export class Harness<Input, Output, Result> {
  readonly #handler: Handler<Input, Output, Result>;
  readonly #options: HarnessOptions;
  #stop = new Stop();

  constructor(handler: Handler<Input, Output, Result>, options: HarnessOptions = {}) {
    this.#handler = handler;
    this.#options = options;
  }

  /** One attempt. The payload goes through JSON, as it would. */
  async run(payload: Input, options: HarnessOptions = {}): Promise<HarnessOutcome<Result>> {
    const { attempt = 1, middleware = [], stackFrames = false, ...rest } = { ...this.#options, ...options };
    const { kind, options: defaults, run } = this.#handler;
    const stop = (this.#stop = new Stop());
    const progress: ProgressReport[] = [];
    const logs: string[] = [];
    const job = { ...makeJob(kind, payload, attempt, rest.maxAttempts ?? defaults.maxAttempts ?? 3), ...rest.job };
    const ctx = new Context({ job, attempt, stop, log: keep(logs), report: (report) => progress.push(report), listen: () => undefined });
    const handler = { kind, schema: defaults.payload, run: run as (payload: unknown, ctx: Context) => unknown };
    const report = await runHandler(handler, middleware, ctx, stop, stackFrames);
    const outcome: HarnessOutcome<Result> = { outcome: report?.outcome ?? "lost", permanent: report?.permanent ?? false, progress, logs };
    if (report?.resultJson !== undefined) outcome.result = JSON.parse(report.resultJson) as Result;
    if (report?.error != null) outcome.error = report.error;
    if (report?.retry_after_ms != null) outcome.retryAfterMs = report.retry_after_ms;
    if (report?.delay_ms != null) outcome.delayMs = report.delay_ms;
    if (report?.error_group != null) outcome.errorGroup = report.error_group;
    return outcome;
  }

  /** Tells the handler that runs: aborts `ctx.signal`. */
  stop(reason: StopReason): void {
    this.#stop.must(reason);
  }

  /** Tells it that a shutdown or a drain begins: aborts only `ctx.stopping`. */
  stopSoon(reason: "shutdown" | "drain" = "shutdown"): void {
    this.#stop.should(reason);
  }
}

function keep(logs: string[]): Logger {
  const line = (message: string): void => void logs.push(message);
  return { debug: line, info: line, warn: line, error: line };
}

function makeJob(kind: string, payload: unknown, attempt: number, maxAttempts: number): Job {
  const now = new Date().toISOString();
  return {
    id: crypto.randomUUID(), kind, queue: "default", payload: JSON.parse(JSON.stringify(payload ?? null)), status: "running",
    priority: 0, attempts: attempt, max_attempts: maxAttempts, run_at: now, timeout_ms: null, idempotency_key: null,
    group_key: null, cost: null, start_by: null, unique: null, notify: null, trace: null, cancel_requested: false, locked_by: "harness", locked_at: now,
    lease_expires_at: null, last_error: null, error_group: null, result: null, progress: null, created_at: now, updated_at: now,
    started_at: now, finished_at: null,
  };
}
