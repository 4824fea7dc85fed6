// The form of a schedule: when and what, with the next runs as they are typed (POST /schedules/preview), daylight saving included.

import { call, curl, post } from "../api.js";
import { html } from "../core/html.js";
import { effect, signal } from "../core/signal.js";
import { to } from "../router.js";
import { openDialog } from "./dialog.js";
import { toast } from "./toast.js";

/** @typedef {import("../types.d.ts").Schemas} Schemas */
/** @typedef {Schemas["Schedule"]} Schedule */

/** Typing is over. */
const PREVIEW_AFTER_MS = 250;

/** What of a schedule can be put again. @param {Schedule} one */
function put(one) {
  const names = ["cron", "every_ms", "anchor_at", "overlap", "catch_up", "catch_up_max", "catch_up_window_ms", "jitter_ms", "start_at", "end_at"];
  const kept = names.map((name) => [name, /** @type {any} */ (one)[name]]).filter(([, value]) => value !== null && value !== undefined);
  const job = Object.fromEntries(Object.entries(one.job ?? {}).filter(([, value]) => value !== null));
  return { ...Object.fromEntries(kept), ...(one.cron ? { tz: one.tz } : {}), job };
}

/** @param {Schedule | null} one null: a new one @param {() => void} done */
export async function openSchedule(one, done) {
  const before = one ? put(one) : null;
  const name = signal(one?.name ?? "");
  const cron = signal(one?.cron ?? (one ? "" : "30 2 * * *"));
  const seconds = signal(one?.every_ms ? String(one.every_ms / 1000) : "");
  const tz = signal(one?.tz ?? Intl.DateTimeFormat().resolvedOptions().timeZone);
  const job = signal(JSON.stringify(before?.job ?? { kind: "", payload: {} }, null, 2));
  const preview = signal(/** @type {Schemas["Preview"] | null} */ (null));
  const wrong = signal("");
  const when = () => (seconds.value.trim() ? { every_ms: Math.round(Number(seconds.value) * 1000) } : { cron: cron.value.trim(), tz: tz.value.trim() });
  const parsed = () => {
    try {
      return JSON.parse(job.value);
    } catch {
      return null;
    }
  };
  const body = () => {
    const { cron: _cron, every_ms: _every, tz: _tz, ...rest } = /** @type {any} */ (before ?? {});
    return { ...rest, ...when(), job: parsed() };
  };
  const path = () => `/schedules/${encodeURIComponent(name.value.trim())}`;
  const ending = new AbortController();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  effect(() => {
    const asked = { ...when(), count: 5 };
    clearTimeout(timer);
    timer = setTimeout(() => {
      post("/schedules/preview", asked, { signal: ending.signal }).then((data) => {
        preview.value = data;
        wrong.value = "";
      }, (error) => {
        preview.value = null;
        wrong.value = error.message;
      });
    }, PREVIEW_AFTER_MS);
  }, ending.signal);
  const field = (/** @type {import("../core/signal.js").Signal<string>} */ value, /** @type {string} */ label, disabled = false) => html`<label class="field"><span>${label}</span><input type="text" autocomplete="off" spellcheck="false" ?disabled=${disabled} .value=${value.value} @input=${(/** @type {InputEvent} */ event) => (value.value = /** @type {HTMLInputElement} */ (event.target).value)}></label>`;
  const runs = () => (preview.value ? html`<p>${preview.value.describe}</p><ul class="plain">${preview.value.runs.map((run) => html`<li><span class="mono">${run.local}</span>${run.note ? html` <span class="meta">${run.note}</span>` : ""}</li>`)}</ul>` : html`<p class="meta" role="status">${wrong.value}</p>`);
  const isDone = await openDialog({
    title: one ? `Change ${one.name}` : "New schedule",
    wide: true,
    body: () => html`<div class="form">${field(name, "name", one !== null)}${seconds.value.trim() ? "" : html`${field(cron, "cron: minute hour day month weekday")}${field(tz, "time zone")}`}${field(seconds, "or every so many seconds")}
      ${runs()}<label class="field"><span>job</span><textarea rows="7" class="mono" spellcheck="false" .value=${job.value} @input=${(/** @type {InputEvent} */ event) => (job.value = /** @type {HTMLTextAreaElement} */ (event.target).value)}></textarea></label></div>`,
    confirm: one ? "Change it" : "Make it",
    ready: () => name.value.trim() !== "" && parsed() !== null && preview.value !== null,
    curl: () => curl("PUT", path(), { body: body() }),
    act: async () => {
      await call("PUT", path(), { body: body(), headers: one ? { "if-match": `"${one.revision}"` } : {} });
      toast({ says: `${name.peek().trim()} is set`, href: to.schedule(name.peek().trim()), link: "see it" });
    },
  });
  ending.abort();
  clearTimeout(timer);
  if (isDone) done();
}
