// Data of a screen that is fetched, kept, and fetched again: the old stays until the new is there, and says how old it is.
//
// It never fetches while the tab is hidden or a dialog is open, backs off after failures, and ends with its screen. It knows neither
// routes nor views; parts/states.js shows its states.

import { signal } from "./signal.js";

/**
 * `error` is of the last try; `data` may be of an earlier one.
 * @template T
 * @typedef {{ data: T | null, error: Error | null, at: number, loading: boolean, since: number }} Fetched
 */

/**
 * @template T
 * @typedef {{ readonly value: Fetched<T>, peek: () => Fetched<T>, refresh: () => Promise<void>, set: (data: T) => void }} Resource
 */

/** How long a failed fetch is waited for, at most. */
const BACKOFF_MAX_MS = 30_000;

/**
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} fetcher
 * @param {{ ending: AbortSignal, everyMs?: number, again?: (data: T) => boolean }} options everyMs: fetched again so often, as long as `again`
 * @returns {Resource<T>}
 */
export function resource(fetcher, { ending, everyMs, again }) {
  const state = signal(/** @type {Fetched<T>} */ ({ data: null, error: null, at: 0, loading: true, since: Date.now() }));
  /** @type {AbortController | null} */
  let running = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let failures = 0;

  const later = () => {
    clearTimeout(timer);
    const { data } = state.peek();
    if (ending.aborted || (!failures && (!everyMs || (data !== null && again && !again(data))))) return;
    timer = setTimeout(tick, failures ? Math.min(BACKOFF_MAX_MS, 1000 * 2 ** failures) : everyMs);
  };
  const tick = () => {
    if (document.hidden || document.querySelector("dialog[open]")) later();
    else refresh();
  };
  const refresh = async () => {
    running?.abort();
    const mine = (running = new AbortController());
    state.value = { ...state.peek(), loading: true, since: Date.now() };
    try {
      const data = await fetcher(mine.signal);
      if (running !== mine || ending.aborted) return;
      failures = 0;
      state.value = { data, error: null, at: Date.now(), loading: false, since: 0 };
    } catch (error) {
      if (running !== mine || ending.aborted || mine.signal.aborted) return;
      const status = /** @type {{ status?: number }} */ (error).status ?? 0;
      // What was refused is not asked again by itself.
      failures = status >= 400 && status < 500 && status !== 429 ? 0 : failures + 1;
      state.value = { ...state.peek(), error: /** @type {Error} */ (error), loading: false, since: 0 };
      if (!failures) return;
    }
    later();
  };
  ending.addEventListener("abort", () => {
    clearTimeout(timer);
    running?.abort();
  });
  refresh();
  return {
    get value() {
      return state.value;
    },
    peek: state.peek,
    refresh,
    set: (data) => {
      state.value = { data, error: null, at: Date.now(), loading: false, since: 0 };
    },
  };
}
