// All queues, trouble first, with a filter of the page's own.

import { curl, get } from "../api.js";
import { html } from "../core/html.js";
import { resource } from "../core/resource.js";
import { signal } from "../core/signal.js";
import { pulse } from "../live.js";
import { queueTable } from "../parts/queue_table.js";
import { empty, loaded } from "../parts/states.js";
import { cursor, tableKeys } from "../parts/table.js";
import { plural } from "../words.js";

/** @typedef {import("../types.d.ts").PulseQueue} Row */

const EVERY_MS = 3_000;

/** @type {import("../types.d.ts").ScreenMaker} */
export default function queues(screen) {
  const list = resource((abort) => get("/queues", { query: { limit: 200 }, signal: abort }), { ending: screen.ending, everyMs: EVERY_MS });
  const words = signal("");
  const at = cursor();
  screen.curl(() => curl("GET", "/queues"));
  screen.keys(tableKeys({ keys: () => shown().map((one) => one.queue) }));

  /** What the pulse knows besides, where it does. @returns {Row[]} */
  const shown = () => {
    const known = new Map((pulse.value?.queues ?? []).map((one) => [one.queue, one]));
    const rows = /** @type {Row[]} */ (list.value.data ?? []).map((row) => ({ ...EMPTY, ...row, ...known.get(row.queue) }));
    return rows.filter((row) => row.queue.includes(words.value.trim().toLowerCase()));
  };

  return () => html`<h1>Queues</h1>${loaded(list, (/** @type {Row[]} */ all) =>
    all.length === 0
      ? empty("No queue yet: the first job makes its queue.", { command: "steadfast enqueue summarize_text '{\"text\":\"It works.\",\"max_words\":3}'" })
      : html`<p class="row"><input type="search" aria-label="filter queues" placeholder="filter queues" autocomplete="off" .value=${words.value} @input=${(/** @type {InputEvent} */ event) => (words.value = /** @type {HTMLInputElement} */ (event.target).value)}></p><p class="meta">${plural(all.length, "queue")}</p>${queueTable(shown(), pulse.value?.problems ?? [], at, list.refresh)}`, { everyMs: EVERY_MS })}`;
}

const EMPTY = { due: null, rates: null, spark: [], paused_at: null, paused_by: null, wait_p95_ms: null, drained_in_ms: null, workers: null };
