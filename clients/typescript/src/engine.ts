/**
 * The worker's engine: leases as many jobs as there are free slots, runs them, settles their outcomes, and stops in bounded
 * steps. Its parts are slots.ts, settle.ts and heartbeat.ts; it owns the loop that leases and the order of the shutdown.
 * It installs no signal handlers: that is worker.ts.
 */
import { monotonicMs, type BeatsEvent } from "./beats.js";
import { Problem } from "./errors.js";
import { startHeartbeat, type Heartbeat } from "./heartbeat.js";
import { backoffMs, callOnce, isTemporary, type Server } from "./http.js";
import type { Logger } from "./logger.js";
import { Settler } from "./settle.js";
import { Slots, type AnyHandler, type Middleware } from "./slots.js";
import type { Lease, LeaseRequest, Leases, WorkerInfo } from "./wire.js";

/** The server gives at most as many in one call. */
const LEASES_MAX = 1_000;
/** Outcomes that may wait to be recorded before no more jobs are leased: a server that is slow bounds the worker's memory. */
const UNSETTLED_MAX = 2_000;
/** How long the server may take beyond `wait_ms`. */
const POLL_SLACK_MS = 15_000;
/** After a drain: another server behind the same name may be there, and an operator may undrain. */
const DRAIN_PAUSE_MS = 5_000;
/** A busy poll answers by itself within this time; cutting it could strand an answer that is under way. An idle one is cut. */
const POLL_CUT_AFTER_MS = 250;
/** For handlers that heed `ctx.signal` at the end of the grace period. */
const LAST_WORD_MS = 1_000;
const FLUSH_MS = 5_000;
/** Heartbeats that cannot be sent by then are sent late; jobs have waited long enough. */
const HEARTBEAT_START_MS = 5_000;
/** An empty answer that came sooner than this was no long poll: the server is closing. */
const TOO_SOON_MS = 100;

export interface EngineSetup {
  server: Server;
  worker: string;
  info: WorkerInfo;
  handlers: ReadonlyMap<string, AnyHandler>;
  middleware: readonly Middleware[];
  queues: readonly string[] | undefined;
  concurrency: number;
  prefetch: number;
  /** Undefined: what the server is set to. */
  leaseMs: number | undefined;
  waitMs: number;
  graceMs: number;
  abandonAfterMs: number;
  heartbeat: "thread" | "inline";
  stackFrames: boolean;
  log: Logger;
}

export class Engine {
  readonly #setup: EngineSetup;
  readonly #heartbeat: Heartbeat;
  readonly #settler: Settler;
  readonly #slots: Slots;
  /** Leased beyond the slots. */
  #ready: Lease[] = [];
  readonly #poll = new AbortController();
  #stopping: Promise<void> | undefined;
  #failure: Problem | undefined;
  #drainUntil = 0;
  #draining = false;
  readonly #waiters = new Set<() => void>();
  /** Handlers that did not end in time. */
  abandoned = 0;
  /** Resolves when the engine has stopped; rejects if the server refused it. */
  readonly done: Promise<void>;
  #settleDone!: { resolve: () => void; reject: (error: Error) => void };
  readonly #loop: Promise<void>;
  /** Holds the process while the engine runs: a handler may wait for something that does not. */
  readonly #hold = setInterval(() => undefined, 2 ** 30);

