// A list that comes in pages: the first is fetched again while the screen is shown, more are fetched when asked for, and nothing that is
// shown moves away. For lists of things that are few; jobs have a list of their own (screens/jobs_list.js).

import { call, nextPage } from "../api.js";
import { html } from "../core/html.js";
import { resource } from "../core/resource.js";
import { signal } from "../core/signal.js";

/** More rows than this are a matter for filters. */
const ROWS_MAX = 1_000;

/**
 * @template T
 * @param {string} path
 * @param {() => Record<string, unknown>} query
 * @param {(row: T) => string} key
 * @param {{ ending: AbortSignal, everyMs?: number }} options
 */
export function pages(path, query, key, options) {
  const further = signal(/** @type {T[]} */ ([]));
  const next = signal(/** @type {string | null | undefined} */ (undefined));
  const busy = signal(false);
  const read = async (/** @type {any} */ asked, /** @type {AbortSignal | undefined} */ abort) => {
    const { data, headers } = await call("GET", path, { query: asked, signal: abort });
    return { rows: /** @type {T[]} */ (data), next: nextPage(headers)?.toString() ?? null };
  };
  const first = resource((abort) => read(query(), abort), options);
  const rows = () => {
    const page = first.value.data?.rows ?? [];
    const known = new Set(page.map(key));
    return [...page, ...further.value.filter((row) => !known.has(key(row)))];
  };
  const rest = () => (next.value === undefined ? first.value.data?.next ?? null : next.value);
  const more = async () => {
    const cursor = rest();
    if (!cursor || busy.peek()) return;
    busy.value = true;
    try {
      const page = await read(cursor, options.ending);
      further.value = [...further.peek(), ...page.rows];
      next.value = page.next;
    } finally {
      busy.value = false;
    }
  };
  const again = () => {
    further.value = [];
    next.value = undefined;
    return first.refresh();
  };
  const end = () => (rest() && rows().length < ROWS_MAX ? html`<p class="page-end"><button type="button" ?disabled=${busy.value} @click=${more}>${busy.value ? "loading …" : "more"}</button></p>` : "");
  return { first, rows, end, again };
}
