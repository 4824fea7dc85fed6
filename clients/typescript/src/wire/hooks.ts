/**
 * Hooks: who is told of the ends of jobs.
 * Field for field as in docs/openapi.json; test/wire.test.ts compares them.
 * Types only, no code. All of them are exported by ../wire.ts.
 */

/** One key or several. */
export type HookSecretText = string | string[];

/** A hook, as it is put. */
export interface HookDeclaration {
  endpoint?: string | null;
  events?: string[] | null;
  include?: string[] | null;
  kinds?: string[] | null;
  paused?: boolean | null;
  queues?: string[] | null;
  secret?: HookSecretText | null;
  url?: string | null;
}

/** A hook. */
export interface Hook {
  created_at: string;
  dead_in_a_row: number;
  endpoint: string | null;
  events: string[];
  include: string[];
  kinds: string[] | null;
  missed: number;
  name: string;
  paused: boolean;
  paused_at: string | null;
  paused_reason: string | null;
  queues: string[] | null;
  secret: string | null;
  updated_at: string;
  url: string | null;
}
