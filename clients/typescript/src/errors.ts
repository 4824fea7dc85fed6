/**
 * What is thrown: by the client when a call fails, and by handlers to say how a job ends.
 * It never decides an outcome: that is outcome.ts. Every class carries its data as fields, so nobody parses messages.
 */
import type { ItemError, Job, Problem as ProblemBody } from "./wire.js";

/** The server refused: an RFC 9457 problem. `code` is stable, `detail` is for people. */
export class Problem extends Error {
  override readonly name = "Problem";
  readonly status: number;
  readonly code: string;
  readonly title: string;
  readonly detail: string;
  /** Find it again in the server's log. */
  readonly requestId: string | undefined;
  /** Of a batch: what is wrong with which item. */
  readonly errors: readonly ItemError[];
  /** What the header `Retry-After` says. */
  readonly retryAfterMs: number | undefined;

  constructor(status: number, body: Partial<ProblemBody>, retryAfterMs?: number) {
    const detail = body.detail ?? body.title ?? "the answer is not from Steadfast; check the URL";
    super(`${status} ${body.code ?? "unknown"}: ${detail}`);
    this.status = status;
    this.code = body.code ?? "unknown";
    this.title = body.title ?? "";
    this.detail = detail;
    this.requestId = body.request_id;
    this.errors = body.errors ?? [];
    this.retryAfterMs = retryAfterMs;
  }
}

/** There was no answer: no connection, a broken one, or a timeout. */
export class Unreachable extends Error {
  override readonly name = "Unreachable";
  /** True if the server may have received the request and acted on it. */
  readonly maybeSent: boolean;

  constructor(message: string, maybeSent: boolean, cause: unknown) {
    super(message, { cause });
    this.maybeSent = maybeSent;
  }
}

/** `wait` found that the job failed permanently or was cancelled. */
export class JobFailed extends Error {
  override readonly name = "JobFailed";
  readonly job: Job;

  constructor(job: Job) {
    super(`job ${job.id} (${job.kind}) is ${job.status}${job.last_error ? `: ${job.last_error}` : ""}`);
    this.job = job;
  }
}

/** `wait` reached its timeout. The job goes on. */
export class WaitTimeout extends Error {
  override readonly name = "WaitTimeout";
  readonly job: Job | undefined;

  constructor(id: string, timeoutMs: number, job: Job | undefined) {
    super(`job ${id} has not finished within ${timeoutMs} ms${job ? `; it is ${job.status}` : ""}`);
    this.job = job;
  }
}

/** A payload does not match the schema of its kind. */
export class PayloadMismatch extends Error {
  override readonly name = "PayloadMismatch";
  readonly issues: readonly string[];

  constructor(kind: string, issues: readonly string[]) {
    super(`the payload does not match the schema of ${kind}: ${issues.join("; ")}`);
    this.issues = issues;
  }
}

/** Throw it in a handler where another attempt cannot help: the job fails permanently. */
export class Permanent extends Error {
  override readonly name = "Permanent";
  /** A name for the cause: failures with the same one are one group under `GET /errors`. */
  readonly errorGroup: string | undefined;

  constructor(message: string, options: { errorGroup?: string; cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.errorGroup = options.errorGroup;
  }
}

/** Throw it in a handler to choose when the next attempt starts. It uses up an attempt, as any failure does. */
export class Retry extends Error {
  override readonly name = "Retry";
  readonly afterMs: number;
  readonly errorGroup: string | undefined;

  constructor(options: { afterMs: number; message?: string; errorGroup?: string; cause?: unknown }) {
    super(
      options.message ?? `the handler asked for another attempt after ${options.afterMs} ms`,
      options.cause === undefined ? undefined : { cause: options.cause },
    );
    this.afterMs = options.afterMs;
    this.errorGroup = options.errorGroup;
  }
}

/** Throw or return it in a handler to run the job later. It is no failure and uses up no attempt. */
export class Snooze extends Error {
  override readonly name = "Snooze";
  readonly delayMs: number;

  constructor(options: { delayMs: number }) {
    super(`snoozed for ${options.delayMs} ms`);
    this.delayMs = options.delayMs;
  }
}

/**
 * Why a handler should stop.
 * `cancel`: an operator or producer asked. `lost`: another worker may have the job. `timeout`: of the job.
 * `shutdown`: the worker stops. `drain`: an operator drains this worker, or its server is going away.
 */
export type StopReason = "cancel" | "lost" | "timeout" | "shutdown" | "drain";

const STOP_SAYS: Record<StopReason, string> = {
  cancel: "the job was cancelled",
  lost: "the lease is lost; another worker may run the job",
  timeout: "the job has reached its timeout",
  shutdown: "the worker is shutting down",
  drain: "the worker is draining",
};

/** What `ctx.signal` is aborted with and what `ctx.check()` throws. A handler lets it pass. */
export class Cancelled extends Error {
  override readonly name = "Cancelled";
  readonly reason: StopReason;

  constructor(reason: StopReason) {
    super(STOP_SAYS[reason]);
    this.reason = reason;
  }
}
