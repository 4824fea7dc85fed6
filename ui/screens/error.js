// One cause of death: the error as it reads, where it strikes, the newest of its jobs, and what to do with all of them.

import { call, curl, get, may } from "../api.js";
import { html } from "../core/html.js";
import { resource } from "../core/resource.js";
import { refreshSoon } from "../live.js";
import { ago, copyButton, status } from "../parts/bits.js";
import { openBulk } from "../parts/bulk.js";
import { openSnooze } from "../parts/snooze.js";
import { loaded } from "../parts/states.js";
import { cursor, table, tableKeys } from "../parts/table.js";
import { toast } from "../parts/toast.js";
import { go, to } from "../router.js";
import { count, firstLine, plural, shortId } from "../words.js";

/** @typedef {import("../types.d.ts").ErrorGroup} Group */
/** @typedef {import("../types.d.ts").JobSummary} Row */

const EVERY_MS = 3_000;
const SHOWN = 20;

/** The variable parts stand out. @param {string} title */
const pattern = (title) => title.split("*").map((part, index) => html`${index ? html`<mark class="variable">*</mark>` : ""}${part}`);

/** @type {import("../types.d.ts").ScreenMaker} */
export default function error(screen) {
  const fingerprint = screen.params["fingerprint"] ?? "";
  const path = `/errors/${encodeURIComponent(fingerprint)}`;
  const live = { ending: screen.ending, everyMs: EVERY_MS };
  const group = resource((abort) => get(path, { signal: abort }), live);
  const jobs = resource((abort) => get("/jobs", { query: { error: fingerprint, view: "summary", limit: SHOWN }, signal: abort }), live);
  const at = cursor();
  const filter = { error: fingerprint, status: "failed_permanent" };
  const again = () => {
    void group.refresh();
    void jobs.refresh();
  };
  const redrive = () => openBulk({ action: "redrive", filter, done: (operation) => go(to.operation(operation.id)) });
  screen.curl(() => curl("GET", path));
  screen.keys({
    ...tableKeys({ keys: () => (jobs.peek().data ?? []).map((/** @type {Row} */ row) => row.id) }),
    ...(may("operate") ? { r: ["redrive this group", () => void redrive()], s: ["snooze", () => void openSnooze(fingerprint, group.peek().data?.title ?? "", again)] } : {}),
  });

  const wake = async () => {
    await call("DELETE", `${path}/snooze`);
    toast({ says: "no longer snoozed" });
    refreshSoon();
    again();
  };

  /** @param {Group} one */
  const view = (one) => {
    screen.title(firstLine(one.title, 40));
    return html`<div class="head"><h1>${plural(one.dead, "job")} died of this</h1><div class="acts">
        ${may("operate") && one.dead > 0 ? html`<button type="button" class="primary" @click=${redrive}>redrive this group …</button>` : ""}
        ${may("operate") ? (one.snoozed ? html`<button type="button" @click=${wake}>end the snooze</button>` : html`<button type="button" @click=${() => openSnooze(fingerprint, one.title, again)}>snooze …</button>`) : ""}
        ${may("admin") && one.dead > 0 ? html`<button type="button" @click=${() => openBulk({ action: "delete", filter, done: (operation) => go(to.operation(operation.id)) })}>delete …</button>` : ""}
      </div></div>
      <p class="error-text mono">${pattern(one.title)}</p>
      ${one.snoozed ? html`<p class="notice">Snoozed${one.snoozed.by ? ` by ${one.snoozed.by}` : ""}, ends ${ago(one.snoozed.until)}${one.snoozed.note ? html`: ${one.snoozed.note}` : ""}.</p>` : ""}
      <dl class="facts"><dt>kind</dt><dd><a href=${to.kind(one.kind)}>${one.kind}</a></dd>
        <dt>ended as</dt><dd>${status(one.outcome)}</dd>
        <dt>queues</dt><dd>${one.queues.map(({ queue, dead }, index) => html`${index ? " · " : ""}<a href=${to.jobs({ ...filter, queue })}>${queue}</a> ${count(dead)}`)}</dd>
        <dt>seen</dt><dd>${count(one.seen_total)} times, first ${ago(one.first_seen)}, last ${ago(one.last_seen)}</dd>
        <dt>group</dt><dd><code>${one.fingerprint}</code> ${copyButton(() => one.fingerprint, "fingerprint")}</dd></dl>
      ${one.sample ? html`<section class="part"><h2>The newest of them</h2><p><a href=${to.job(one.sample.job_id)}><code>${shortId(one.sample.job_id)}</code></a> ${one.sample.error === null ? html`<span class="meta">is gone or was redriven</span>` : ""}</p>
        ${one.sample.error === null ? "" : html`<div class="error-block"><pre tabindex="0">${one.sample.error}</pre>${copyButton(() => one.sample?.error ?? "", "error")}</div>`}</section>` : ""}`;
  };

  const rows = () => loaded(jobs, (/** @type {Row[]} */ list) => (list.length === 0 ? html`<p class="meta">None of its jobs is dead any more.</p>` : html`${table({
    label: "its jobs",
    rows: list,
    key: (row) => row.id,
    href: (row) => to.job(row.id),
    cursor: at,
    columns: [
      { id: "id", label: "job", head: true, cell: (row) => html`<a href=${to.job(row.id)}><code>${shortId(row.id)}</code></a>` },
      { id: "queue", label: "queue", cell: (row) => row.queue },
      { id: "tries", label: "tries", num: true, cell: (row) => `${row.attempts}/${row.max_attempts}` },
      { id: "died", label: "died", cell: (row) => ago(row.finished_at) },
      { id: "error", label: "error", grow: true, cell: (row) => html`<span class="error-text">${firstLine(row.last_error)}</span>` },
    ],
  })}<p class="page-end"><a href=${to.jobs(filter)}>all of them</a></p>`), { everyMs: EVERY_MS });

  return () => html`${group.value.data ? "" : html`<h1>Dead letters</h1>`}${loaded(group, view, { everyMs: EVERY_MS })}<section class="part"><h2>Its jobs</h2>${rows()}</section>`;
}
