// Shapes that several modules share. What the API answers is in openapi.d.ts, which is generated.

import type { components } from "./openapi.d.ts";

export type Schemas = components["schemas"];
export type Status = Schemas["Status"];
export type Job = Schemas["Job"];
export type JobSummary = Schemas["JobSummary"];
export type Attempt = Schemas["Attempt"];
export type Operation = Schemas["Operation"];
export type Preview = Schemas["OperationPreview"];
export type ErrorGroup = Schemas["ErrorGroup"];
export type AuditEntry = Schemas["AuditEntry"];
export type Explanation = Schemas["Explanation"];
export type Counts = Schemas["StatusCounts"];

export interface Rates {
  over_ms: number;
  enqueued_per_s: number;
  started_per_s?: number;
  finished_per_s: number;
  failed_per_s?: number;
}

export interface PulseQueue {
  queue: string;
  paused: boolean;
  paused_at: string | null;
  paused_by: string | null;
  counts: Counts;
  due: { n: number; at_least: boolean } | null;
  oldest_ready_ms: number | null;
  rates: Rates | null;
  spark: number[];
  wait_p95_ms: number | null;
  drained_in_ms: number | null;
  workers: { live: number; slots: number; busy: number } | null;
}

export type Remedy = Schemas["Remedy"];
export type ShownProblem = Schemas["ProblemSeen"];

/** As the API has it, with what an older server does not say as null. */
export interface Pulse {
  at: string;
  version: string | null;
  assets: string | null;
  store: string | null;
  ready: boolean;
  totals: Counts;
  rates: Rates | null;
  oldest_ready_ms: number | null;
  queues: PulseQueue[];
  more_queues: boolean;
  workers: { live: number; deaf: number; draining: number; gone: number; slots: number; busy: number } | null;
  problems: ShownProblem[] | null;
  more_problems: number;
  operations: Operation[];
  audit_seq: number | null;
}

export type Series = Schemas["Series"];

/** What a screen is given. `ending` is aborted when it is left. */
export interface Screen {
  params: Record<string, string>;
  query: { readonly value: URLSearchParams; peek(): URLSearchParams };
  ending: AbortSignal;
  /** Keys while the screen is shown: a letter, what it does in words, and the act. */
  keys(bindings: Record<string, [says: string, act: (event: KeyboardEvent) => void]>): void;
  /** The title of the tab. */
  title(text: string): void;
  /** The view's own call, for the curl button and the key y. */
  curl(call: () => string): void;
}

export type ScreenMaker = (screen: Screen) => () => unknown;
