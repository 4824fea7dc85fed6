// One job: why it is where it is, what was tried, what went wrong and to whom else, what it carries, and what can be done about it.

import { Problem, call, curl, get, may } from "../api.js";
import { html } from "../core/html.js";
import { readJson } from "../core/json.js";
import { resource } from "../core/resource.js";
import { signal } from "../core/signal.js";
import { storeNow } from "../live.js";
import { cancelJob, deleteJob, redriveJob } from "../parts/acts.js";
import { ago, copyButton, status, time } from "../parts/bits.js";
import { jsonView } from "../parts/json.js";
import { runAgain } from "../parts/run_again.js";
import { loaded } from "../parts/states.js";
import { timeline } from "../parts/timeline.js";
import { utc } from "../prefs.js";
import { go, to } from "../router.js";
import { age, count, duration, plural, shortId, statusWord, withTimes } from "../words.js";
import { lastListed } from "./jobs_list.js";

/** @typedef {import("../types.d.ts").Job} Job */
/** @typedef {{ job: Job, attempts: import("../types.d.ts").Attempt[], why: import("../types.d.ts").Explanation | null, group: import("../types.d.ts").ErrorGroup | null, audit: import("../types.d.ts").AuditEntry[], again: { id: string }[] }} Shown */

const LIVE_MS = 1000;
const isFinished = (/** @type {Job} */ job) => job.finished_at !== null && !["queued", "running", "retrying"].includes(job.status);

/** What is not essential: absent if it cannot be had. @template T @param {Promise<T>} promise @param {T} otherwise @returns {Promise<T>} */
const perhaps = (promise, otherwise) =>
  promise.catch((error) => {
    if (error instanceof Problem) return otherwise;
    throw error;
  });

/** @param {string} id @param {AbortSignal} signal @returns {Promise<Shown>} */
async function read(id, signal) {
  const path = `/jobs/${encodeURIComponent(id)}`;
  const [text, attempts] = await Promise.all([call("GET", path, { signal, text: true }), get(`${path}/attempts`, { signal })]);
  const job = /** @type {Job} */ (readJson(text.data));
  const [why, group, audit, again] = await Promise.all([
    isFinished(job) ? null : perhaps(get(`${path}/explain`, { signal }), null),
    job.error_group ? perhaps(get(`/errors/${job.error_group}`, { signal }), null) : null,
    may("operate") ? perhaps(get("/audit", { query: { target: `job:${id}`, limit: 10 }, signal }), []) : [],
    isFinished(job) ? perhaps(get("/jobs", { query: { key: `rerun:${id}:1`, view: "summary" }, signal }), []) : [],
  ]);
  return { job, attempts, why, group, audit, again };
}

/** Where a reason can be looked into. @param {string} code @param {Job} job */
function see(code, job) {
  if (code.startsWith("no_worker") || code === "waits_for_slot") return html` <a href=${to.workers()}>workers</a>`;
  if (code === "queue_paused" || code === "queue_full" || code === "rate") return html` <a href=${to.queue(job.queue)}>${job.queue}</a>`;
  if (code === "kind_full") return html` <a href=${to.kind(job.kind)}>${job.kind}</a>`;
  if (code.startsWith("group_") || code === "behind") return html` <a href=${to.jobs({ queue: job.queue, group: job.group_key ?? "", status: "queued,running,retrying" })}>its group</a>`;
  return "";
}

/** The state in a sentence. @param {Job} job */
function state(job) {
  const now = storeNow();
  if (job.status === "running") return html`Running on <a href=${to.worker(job.locked_by ?? "")}>${job.locked_by}</a> for ${age(job.started_at, now)}.${job.cancel_requested ? " It was asked to stop." : ""}`;
  if (isFinished(job)) return html`${{ succeeded: "Succeeded", failed_permanent: "Dead", cancelled: "Cancelled" }[/** @type {string} */ (job.status)] ?? statusWord(job.status)} ${ago(job.finished_at)}.`;
  const wait = Date.parse(job.run_at) - now;
  const where = html`<a href=${to.queue(job.queue)}>${job.queue}</a>`;
  if (job.status === "retrying") return wait > 0 ? html`Waits in ${where} to be tried again in ${duration(wait)}.` : html`Waits in ${where}, due again for ${duration(-wait)}.`;
  return wait > 0 ? html`Planned in ${where} for ${time(job.run_at)}, in ${duration(wait)}.` : html`Waits in ${where}, due for ${duration(-wait)}.`;
}

