/**
 * Keeps leases alive: one call for all of them every third of a lease, with the newest progress of each. The same code
 * runs in a thread of its own (heartbeat-thread.ts) or in the main thread (`heartbeat: "inline"`). It knows no handlers:
 * what it learns it emits, and heartbeat.ts hands it on.
 *
 * A lease that had no good heartbeat for as long as it lasts is treated as lost, whatever the server will say: two workers
 * must not both believe that they have a job. Times are of the monotonic clock.
 */
import { Problem } from "./errors.js";
import { callOnce, type Server } from "./http.js";
import type { Beat, HeartbeatAnswer, ProgressReport } from "./wire.js";

const BATCH_MAX = 1_000;
/** After a beat without an answer; less for leases shorter than 6 s. */
const AGAIN_MS = 1_000;
/** A beat that takes longer is repeated. */
const TIMEOUT_MS = 10_000;

export interface BeatsSetup {
  server: Server;
  worker: string;
}

export interface HeldLease {
  jobId: string;
  token: string;
  leaseMs: number;
  /** When it was known to be good: received, or extended. */
  goodAt: number;
}

export type BeatsEvent =
  | { event: "ready" }
  | { event: "good"; at: number }
  | { event: "cancel" | "lost"; tokens: string[] }
  | { event: "told"; drain: boolean }
  | { event: "refused"; status: number; code: string; detail: string }
  | { event: "trouble"; message: string };

interface Kept extends HeldLease {
  progress: ProgressReport | undefined;
  cancelled: boolean;
}

/** Milliseconds of a clock that never jumps and is the same in all threads. */
export function monotonicMs(): number {
  return Number(process.hrtime.bigint() / 1_000n) / 1_000;
}

export class Beats {
  readonly #leases = new Map<string, Kept>();
  #next: NodeJS.Timeout | undefined;
  #nextAt = 0;
  #watch: NodeJS.Timeout | undefined;
  #watchAt = Infinity;
  #beating = false;
  readonly #end = new AbortController();

  constructor(
    private readonly setup: BeatsSetup,
    private readonly emit: (event: BeatsEvent) => void,
  ) {}

