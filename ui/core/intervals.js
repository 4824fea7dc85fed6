// The axis of a job's life: waits and runs one after the other, with long waits folded so that what happened can be seen.
//
// Pure; parts/timeline.js draws it. No interval is negative, whatever the clocks say.

/** @typedef {{ kind: "wait" | "run", attempt: number, from: number, to: number, folded: boolean, x: number, width: number }} Interval in percent of the axis */

/** A wait is folded if it is so many times as long as the longest run. */
const FOLD_FACTOR = 10;
/** Of the axis, in percent: a folded wait; and the least that can be seen. */
const FOLD_WIDTH = 7;
const LEAST_WIDTH = 0.4;

/**
 * @param {{ created_at: string, attempts: { attempt: number, started_at: string, ended_at: string | null }[], until: number, waits: boolean }} life until: now, by the store's clock;
 *   waits: the job has a wait at its end
 * @returns {Interval[]}
 */
export function intervals({ created_at, attempts, until, waits }) {
  /** @type {Interval[]} */
  const found = [];
  let at = Date.parse(created_at);
  const add = (/** @type {Interval["kind"]} */ kind, /** @type {number} */ attempt, /** @type {number} */ to) => {
    const end = Math.max(at, to);
    found.push({ kind, attempt, from: at, to: end, folded: false, x: 0, width: 0 });
    at = end;
  };
  for (const { attempt, started_at, ended_at } of attempts) {
    add("wait", attempt, Date.parse(started_at));
    add("run", attempt, ended_at ? Date.parse(ended_at) : until);
  }
  if (waits) add("wait", (attempts.at(-1)?.attempt ?? 0) + 1, until);
  const length = (/** @type {Interval} */ one) => one.to - one.from;
  const longest = Math.max(1000, ...found.filter((one) => one.kind === "run").map(length));
  for (const one of found) one.folded = one.kind === "wait" && attempts.length > 0 && length(one) > FOLD_FACTOR * longest;
  const open = found.filter((one) => !one.folded);
  const total = Math.max(1, open.reduce((sum, one) => sum + length(one), 0));
  const folds = Math.min(60, (found.length - open.length) * FOLD_WIDTH);
  const room = 100 - folds - open.length * LEAST_WIDTH;
  let x = 0;
  for (const one of found) {
    one.x = x;
    one.width = one.folded ? folds / Math.max(1, found.length - open.length) : LEAST_WIDTH + Math.max(0, room) * (length(one) / total);
    x += one.width;
  }
  return found;
}