/** @param {Shown} shown */
const whyView = ({ job, why }) =>
  !why || why.verdict === "finished"
    ? ""
    : html`<div class="why"><p class="verdict"><b>Why:</b> ${withTimes(why.says, storeNow(), utc.value)}.${see(why.verdict, job)}</p>
      <ul>${why.reasons.slice(1).map((reason) => html`<li><span class="glyph" aria-hidden="true">·</span>${withTimes(reason.says, storeNow(), utc.value)}${see(reason.code, job)}</li>`)}
        ${why.ahead && why.ahead.n > 0 ? html`<li><span class="glyph" aria-hidden="true">·</span>${plural(why.ahead.n, "job is", "jobs are")} ahead of it${why.ahead.at_least ? " at least" : ""}</li>` : ""}
        ${why.workers && why.verdict !== "running" ? html`<li><span class="glyph" aria-hidden="true">·</span>${plural(why.workers.for_kind, "worker")} of its kind, ${plural(why.workers.idle_slots, "free slot")}</li>` : ""}</ul></div>`;

/** @param {Shown} shown @param {import("../core/signal.js").Signal<boolean>} wrap */
function errorView({ job, attempts, group }, wrap) {
  const failedAt = [...attempts].reverse().find((one) => one.error);
  const text = failedAt?.error ?? job.last_error;
  if (!text) return "";
  const others = group ? group.dead - (job.status === "failed_permanent" ? 1 : 0) : 0;
  return html`<section class=${`part error-block${wrap.value ? "" : " nowrap"}`} aria-label="error"><h2>Error ${failedAt ? html`<span class="meta">of attempt ${failedAt.attempt}, ${ago(failedAt.ended_at)}</span>` : ""}<button type="button" class="quiet" aria-pressed=${String(wrap.value)} @click=${() => (wrap.value = !wrap.value)}>wrap</button>${copyButton(() => text, "error")}</h2>
    <pre tabindex="0">${text}</pre>
    ${group ? html`<p><a href=${to.error(group.fingerprint)}>${others > 0 ? `${plural(others, "other")} died of this` : "The only one of its kind"}</a> <span class="meta">${group.title}</span></p>` : ""}</section>`;
}

/** @param {Shown} shown */
const factsView = ({ job, audit, again }) => html`<section class="part" aria-label="facts"><h2>Facts</h2><dl class="facts">
  <dt>kind</dt><dd><a href=${to.kind(job.kind)}>${job.kind}</a></dd>
  <dt>queue</dt><dd><a href=${to.queue(job.queue)}>${job.queue}</a></dd>
  <dt>created</dt><dd>${time(job.created_at)} <span class="meta">${ago(job.created_at)}</span></dd>
  <dt>due</dt><dd>${time(job.run_at)}</dd>
  ${job.started_at ? html`<dt>started</dt><dd>${time(job.started_at)}</dd>` : ""}
  ${job.finished_at ? html`<dt>finished</dt><dd>${time(job.finished_at)} <span class="meta">${ago(job.finished_at)}</span></dd>` : ""}
  <dt>priority</dt><dd>${job.priority}</dd>
  <dt>timeout</dt><dd>${job.timeout_ms ? duration(Number(job.timeout_ms)) : html`<span class="none">none</span>`}</dd>
  ${job.idempotency_key ? html`<dt>key</dt><dd><code>${job.idempotency_key}</code>${rerunOf(job.idempotency_key)}</dd>` : ""}
  ${again.length > 0 ? html`<dt>run again</dt><dd>${again.map((one) => html`<a href=${to.job(one.id)}>as ${shortId(one.id)}</a>`)}</dd>` : ""}
  ${job.group_key ? html`<dt>group</dt><dd><a href=${to.jobs({ queue: job.queue, group: job.group_key })}>${job.group_key}</a></dd>` : ""}
  ${job.cost ? html`<dt>cost</dt><dd>${job.cost}</dd>` : ""}
  ${job.start_by ? html`<dt>start by</dt><dd>${time(job.start_by)}</dd>` : ""}
  ${job.unique ? html`<dt>unique</dt><dd><code>${job.unique.key}</code> <span class="meta">while ${job.unique.while}</span></dd>` : ""}
  ${job.locked_by ? html`<dt>lease</dt><dd>${job.locked_by}, ${job.lease_expires_at ? html`until ${time(job.lease_expires_at)}` : ""}</dd>` : ""}
  </dl>
  ${audit.length > 0 ? html`<h3>Done to it</h3><ul class="plain">${audit.map((entry) => html`<li>${time(entry.at)} ${entry.action} <span class="meta">by ${entry.token_name}${entry.reason ? html`: ${entry.reason}` : ""}</span></li>`)}</ul>` : ""}</section>`;

