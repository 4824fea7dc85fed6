// The rows of the list of jobs: loaded by pages, refreshed in place. Nothing moves under the cursor.
//
// A refresh reads the first page again: rows that are shown take their new values, rows that no longer match stay, marked as left, and
// new ones are only counted until somebody asks for them.

import { call, nextPage } from "../api.js";
import { queryOf } from "../core/query.js";
import { signal } from "../core/signal.js";

/** @typedef {import("../types.d.ts").JobSummary} Row */
/** @typedef {{ rows: Row[], left: Set<string>, newer: number, manyNewer: boolean, next: string | null, loading: boolean, error: Error | null, at: number, lookedTo: string | null, looked: number }} Listed */

const PAGE = 100;
/** Shown at most; beyond, the URL leads on. */
export const ROWS_MAX = 500;

/** @type {Listed} */
const NOTHING = { rows: [], left: new Set(), newer: 0, manyNewer: false, next: null, loading: true, error: null, at: 0, lookedTo: null, looked: 0 };

/** The ids of the list that was shown last, for [ and ] on a job's page. @type {string[]} */
export let lastListed = [];

/** What Back brings back, by URL. @type {Map<string, { listed: Listed, selected: Set<string> }>} */
const kept = new Map();

/** @param {string} href @param {Listed} listed @param {Set<string>} selected */
export function keep(href, listed, selected) {
  kept.delete(href);
  kept.set(href, { listed, selected });
  if (kept.size > 5) kept.delete(/** @type {string} */ (kept.keys().next().value));
}

/** @param {string} href */
export const recall = (href) => kept.get(href) ?? null;

/** In which order the server lists them. @param {Record<string, string>} filter */
export function orderOf(filter) {
  if (filter.order) return filter.order;
  const statuses = (filter.status ?? "").split(",").filter(Boolean);
  return statuses.length > 0 && statuses.every((status) => status === "queued" || status === "retrying") ? "next" : "newest";
}

/** Whether `row` would come before `other`. @param {string} order @param {Row} row @param {Row} other */
function isBefore(order, row, other) {
  if (order === "next") return row.run_at < other.run_at;
  return order === "oldest" ? row.id < other.id : row.id > other.id;
}

/**
 * What a newly read first page says about the rows that are shown.
 * @param {Row[]} rows @param {Set<string>} left @param {Row[]} page @param {boolean} isWhole the page is all there is @param {string} order
 */
export function merge(rows, left, page, isWhole, order) {
  const fresh = new Map(page.map((row) => [row.id, row]));
  const end = page.at(-1);
  const gone = new Set(left);
  const merged = rows.map((row) => {
    const now = fresh.get(row.id);
    if (now) return gone.delete(row.id), now.updated_at === row.updated_at ? row : now;
    // It would have to be on the page, and is not.
    if (isWhole || (end && isBefore(order, row, end))) gone.add(row.id);
    return row;
  });
  const known = new Set(rows.map((row) => row.id));
  const newer = page.filter((row) => !known.has(row.id) && (order === "next" || !rows[0] || isBefore(order, row, rows[0]))).length;
  return { rows: merged, left: gone, newer, manyNewer: newer === page.length && !isWhole && newer > 0 };
}

/**
 * @param {() => Record<string, string>} filter
 * @param {AbortSignal} ending
 */
export function jobsList(filter, ending) {
  const state = signal(NOTHING);
  let version = 0;

  /** @param {string} query @returns {Promise<{ page: Row[], next: string | null, lookedTo: string | null, looked: number }>} */
  const read = async (query) => {
    const { data, headers } = await call("GET", "/jobs", { query, signal: ending });
    const next = nextPage(headers);
    return { page: data, next: next ? next.toString() : null, lookedTo: headers.get("x-looked-to"), looked: Number(headers.get("x-looked") ?? 0) };
  };
  const first = () => queryOf(filter(), { view: "summary", limit: String(PAGE) });
  /** @param {(mine: number) => Promise<void>} work */
  const guarded = async (work) => {
    const mine = ++version;
    try {
      await work(mine);
    } catch (error) {
      if (ending.aborted || mine !== version) return;
      state.value = { ...state.peek(), loading: false, error: /** @type {Error} */ (error) };
    }
  };

  /** From the top. */
  const load = () =>
    guarded(async (mine) => {
      state.value = { ...state.peek(), loading: true, error: null };
      const { page, next, lookedTo, looked } = await read(first());
      if (mine !== version) return;
      state.value = { ...NOTHING, rows: page, next, lookedTo, looked, loading: false, at: Date.now() };
      lastListed = page.map((row) => row.id);
    });

  /** The next page, below. */
  const older = () =>
    guarded(async (mine) => {
      const { next } = state.peek();
      if (!next) return;
      state.value = { ...state.peek(), loading: true, error: null };
      const more = await read(next);
      if (mine !== version) return;
      const before = state.peek();
      const known = new Set(before.rows.map((row) => row.id));
      const rows = [...before.rows, ...more.page.filter((row) => !known.has(row.id))];
      state.value = { ...before, rows, next: more.next, lookedTo: more.lookedTo, looked: before.looked + more.looked, loading: false };
      lastListed = rows.map((row) => row.id);
    });

  /** In place. */
  const refresh = () =>
    guarded(async (mine) => {
      const { page, next } = await read(first());
      if (mine !== version) return;
      const before = state.peek();
      // An empty list has nothing that could move.
      if (before.rows.length === 0) return void (state.value = { ...before, rows: page, next, at: Date.now(), error: null, loading: false });
      state.value = { ...before, ...merge(before.rows, before.left, page, !next, orderOf(filter())), at: Date.now(), error: null, loading: false };
    });

  return {
    get value() {
      return state.value;
    },
    peek: state.peek,
    load,
    older,
    refresh,
    /** @param {Listed} listed */
    restore(listed) {
      state.value = listed;
      lastListed = listed.rows.map((row) => row.id);
    },
  };
}
