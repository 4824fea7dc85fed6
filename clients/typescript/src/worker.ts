/**
 * The worker as a program sees it: handlers, middleware, start and stop, signals. What it does with jobs is in engine.ts.
 * One process may have several workers; each has its own engine, heartbeat thread and name.
 */
import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { isDeepStrictEqual } from "node:util";
import type { Client, Enqueued } from "./client.js";
import type { Context } from "./context.js";
import { Engine } from "./engine.js";
import { Problem, type Snooze } from "./errors.js";
import { isTemporary } from "./http.js";
import { defined, JobKind, type EnqueueOptions, type KindOptions } from "./kind.js";
import { stderrLogger, type Logger } from "./logger.js";
import { jsonSchemaOf, type InputOf, type OutputOf, type PayloadSchema } from "./payload.js";
import type { AnyHandler, Middleware } from "./slots.js";
import type { Job, Kind, KindDeclaration } from "./wire.js";

/** After `run` has ended by a signal, whatever still holds the process gets this long. */
const EXIT_AFTER_MS = 2_000;
/** Between attempts to declare kinds, each of which is repeated for the client's `retryForMs`. */
const DECLARE_AGAIN_MS = 5_000;
const SIGNALS = ["SIGTERM", "SIGINT"] as const;

export interface WorkerOptions {
  /** Jobs at the same time; 10. */
  concurrency?: number;
  /** Leased beyond that, to wait in this process; 0. For very short jobs. */
  prefetch?: number;
  /** Only these; all by default. */
  queues?: readonly string[];
  /** Unique among processes; `<host>-<pid>-<8 hex>` by default. */
  name?: string;
  /** How long a job is safe from other workers after the last heartbeat; by default what the server is set to. */
  leaseMs?: number;
  /** How long one call waits for jobs; 10 s. */
  waitMs?: number;
  /** How long running jobs may go on after a signal or `stop()`; 30 s. */
  graceMs?: number;
  /** A handler that goes on for so long after a timeout or a lost lease no longer occupies a slot; 10 s. */
  abandonAfterMs?: number;
  /** `inline`: by a timer of the main thread. For bundlers; a handler that blocks the event loop then loses its lease. */
  heartbeat?: "thread" | "inline";
  /** Frames of the stack in error texts; true. */
  stackFrames?: boolean;
  /** Declares kinds and their defaults when the worker starts, if its token may; true. */
  declare?: boolean;
  logger?: Logger;
}

export type HandlerFunction<P, R> = (payload: P, ctx: Context) => R | Snooze | Promise<R | Snooze>;

/** A kind with its handler: what `worker.handle` returns. Enqueues with the types of its payload. */
export class Handler<Input = unknown, Output = Input, Result = unknown> extends JobKind<Input, Output> {
  constructor(
    kind: string,
    options: KindOptions,
    readonly run: HandlerFunction<Output, Result>,
    private readonly client: Client,
  ) {
    super(kind, options);
  }

  /** Checks the payload and enqueues it. */
  enqueue(payload: Input, options: EnqueueOptions = {}): Promise<Enqueued> {
    return this.enqueueWith(this.client, payload, options);
  }

  /** As `client.wait`, with the type of the result. */
  async wait(id: string, options?: { timeoutMs?: number; signal?: AbortSignal }): Promise<Job & { result: Result }> {
    return (await this.client.wait(id, options)) as Job & { result: Result };
  }
}

export class Worker {
  readonly name: string;
  readonly #client: Client;
  readonly #options: WorkerOptions;
  readonly #log: Logger;
  readonly #handlers = new Map<string, AnyHandler>();
  readonly #kinds: JobKind[] = [];
  readonly #middleware: Middleware[] = [];
  #engine: Engine | undefined;

  constructor(client: Client, options: WorkerOptions = {}) {
    this.#client = client;
    this.#options = options;
    this.#log = options.logger ?? stderrLogger();
    this.name = options.name ?? makeName();
  }