/** A job that was made from another one says so in its key. @param {string} key */
function rerunOf(key) {
  const from = /^rerun:([0-9a-f-]{36}):/.exec(key)?.[1];
  return from ? html` <a href=${to.job(from)}>made from this one</a>` : "";
}

/** @type {import("../types.d.ts").ScreenMaker} */
export default function job(screen) {
  const id = screen.params.id ?? "";
  const shown = resource((signal) => read(id, signal), { ending: screen.ending, everyMs: LIVE_MS, again: ({ job }) => !isFinished(job) });
  const showAll = signal(false);
  const wrap = signal(true);
  const now = () => shown.peek().data?.job;
  const payload = jsonView("Payload", () => shown.value.data?.job.payload);
  const result = jsonView("Result", () => shown.value.data?.job.result);
  screen.curl(() => curl("GET", `/jobs/${id}`));

  const acts = {
    cancel: () => now() && may("operate") && !isFinished(/** @type {Job} */ (now())) && cancelJob(/** @type {Job} */ (now()), shown.refresh),
    redrive: () => now() && may("operate") && ["failed_permanent", "cancelled"].includes(/** @type {Job} */ (now()).status) && redriveJob(/** @type {Job} */ (now()), shown.refresh),
    remove: () => now() && may("admin") && isFinished(/** @type {Job} */ (now())) && deleteJob(/** @type {Job} */ (now()), () => go(to.jobs())),
    again: () => now() && may("enqueue") && runAgain(/** @type {Job} */ (now())),
  };
  const step = (/** @type {1 | -1} */ by) => {
    const next = lastListed[lastListed.indexOf(id) + by];
    if (lastListed.includes(id) && next) go(to.job(next));
  };
  screen.keys({
    r: ["redrive", () => void acts.redrive()],
    c: ["cancel", () => void acts.cancel()],
    e: ["run again with changes", () => void acts.again()],
    Delete: ["delete", () => void acts.remove()],
    "[": ["job before, of the list", () => step(-1)],
    "]": ["next job of the list", () => step(1)],
  });

  return () => html`${shown.value.data ? "" : html`<h1>Job <code class="meta">${id}</code></h1>`}${loaded(shown, (data) => {
    const { job, attempts } = data;
    screen.title(`${job.kind} ${statusWord(job.status)}`);
    return html`<div class="head"><h1>${job.kind}</h1><code class="meta">${job.id}</code>${copyButton(() => job.id, "id")}<span class="space"></span>
      <span class="acts">
        ${may("operate") && !isFinished(job) ? html`<button type="button" @click=${acts.cancel} ?disabled=${job.cancel_requested}>cancel …</button>` : ""}
        ${may("operate") && ["failed_permanent", "cancelled"].includes(job.status) ? html`<button type="button" class="primary" @click=${acts.redrive}>redrive …</button>` : ""}
        ${may("enqueue") ? html`<button type="button" @click=${acts.again}>run again with changes …</button>` : ""}
        ${may("admin") && isFinished(job) ? html`<button type="button" @click=${acts.remove}>delete …</button>` : ""}</span></div>
      <p class="sentence state">${status(job.status, "")}<span class="rest">${state(job)}</span> <span class="meta">attempt ${count(job.attempts)} of ${count(job.max_attempts)}</span></p>
      ${job.progress && job.status === "running" ? html`<p class="row">${job.progress.percent === null ? "" : html`<progress class="progress" max="100" value=${job.progress.percent} aria-label="progress"></progress> ${job.progress.percent} %`} <span class="meta">${job.progress.message ?? ""}</span></p>` : ""}
      ${whyView(data)}
      ${timeline(job, attempts, showAll.value, () => (showAll.value = true))}
      <div class="columns">
        ${errorView(data, wrap)}
        <div>${payload()}${job.result === null ? "" : result()}</div>
        ${factsView(data)}
      </div>`;
  }, { everyMs: isFinished(shown.value.data?.job ?? /** @type {any} */ ({ finished_at: "", status: "" })) ? 0 : LIVE_MS })}`;
}

