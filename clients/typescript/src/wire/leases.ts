/**
 * The worker protocol: leases, heartbeats, outcomes, and the workers an operator sees.
 * Field for field as in docs/openapi.json; test/wire.test.ts compares them.
 * Types only, no code. All of them are exported by ../wire.ts.
 */
import type { Job } from "./jobs.js";

/** What a worker says of itself. */
export interface WorkerInfo {
  concurrency?: number | null;
  host?: string | null;
  language?: string | null;
  pid?: number | null;
  version?: string | null;
}

/** Which jobs a worker wants. */
export interface LeaseRequest {
  info?: WorkerInfo | null;
  kinds?: string[] | null;
  lease_ms?: number | null;
  max?: number | null;
  queues?: string[] | null;
  wait_ms?: number | null;
  worker: string;
}

/** The right to run one job for a while. */
export interface Lease {
  attempt: number;
  job: Job;
  lease_ms: number;
  lease_token: string;
}

/** What was leased; empty if there was nothing in time. */
export interface Leases {
  leases: Lease[];
}

/** A percentage, a message, or both. */
export interface ProgressReport {
  message?: string | null;
  percent?: number | null;
}

/** One lease's heartbeat. */
export interface Beat {
  job_id: string;
  lease_token: string;
  progress?: ProgressReport | null;
}

/** Leases to be extended. */
export interface Heartbeat {
  lease_ms?: number | null;
  leases: Beat[];
  worker: string;
}

/** One lease. */
export interface BeatAnswer {
  job_id: string;
  status: string;
}

/** What the worker should do. */
export interface HeartbeatAnswer {
  leases: BeatAnswer[];
  worker: string;
}

/** What a worker can report. */
export type Outcome = "succeeded" | "failed" | "cancelled" | "released" | "snoozed";

/** How one attempt went. */
export interface OutcomeReport {
  delay_ms?: number | null;
  error?: string | null;
  error_group?: string | null;
  job_id: string;
  lease_token: string;
  outcome: Outcome;
  permanent?: boolean | null;
  result?: unknown;
  retry_after_ms?: number | null;
}

/** How attempts went. */
export interface Settlement {
  outcomes: OutcomeReport[];
  worker: string;
}

/** One attempt. */
export interface Settled {
  job_id: string;
  status: string;
}

/** What became of each, in the order sent. */
export interface SettlementAnswer {
  outcomes: Settled[];
}

/** A worker. */
export interface Worker {
  as_of: string;
  busy: number;
  concurrency: number | null;
  host: string | null;
  kinds: string[] | null;
  language: string | null;
  last_beat_at: string | null;
  last_fetch_at: string | null;
  last_seen_at: string;
  pid: number | null;
  queues: string[] | null;
  source: string;
  started_at: string;
  state: string;
  token: string | null;
  told: string;
  version: string | null;
  worker: string;
}

/** A job that a worker holds. */
export interface WorkerJob {
  attempt: number;
  job_id: string;
  kind: string;
  lease_expires_at: string | null;
  queue: string;
  started_at: string | null;
}

/** A worker with the jobs that it holds. */
export type WorkerDetail = Worker & { jobs: WorkerJob[] };
