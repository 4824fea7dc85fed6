/**
 * Operations, error groups, the audit log, tokens and problems.
 * Field for field as in docs/openapi.json; test/wire.test.ts compares them.
 * Types only, no code. All of them are exported by ../wire.ts.
 */
import type { Job } from "./jobs.js";

/** What is done to every job of an operation. */
export type OperationAction = "redrive" | "cancel" | "delete" | "reprioritize" | "move";

/** Where an operation stands. */
export type OperationState = "running" | "paused" | "finished" | "stopped";

/** Which jobs are meant, by the names of `GET /jobs`. What is said must all hold; at least one must be said. */
export interface JobFilter {
  created_after?: string | null;
  created_before?: string | null;
  error?: string | null;
  finished_after?: string | null;
  finished_before?: string | null;
  group?: string | null;
  key?: string | null;
  kind?: string | null;
  queue?: string | null;
  status?: string | null;
  worker?: string | null;
}

/** Some jobs are redriven first; the others only if enough of them succeed, else the operation is paused. */
export interface NewCanary {
  first: number;
  need: number;
}

/** Some jobs are redriven first. */
export interface Canary {
  first: number;
  need: number;
  passed: boolean;
}

/** How many jobs of a kind match. */
export interface KindCount {
  count: number;
  kind: string;
}

/** How many jobs of a queue match. */
export interface QueueCount {
  count: number;
  queue: string;
}

/** An operation to be looked at before it is begun. */
export interface OperationPreviewRequest {
  action: OperationAction;
  filter?: JobFilter | null;
  ids?: string[] | null;
  priority?: number | null;
  to?: string | null;
}

/** The jobs that an operation would change. */
export interface OperationPreview {
  as_of: string;
  by_kind: KindCount[];
  by_queue: QueueCount[];
  exact: boolean;
  looked_at: number;
  matches: number;
  newest: string | null;
  oldest: string | null;
  sample: Job[];
  token: string;
}

/** An operation to be begun. */
export interface NewOperation {
  action: OperationAction;
  canary?: NewCanary | null;
  filter?: JobFilter | null;
  ids?: string[] | null;
  max?: number | null;
  preview?: string | null;
  priority?: number | null;
  rate?: number | null;
  reason?: string | null;
  to?: string | null;
}

/** What is changed in an operation that goes on. */
export interface OperationPatch {
  rate: number;
}

/** What an operation has done so far. */
export interface OperationCounts {
  changed: number;
  failed: number;
  looked_at: number;
  unchanged: number;
}

/** An operation. */
export interface Operation {
  action: OperationAction;
  by: string;
  canary: Canary | null;
  counts: OperationCounts;
  created_at: string;
  cutoff: string;
  filter: JobFilter | null;
  finished_at: string | null;
  id: string;
  ids: string[] | null;
  max: number | null;
  next_step_at: string | null;
  note: string | null;
  of: number | null;
  priority: number | null;
  rate: number;
  reason: string | null;
  state: OperationState;
  to: string | null;
  updated_at: string;
}

/** For how long to hear nothing of a group, and why. One of `until` and `for_ms`. */
export interface NewSnooze {
  for_ms?: number | null;
  note?: string | null;
  until?: string | null;
}

/** Who wants to hear nothing of a group, until when, and why. */
export interface Snoozed {
  at: string;
  by: string | null;
  note: string | null;
  until: string;
}

/** What a group has in one queue. */
export interface ErrorQueue {
  dead: number;
  queue: string;
  seen_total: number;
}

/** One dead letter of a group. */
export interface ErrorSample {
  error: string | null;
  job_id: string;
}

/** Dead letters of one kind with one cause. */
export interface ErrorGroup {
  dead: number;
  fingerprint: string;
  first_seen: string;
  kind: string;
  last_seen: string;
  outcome: string;
  queues: ErrorQueue[];
  sample: ErrorSample | null;
  seen_total: number;
  snoozed: Snoozed | null;
  title: string;
}

/** One act of an operator. */
export interface AuditEntry {
  action: string;
  after?: Record<string, unknown> | null;
  at: string;
  before?: Record<string, unknown> | null;
  count: number;
  detail?: Record<string, unknown> | null;
  reason?: string | null;
  remote?: string | null;
  request_id?: string | null;
  seq: number;
  target: string;
  token_id?: string | null;
  token_name: string;
}

/** What a token allows. */
export type Scope = "enqueue" | "read" | "work" | "operate" | "admin";

export type Integer = number;

/** A token to be made. */
export interface NewToken {
  expires_at?: string | null;
  expires_in_ms?: Integer | null;
  name: string;
  scopes: Scope[];
}

/** A token, without its secret. */
export interface Token {
  created_at: string;
  created_by: string | null;
  expired: boolean;
  expires_at: string | null;
  id: string;
  last_used_at: string | null;
  name: string;
  scopes: Scope[];
}

/** A token that was just made. */
export interface TokenMade {
  expires_at: string | null;
  id: string;
  name: string;
  scopes: Scope[];
  token: string;
}

/** What is wrong with one item of a list. */
export interface ItemError {
  detail: string;
  index: number;
}

/** An error, as RFC 9457 wants it. */
export interface Problem {
  code: string;
  detail: string;
  errors?: ItemError[] | null;
  request_id: string;
  status: number;
  title: string;
  type: string;
}
