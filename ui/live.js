// What changes by itself: one snapshot of the whole server per second (`pulse`), the state of the line, and the store's clock.
//
// One stream per visible tab; a hidden tab hangs up after 5 s. Where there is no stream it polls, and where there is no /pulse (an
// older server) it puts one together from /stats and /queues. It never touches the page: screens read the signals.

import { API, Problem, call, get, session } from "./api.js";
import { signal } from "./core/signal.js";

/** @typedef {import("./types.d.ts").Pulse} Pulse */
/** @typedef {{ state: "starting" | "live" | "polling" | "paused" | "retrying" | "stopping", retryAt?: number, says?: string }} Line */

/** The newest snapshot; null before the first. */
export const pulse = signal(/** @type {Pulse | null} */ (null));
export const line = signal(/** @type {Line} */ ({ state: "starting" }));
/** The store's time, once a second while the tab is visible: ages in views are computed with it. */
export const clockTick = signal(Date.now());
/** When the newest snapshot came, by this machine's clock. */
export const heardAt = signal(0);

const HIDDEN_AFTER_MS = 5_000;
const POLL_MS = 5_000;
const QUIET_MS = 45_000;
const RETRY_MAX_MS = 30_000;

/** The store's clock minus ours. A browser's clock decides nothing. */
let offsetMs = 0;
/** The store's time now, in ms. */
export const storeNow = () => Date.now() + offsetMs;

let isPaused = false;
let isWatching = false;
let failures = 0;
/** @type {EventSource | null} */
let stream = null;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;
let etag = "";
/** A server without /pulse was met. */
let isOld = false;

/** @param {Pulse} next */
function take(next) {
  offsetMs = Date.parse(next.at) - Date.now();
  failures = 0;
  heardAt.value = Date.now();
  clockTick.value = storeNow();
  pulse.value = next;
}

function open() {
  close();
  if (!isWatching || isPaused || document.hidden || !session.peek()) return;
  if (isOld) return void poll();
  stream = new EventSource(new URL("pulse/stream", API), { withCredentials: false });
  stream.addEventListener("pulse", (event) => {
    take(JSON.parse(/** @type {MessageEvent} */ (event).data));
    line.value = { state: "live" };
  });
  stream.addEventListener("end", (event) => {
    const { reason } = JSON.parse(/** @type {MessageEvent} */ (event).data);
    close();
    if (reason === "unauthorized") session.value = null;
    else if (reason === "closing") fail("the server is stopping", "stopping");
    else again(1000);
  });
  // Refused, or broken off: one ordinary request finds out which.
  stream.addEventListener("error", () => {
    close();
    poll();
  });
}

function close() {
  clearTimeout(timer);
  stream?.close();
  stream = null;
}

/** @param {number} ms @param {() => void} [work] */
function again(ms, work = open) {
  clearTimeout(timer);
  timer = setTimeout(work, ms);
}

/** @param {string} says @param {Line["state"]} [state] */
function fail(says, state = "retrying") {
  const wait = Math.min(RETRY_MAX_MS, 1000 * 2 ** failures++);
  line.value = { state, retryAt: Date.now() + wait, says };
  again(wait);
}

async function poll() {
  clearTimeout(timer);
  if (!isWatching || isPaused || document.hidden || !session.peek()) return;
  try {
    if (isOld) take(await gathered());
    else {
      const { status, data, headers } = await call("GET", "/pulse", { headers: etag ? { "if-none-match": etag } : {}, timeoutMs: 10_000 });
      if (status === 200) {
        etag = headers.get("etag") ?? "";
        take(data);
      }
      failures = 0;
      heardAt.value = Date.now();
    }
    line.value = { state: isOld ? "live" : "polling" };
    again(isOld ? 2000 : POLL_MS, isOld ? poll : open);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (error.status === 404 && !isOld) {
      isOld = true;
      return poll();
    }
    if (error.status === 401) return;
    // Without `read` there is nothing to watch.
    if (error.status === 403) return void (line.value = { state: "paused", says: error.message });
    fail(error.message);
  }
}

/** A pulse from an older server's parts: without problems, rates per queue and workers. @returns {Promise<Pulse>} */
async function gathered() {
  const [stats, queues] = await Promise.all([get("/stats", { timeoutMs: 10_000 }), get("/queues", { query: { limit: 200 }, timeoutMs: 10_000 })]);
  /** @type {Pulse["queues"]} */
  const rows = queues.map((/** @type {any} */ queue) => ({ paused_at: null, paused_by: null, due: null, rates: null, spark: [], wait_p95_ms: null, drained_in_ms: null, workers: null, ...queue }));
  const oldest = rows.map((row) => row.oldest_ready_ms ?? -1).reduce((a, b) => Math.max(a, b), -1);
  return {
    at: new Date(storeNow()).toISOString(), version: null, assets: null, store: null, ready: true, totals: stats.totals, rates: stats.rates ?? null,
    oldest_ready_ms: oldest < 0 ? null : oldest, queues: rows, more_queues: false, workers: null, problems: null, more_problems: 0, operations: [], audit_seq: null,
  };
}

/** Stops or resumes the stream: the key p. */
export function togglePause() {
  isPaused = !isPaused;
  if (isPaused) {
    close();
    line.value = { state: "paused" };
  } else open();
}

/** After an act of one's own: what it did is wanted now, not in a second. */
export function refreshSoon() {
  if (!stream && isWatching && !isPaused) again(150, poll);
}

/** Before a logout. */
export const hangUp = close;

/** Begins to watch; again after a login. */
export function watch() {
  if (isWatching) return open();
  isWatching = true;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let hiding;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hiding);
    if (document.hidden) hiding = setTimeout(close, HIDDEN_AFTER_MS);
    else if (!stream) open();
  });
  setInterval(() => {
    if (document.hidden) return;
    clockTick.value = storeNow();
    // A quiet server sends nothing, and a machine that slept does not notice a dead connection.
    if (stream && Date.now() - heardAt.peek() > QUIET_MS) {
      heardAt.value = Date.now();
      open();
    }
  }, 1000);
  addEventListener("pagehide", close);
  open();
}