  /** A handler whose payload has a schema: types follow from it. */
  handle<S extends PayloadSchema, R>(
    kind: string, options: KindOptions<S> & { payload: S }, run: HandlerFunction<OutputOf<S>, R>,
  ): Handler<InputOf<S>, OutputOf<S>, R>;
  /** A handler for a kind that is defined elsewhere. */
  handle<I, O, R>(kind: JobKind<I, O>, run: HandlerFunction<O, R>): Handler<I, O, R>;
  /** A handler whose payload is only typed, not checked. */
  handle<P, R>(kind: string, options: KindOptions, run: HandlerFunction<P, R>): Handler<P, P, R>;
  handle<P, R>(kind: string, run: HandlerFunction<P, R>): Handler<P, P, R>;
  handle(
    kind: string | JobKind, second: KindOptions | HandlerFunction<never, unknown>, third?: HandlerFunction<never, unknown>,
  ): unknown {
    const name = typeof kind === "string" ? kind : kind.kind;
    const options = typeof kind === "string" ? (typeof second === "function" ? {} : second) : kind.options;
    const run = (typeof second === "function" ? second : third) as HandlerFunction<unknown, unknown> | undefined;
    if (run === undefined) throw new TypeError(`no handler given for ${name}`);
    if (this.#engine) throw new Error(`${name}: handlers are added before the worker starts`);
    if (this.#handlers.has(name)) throw new Error(`${name} has a handler already`);
    const handler = new Handler(name, options, run, this.#client);
    this.#handlers.set(name, { kind: name, schema: options.payload, run });
    this.#kinds.push(handler as JobKind);
    return handler;
  }

  /** Runs around every handler, in the order of the calls: the first is the outermost. */
  use(middleware: Middleware): this {
    this.#middleware.push(middleware);
    return this;
  }

  /** Resolves when kinds are declared and jobs are being leased. Stop it with `stop()`, or `await using`. */
  async start(): Promise<this> {
    if (this.#engine) throw new Error("the worker has been started already; make another one");
    if (this.#handlers.size === 0) throw new Error("the worker has no handlers");
    const { queues, concurrency = 10, prefetch = 0, leaseMs, waitMs = 10_000, graceMs = 30_000 } = this.#options;
    const { abandonAfterMs = 10_000, heartbeat = "thread", stackFrames = true, declare = true } = this.#options;
    this.#engine = new Engine({
      server: this.#client.server,
      worker: this.name,
      info: { host: hostname().slice(0, 64), pid: process.pid, language: "typescript", version: VERSION, concurrency },
      handlers: this.#handlers,
      middleware: this.#middleware,
      queues, concurrency, prefetch, leaseMs, waitMs, graceMs, abandonAfterMs, heartbeat, stackFrames,
      log: this.#log,
    });
    this.#log.info("started", { worker: this.name, kinds: [...this.#handlers.keys()].join(","), concurrency });
    if (declare && !(await this.declare())) void this.#declareLater(this.#engine);
    return this;
  }

  /** Running jobs may go on for the grace period, then they are given back. Never rejects. */
  async stop(): Promise<void> {
    await this.#engine?.stop();
  }

  /** Rejects if the server refuses this worker, say because its token was revoked. */
  async stopped(): Promise<void> {
    await this.#engine?.done;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  /**
   * Starts and runs until SIGTERM or SIGINT, then stops; a second signal exits 1 at once. Rejects if the server refuses this
   * worker. After a signal the process exits 0 two seconds after this has resolved, should something still hold it.
   */
  async run(): Promise<void> {
    let signalled = false;
    const onSignal = (signal: string): void => {
      if (signalled) process.exit(1);
      signalled = true;
      this.#log.info(`received ${signal}`);
      void this.stop();
    };
    for (const signal of SIGNALS) process.on(signal, onSignal);
    try {
      const starting = this.start();
      // While kinds are being declared, the server may refuse already, or a signal may come.
      await Promise.race([starting, this.#engine?.done ?? starting]);
      await this.stopped();
    } finally {
      // Signals stay ours while the process ends: the second one must not be ignored by somebody else's handler.
      if (signalled) setTimeout(() => process.exit(process.exitCode ?? 0), EXIT_AFTER_MS).unref();
      else for (const signal of SIGNALS) process.off(signal, onSignal);
    }
  }

  /**
   * Declares the kinds of all handlers. Settings that others made (limits, hidden fields) stay. One that is refused does not
   * keep the others from being declared. False: the server could not be asked, and trying again may help.
   */
  async declare(): Promise<boolean> {
    try {
      const known = new Map((await this.#client.kinds.list()).map((kind) => [kind.kind, kind]));
      for (const kind of this.#kinds) await this.#declareOne(kind, known.get(kind.kind));
      return true;
    } catch (error) {
      if (isTemporary(error)) {
        this.#log.warn(`kinds are not declared yet: ${(error as Error).message}`);
        return false;
      }
      const denied = error instanceof Problem && (error.status === 401 || error.status === 403);
      if (denied) this.#log.info("kinds are not declared by this worker: its token may not", { code: error.code });
      else this.#log.error(`kinds are not declared: ${(error as Error).message}`);
      return true;
    }
  }

  async #declareOne({ kind, options }: JobKind, existing: Kind | undefined): Promise<void> {
    if (existing?.built_in) return;
    const declaration = { ...declared(existing), ...wanted(options) };
    if (existing !== undefined && isDeepStrictEqual(declaration, declared(existing))) return;
    try {
      await this.#client.kinds.declare(kind, declaration);
    } catch (error) {
      if (!(error instanceof Problem) || (error.status !== 400 && error.status !== 409 && error.status !== 422)) throw error;
      this.#log.error(`the server refuses the declaration of a kind: ${error.message}`, { kind });
    }
  }

  /** A server that was away when the worker started learns its kinds when it is back. */
  async #declareLater(engine: Engine): Promise<void> {
    let stopped = false;
    engine.done.finally(() => (stopped = true)).catch(() => undefined);
    do await new Promise((resolve) => setTimeout(resolve, DECLARE_AGAIN_MS).unref());
    while (!stopped && !(await this.declare()));
  }
}

/** The version of this package, as the server lists it with its workers. test/package.test.ts compares it with package.json. */
export const VERSION = "0.1.0";

/** What can be declared of what is shown: answers grow, and a field that the server does not take would be refused. */
function declared(kind: Kind | undefined): KindDeclaration {
  if (kind === undefined) return {};
  const { schema, queue, priority, max_attempts, timeout_ms, retry, concurrency, rate, hidden } = kind;
  const fields = { schema, queue, priority, max_attempts, timeout_ms, retry, concurrency, rate, hidden: hidden.length > 0 ? hidden : null };
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null && value !== undefined));
}

function wanted(options: KindOptions): KindDeclaration {
  return defined({
    schema: jsonSchemaOf(options.payload),
    queue: options.queue,
    priority: options.priority,
    max_attempts: options.maxAttempts,
    timeout_ms: options.timeoutMs,
    retry: options.retry,
  });
}

function makeName(): string {
  const tail = `-${process.pid}-${randomBytes(4).toString("hex")}`;
  const host = hostname().toLowerCase().replaceAll(/[^a-z0-9_.:-]/g, "-") || "host";
  return host.slice(0, 64 - tail.length) + tail;
}
