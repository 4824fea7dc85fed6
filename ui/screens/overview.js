// Overview: a sentence that is true, then what is wrong with its usual remedy, then the flow, the queues, and what is new.
//
// Everything but the flow, the errors and the audit comes with the pulse. On a server that never had a job it is three steps that work.

import { API, curl, get, may } from "../api.js";
import { chart, chartCursor, wholeSteps } from "../core/chart.js";
import { html, repeat } from "../core/html.js";
import { resource } from "../core/resource.js";
import { pulse, storeNow } from "../live.js";
import { ago, time } from "../parts/bits.js";
import { problemKeys, problemList } from "../parts/problems.js";
import { queueTable } from "../parts/queue_table.js";
import { commandLine, failed, skeleton } from "../parts/states.js";
import { cursor, tableKeys } from "../parts/table.js";
import { utc } from "../prefs.js";
import { go, to } from "../router.js";
import { clock, count, duration, plural, rate } from "../words.js";

/** @typedef {import("../types.d.ts").Pulse} Pulse */
/** @typedef {import("../types.d.ts").Operation} Operation */

const SLOW_MS = 10_000;

/** @param {Pulse} now */
function sentence(now) {
  const open = (now.problems ?? []).filter((one) => one.severity !== "note" && !one.snoozed_until);
  const oldest = now.oldest_ready_ms ?? 0;
  const flow = now.rates ? html`; ${rate(now.rates.finished_per_s)} jobs/s` : "";
  if (!now.ready) return html`<h1 class="sentence">The server is not ready.</h1>`;
  const due = oldest > 0 ? `the oldest due job has waited ${duration(oldest)}` : "nothing due waits";
  if (open.length > 0) {
    const rest = Math.max(0, now.queues.length - new Set(open.map((one) => one.subject.queue).filter(Boolean)).size);
    return html`<h1 class="sentence">${plural(open.length, "problem")}. <span class="rest">${rest > 0 ? `${plural(rest, "other queue")} ${rest === 1 ? "keeps" : "keep"} up` : ""}${rest > 0 ? "; " : ""}${due}${flow}.</span></h1>`;
  }
  if (now.problems === null) return html`<h1 class="sentence">${due[0]?.toUpperCase()}${due.slice(1)}${flow}. <span class="rest">This server does not look for problems by itself.</span></h1>`;
  return html`<h1 class="sentence">Everything is keeping up. <span class="rest">${due[0]?.toUpperCase()}${due.slice(1)}${flow}.</span></h1>`;
}

/** Nothing was ever enqueued. */
const firstRun = () => html`<h1 class="sentence">No job yet. <span class="rest">Three steps, and this page turns live with the first job.</span></h1>
  <h2>1. Declare a kind</h2>${commandLine(curl("PUT", "/kinds/welcome", { body: { schema: { type: "object", required: ["user"] }, max_attempts: 5 } }))}
  <h2>2. Enqueue</h2>${commandLine(curl("POST", "/jobs", { body: { kind: "welcome", payload: { user: 42 } } }))}
  <h2>3. Start a worker</h2><p>One that takes <code>welcome</code>, with the Rust library, or in any language over HTTP: <a href=${new URL("docs", API).pathname}>the API</a>. The built-in kinds run in <code>steadfast serve</code> itself:</p>
  ${commandLine(curl("POST", "/jobs", { body: { kind: "summarize_text", payload: { text: "It works. The rest is up to you.", max_words: 3 } } }))}`;

/** @param {Operation} one */
export const operationLine = (one) => html`<li class="row"><a href=${to.operation(one.id)}>${one.action} ${one.of === null ? "" : plural(one.of, "job")}</a>
  <progress class="progress" max=${one.of ?? one.counts.looked_at} value=${one.counts.changed + one.counts.unchanged} aria-label="progress"></progress>
  <span>${count(one.counts.changed)}${one.of === null ? "" : ` of ${count(one.of)}`}</span><span class="meta">${one.state} · ${count(one.rate)}/s · by ${one.by}${one.reason ? html` · ${one.reason}` : ""}</span></li>`;

