/**
 * What a handler gets beside its payload, and how it is told to stop. The engine tells (`Stop`), the handler listens
 * (`Context`). Nothing here ends a handler: JavaScript cannot; it has to listen.
 */
import { Cancelled, type StopReason } from "./errors.js";
import type { Logger } from "./logger.js";
import type { Job, ProgressReport } from "./wire.js";

/** The server keeps 1 KiB of a message. */
const MESSAGE_MAX_CHARS = 1_000;

/** The telling side. Signals are made when somebody asks for them: most handlers of short jobs never do. */
export class Stop {
  #must: StopReason | undefined;
  #should: StopReason | undefined;
  #mustSignal: AbortController | undefined;
  #shouldSignal: AbortController | undefined;

  /** The handler must end now. A lost lease outweighs what was told before: its outcome is dropped. */
  must(reason: StopReason): void {
    if (this.#must === undefined || reason === "lost") this.#must = reason;
    this.should(reason);
    this.#mustSignal?.abort(new Cancelled(reason));
  }

  /** The handler should end soon; what it does until then counts. */
  should(reason: StopReason): void {
    this.#should ??= reason;
    this.#shouldSignal?.abort(new Cancelled(reason));
  }

  get mustReason(): StopReason | undefined {
    return this.#must;
  }

  get reason(): StopReason | undefined {
    return this.#must ?? this.#should;
  }

  get signal(): AbortSignal {
    this.#mustSignal ??= told(this.#must);
    return this.#mustSignal.signal;
  }

  get stopping(): AbortSignal {
    this.#shouldSignal ??= told(this.#should);
    return this.#shouldSignal.signal;
  }
}

function told(reason: StopReason | undefined): AbortController {
  const controller = new AbortController();
  if (reason !== undefined) controller.abort(new Cancelled(reason));
  return controller;
}

/** What the context needs from the engine, or from the test harness. */
export interface ContextSource {
  job: Job;
  attempt: number;
  stop: Stop;
  log: Logger;
  report(progress: ProgressReport): void;
  /** Takes in what the heartbeat thread has said meanwhile, also while the event loop is blocked. */
  listen(): void;
}

export class Context {
  readonly job: Job;
  /** 1 for the first. */
  readonly attempt: number;
  /** Lines with the job's id, kind and attempt. */
  readonly log: Logger;
  readonly #source: ContextSource;

  constructor(source: ContextSource) {
    this.#source = source;
    this.job = source.job;
    this.attempt = source.attempt;
    this.log = source.log;
  }

  get isLastAttempt(): boolean {
    return this.attempt >= this.job.max_attempts;
  }

  /** Aborted when the handler must end: cancel, lost lease, timeout, or the end of the grace period of a shutdown. */
  get signal(): AbortSignal {
    return this.#source.stop.signal;
  }

  /** Aborted earlier, when the worker begins to shut down or to drain: a good moment to save and throw its reason. */
  get stopping(): AbortSignal {
    return this.#source.stop.stopping;
  }

  /** Why the handler must or should stop; undefined while it may go on. Also right in code that blocks the event loop. */
  get stopReason(): StopReason | undefined {
    this.#source.listen();
    return this.#source.stop.reason;
  }

  /** Throws `Cancelled` if the handler must end. For loops without `await`. */
  check(): void {
    this.#source.listen();
    const reason = this.#source.stop.mustReason;
    if (reason !== undefined) throw new Cancelled(reason);
  }

  /** Shown with the job; sent with the next heartbeat. */
  progress(percent: number | null, message?: string): void {
    const report: ProgressReport = {};
    if (percent !== null && Number.isFinite(percent)) report.percent = Math.min(100, Math.max(0, Math.round(percent)));
    if (message !== undefined) report.message = plainText(message).slice(0, MESSAGE_MAX_CHARS);
    this.#source.report(report);
  }

  /** `<job id>-<part>`: the same on every attempt. An idempotency key for calls to other services. */
  key(part: string | number): string {
    return `${this.job.id}-${part}`;
  }
}

/** Without what the server refuses in strings: NUL and halves of surrogate pairs. */
export function plainText(text: string): string {
  return text.toWellFormed().replaceAll("\0", "\u{fffd}");
}
