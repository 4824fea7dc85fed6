/**
 * Jobs as the API shows and takes them, their attempts and explanations.
 * Field for field as in docs/openapi.json; test/wire.test.ts compares them.
 * Types only, no code. All of them are exported by ../wire.ts.
 */

/** Where a job stands. */
export type Status = "queued" | "running" | "retrying" | "succeeded" | "failed_permanent" | "cancelled";

/** How an attempt ended. */
export type AttemptOutcome = "succeeded" | "failed" | "timed_out" | "lease_expired" | "released" | "snoozed" | "cancelled";

/** How far the handler says it is. */
export interface Progress {
  message: string | null;
  percent: number | null;
}

/** `waiting`: until its first start. `unfinished`: until it has finished. */
export type UniqueWhile = "waiting" | "unfinished";

/**
 * `keep`: it is not stored, and the answer is the job there is. `replace`: its payload, priority and start replace those
 * of the job there is, as long as that one has not started.
 */
export type OnConflict = "keep" | "replace";

/** How a job was enqueued as unique. Its key may be free again. */
export interface Unique {
  for_ms: number | null;
  key: string;
  max_wait_ms: number | null;
  on_conflict: OnConflict;
  while: UniqueWhile;
}

/** At most one job of a kind with this key waits, is unfinished, or is enqueued within a time. */
export interface NewUnique {
  for_ms?: number | null;
  key: string;
  max_wait_ms?: number | null;
  on_conflict?: OnConflict;
  while?: UniqueWhile;
}

/** Where a job comes from, by W3C Trace Context. */
export interface Trace {
  traceparent: string;
  tracestate: string | null;
}

/** A job. */
export interface Job {
  attempts: number;
  cancel_requested: boolean;
  cost: number | null;
  created_at: string;
  error_group: string | null;
  finished_at: string | null;
  group_key: string | null;
  id: string;
  idempotency_key: string | null;
  kind: string;
  last_error: string | null;
  lease_expires_at: string | null;
  locked_at: string | null;
  locked_by: string | null;
  max_attempts: number;
  notify: string | null;
  payload: unknown;
  priority: number;
  progress: Progress | null;
  queue: string;
  result: unknown;
  run_at: string;
  start_by: string | null;
  started_at: string | null;
  status: Status;
  timeout_ms: number | null;
  trace: Trace | null;
  unique: Unique | null;
  updated_at: string;
}

/** A job without payload and result. Its other fields are those of `Job`. */
export interface JobSummary {
  attempts: number;
  cancel_requested: boolean;
  cost: number | null;
  created_at: string;
  error_group: string | null;
  finished_at: string | null;
  group_key: string | null;
  id: string;
  idempotency_key: string | null;
  kind: string;
  last_error: string | null;
  lease_expires_at: string | null;
  locked_at: string | null;
  locked_by: string | null;
  max_attempts: number;
  notify: string | null;
  payload_bytes: number;
  payload_preview: string;
  priority: number;
  progress: Progress | null;
  queue: string;
  run_at: string;
  start_by: string | null;
  started_at: string | null;
  status: Status;
  timeout_ms: number | null;
  unique: Unique | null;
  updated_at: string;
}

/** A job of a list: whole, or with `view=summary` short. */
export type ListedJob = Job | JobSummary;

/** What a caller without the scope `read` is told of a job that it did not just create. */
export interface KnownJob {
  created: boolean;
  id: string;
  replaced?: boolean;
  status: Status;
}

/** A job that was there before. */
export type ReplayedJob = Job & { replaced?: boolean };

/** A job that was there before, as far as the caller may see it. */
export type EnqueueReplay = ReplayedJob | KnownJob;

/** A job to be enqueued. Only `kind` and `payload` must be said. */
export interface NewJob {
  cost?: number | null;
  delay_ms?: number | null;
  group_key?: string | null;
  idempotency_key?: string | null;
  kind: string;
  max_attempts?: number | null;
  notify?: string | null;
  payload: unknown;
  priority?: number | null;
  queue?: string | null;
  run_at?: string | null;
  start_by?: string | null;
  start_within_ms?: number | null;
  timeout_ms?: number | null;
  traceparent?: string | null;
  tracestate?: string | null;
  unique?: NewUnique | null;
}

/** Up to 1,000 jobs, stored together or not at all. */
export interface NewJobs {
  jobs: NewJob[];
}

/** A job of a batch, as far as the caller may see it. */
export type BatchJob = Job | KnownJob;

/** One job of a batch. */
export interface BatchResult {
  created: boolean;
  job: BatchJob;
  replaced?: boolean;
}

/** What became of each job of a batch, in the order sent. */
export interface BatchResults {
  results: BatchResult[];
}

/** `cancelled`: it will not run. `pending`: it is running, and its worker will be told. */
export interface CancelAnswer {
  status: string;
}

/** One start of a job. */
export interface Attempt {
  attempt: number;
  ended_at: string | null;
  error: string | null;
  outcome: AttemptOutcome | null;
  started_at: string;
  worker: string;
}

/** How many jobs come first. */
export interface Ahead {
  at_least: boolean;
  n: number;
}

/** Workers seen lately. */
export interface WorkersSeen {
  for_kind: number;
  for_queue: number;
  idle_slots: number;
}

/** One reason. Besides these fields it has the numbers of its sentence, like `limit` and `running`. */
export type Reason = Record<string, unknown> & { code: string; says: string };

/** Reasons, from the data that a claim looks at. */
export interface Explanation {
  ahead: Ahead | null;
  as_of: string;
  reasons: Reason[];
  says: string;
  since: string | null;
  startable: boolean;
  verdict: string;
  workers: WorkersSeen | null;
}

/** Why a job is where it is. */
export type JobExplanation = Explanation & { job_id: string };

/** Whether anything of a queue moves. */
export type QueueExplanation = Explanation & { queue: string };
