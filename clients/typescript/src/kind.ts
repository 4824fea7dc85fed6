/**
 * A kind of job, defined once: its name, the schema of its payload and its defaults. Producers enqueue with it, workers
 * handle it, and the types of both follow from the schema. It has no handler, so a producer need not load a worker's code.
 */
import type { Client, Enqueued } from "./client.js";
import { checkPayload, type InputOf, type OutputOf, type PayloadSchema } from "./payload.js";
import type { NewJob, NewUnique, RetryDeclaration } from "./wire.js";

/** How one job is enqueued. Everything is optional. */
export interface EnqueueOptions {
  queue?: string;
  /** −100 to 100, higher first. */
  priority?: number;
  maxAttempts?: number;
  /** The earliest start: a time, or a delay from now. */
  runAt?: Date | string;
  delayMs?: number;
  /** Of one attempt. */
  timeoutMs?: number;
  /**
   * The same key again is answered with the same job. Left out: a random one for this call, so that the client's own
   * retry cannot create a second job. `null`: none; the call is then repeated only if nothing was sent.
   */
  idempotencyKey?: string | null;
  /** Jobs of a group take turns with other groups of the queue, or run strictly in order. */
  group?: string;
  /** How much of a rate it uses. */
  cost?: number;
  /** Not started by then: cancelled. */
  startBy?: Date | string;
  startWithinMs?: number;
  /** One pending job per key: keep it, replace it, debounce, throttle. */
  unique?: UniqueOptions;
  /** The hook that is told of its end, whatever that hook's filter is. */
  notify?: string;
  /** The trace that it belongs to, by W3C Trace Context; its worker sees it as `ctx.job.trace`. */
  traceparent?: string;
  tracestate?: string;
}

export interface UniqueOptions {
  key: string;
  while?: NonNullable<NewUnique["while"]>;
  onConflict?: NonNullable<NewUnique["on_conflict"]>;
  forMs?: number;
  maxWaitMs?: number;
}

/** One job to be enqueued, for `enqueueMany`. */
export interface JobSpec<P = unknown> extends EnqueueOptions {
  kind: string;
  payload: P;
}

/** A kind's schema and defaults. Defaults are declared to the server and sent with each job enqueued by the definition. */
export interface KindOptions<S extends PayloadSchema = PayloadSchema> {
  payload?: S;
  queue?: string;
  priority?: number;
  maxAttempts?: number;
  timeoutMs?: number;
  /** Waits between attempts; declared to the server. */
  retry?: RetryDeclaration;
}

export class JobKind<Input = unknown, Output = Input> {
  /** Types only; never set. */
  declare readonly output: Output;

  constructor(
    readonly kind: string,
    readonly options: KindOptions = {},
  ) {}

  /** A job for `client.enqueueMany`. */
  job(payload: Input, options: EnqueueOptions = {}): JobSpec<Input> {
    const { queue, priority, maxAttempts, timeoutMs } = this.options;
    const defaults = defined({ queue, priority, maxAttempts, timeoutMs });
    return { ...defaults, ...options, kind: this.kind, payload };
  }

  /** Checks the payload and enqueues it. */
  async enqueueWith(client: Client, payload: Input, options: EnqueueOptions = {}): Promise<Enqueued> {
    await checkPayload(this.kind, this.options.payload, payload);
    const { kind, payload: sent, ...rest } = this.job(payload, options);
    return client.enqueue(kind, sent, rest);
  }
}

/** Defines a kind with a schema: `defineKind("welcome", { payload: z.object({ user: z.number() }) })`. */
export function defineKind<S extends PayloadSchema>(
  kind: string,
  options: KindOptions<S> & { payload: S },
): JobKind<InputOf<S>, OutputOf<S>>;
/** Defines a kind whose payload is only typed: `defineKind<{ user: number }>("welcome")`. */
export function defineKind<P = unknown>(kind: string, options?: KindOptions): JobKind<P>;
export function defineKind(kind: string, options: KindOptions = {}): JobKind {
  return new JobKind(kind, options);
}

/** A job as the API takes it. Given no key, makes a random one. */
export function newJob(spec: JobSpec): NewJob {
  const { unique } = spec;
  return {
    kind: spec.kind,
    // Without a payload the field would be missing, and the server would refuse that with less clear words.
    payload: spec.payload === undefined ? null : spec.payload,
    ...defined({
      queue: spec.queue,
      priority: spec.priority,
      max_attempts: spec.maxAttempts,
      run_at: instant(spec.runAt),
      delay_ms: spec.delayMs,
      timeout_ms: spec.timeoutMs,
      idempotency_key: spec.idempotencyKey === undefined ? crypto.randomUUID() : (spec.idempotencyKey ?? undefined),
      group_key: spec.group,
      cost: spec.cost,
      start_by: instant(spec.startBy),
      start_within_ms: spec.startWithinMs,
      notify: spec.notify,
      traceparent: spec.traceparent,
      tracestate: spec.tracestate,
      unique: unique && {
        key: unique.key,
        ...defined({
          while: unique.while,
          on_conflict: unique.onConflict,
          for_ms: unique.forMs,
          max_wait_ms: unique.maxWaitMs,
        }),
      },
    }),
  };
}

function instant(time: Date | string | undefined): string | undefined {
  return time instanceof Date ? time.toISOString() : time;
}

type Defined<T> = { [K in keyof T]?: Exclude<T[K], undefined> };

/** Without the fields that are undefined. */
export function defined<T extends object>(fields: T): Defined<T> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Defined<T>;
}
