// One operation: how far it is, what it did to each job, and the levers: pause, resume, rate, stop.

import { call, curl, get, may, post } from "../api.js";
import { html } from "../core/html.js";
import { resource } from "../core/resource.js";
import { signal } from "../core/signal.js";
import { ago, status } from "../parts/bits.js";
import { openDialog } from "../parts/dialog.js";
import { done, operationFilter } from "../parts/operation.js";
import { loaded } from "../parts/states.js";
import { toast, toastError } from "../parts/toast.js";
import { to } from "../router.js";
import { count, duration, plural } from "../words.js";

/** @typedef {import("../types.d.ts").Operation} Operation */

const EVERY_MS = 1_000;
const RATES = [1, 10, 50, 200, 10_000];
const ENDED = ["done", "stopped", "failed", "finished"];

/** @type {import("../types.d.ts").ScreenMaker} */
export default function operation(screen) {
  const id = screen.params["id"] ?? "";
  const path = `/operations/${encodeURIComponent(id)}`;
  const one = resource((abort) => get(path, { signal: abort }), { ending: screen.ending, everyMs: EVERY_MS });
  const isOver = (/** @type {Operation | null} */ data) => data === null || data.finished_at !== null || ENDED.includes(data.state);
  screen.curl(() => curl("GET", path));
  const tell = (/** @type {string} */ verb, /** @type {string} */ says) => async () => {
    try {
      one.set(await post(`${path}/${verb}`));
      toast({ says, href: to.audit({ target: `operation:${id}` }), link: "audit" });
    } catch (error) {
      toastError(/** @type {import("../api.js").Problem} */ (error), `it could not be told to ${verb}`);
    }
    void one.refresh();
  };
  const setRate = async (/** @type {number} */ rate) => {
    one.set((await call("PATCH", path, { body: { rate } })).data);
    toast({ says: `${count(rate)} a second from now on` });
  };
  const setOther = (/** @type {string} */ text) => {
    const rate = Number(text);
    if (Number.isInteger(rate) && rate >= 1 && rate <= 10_000) void setRate(rate).catch((error) => toastError(error, "the rate stays as it is"));
    else toast({ says: "a rate is a whole number from 1 to 10,000", severity: "amber" });
  };
  const stop = () =>
    openDialog({
      title: "Stop the operation",
      body: () => html`<p>What it has done stays done: ${plural(one.peek().data?.counts.changed ?? 0, "job")} so far. It cannot be resumed.</p>`,
      confirm: "Stop it",
      danger: true,
      curl: () => curl("POST", `${path}/stop`),
      act: tell("stop", "the operation is stopped"),
    });
  const toggle = () => {
    const data = one.peek().data;
    if (!isOver(data)) void (data?.state === "paused" ? tell("resume", "it goes on")() : tell("pause", "it is paused")());
  };
  if (may("operate")) screen.keys({ Space: ["pause or resume", toggle] });
  const other = signal("");

  /** @param {Operation} data */
  const levers = (data) => (isOver(data) || !may("operate") ? "" : html`<div class="acts">
      ${data.state === "paused" ? html`<button type="button" class="primary" @click=${toggle}>resume</button>` : html`<button type="button" @click=${toggle}>pause</button>`}
      <button type="button" @click=${stop}>stop …</button></div>
    <fieldset class="rates"><legend class="meta">jobs per second</legend>${RATES.map((rate) => html`<label class="check"><input type="radio" name="rate" .checked=${data.rate === rate} @change=${() => setRate(rate)}> ${rate === 10_000 ? "all at once" : rate}</label>`)}
      <label class="check"><span class="sr-only">another rate</span><input type="text" inputmode="numeric" size="6" placeholder="other" .value=${other.value} @change=${(/** @type {Event} */ event) => setOther(/** @type {HTMLInputElement} */ (event.target).value)}></label></fieldset>`);

  /** @param {Operation} data */
  const sentence = (data) => {
    const left = data.of === null ? null : Math.max(0, data.of - done(data));
    if (isOver(data)) return html`${status(data.state)} <span class="rest">${plural(data.counts.changed, "job")} changed, ended ${ago(data.finished_at)}.</span>`;
    if (data.state === "paused") return html`${status("paused")} <span class="rest">after ${plural(data.counts.changed, "job")}${data.note ? html`: ${data.note}` : ""}.</span>`;
    return html`${status("running", data.state)} <span class="rest">${left === null ? "" : `${plural(left, "job")} left, about ${duration((left / Math.max(1, data.rate)) * 1000)}`}.</span>`;
  };

  /** @param {Operation} data */
  const view = (data) => {
    const { counts } = data;
    const again = /** @type {{ died_again?: number }} */ (counts).died_again;
    screen.title(`${data.action} ${data.state}`);
    return html`<div class="head"><h1>${data.action} ${data.of === null ? "" : plural(data.of, "job")}</h1></div>
      <p class="sentence">${sentence(data)}</p>
      ${data.of === null ? "" : html`<progress class="progress long" max=${Math.max(1, data.of)} value=${Math.min(data.of, done(data))} aria-label="progress"></progress>`}
      ${data.note && data.state !== "paused" ? html`<p class="notice" data-severity="amber">${data.note}</p>` : ""}
      ${levers(data)}
      <dl class="facts"><dt>changed</dt><dd>${count(counts.changed)}</dd>
        <dt>left alone</dt><dd>${count(counts.unchanged)} <span class="meta">matched, but changed meanwhile</span></dd>
        <dt>refused</dt><dd>${count(counts.failed)}</dd>
        ${again === undefined ? "" : html`<dt>died again</dt><dd>${count(again)} <span class="meta">are not redriven a second time</span></dd>`}
        <dt>looked at</dt><dd>${count(counts.looked_at)}</dd>
        ${data.canary ? html`<dt>canary</dt><dd>${count(data.canary.first)} first, goes on if ${count(data.canary.need)} succeed</dd>` : ""}
        <dt>rate</dt><dd>${count(data.rate)}/s</dd>
        <dt>jobs</dt><dd>${operationFilter(data)}</dd>
        <dt>not after</dt><dd>${ago(data.cutoff)} <span class="meta">later jobs are not touched</span></dd>
        <dt>by</dt><dd>${data.by}, ${ago(data.created_at)}</dd>
        ${data.reason ? html`<dt>note</dt><dd>${data.reason}</dd>` : ""}</dl>
      <p class="page-end"><a href=${to.audit({ target: `operation:${id}` })}>audit</a></p>`;
  };
  return () => html`${one.value.data ? "" : html`<h1>Operation</h1>`}${loaded(one, view, { everyMs: EVERY_MS })}`;
}
