// Limits of a queue in words, and the form that changes them (PUT /queues/{queue}). An empty field means no limit.

import { call, curl } from "../api.js";
import { html } from "../core/html.js";
import { signal } from "../core/signal.js";
import { refreshSoon } from "../live.js";
import { to } from "../router.js";
import { count, duration } from "../words.js";
import { openDialog } from "./dialog.js";
import { toast } from "./toast.js";

/** @typedef {import("../types.d.ts").Schemas} Schemas */
/** @typedef {Schemas["Rate"]} Rate */

/** @param {Rate | null | undefined} rate */
export const rateWords = (rate) => (rate ? `${count(rate.limit)} starts per ${rate.per_ms === 1000 ? "s" : duration(rate.per_ms)}, ${count(rate.burst)} at once` : "");

/** How much of a limit is used. @param {number | null} limit @param {number} running */
export const used = (limit, running) => (limit === null ? count(running) : html`<span class="row"><progress class="progress used" max=${limit} value=${Math.min(limit, running)} aria-label=${`${running} of ${limit}`}></progress> <span>${count(running)} of ${count(limit)}</span></span>`);

/** @param {Schemas["QueueWithLimits"]} one */
export function limitFacts(one) {
  const { groups } = one;
  const nothing = one.concurrency === null && !one.rate && !groups;
  if (nothing) return html`<p class="meta">No limits: as many jobs run as workers take.</p>`;
  return html`<dl class="facts">
    ${one.concurrency === null ? "" : html`<dt>running</dt><dd>${used(one.concurrency, one.usage.running)}</dd>`}
    ${one.rate ? html`<dt>rate</dt><dd>${rateWords(one.rate)}${one.usage.next_token_ms ? html` <span class="meta">next start in ${duration(one.usage.next_token_ms)}</span>` : ""}</dd>` : ""}
    ${groups ? html`<dt>each group</dt><dd>${[groups.concurrency === null ? "" : `${count(groups.concurrency)} at a time`, rateWords(groups.rate), groups.order === "strict" ? "strictly in order" : "in turns"].filter(Boolean).join("; ")}</dd>` : ""}</dl>`;
}

/** @param {string} text @returns {number | null} */
const number = (text) => (text.trim() === "" ? null : Number(text));

/** @param {string} queue @param {Schemas["QueueWithLimits"]} now @param {() => void} done */
export function openQueueLimits(queue, now, done) {
  const text = (/** @type {unknown} */ value) => signal(value === null || value === undefined ? "" : String(value));
  const fields = {
    concurrency: text(now.concurrency),
    limit: text(now.rate?.limit),
    per_s: text(now.rate ? now.rate.per_ms / 1000 : null),
    burst: text(now.rate?.burst),
    group_concurrency: text(now.groups?.concurrency),
  };
  const strict = signal(now.groups?.order === "strict");
  const path = `/queues/${encodeURIComponent(queue)}`;
  const body = () => {
    const limit = number(fields.limit.value);
    const burst = number(fields.burst.value);
    const groups = { ...(number(fields.group_concurrency.value) === null ? {} : { concurrency: number(fields.group_concurrency.value) }), ...(now.groups?.rate ? { rate: now.groups.rate } : {}), order: strict.value ? "strict" : "fair" };
    return {
      ...(number(fields.concurrency.value) === null ? {} : { concurrency: number(fields.concurrency.value) }),
      ...(limit === null ? {} : { rate: { limit, per_ms: Math.round((number(fields.per_s.value) ?? 1) * 1000), ...(burst === null ? {} : { burst }) } }),
      ...(now.groups || strict.value || fields.group_concurrency.value ? { groups } : {}),
    };
  };
  const field = (/** @type {keyof typeof fields} */ name, /** @type {string} */ label) => html`<label class="field"><span>${label}</span><input type="text" inputmode="decimal" autocomplete="off" .value=${fields[name].value} @input=${(/** @type {InputEvent} */ event) => (fields[name].value = /** @type {HTMLInputElement} */ (event.target).value)}></label>`;
  const starts = () => {
    const limit = number(fields.concurrency.value);
    return limit === null ? "" : html`<p class="meta">${count(now.usage.running)} run now: ${Math.max(0, limit - now.usage.running) === 0 ? "nothing more starts until some end" : `up to ${count(limit - now.usage.running)} more could start at once`}.</p>`;
  };
  return openDialog({
    title: `Limits of ${queue}`,
    body: () => html`<div class="form">${field("concurrency", "at the same time")}${starts()}${field("limit", "starts")}${field("per_s", "per so many seconds")}${field("burst", "of them at once")}
      ${field("group_concurrency", "at the same time, each group")}<label class="check"><input type="checkbox" .checked=${strict.value} @change=${() => (strict.value = !strict.value)}> each group strictly in order; holds for jobs enqueued from now on</label></div>`,
    confirm: "Set the limits",
    curl: () => curl("PUT", path, { body: body() }),
    act: async () => {
      await call("PUT", path, { body: body() });
      toast({ says: `limits of ${queue} are set`, href: to.audit({ target: `queue:${queue}` }), link: "audit" });
      refreshSoon();
      done();
    },
  });
}
