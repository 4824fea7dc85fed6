// The table of queues, as on the overview and the screen of queues: trouble first, then by name.

import { may } from "../api.js";
import { html } from "../core/html.js";
import { spark } from "../core/spark.js";
import { to } from "../router.js";
import { count, duration, rate } from "../words.js";
import { pauseQueue, resumeQueue } from "./acts.js";
import { ago } from "./bits.js";
import { table } from "./table.js";

/** @typedef {import("../types.d.ts").PulseQueue} Row */
/** @typedef {import("../types.d.ts").ShownProblem} Problem */

const RANK = /** @type {Record<string, number>} */ ({ red: 0, amber: 1, note: 2 });

/** How bad it is: 0 is worst, 3 is well. @param {Row} row @param {Problem[]} problems */
function rank(row, problems) {
  const worst = problems.filter((one) => one.subject.queue === row.queue && !one.snoozed_until).map((one) => RANK[one.severity] ?? 3);
  return Math.min(3, row.paused ? 2 : 3, ...worst);
}

/** @param {number | null | undefined} n @param {string} [href] */
const figure = (n, href) => (n ? (href ? html`<a href=${href}>${count(n)}</a>` : count(n)) : html`<span class="zero">${count(n)}</span>`);

/** @param {Row} row */
function drained(row) {
  if (row.paused) return html`<span class="meta">paused${row.paused_by ? ` by ${row.paused_by}` : ""} ${row.paused_at ? ago(row.paused_at) : ""}</span>`;
  if (row.due && row.due.n === 0) return html`<span class="zero">now</span>`;
  if (row.rates === null) return html`<span class="none">–</span>`;
  return row.drained_in_ms === null ? "grows" : duration(row.drained_in_ms);
}

/** @param {Row[]} queues @param {Problem[]} problems @param {ReturnType<import("./table.js").cursor>} at @param {() => void} [done] after a pause or resume */
export function queueTable(queues, problems, at, done) {
  const ranked = queues.map((row) => ({ row, rank: rank(row, problems) }));
  const ranks = new Map(ranked.map(({ row, rank }) => [row.queue, rank]));
  const rows = ranked.sort((a, b) => a.rank - b.rank || (a.row.queue < b.row.queue ? -1 : 1)).map(({ row }) => row);
  const sign = (/** @type {Row} */ row) => {
    const level = ranks.get(row.queue) ?? 3;
    if (row.paused) return html`<span class="glyph" role="img" aria-label="paused">‖</span>`;
    return level < 2 ? html`<span class="status" data-status=${level === 0 ? "red" : "amber"}><span class="glyph" role="img" aria-label="problem">${level === 0 ? "✕" : "!"}</span></span>` : "";
  };
  const of = (/** @type {Row} */ row, /** @type {string} */ status) => to.jobs({ queue: row.queue, status });
  return table({
    label: "queues",
    rows,
    key: (row) => row.queue,
    href: (row) => to.queue(row.queue),
    cursor: at,
    columns: [
      { id: "sign", label: "", cell: sign },
      { id: "queue", label: "queue", head: true, cell: (row) => html`<a href=${to.queue(row.queue)}>${row.queue}</a>` },
      { id: "due", label: "due", num: true, cell: (row) => figure(row.due ? row.due.n : row.counts.queued, of(row, "queued")) },
      { id: "running", label: "running", num: true, cell: (row) => html`${figure(row.counts.running, of(row, "running"))}${row.workers ? html`<span class="meta">/${count(row.workers.slots)}</span>` : ""}` },
      { id: "retry", label: "retry", num: true, cell: (row) => figure(row.counts.retrying, of(row, "retrying")) },
      { id: "dead", label: "dead", num: true, cell: (row) => figure(row.counts.failed_permanent, to.jobs({ queue: row.queue, status: "failed_permanent" })) },
      { id: "oldest", label: "oldest due", num: true, cell: (row) => (row.oldest_ready_ms === null ? html`<span class="zero">0 s</span>` : duration(row.oldest_ready_ms)) },
      { id: "in", label: "in/s", num: true, wide: true, cell: (row) => rate(row.rates?.enqueued_per_s) },
      { id: "out", label: "out/s", num: true, wide: true, cell: (row) => rate(row.rates?.finished_per_s) },
      { id: "drained", label: "drained in", num: true, cell: drained },
      { id: "spark", label: "", wide: true, cell: (row) => spark(row.spark, "finished per minute, last 30 minutes") },
      { id: "act", label: "", cell: (row) => (may("operate") ? (row.paused ? html`<button type="button" class="quiet" @click=${() => resumeQueue(row.queue, done)}>resume</button>` : html`<button type="button" class="quiet" @click=${() => pauseQueue(row.queue, done)}>pause …</button>`) : "") },
    ],
  });
}
