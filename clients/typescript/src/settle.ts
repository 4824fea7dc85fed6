/**
 * Records outcomes. One call is in flight; everything that ends meanwhile is the next batch, so batches grow with the load
 * and no timer delays anything. Settling is idempotent: a call without an answer is repeated. One outcome that the server
 * refuses never holds up the others. It does not decide outcomes: that is outcome.ts.
 */
import { Problem } from "./errors.js";
import { backoffMs, callOnce, delay, isTemporary, type Server } from "./http.js";
import type { Logger } from "./logger.js";
import type { Report } from "./outcome.js";
import type { SettlementAnswer } from "./wire.js";

const BATCH_MAX = 1_000;
/** 7 MiB of the 8 MiB that the server takes. */
const BATCH_MAX_BYTES = 7 * 1024 * 1024;
/** 5 min: a server that was away for so long has not ended expired leases either, and a late outcome still counts. */
const TRY_FOR_MS = 300_000;

export interface SettledLease {
  jobId: string;
  token: string;
}

interface Pending extends SettledLease {
  report: Report;
  json: string;
  giveUpAt: number;
}

export interface SettleEvents {
  /** They need no more heartbeats: recorded, lost, or given up. */
  done(leases: SettledLease[]): void;
  /** The token is not accepted any more. */
  refused(problem: Problem): void;
}

export class Settler {
  #waiting: Pending[] = [];
  #inFlight = 0;
  #loop: Promise<void> | undefined;
  readonly #end = new AbortController();

  constructor(
    private readonly server: Server,
    private readonly worker: string,
    private readonly events: SettleEvents,
    private readonly log: Logger,
  ) {}

  /** Outcomes that are not recorded yet. */
  get unsettled(): number {
    return this.#waiting.length + this.#inFlight;
  }

  hand(lease: SettledLease, report: Report): void {
    this.#waiting.push({ ...lease, report, json: jsonOf(lease, report), giveUpAt: performance.now() + TRY_FOR_MS });
    this.#loop ??= this.#run().finally(() => (this.#loop = undefined));
  }

  /** Until all is recorded, but no longer than this; then what is left is given up. */
  async flush(withinMs: number): Promise<void> {
    const timer = setTimeout(() => this.#end.abort(new Error("the worker has stopped")), withinMs);
    while (this.#loop) await this.#loop;
    clearTimeout(timer);
  }

  async #run(): Promise<void> {
    // One turn of the event loop: handlers that end together are one batch.
    await new Promise((resolve) => setImmediate(resolve));
    while (this.#waiting.length > 0) {
      const batch = this.#take();
      this.#inFlight = batch.length;
      await this.#settle(batch);
      this.#inFlight = 0;
    }
  }

  #take(): Pending[] {
    let bytes = 0;
    let count = 0;
    for (const { json } of this.#waiting) {
      bytes += json.length * 3;
      if (count === BATCH_MAX || (count > 0 && bytes > BATCH_MAX_BYTES)) break;
      count += 1;
    }
    return this.#waiting.splice(0, count);
  }

  async #settle(batch: Pending[]): Promise<void> {
    for (let tries = 0; batch.length > 0; tries++) {
      try {
        return this.#answered(batch, await this.#send(batch));
      } catch (error) {
        if (this.#end.signal.aborted) return this.#giveUp(batch, "the worker has stopped");
        if (error instanceof Problem && !isTemporary(error) && error.status < 500) return this.#refused(batch, error);
        this.log.warn(`outcomes are not recorded yet: ${(error as Error).message}`, { outcomes: batch.length, tries: tries + 1 });
        const asked = error instanceof Problem ? (error.retryAfterMs ?? 0) : 0;
        await delay(Math.max(asked, backoffMs(tries)), this.#end.signal).catch(() => undefined);
      }
      const now = performance.now();
      this.#giveUp(batch.filter((pending) => pending.giveUpAt <= now), "no answer for 5 minutes");
      batch = batch.filter((pending) => pending.giveUpAt > now);
    }
  }

  async #send(batch: Pending[]): Promise<SettlementAnswer> {
    const json = `{"worker":${JSON.stringify(this.worker)},"outcomes":[${batch.map((pending) => pending.json).join(",")}]}`;
    const call = { method: "POST", path: "/leases/settle", json, signal: this.#end.signal } as const;
    return (await callOnce<SettlementAnswer>(this.server, call)).body;
  }

  #answered(batch: Pending[], answer: SettlementAnswer): void {
    batch.forEach(({ jobId, report }, index) => {
      if (answer.outcomes[index]?.status !== "lost") return;
      this.log.warn("an outcome came too late: the lease was lost", { job: jobId, outcome: report.outcome });
    });
    this.events.done(batch);
  }

  async #refused(batch: Pending[], problem: Problem): Promise<void> {
    const [first, ...others] = batch;
    if (first === undefined) return;
    // 400, 413, 422: something in it. Anything else concerns all: the token, the URL.
    if (problem.status !== 400 && problem.status !== 413 && problem.status !== 422) {
      this.events.refused(problem);
      return this.#giveUp(batch, problem.message);
    }
    if (others.length > 0) {
      // Halves until it is found: at most twice as many calls as there are outcomes, usually a few.
      const half = Math.ceil(batch.length / 2);
      await this.#settle(batch.slice(0, half));
      return this.#settle(batch.slice(half));
    }
    if (first.report.resultJson === undefined && first.report.permanent) return this.#giveUp(batch, problem.message);
    this.log.error(`the server refused an outcome: ${problem.message}`, { job: first.jobId, outcome: first.report.outcome });
    const report: Report = { outcome: "failed", permanent: true, error: `the server refused the outcome ${first.report.outcome}: ${problem.detail}` };
    return this.#settle([{ ...first, report, json: jsonOf(first, report) }]);
  }

  #giveUp(batch: Pending[], why: string): void {
    for (const { jobId, report } of batch) {
      this.log.error(`an outcome is not recorded, the job starts again when its lease expires: ${why}`, { job: jobId, outcome: report.outcome });
    }
    if (batch.length > 0) this.events.done(batch);
  }
}

function jsonOf(lease: SettledLease, { resultJson, ...report }: Report): string {
  const json = JSON.stringify({ job_id: lease.jobId, lease_token: lease.token, ...report });
  return resultJson === undefined ? json : `${json.slice(0, -1)},"result":${resultJson}}`;
}
