/**
 * Schedules and their ticks.
 * Field for field as in docs/openapi.json; test/wire.test.ts compares them.
 * Types only, no code. All of them are exported by ../wire.ts.
 */

/** What becomes of ticks that nobody was there for. */
export type CatchUp = "skip" | "one" | "all";

/** What a tick does while a job of the schedule is unfinished. */
export type Overlap = "allow" | "skip" | "queue_one" | "cancel";

/** Who declared a schedule. */
export type ScheduleSource = "api" | "library" | "config";

/** Whether a schedule fires. */
export type ScheduleState = "active" | "paused" | "ended";

/** The job that each tick enqueues. */
export interface ScheduledJob {
  kind: string;
  max_attempts: number | null;
  payload: unknown;
  priority: number | null;
  queue: string | null;
  timeout_ms: number | null;
}

/**
 * The job of a schedule. Strings of its payload may contain `{{tick}}`, `{{tick_local}}`, `{{tick_unix}}`,
 * `{{previous_tick}}` and `{{schedule}}`.
 */
export interface NewScheduledJob {
  kind: string;
  max_attempts?: number | null;
  payload: unknown;
  priority?: number | null;
  queue?: string | null;
  timeout_ms?: number | null;
}

/** A schedule to be put: `cron` or `every_ms`, and the job. */
export interface NewSchedule {
  anchor_at?: string | null;
  catch_up?: CatchUp | null;
  catch_up_max?: number | null;
  catch_up_window_ms?: number | null;
  cron?: string | null;
  end_at?: string | null;
  every_ms?: number | null;
  jitter_ms?: number | null;
  job: NewScheduledJob;
  overlap?: Overlap | null;
  paused?: boolean | null;
  start_at?: string | null;
  tz?: string | null;
}

/** Ticks since the schedule was created, by what became of them. */
export interface TickCounts {
  fired: number;
  missed: number;
  refused: number;
  skipped: number;
}

/** A tick that was skipped. */
export interface SkippedTick {
  reason: string;
  tick: string;
}

/** A schedule. */
export interface Schedule {
  anchor_at: string | null;
  catch_up: CatchUp;
  catch_up_max: number;
  catch_up_window_ms: number;
  counts: TickCounts;
  created_at: string;
  cron: string | null;
  describe: string;
  end_at: string | null;
  every_ms: number | null;
  held_tick: string | null;
  jitter_ms: number;
  job: ScheduledJob | null;
  last_error: string | null;
  last_job_id: string | null;
  last_skip: SkippedTick | null;
  last_tick_at: string | null;
  name: string;
  next_runs: string[];
  overlap: Overlap;
  paused: boolean;
  revision: number;
  source: ScheduleSource;
  start_at: string | null;
  state: ScheduleState;
  tz: string;
  updated_at: string;
}

/** What became of a tick. */
export type TickFate = "fired" | "skipped" | "missed" | "refused";

/** One tick. */
export interface Tick {
  at: string;
  fate: TickFate;
  job_id: string | null;
  reason: string | null;
  tick: string;
}

/** Which tick to make up for; none: now. */
export interface RunRequest {
  tick?: string | null;
}

/** A pattern or an interval to look at; nothing is stored. */
export interface PreviewRequest {
  anchor_at?: string | null;
  count?: number | null;
  cron?: string | null;
  end_at?: string | null;
  every_ms?: number | null;
  start_at?: string | null;
  tz?: string | null;
}

/** One run to come. */
export interface Run {
  at: string;
  local: string;
  note: string | null;
}

/** The runs to come. */
export interface Preview {
  describe: string;
  runs: Run[];
  tz: string;
}
