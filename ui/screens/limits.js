// Limits of all queues and kinds that have some: how much is used, what waits behind them. Fullest first.

import { curl, get, may } from "../api.js";
import { html } from "../core/html.js";
import { resource } from "../core/resource.js";
import { status } from "../parts/bits.js";
import { openQueueLimits, rateWords, used } from "../parts/limit_form.js";
import { empty, loaded } from "../parts/states.js";
import { cursor, table, tableKeys } from "../parts/table.js";
import { to } from "../router.js";
import { duration } from "../words.js";

/** @typedef {import("../types.d.ts").Schemas} Schemas */
/** @typedef {{ scope: string, name: string, queue: string, concurrency: number | null, running: number, rate: Schemas["Rate"] | null, next_token_ms: number | null, waiting: string | null }} Row */

const EVERY_MS = 3_000;
/** So many queues are asked; the others are on their own screens. */
const QUEUES_MAX = 50;

/** @param {Row} row */
const fullness = (row) => (row.waiting ? 2 : row.concurrency === null ? 0 : row.running / row.concurrency);

/** @type {import("../types.d.ts").ScreenMaker} */
export default function limits(screen) {
  /** @param {AbortSignal} abort @returns {Promise<Row[]>} */
  const read = async (abort) => {
    const [queues, kinds] = await Promise.all([get("/queues", { query: { limit: 200 }, signal: abort }), get("/kinds", { signal: abort })]);
    const of = queues.slice(0, QUEUES_MAX).map(async (/** @type {{ queue: string }} */ { queue }) => {
      const rows = await get(`/queues/${encodeURIComponent(queue)}/limits`, { signal: abort }).catch((/** @type {{ status: number }} */ error) => (error.status === 404 ? [] : Promise.reject(error)));
      return rows.map((/** @type {Schemas["Limit"]} */ row) => ({ ...row, queue }));
    });
    const ofKinds = kinds.filter((/** @type {Schemas["Kind"]} */ one) => one.concurrency !== null || one.rate).map((/** @type {Schemas["Kind"]} */ one) => ({ scope: "kind", name: one.kind, queue: "", concurrency: one.concurrency, running: 0, rate: one.rate, next_token_ms: null, waiting: null }));
    const rows = /** @type {Row[]} */ ([...(await Promise.all(of)).flat(), ...ofKinds]).filter((row) => row.concurrency !== null || row.rate);
    return rows.sort((a, b) => fullness(b) - fullness(a) || (a.name < b.name ? -1 : 1));
  };
  const list = resource(read, { ending: screen.ending, everyMs: EVERY_MS });
  const at = cursor();
  const key = (/** @type {Row} */ row) => `${row.scope}/${row.queue}/${row.name}`;
  screen.curl(() => curl("GET", "/queues/QUEUE/limits"));
  screen.keys(tableKeys({ keys: () => (list.peek().data ?? []).map(key) }));
  const change = async (/** @type {string} */ queue) => openQueueLimits(queue, await get(`/queues/${encodeURIComponent(queue)}`), list.refresh);

  /** @param {Row[]} rows */
  const view = (rows) => (rows.length === 0 ? empty("No limits: as many jobs run as workers take.", { command: "steadfast queues set mail --concurrency 50 --rate 100/s" }) : table({
    label: "limits",
    rows,
    key,
    href: (row) => (row.scope === "kind" ? to.kind(row.name) : to.queue(row.queue)),
    cursor: at,
    columns: [
      { id: "name", label: "name", head: true, cell: (row) => html`<a href=${row.scope === "kind" ? to.kind(row.name) : to.queue(row.queue)}>${row.name}</a>` },
      { id: "scope", label: "of", cell: (row) => (row.scope === "group" ? html`<span class="meta">group of ${row.queue}</span>` : html`<span class="meta">${row.scope}</span>`) },
      { id: "used", label: "running", cell: (row) => (row.scope === "kind" ? html`<span class="meta">at most ${row.concurrency ?? "–"}</span>` : used(row.concurrency, row.running)) },
      { id: "rate", label: "rate", grow: true, cell: (row) => rateWords(row.rate) },
      { id: "waiting", label: "waits for", cell: (row) => (row.waiting ? html`${status("note", row.waiting === "full" ? "a place" : row.waiting === "rate" ? `the rate${row.next_token_ms ? `, ${duration(row.next_token_ms)}` : ""}` : row.waiting)}` : "") },
      { id: "act", label: "", cell: (row) => (may("admin") && row.scope === "queue" ? html`<button type="button" class="quiet" @click=${() => change(row.queue)}>change …</button>` : "") },
    ],
  }));
  return () => html`<h1>Limits</h1>${loaded(list, view, { everyMs: EVERY_MS })}`;
}
