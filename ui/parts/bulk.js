// One act on many jobs: first what would happen (POST /operations/preview), then, bound to exactly that, the act as an operation with
// a rate (SECURITY.md S58).
//
// Over 100 jobs, and for every delete, the number must be typed. The operation goes on without this page; its own screen shows it.

import { call, curl, post } from "../api.js";
import { html } from "../core/html.js";
import { formatFilter } from "../core/query.js";
import { signal } from "../core/signal.js";
import { refreshSoon } from "../live.js";
import { to } from "../router.js";
import { count, duration, firstLine, plural, shortId } from "../words.js";
import { time } from "./bits.js";
import { openDialog } from "./dialog.js";
import { failed, skeleton } from "./states.js";
import { toast } from "./toast.js";

/** @typedef {import("../types.d.ts").Preview} Preview */
/** @typedef {"redrive" | "cancel" | "delete"} Action */

/** More than this must be typed. */
const TYPED_OVER = 100;
/** So many are redriven first, and so many of them must succeed. */
const CANARY = { first: 5, need: 4 };
const RATES = [1, 10, 50, 10_000];
const WORDS = /** @type {Record<Action, [string, string]>} */ ({ redrive: ["Redrive", "queued again"], cancel: ["Cancel", "cancelled"], delete: ["Delete", "deleted"] });

/** What `filter` of an operation may say: the names of GET /jobs without text and order. @param {Record<string, string>} filter */
export const canBeOperation = (filter) => !filter.text && Object.keys(filter).some((name) => name !== "order");

/** @param {{ action: Action, filter?: Record<string, string>, ids?: string[], done?: (operation: any) => void }} what filter or ids */
export async function openBulk({ action, filter, ids, done }) {
  const jobs = ids ? { ids } : { filter: Object.fromEntries(Object.entries(filter ?? {}).filter(([name]) => name !== "order")) };
  const preview = signal(/** @type {Preview | null} */ (null));
  const failure = signal(/** @type {Error | null} */ (null));
  const rate = signal(50);
  const canary = signal(action === "redrive");
  const note = signal("");
  const typed = signal("");
  const matches = () => preview.value?.matches ?? 0;
  const mustType = () => action === "delete" || matches() > TYPED_OVER;
  const [verb, past] = WORDS[action];
  const useCanary = () => canary.value && action === "redrive" && matches() > CANARY.first;
  const request = () => ({ action, ...jobs, rate: rate.value, ...(useCanary() ? { canary: CANARY } : {}), ...(note.value.trim() ? { reason: note.value.trim() } : {}), preview: preview.value?.token });
  const shown = (/** @type {Preview} */ data) => {
    preview.value = data;
    // What has to be filled in next; Enter then does it.
    requestAnimationFrame(() => /** @type {HTMLElement | null} */ (document.querySelector("dialog[open] .typed") ?? document.querySelector("dialog[open] .note"))?.focus());
  };
  post("/operations/preview", { action, ...jobs }).then(shown, (error) => (failure.value = error));
  const body = () => {
    if (failure.value) return failed(failure.value);
    if (!preview.value) return skeleton(4, true);
    const { by_kind, by_queue, oldest, newest, sample, exact } = preview.value;
    if (matches() === 0) return html`<p>No job ${ids ? "of those" : "that matches"} can be ${past}: ${action === "redrive" ? "only dead and cancelled ones can" : action === "cancel" ? "all have finished" : "only finished ones can"}.</p>`;
    return html`<div class="form">
      ${filter ? html`<p class="meta mono">${formatFilter(filter)}</p>` : ""}
      <p><b>${count(matches(), !exact)}</b> ${by_kind.map(({ kind, count: n }, index) => html`${index ? " · " : ""}${kind} ${count(n)}`)} <span class="meta">in</span> ${by_queue.map(({ queue, count: n }, index) => html`${index ? " · " : ""}${queue} ${by_queue.length > 1 ? count(n) : ""}`)}
        ${oldest && newest ? html`<br><span class="meta">from ${time(oldest)} to ${time(newest)}</span>` : ""}</p>
      ${exact ? "" : html`<p class="notice" data-severity="amber">More jobs match than can be counted quickly; all of them that are there now are ${past}.</p>`}
      <details><summary>${plural(sample.length, "example")}</summary><ul class="plain">${sample.map((job) => html`<li><a href=${to.job(job.id)} target="_blank" rel="noopener"><code>${shortId(job.id)}</code></a> ${job.kind} <span class="meta">${firstLine(job.last_error, 90)}</span></li>`)}</ul></details>
      <fieldset class="rates"><legend class="meta">jobs per second</legend>${RATES.map((one) => html`<label class="check"><input type="radio" name="rate" .checked=${rate.value === one} @change=${() => (rate.value = one)}> ${one === 10_000 ? "all at once" : one}</label>`)}<span class="meta">takes ${rate.value === 10_000 ? "seconds" : `${exact ? "" : "at least "}${duration((matches() / rate.value) * 1000)}`}</span></fieldset>
      ${action === "redrive" && matches() > CANARY.first ? html`<label class="check"><input type="checkbox" .checked=${canary.value} @change=${() => (canary.value = !canary.value)}> canary: ${CANARY.first} first, go on if ${CANARY.need} succeed</label>` : ""}
      <label class="field"><span>note, for who reads it later</span><input class="note" type="text" maxlength="500" .value=${note.value} @input=${(/** @type {InputEvent} */ event) => (note.value = /** @type {HTMLInputElement} */ (event.target).value)}></label>
      ${mustType() ? html`<label class="field"><span>type ${matches()} to ${action} ${plural(matches(), "job")}</span><input class="typed" type="text" inputmode="numeric" autocomplete="off" .value=${typed.value} @input=${(/** @type {InputEvent} */ event) => (typed.value = /** @type {HTMLInputElement} */ (event.target).value)}></label>` : ""}
    </div>`;
  };
  return openDialog({
    title: `${verb} jobs`,
    wide: true,
    danger: action !== "redrive",
    body,
    confirm: () => (preview.value && matches() > 0 ? `${verb} ${preview.value.exact ? "" : "at least "}${plural(matches(), "job")}` : verb),
    ready: () => matches() > 0 && (!mustType() || typed.value.replace(/[\s,.]/g, "") === String(matches())),
    curl: () => curl("POST", "/operations", { body: request() }),
    act: async () => {
      const { data } = await call("POST", "/operations", { body: request() });
      toast({ says: `${plural(matches(), "job")} will be ${past}${rate.peek() < 10_000 ? ` at ${rate.peek()}/s` : ""}`, href: to.operation(data.id), link: "watch it" });
      refreshSoon();
      done?.(data);
    },
  });
}