  add(leases: readonly HeldLease[]): void {
    for (const lease of leases) {
      this.#leases.set(lease.token, { ...lease, progress: undefined, cancelled: false });
      this.#watchUntil(lease.goodAt + lease.leaseMs);
    }
    if (!this.#beating && this.#leases.size > 0) this.#beatIn(this.#intervalMs());
  }

  remove(tokens: readonly string[]): void {
    for (const token of tokens) this.#leases.delete(token);
    if (this.#leases.size === 0) this.#rest();
  }

  progress(token: string, progress: ProgressReport): void {
    const lease = this.#leases.get(token);
    if (lease) lease.progress = progress;
  }

  stop(): void {
    this.#rest();
    this.#leases.clear();
    this.#end.abort(new Error("stopped"));
  }

  #rest(): void {
    clearTimeout(this.#next);
    clearTimeout(this.#watch);
    [this.#next, this.#watch, this.#watchAt] = [undefined, undefined, Infinity];
  }

  /** A third of the shortest lease. */
  #intervalMs(): number {
    let shortest = Infinity;
    for (const lease of this.#leases.values()) shortest = Math.min(shortest, lease.leaseMs);
    return shortest / 3;
  }

  /** Only ever sooner than planned: leases that come and go must not put the others off. */
  #beatIn(ms: number): void {
    const at = monotonicMs() + ms;
    if (this.#next !== undefined && this.#nextAt <= at) return;
    clearTimeout(this.#next);
    this.#nextAt = at;
    this.#next = setTimeout(() => void this.#beat(), ms);
    this.#next.unref();
  }

  async #beat(): Promise<void> {
    this.#next = undefined;
    if (this.#beating) return;
    this.#beating = true;
    const all = [...this.#leases.values()];
    let good = true;
    for (let from = 0; from < all.length && good; from += BATCH_MAX) {
      good = await this.#send(all.slice(from, from + BATCH_MAX));
    }
    this.#beating = false;
    if (this.#leases.size === 0 || this.#end.signal.aborted) return;
    const interval = this.#intervalMs();
    this.#beatIn(good ? interval : Math.min(AGAIN_MS, interval / 2));
  }

  async #send(leases: Kept[], withProgress = true): Promise<boolean> {
    const sentAt = monotonicMs();
    const sent = leases.map((lease) => lease.progress);
    const beats = leases.map((lease): Beat => {
      const beat: Beat = { job_id: lease.jobId, lease_token: lease.token };
      return withProgress && lease.progress ? { ...beat, progress: lease.progress } : beat;
    });
    const body = { worker: this.setup.worker, leases: beats };
    const timeoutMs = Math.min(TIMEOUT_MS, Math.max(100, this.#intervalMs()));
    try {
      const call = { method: "POST", path: "/leases/heartbeat", body, timeoutMs, signal: this.#end.signal } as const;
      const answer = (await callOnce<HeartbeatAnswer>(this.setup.server, call)).body;
      leases.forEach((lease, index) => {
        if (lease.progress === sent[index]) lease.progress = undefined;
      });
      this.#answered(leases, answer, sentAt);
      return true;
    } catch (error) {
      if (this.#end.signal.aborted) return true;
      if (error instanceof Problem && (error.status === 400 || error.status === 422) && withProgress) {
        // Progress that the server does not take must not cost the leases.
        for (const lease of leases) lease.progress = undefined;
        this.emit({ event: "trouble", message: `a heartbeat was refused, sending it without progress: ${error.message}` });
        return this.#send(leases, false);
      }
      if (error instanceof Problem && (error.status === 401 || error.status === 403)) {
        this.emit({ event: "refused", status: error.status, code: error.code, detail: error.detail });
      } else {
        this.emit({ event: "trouble", message: `no heartbeat: ${(error as Error).message}` });
      }
      return false;
    }
  }

  #answered(leases: Kept[], answer: HeartbeatAnswer, sentAt: number): void {
    const cancelled: string[] = [];
    const lost: string[] = [];
    leases.forEach((lease, index) => {
      const status = answer.leases[index]?.status;
      if (status === "lost") {
        // Not if it was removed meanwhile: then it was settled, which is why the server does not know it.
        if (this.#leases.delete(lease.token)) lost.push(lease.token);
        return;
      }
      // From when it was sent: what the server has counted began later.
      lease.goodAt = sentAt;
      if (status === "cancel" && !lease.cancelled) {
        lease.cancelled = true;
        cancelled.push(lease.token);
      }
    });
    this.emit({ event: "good", at: sentAt });
    if (cancelled.length > 0) this.emit({ event: "cancel", tokens: cancelled });
    if (lost.length > 0) this.emit({ event: "lost", tokens: lost });
    this.emit({ event: "told", drain: answer.worker === "drain" });
  }

  /** Looks again when the first lease would be over. */
  #watchUntil(at: number): void {
    if (at >= this.#watchAt) return;
    clearTimeout(this.#watch);
    this.#watchAt = at;
    this.#watch = setTimeout(() => this.#lookForSilence(), Math.max(1, at - monotonicMs()));
    this.#watch.unref();
  }

  #lookForSilence(): void {
    this.#watchAt = Infinity;
    const now = monotonicMs();
    const over = [...this.#leases.values()].filter((lease) => lease.goodAt + lease.leaseMs <= now);
    for (const lease of over) this.#leases.delete(lease.token);
    if (over.length > 0) this.emit({ event: "lost", tokens: over.map((lease) => lease.token) });
    for (const lease of this.#leases.values()) this.#watchUntil(lease.goodAt + lease.leaseMs);
  }
}