  constructor(setup: EngineSetup) {
    this.#setup = setup;
    const { server, worker, log } = setup;
    this.#heartbeat = startHeartbeat(setup.heartbeat, { server, worker }, (event) => this.#heard(event), log);
    this.#settler = new Settler(server, worker, {
      done: (leases) => {
        this.#heartbeat.remove(leases.map((lease) => lease.token));
        this.#wake();
      },
      refused: (problem) => this.#fail(problem),
    }, log);
    this.#slots = new Slots({
      ...setup,
      progress: (token, progress) => this.#heartbeat.progress(token, progress),
      listen: () => this.#heartbeat.listen(),
      ended: (lease, report) => (report ? this.#settler.hand(lease, report) : this.#heartbeat.remove([lease.token])),
      freed: () => this.#freed(),
    });
    this.done = new Promise((resolve, reject) => (this.#settleDone = { resolve, reject }));
    // Whoever wants to know awaits it; nobody has to.
    this.done.catch(() => undefined);
    this.#loop = this.#leaseLoop();
  }

  /** Bounded: grace period + about 7 s. The same promise for every caller. */
  stop(graceMs = this.#setup.graceMs): Promise<void> {
    this.#stopping ??= this.#shutDown(graceMs);
    return this.#stopping;
  }

  async #leaseLoop(): Promise<void> {
    // The process is held meanwhile: a thread that does not start must not end it.
    await Promise.race([this.#heartbeat.ready, this.#until(() => this.#stopping !== undefined, HEARTBEAT_START_MS)]);
    for (let tries = 0; !this.#stopping; ) {
      const max = this.#room();
      const pause = this.#drainUntil - monotonicMs();
      if (max <= 0 || pause > 0) {
        await this.#woken(max <= 0 ? undefined : pause);
        continue;
      }
      const asked = monotonicMs();
      try {
        const leases = await this.#lease(max);
        tries = 0;
        this.#take(leases);
        if (leases.length === 0 && monotonicMs() - asked < TOO_SOON_MS) await this.#woken(backoffMs(0));
      } catch (error) {
        if (this.#poll.signal.aborted) return;
        if (error instanceof Problem && error.status < 500 && !isTemporary(error)) return this.#fail(error);
        this.#setup.log.warn(`no jobs leased: ${(error as Error).message}`, { tries: tries + 1 });
        const after = error instanceof Problem ? (error.retryAfterMs ?? 0) : 0;
        await this.#until(() => this.#stopping !== undefined, Math.max(after, backoffMs(tries)));
        tries += 1;
      }
    }
  }

  #room(): number {
    const { concurrency, prefetch } = this.#setup;
    const held = this.#slots.occupied + this.#ready.length;
    return Math.min(LEASES_MAX, concurrency + prefetch - held, UNSETTLED_MAX - this.#settler.unsettled);
  }

  async #lease(max: number): Promise<Lease[]> {
    const { server, worker, info, handlers, queues, leaseMs, waitMs } = this.#setup;
    const body: LeaseRequest = { worker, info, kinds: [...handlers.keys()], max, wait_ms: waitMs };
    if (queues !== undefined) body.queues = [...queues];
    if (leaseMs !== undefined) body.lease_ms = leaseMs;
    const timeoutMs = waitMs + POLL_SLACK_MS;
    const call = { method: "POST", path: "/leases", body, timeoutMs, signal: this.#poll.signal } as const;
    return (await callOnce<Leases>(server, call)).body.leases;
  }

  #take(leases: Lease[]): void {
    if (leases.length === 0) return;
    const goodAt = monotonicMs();
    this.#heartbeat.add(leases.map((lease) => ({ jobId: lease.job.id, token: lease.lease_token, leaseMs: lease.lease_ms, goodAt })));
    this.#ready.push(...leases);
    if (this.#stopping) return this.#releaseReady();
    this.#startReady();
  }

  #startReady(): void {
    while (this.#ready.length > 0 && this.#slots.occupied < this.#setup.concurrency) {
      const lease = this.#ready.shift();
      if (lease) this.#slots.start(lease);
    }
  }

  #freed(): void {
    if (!this.#stopping) this.#startReady();
    this.#wake();
  }

  #releaseReady(): void {
    for (const lease of this.#ready.splice(0)) {
      this.#settler.hand({ jobId: lease.job.id, token: lease.lease_token }, { outcome: "released" });
    }
  }

  #wake(): void {
    for (const waiter of this.#waiters) waiter();
  }

  /** Until something has changed (a slot, an outcome, the shutdown), or for this long. */
  async #woken(ms?: number): Promise<void> {
    let waiter = (): void => undefined;
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      waiter = resolve;
      this.#waiters.add(waiter);
      if (ms !== undefined) timer = setTimeout(resolve, ms);
    });
    clearTimeout(timer);
    this.#waiters.delete(waiter);
  }

  async #until(condition: () => boolean, withinMs: number): Promise<void> {
    const end = monotonicMs() + withinMs;
    while (!condition() && monotonicMs() < end) await this.#woken(end - monotonicMs());
  }

  #heard(event: BeatsEvent): void {
    const { log } = this.#setup;
    if (event.event === "cancel" || event.event === "lost") {
      const tokens = new Set(event.tokens);
      // Prefetched and not started: nothing to tell. A cancelled one goes back, and the server cancels it there.
      const unstarted = this.#ready.filter((lease) => tokens.has(lease.lease_token));
      this.#ready = this.#ready.filter((lease) => !tokens.has(lease.lease_token));
      if (event.event === "cancel") {
        for (const lease of unstarted) this.#settler.hand({ jobId: lease.job.id, token: lease.lease_token }, { outcome: "cancelled" });
      }
      for (const token of event.tokens) this.#slots.must(token, event.event);
    }
    if (event.event === "told") {
      if (event.drain !== this.#draining) log.info(event.drain ? "told to drain: no more jobs are leased" : "not draining any more");
      this.#draining = event.drain;
      if (!event.drain) return;
      this.#drainUntil = monotonicMs() + DRAIN_PAUSE_MS;
      this.#releaseReady();
      this.#slots.should("drain");
    }
    if (event.event === "refused") this.#fail(new Problem(event.status, { code: event.code, detail: event.detail }));
    if (event.event === "trouble") log.warn(event.message);
  }

  /** The server will not have this worker: no reason to drop what runs before its leases are over. */
  #fail(problem: Problem): void {
    if (this.#failure) return;
    this.#failure = problem;
    this.#setup.log.error(`the server refuses this worker: ${problem.message}`);
    void this.stop(Math.min(this.#setup.graceMs, this.#setup.leaseMs ?? 30_000));
  }

  /** Each step is bounded and needs none of the ones before. */
  async #shutDown(graceMs: number): Promise<void> {
    const { log, worker } = this.#setup;
    // So that `#stopping` is set before the loop looks.
    await Promise.resolve();
    log.info("stopping", { worker, running: this.#slots.occupied });
    this.#wake();
    const cut = setTimeout(() => this.#poll.abort(new Error("the worker is stopping")), POLL_CUT_AFTER_MS);
    let looping = true;
    void this.#loop.finally(() => {
      looping = false;
      clearTimeout(cut);
      this.#wake();
    });
    this.#releaseReady();
    this.#slots.should("shutdown");
    await this.#until(() => this.#slots.occupied === 0, graceMs);
    this.#slots.mustAll("shutdown");
    await this.#until(() => this.#slots.occupied === 0, LAST_WORD_MS);
    this.abandoned = this.#slots.releaseAll();
    await this.#until(() => !looping, 2 * POLL_CUT_AFTER_MS);
    await this.#settler.flush(FLUSH_MS);
    this.#heartbeat.stop();
    clearInterval(this.#hold);
    log.info("stopped", { worker, abandoned: this.abandoned });
    if (this.#failure) this.#settleDone.reject(this.#failure);
    else this.#settleDone.resolve();
  }
}