/** @type {import("../types.d.ts").ScreenMaker} */
export default function overview(screen) {
  const slow = { ending: screen.ending, everyMs: SLOW_MS };
  const series = resource((signal) => get("/series", { signal }).catch((error) => (error.status === 404 ? null : Promise.reject(error))), slow);
  const errors = resource((signal) => get("/errors", { query: { since: new Date(storeNow() - 86_400_000).toISOString(), dead: "true", snoozed: "false", limit: 5 }, signal }), slow);
  const audit = resource((signal) => (may("operate") ? get("/audit", { query: { limit: 5 }, signal }) : Promise.resolve([])), slow);
  const at = cursor();
  const moment = chartCursor();
  screen.curl(() => curl("GET", "/pulse"));
  screen.keys({ ...tableKeys({ keys: () => pulse.peek()?.queues.map(({ queue }) => queue) ?? [] }), ...problemKeys(() => pulse.peek()?.problems ?? []) });

  const flow = () => {
    const data = wholeSteps(series.value.data);
    if (!data || data.t.length < 2) return "";
    const perSecond = (/** @type {number[]} */ values) => values.map((value) => value / (data.step_ms / 1000));
    const shared = { t: data.t, cursor: moment, clock: (/** @type {string} */ at) => clock(at, storeNow(), utc.value) };
    const minute = (/** @type {number} */ index) => go(to.jobs({ created_after: /** @type {string} */ (data.t[index]), created_before: new Date(Date.parse(/** @type {string} */ (data.t[index])) + data.step_ms).toISOString() }));
    const failing = data.failed.some((/** @type {number} */ n) => n > 0);
    return html`<div class="section-head"><h2>Flow</h2><span class="meta">last hour, jobs per second; statistics, a crash can lose 10 s of them</span></div>
      <div class="charts">${chart({ ...shared, label: "jobs/s", unit: rate, pick: minute, lines: [{ name: "enqueued", values: perSecond(data.enqueued), kind: "dashed", tone: "soft" }, { name: "finished", values: perSecond(data.succeeded) }, ...(failing ? [/** @type {const} */ ({ name: "failed", values: perSecond(data.failed), kind: "line", tone: "dead" })] : [])] })}
      ${chart({ ...shared, label: "wait before a start", unit: duration, pick: minute, lines: [{ name: "p95", values: data.wait_p95_ms, tone: "ink" }, { name: "p50", values: data.wait_p50_ms, tone: "soft" }] })}</div>`;
  };

  const newErrors = () => {
    const { data, error } = errors.value;
    if (error && !data) return failed(error, errors.refresh);
    if (!data || data.length === 0) return "";
    return html`<div class="section-head"><h2>Died of, last 24 h</h2><a class="meta" href=${to.errors({ dead: "true" })}>all dead letters</a></div>
      <div class="table-wrap"><table class="data" aria-label="causes of death"><tbody>${repeat(data, (/** @type {any} */ one) => one.fingerprint, (/** @type {import("../types.d.ts").ErrorGroup} */ one) => html`<tr data-href=${to.error(one.fingerprint)}>
        <th scope="row" class="grow"><a class="error-text" href=${to.error(one.fingerprint)}>${one.title}</a></th><td class="num" data-label="dead">${count(one.dead)}</td><td>${one.kind}</td><td><span class="meta">last</span> ${ago(one.last_seen)}</td></tr>`)}</tbody></table></div>`;
  };

  const lately = () => {
    const entries = audit.value.data ?? [];
    return entries.length === 0 ? "" : html`<div class="section-head"><h2>Done lately</h2><a class="meta" href=${to.audit()}>audit</a></div><ul class="plain">${repeat(entries, (/** @type {any} */ one) => one.seq, (/** @type {import("../types.d.ts").AuditEntry} */ one) => html`<li>${time(one.at)} <b>${one.token_name}</b> ${one.action} ${one.target}${one.count > 1 ? html` <span class="meta">${count(one.count)}</span>` : ""}${one.reason ? html` <span class="meta">${one.reason}</span>` : ""}</li>`)}</ul>`;
  };

  return () => {
    const now = pulse.value;
    if (!now) return html`<h1 class="sentence">Overview</h1>${skeleton(10)}`;
    if (Object.values(now.totals).every((n) => n === 0) && now.queues.length === 0) return firstRun();
    return html`${sentence(now)}
      ${problemList(now.problems ?? [], now.more_problems)}
      ${now.operations.length > 0 ? html`<div class="section-head"><h2>Operations under way</h2><a class="meta" href=${to.operations()}>all</a></div><ul class="plain">${repeat(now.operations, (one) => one.id, operationLine)}</ul>` : ""}
      ${flow()}
      <div class="section-head"><h2>Queues</h2><a class="meta" href=${to.queues()}>${now.more_queues ? "all of them" : "all"}</a></div>
      ${queueTable(now.queues, now.problems ?? [], at)}
      ${newErrors()}
      ${lately()}`;
  };
}
