// One queue: is it moving and if not why, its flow, what runs next, its limits, who works for it.

import { curl, get, may } from "../api.js";
import { html } from "../core/html.js";
import { resource } from "../core/resource.js";
import { pauseQueue, resumeQueue } from "../parts/acts.js";
import { ago, status } from "../parts/bits.js";
import { openBulk } from "../parts/bulk.js";
import { flowCharts } from "../parts/flow.js";
import { limitFacts, openQueueLimits } from "../parts/limit_form.js";
import { loaded } from "../parts/states.js";
import { cursor, table, tableKeys } from "../parts/table.js";
import { pulse, storeNow } from "../live.js";
import { utc } from "../prefs.js";
import { to } from "../router.js";
import { STATUSES, count, duration, firstLine, rate, shortId, withTimes } from "../words.js";

/** @typedef {import("../types.d.ts").Schemas} Schemas */
/** @typedef {import("../types.d.ts").JobSummary} Row */

const EVERY_MS = 3_000;
const NEXT = 10;

/** @type {import("../types.d.ts").ScreenMaker} */
export default function queue(screen) {
  const name = screen.params["queue"] ?? "";
  const path = `/queues/${encodeURIComponent(name)}`;
  const live = { ending: screen.ending, everyMs: EVERY_MS };
  const settings = resource((abort) => get(path, { signal: abort }), live);
  const why = resource((abort) => get(`${path}/explain`, { signal: abort }), live);
  const next = resource((abort) => get("/jobs", { query: { queue: name, status: "queued,retrying", order: "next", view: "summary", limit: NEXT }, signal: abort }), live);
  const workers = resource((abort) => get("/workers", { signal: abort }), live);
  const charts = flowCharts(screen, { queue: name });
  const at = cursor();
  const again = () => {
    void settings.refresh();
    void why.refresh();
  };
  screen.title(name);
  screen.curl(() => curl("GET", path));
  screen.keys(tableKeys({ keys: () => (next.peek().data ?? []).map((/** @type {Row} */ row) => row.id) }));

  /** @param {Schemas["QueueWithLimits"]} one */
  const head = (one) => html`<div class="head"><h1>${name}</h1><div class="acts">
      ${may("operate") ? (one.paused ? html`<button type="button" class="primary" @click=${() => resumeQueue(name, again)}>resume</button>` : html`<button type="button" @click=${() => pauseQueue(name, again)}>pause …</button>`) : ""}
      ${may("operate") && one.counts.failed_permanent > 0 ? html`<button type="button" @click=${() => openBulk({ action: "redrive", filter: { queue: name, status: "failed_permanent" } })}>redrive its dead …</button>` : ""}
      ${may("operate") && one.counts.queued > 0 ? html`<button type="button" @click=${() => openBulk({ action: "cancel", filter: { queue: name, status: "queued,retrying" } })}>cancel what waits …</button>` : ""}
      ${may("admin") ? html`<button type="button" @click=${() => openQueueLimits(name, one, again)}>limits …</button>` : ""}</div></div>
    <nav class="tabs" aria-label="jobs by status">${STATUSES.map((each) => html`<a href=${to.jobs({ queue: name, status: each })}>${status(each)} ${count(one.counts[each])}</a>`)}</nav>`;

  const moving = () => loaded(why, (/** @type {Schemas["QueueExplanation"]} */ data) => {
    const known = pulse.value?.queues.find((each) => each.queue === name);
    const says = (/** @type {string} */ text) => withTimes(text, storeNow(), utc.value);
    return html`<p class="state">${says(data.says)}.</p>
      <ul class="plain">${data.reasons.filter((reason) => reason.says !== data.says).map((reason) => html`<li>${says(reason.says)} <code class="meta">${reason.code}</code></li>`)}</ul>
      ${known?.rates ? html`<p class="meta">${rate(known.rates.enqueued_per_s)} jobs/s in, ${rate(known.rates.finished_per_s)} out; p95 of the wait ${duration(known.wait_p95_ms)}${known.paused_by ? html`; paused by ${known.paused_by} ${ago(known.paused_at)}` : ""}</p>` : ""}`;
  }, { everyMs: EVERY_MS, rows: 2 });

  const coming = () => loaded(next, (/** @type {Row[]} */ rows) => (rows.length === 0 ? html`<p class="meta">Nothing waits.</p>` : html`${table({
    label: "next to run",
    rows,
    key: (row) => row.id,
    href: (row) => to.job(row.id),
    cursor: at,
    columns: [
      { id: "id", label: "job", head: true, cell: (row) => html`<a href=${to.job(row.id)}><code>${shortId(row.id)}</code></a>` },
      { id: "kind", label: "kind", cell: (row) => row.kind },
      { id: "status", label: "status", cell: (row) => status(row.status) },
      { id: "group", label: "group", wide: true, cell: (row) => row.group_key ?? "" },
      { id: "due", label: "due", cell: (row) => ago(row.run_at) },
      { id: "preview", label: "payload", grow: true, wide: true, cell: (row) => html`<span class="mono meta">${firstLine(row.payload_preview, 120)}</span>` },
    ],
  })}<p class="page-end"><a href=${to.jobs({ queue: name, status: "queued,retrying" })}>all that wait</a></p>`), { everyMs: EVERY_MS });

  const staff = () => loaded(workers, (/** @type {Schemas["Worker"][]} */ all) => {
    const here = all.filter((one) => one.state !== "gone" && (!one.queues || one.queues.includes(name)));
    return here.length === 0 ? html`<p class="notice" data-severity="amber">No worker that was seen lately asks for this queue.</p>`
      : html`<ul class="plain">${here.slice(0, 50).map((one) => html`<li><a href=${to.worker(one.worker)}>${one.worker}</a> ${status(one.state)} <span class="meta">${count(one.busy)} of ${count(one.concurrency)} busy · ${one.kinds ? one.kinds.join(", ") : "every kind"}</span></li>`)}</ul>`;
  }, { everyMs: EVERY_MS, rows: 2 });

  return () => html`${settings.value.data ? "" : html`<h1>${name}</h1>`}${loaded(settings, head, { everyMs: EVERY_MS, rows: 2 })}
    <section class="part"><h2>Is it moving?</h2>${moving()}</section>
    ${charts()}
    <section class="part"><h2>Next to run</h2>${coming()}</section>
    <section class="part"><h2>Workers</h2>${staff()}</section>
    <section class="part"><h2>Limits</h2>${loaded(settings, limitFacts, { rows: 2 })}</section>`;
}

