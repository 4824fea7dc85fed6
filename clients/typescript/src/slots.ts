/**
 * The jobs that run: one slot each. Calls the handler, listens to its end, its timeout and what the heartbeat says, and
 * hands over the outcome. It neither leases nor settles: engine.ts connects it with both.
 */
import { Context, Stop } from "./context.js";
import type { StopReason } from "./errors.js";
import { withFields, type Logger } from "./logger.js";
import { errorLine, reportOfError, reportOfResult, timedOut, type Report } from "./outcome.js";
import { checkPayload, type PayloadSchema } from "./payload.js";
import type { SettledLease } from "./settle.js";
import type { Job, Lease, ProgressReport } from "./wire.js";

/** What a handler of any payload looks like from inside. */
export interface AnyHandler {
  kind: string;
  schema: PayloadSchema | undefined;
  run(payload: unknown, ctx: Context): unknown;
}

/** Runs around every handler: `next` runs the rest and returns its result. */
export type Middleware = (job: Job, ctx: Context, next: () => Promise<unknown>) => unknown;

export interface SlotsSetup {
  handlers: ReadonlyMap<string, AnyHandler>;
  middleware: readonly Middleware[];
  /** Frames of the stack in error texts. */
  stackFrames: boolean;
  /** A handler that goes on for so long after a timeout or a lost lease no longer occupies its slot. */
  abandonAfterMs: number;
  log: Logger;
  progress(token: string, progress: ProgressReport): void;
  listen(): void;
  /** `report` is undefined if there is nothing to say: the lease is lost. */
  ended(lease: SettledLease, report: Report | undefined): void;
  /** A slot is free. */
  freed(): void;
}

interface Running {
  lease: SettledLease;
  job: Job;
  stop: Stop;
  /** The outcome is handed over, or there will be none. */
  reported: boolean;
  timeout: NodeJS.Timeout | undefined;
  abandon: NodeJS.Timeout | undefined;
}

export class Slots {
  readonly #running = new Map<string, Running>();

  constructor(private readonly setup: SlotsSetup) {}

  get occupied(): number {
    return this.#running.size;
  }

  start(lease: Lease): void {
    const { job } = lease;
    const key = { jobId: job.id, token: lease.lease_token };
    const handler = this.setup.handlers.get(job.kind);
    // It was not asked for; a worker that can run it may take it.
    if (!handler) return this.setup.ended(key, { outcome: "released" });
    const running: Running = { lease: key, job, stop: new Stop(), reported: false, timeout: undefined, abandon: undefined };
    this.#running.set(key.token, running);
    if (job.timeout_ms !== null) {
      // Longer than a timer can be (24 days): the server ends it.
      running.timeout = setTimeout(() => this.#timedOut(running), Math.min(job.timeout_ms, 2 ** 31 - 1));
    }
    void this.#run(handler, lease, running);
  }

  /** What the heartbeat says of one lease. */
  must(token: string, reason: StopReason): void {
    const running = this.#running.get(token);
    if (!running) return;
    if (reason === "lost" && !running.reported) {
      this.setup.log.warn("a lease is lost; the handler is told", { job: running.job.id, kind: running.job.kind });
      running.reported = true;
    }
    running.stop.must(reason);
    if (reason === "lost") this.#abandonLater(running);
  }

  /** A shutdown or a drain begins. */
  should(reason: StopReason): void {
    for (const running of this.#running.values()) running.stop.should(reason);
  }

  /** The grace period is over. */
  mustAll(reason: StopReason): void {
    for (const running of this.#running.values()) running.stop.must(reason);
  }

  /** Gives back what still runs. Its handlers go on, but their outcomes do not count. */
  releaseAll(): number {
    const unfinished = [...this.#running.values()];
    for (const running of unfinished) {
      this.setup.log.warn("a handler has not ended in time; its job is released", { job: running.job.id, kind: running.job.kind });
      if (!running.reported) this.#report(running, { outcome: "released" });
      this.#free(running);
    }
    return unfinished.length;
  }

  async #run(handler: AnyHandler, lease: Lease, running: Running): Promise<void> {
    const { job, stop } = running;
    const log = withFields(this.setup.log, { job: job.id, kind: job.kind, attempt: lease.attempt });
    const token = lease.lease_token;
    const source = { job, attempt: lease.attempt, stop, log, listen: this.setup.listen };
    const ctx = new Context({ ...source, report: (progress) => this.setup.progress(token, progress) });
    const report = await runHandler(handler, this.setup.middleware, ctx, stop, this.setup.stackFrames);
    if (report?.outcome === "failed" && !running.reported) log.warn(`an attempt failed: ${report.error?.split("\n", 1)[0] ?? ""}`);
    this.#report(running, report);
    this.#free(running);
  }

  #report(running: Running, report: Report | undefined): void {
    if (running.reported) return;
    running.reported = true;
    this.setup.ended(running.lease, report);
  }

  #free(running: Running): void {
    clearTimeout(running.timeout);
    clearTimeout(running.abandon);
    if (this.#running.delete(running.lease.token)) this.setup.freed();
  }

  #timedOut(running: Running): void {
    this.#report(running, timedOut(running.job.timeout_ms));
    running.stop.must("timeout");
    this.#abandonLater(running);
  }

  #abandonLater(running: Running): void {
    running.abandon ??= setTimeout(() => {
      this.setup.log.error("a handler does not stop; its slot is given to another job", {
        job: running.job.id, kind: running.job.kind, reason: running.stop.reason,
      });
      this.#free(running);
    }, this.setup.abandonAfterMs);
  }
}

/** Never throws: what goes wrong is the report. */
export async function runHandler(
  handler: AnyHandler, middleware: readonly Middleware[], ctx: Context, stop: Stop, stackFrames: boolean,
): Promise<Report | undefined> {
  try {
    const payload = await checkPayload(handler.kind, handler.schema, ctx.job.payload);
    let next = async (): Promise<unknown> => handler.run(payload, ctx);
    for (const around of [...middleware].reverse()) {
      const inner = next;
      next = async () => around(ctx.job, ctx, inner);
    }
    return reportOfResult(await next());
  } catch (error) {
    try {
      return reportOfError(error, stop, stackFrames);
    } catch (unreadable) {
      // A thrown value whose own properties throw.
      return { outcome: "failed", error: errorLine(String(unreadable)) };
    }
  }
}
