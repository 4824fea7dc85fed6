/**
 * Queues, kinds, their limits, and counts.
 * Field for field as in docs/openapi.json; test/wire.test.ts compares them.
 * Types only, no code. All of them are exported by ../wire.ts.
 */

/** Jobs per status. */
export interface StatusCounts {
  cancelled: number;
  failed_permanent: number;
  queued: number;
  retrying: number;
  running: number;
  succeeded: number;
}

/** One queue. */
export interface Queue {
  counts: StatusCounts;
  oldest_ready_ms: number | null;
  paused: boolean;
  queue: string;
}

/** One queue's counts. */
export interface QueueCounts {
  counts: StatusCounts;
  oldest_ready_ms: number | null;
}

/** How fast jobs come and go, over the last minute at most. */
export interface Rates {
  enqueued_per_s: number;
  finished_per_s: number;
  over_ms: number;
}

/** Counts per queue, a page of them, and over all. */
export interface Stats {
  queues: Record<string, QueueCounts>;
  rates?: Rates;
  totals: StatusCounts;
}

/** At most `limit` starts in `per_ms`, `burst` of them at once. */
export interface Rate {
  burst: number;
  limit: number;
  per_ms: number;
}

/** At most `limit` starts in `per_ms`, spread evenly. */
export interface NewRate {
  burst?: number | null;
  limit: number;
  per_ms: number;
}

/** `fair`: by priority, then `run_at`; groups take turns. `strict`: one at a time, in the order of their enqueues. */
export type GroupOrder = "fair" | "strict";

/** Limits of each group of a queue. */
export interface GroupDefaults {
  concurrency?: number | null;
  order?: GroupOrder;
  rate?: NewRate | null;
}

/** Limits of each group of a queue. */
export interface GroupDefaultsAnswer {
  concurrency: number | null;
  order: GroupOrder;
  rate: Rate | null;
}

/**
 * Settings of one group, where they differ from those of the queue's groups. All of them: what is left out is as for the
 * others.
 */
export interface GroupSettings {
  concurrency?: number | null;
  paused?: boolean | null;
  rate?: NewRate | null;
  weight?: number | null;
}

/** What was set for one group. */
export interface GroupSettingsAnswer {
  concurrency: number | null;
  paused: boolean;
  rate: Rate | null;
  weight: number | null;
}

/** Limits of a queue and of its groups. What is left out is not limited. */
export interface QueueSettings {
  concurrency?: number | null;
  groups?: GroupDefaults | null;
  rate?: NewRate | null;
}

/** How much of a limit is used. */
export interface Usage {
  next_token_ms: number | null;
  running: number;
  waiting: string | null;
}

/** A limit, and how much of it is used. */
export type Limit = Usage & {
  concurrency: number | null;
  name: string;
  own: GroupSettingsAnswer | null;
  paused: boolean;
  rate: Rate | null;
  scope: string;
  weight: number;
};

/** A queue with its limits. */
export type QueueWithLimits = Queue & {
  concurrency: number | null;
  groups: GroupDefaultsAnswer | null;
  rate: Rate | null;
  usage: Usage;
};

/** Waits between attempts. */
export type Retry = { base_ms: number; cap_ms: number; factor: number } | { delays_ms: number[]; jitter?: number | null };

/** A window that grows (`base_ms`, `cap_ms`, `factor`), or a list of waits (`delays_ms`, `jitter`). */
export interface RetryDeclaration {
  base_ms?: number | null;
  cap_ms?: number | null;
  delays_ms?: number[] | null;
  factor?: number | null;
  jitter?: number | null;
}

/** A declared kind. */
export interface Kind {
  built_in: boolean;
  concurrency: number | null;
  hidden: string[];
  kind: string;
  max_attempts: number | null;
  priority: number | null;
  queue: string | null;
  rate: Rate | null;
  retry: Retry | null;
  schema?: unknown;
  timeout_ms: number | null;
}

/** What is declared about a kind. Everything is optional; `{}` takes any payload. */
export interface KindDeclaration {
  concurrency?: number | null;
  hidden?: string[] | null;
  max_attempts?: number | null;
  priority?: number | null;
  queue?: string | null;
  rate?: NewRate | null;
  retry?: RetryDeclaration | null;
  schema?: Record<string, unknown> | null;
  timeout_ms?: number | null;
}

/** How many jobs are due. */
export interface DueCount {
  at_least: boolean;
  n: number;
}

/** How fast jobs come and go, over the last minute. */
export interface FlowRates {
  enqueued_per_s: number;
  failed_per_s: number;
  finished_per_s: number;
  over_ms: number;
  started_per_s: number;
}

/** Workers that ask for jobs of a queue. */
export interface QueueWorkers {
  busy: number;
  live: number;
  slots: number;
}

/** What is going on in a queue. */
export interface QueueActivity {
  drained_in_ms: number | null;
  due: DueCount;
  paused_at: string | null;
  paused_by: string | null;
  rates: FlowRates;
  wait_p95_ms: number | null;
  workers: QueueWorkers;
}

/** One queue, and what is going on in it. */
export type ListedQueue = Queue & QueueActivity;

/** What is going on with a kind. */
export interface KindActivity {
  counts: StatusCounts;
  failed_ratio: number | null;
  rates: FlowRates;
  run_p50_ms: number | null;
  run_p95_ms: number | null;
  workers: number;
}

/** A declared kind, and what is going on with it. */
export type ListedKind = Kind & KindActivity;
