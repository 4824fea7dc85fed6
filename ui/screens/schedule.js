// One schedule: when it fires next, in its zone and yours; what became of its last ticks; run now, pause, change, delete.

import { call, curl, get, may, post } from "../api.js";
import { html } from "../core/html.js";
import { resource } from "../core/resource.js";
import { refreshSoon } from "../live.js";
import { ago, status, time } from "../parts/bits.js";
import { openDialog } from "../parts/dialog.js";
import { jsonView } from "../parts/json.js";
import { openSchedule } from "../parts/schedule_form.js";
import { loaded } from "../parts/states.js";
import { toast, toastError } from "../parts/toast.js";
import { go, to } from "../router.js";
import { count, duration, shortId } from "../words.js";

/** @typedef {import("../types.d.ts").Schemas} Schemas */
/** @typedef {Schemas["Schedule"]} Schedule */
/** @typedef {Schemas["Tick"]} Tick */

const EVERY_MS = 3_000;
const TICKS = 30;
const FATES = /** @type {Record<string, string>} */ ({ fired: "succeeded", skipped: "note", missed: "amber", refused: "red" });

/** @type {import("../types.d.ts").ScreenMaker} */
export default function schedule(screen) {
  const name = screen.params["name"] ?? "";
  const path = `/schedules/${encodeURIComponent(name)}`;
  const live = { ending: screen.ending, everyMs: EVERY_MS };
  const one = resource((abort) => get(path, { signal: abort }), live);
  const ticks = resource((abort) => get(`${path}/ticks`, { query: { limit: TICKS }, signal: abort }), live);
  const payload = jsonView("payload", () => one.value.data?.job?.payload ?? null);
  screen.title(name);
  screen.curl(() => curl("GET", path));
  const again = () => {
    void one.refresh();
    void ticks.refresh();
    refreshSoon();
  };
  const tell = (/** @type {string} */ verb, /** @type {string} */ says) => async () => {
    try {
      const answer = await post(`${path}/${verb}`);
      toast(verb === "run" ? { says, href: to.job(answer.id), link: "see the job" } : { says, href: to.audit({ target: `schedule:${name}` }), link: "audit" });
    } catch (error) {
      toastError(/** @type {import("../api.js").Problem} */ (error), `it could not be told to ${verb}`);
    }
    again();
  };
  const runNow = () => openDialog({ title: `Run ${name} now`, body: () => html`<p>One job is enqueued now; the next tick stays where it is.</p>`, confirm: "Run it now", curl: () => curl("POST", `${path}/run`), act: tell("run", `${name} was run`) });
  const remove = async () => {
    const act = async () => {
      await call("DELETE", path);
      toast({ says: `${name} is deleted`, href: to.audit({ target: `schedule:${name}` }), link: "audit" });
    };
    if (await openDialog({ title: `Delete ${name}`, body: () => html`<p>It fires no more. Its jobs stay. This cannot be undone.</p>`, confirm: `Delete ${name}`, danger: true, curl: () => curl("DELETE", path), act })) go(to.schedules());
  };

  /** @param {Schedule} data */
  const view = (data) => html`<div class="head"><h1>${name}</h1><div class="acts">
      ${may("operate") ? html`<button type="button" @click=${runNow}>run now …</button>${data.paused ? html`<button type="button" class="primary" @click=${tell("resume", `${name} fires again`)}>resume</button>` : html`<button type="button" @click=${tell("pause", `${name} is paused`)}>pause</button>`}` : ""}
      ${may("admin") ? html`<button type="button" @click=${() => openSchedule(data, again)}>change …</button><button type="button" @click=${remove}>delete …</button>` : ""}</div></div>
    <p class="sentence">${data.describe}. <span class="rest">${data.state === "active" ? html`Next ${ago(data.next_runs[0])}.` : status(data.state)}</span></p>
    ${data.last_error ? html`<p class="notice" data-severity="red">${data.last_error}</p>` : ""}
    <section class="part"><h2>Next runs</h2><ul class="plain">${data.next_runs.map((at) => html`<li class="row">${time(at)} <span class="meta">${ago(at)} · ${inZone(at, data.tz)}</span></li>`)}</ul></section>
    <section class="part"><h2>Last ticks</h2>${loaded(ticks, history, { everyMs: EVERY_MS, rows: 3 })}</section>
    <section class="part"><h2>Facts</h2><dl class="facts"><dt>pattern</dt><dd class="mono">${data.cron ?? `every ${duration(data.every_ms)}`}</dd><dt>zone</dt><dd>${data.tz}</dd>
      <dt>kind</dt><dd>${data.job ? html`<a href=${to.kind(data.job.kind)}>${data.job.kind}</a>` : ""}</dd><dt>overlap</dt><dd>${data.overlap.replace("_", " ")}</dd><dt>catch up</dt><dd>${data.catch_up}</dd>
      <dt>fired</dt><dd>${count(data.counts.fired)}; skipped ${count(data.counts.skipped)}, missed ${count(data.counts.missed)}, refused ${count(data.counts.refused)}</dd>
      <dt>from</dt><dd>${data.source}</dd><dt>changed</dt><dd>${ago(data.updated_at)}</dd></dl>${data.job ? payload() : ""}</section>`;

  /** @param {Tick[]} rows */
  const history = (rows) => (rows.length === 0 ? html`<p class="meta">It has not fired yet.</p>` : html`<p class="ticks" aria-hidden="true">${[...rows].reverse().map((tick) => html`<span class="status" data-status=${FATES[tick.fate] ?? "note"} title=${tick.fate}>${tick.fate === "fired" ? "■" : "□"}</span>`)}</p>
    <ul class="plain">${rows.slice(0, 10).map((tick) => html`<li class="row">${time(tick.tick)} <span class="status" data-status=${FATES[tick.fate] ?? "note"}>${tick.fate}</span> ${tick.job_id ? html`<a href=${to.job(tick.job_id)}><code>${shortId(tick.job_id)}</code></a>` : ""} <span class="meta">${tick.reason ?? ""}${Date.parse(tick.at) - Date.parse(tick.tick) > 1000 ? ` ${duration(Date.parse(tick.at) - Date.parse(tick.tick))} late` : ""}</span></li>`)}</ul>`);
  return () => html`${one.value.data ? "" : html`<h1>${name}</h1>`}${loaded(one, view, { everyMs: EVERY_MS })}`;
}

/** The same moment in the schedule's zone. @param {string} at @param {string} tz */
function inZone(at, tz) {
  try {
    return `${new Intl.DateTimeFormat("en-GB", { timeZone: tz, dateStyle: "medium", timeStyle: "long" }).format(new Date(at))}`;
  } catch {
    return tz;
  }
}
