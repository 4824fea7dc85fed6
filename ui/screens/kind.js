// One kind: how it does, its declaration, what it dies of; enqueue one, change what is declared.

import { call, curl, get, may, post } from "../api.js";
import { html } from "../core/html.js";
import { resource } from "../core/resource.js";
import { signal } from "../core/signal.js";
import { ago, status } from "../parts/bits.js";
import { openDialog } from "../parts/dialog.js";
import { flowCharts } from "../parts/flow.js";
import { jsonView } from "../parts/json.js";
import { rateWords } from "../parts/limit_form.js";
import { failed, loaded } from "../parts/states.js";
import { toast } from "../parts/toast.js";
import { to } from "../router.js";
import { STATUSES, count, duration, shortId } from "../words.js";
import { failedRatio } from "./kinds.js";

/** @typedef {import("./kinds.js").Kind} Kind */
/** @typedef {import("../types.d.ts").ErrorGroup} Group */

const EVERY_MS = 5_000;

/** What can be declared, without what is only shown. @param {Kind} one */
const declaration = (one) => Object.fromEntries(["schema", "queue", "priority", "max_attempts", "timeout_ms", "retry", "concurrency", "rate", "hidden"].map((name) => [name, /** @type {any} */ (one)[name]]).filter(([, value]) => value !== null && value !== undefined && !(Array.isArray(value) && value.length === 0)));

/** @param {NonNullable<Kind["retry"]>} retry */
const retryWords = (retry) => ("delays_ms" in retry ? `after ${retry.delays_ms.map((ms) => duration(ms)).join(", ")}` : `after ${duration(retry.base_ms)}, each time ${retry.factor} × as long, at most ${duration(retry.cap_ms)}`);

/** An empty payload that the schema's top level suggests. @param {any} schema */
function suggested(schema) {
  const samples = /** @type {Record<string, unknown>} */ ({ string: "", integer: 0, number: 0, boolean: false, array: [], object: {} });
  const wanted = /** @type {string[]} */ (schema?.required ?? Object.keys(schema?.properties ?? {}));
  return Object.fromEntries(wanted.map((name) => [name, samples[schema?.properties?.[name]?.type] ?? null]));
}

/** @type {import("../types.d.ts").ScreenMaker} */
export default function kind(screen) {
  const name = screen.params["kind"] ?? "";
  const path = `/kinds/${encodeURIComponent(name)}`;
  const live = { ending: screen.ending, everyMs: EVERY_MS };
  const list = resource((abort) => get("/kinds", { signal: abort }), live);
  const errors = resource((abort) => get("/errors", { query: { kind: name, dead: "true", limit: 5 }, signal: abort }), live);
  const charts = flowCharts(screen, { kind: name });
  const declared = () => /** @type {Kind[]} */ (list.value.data ?? []).find((each) => each.kind === name);
  const schema = jsonView("schema", () => declared()?.schema ?? null);
  screen.title(name);
  screen.curl(() => curl("GET", "/kinds"));

  /** Asks for JSON, and shows what the server says of it. @param {string} title @param {string} confirm @param {unknown} start @param {(body: string) => Promise<void>} act @param {(body: string) => string} command */
  const edit = (title, confirm, start, act, command) => {
    const text = signal(JSON.stringify(start, null, 2));
    const isJson = () => {
      try {
        JSON.parse(text.value);
        return true;
      } catch {
        return false;
      }
    };
    return openDialog({
      title,
      wide: true,
      body: () => html`<label class="field"><span>JSON</span><textarea rows="14" spellcheck="false" class="mono" .value=${text.value} @input=${(/** @type {InputEvent} */ event) => (text.value = /** @type {HTMLTextAreaElement} */ (event.target).value)}></textarea></label>${isJson() ? "" : html`<p class="meta">not JSON yet</p>`}`,
      confirm,
      ready: isJson,
      curl: () => command(text.value),
      act: () => act(text.peek()),
    });
  };
  const enqueue = (/** @type {Kind} */ one) =>
    edit(`Enqueue ${name}`, "Enqueue", suggested(one.schema), async (body) => {
      const job = await post("/jobs", `{"kind":${JSON.stringify(name)},"payload":${body}}`);
      toast({ says: `${name} ${shortId(job.id)} is queued`, href: to.job(job.id), link: "see it" });
    }, (body) => curl("POST", "/jobs", { body: `{"kind":${JSON.stringify(name)},"payload":${body}}` }));
  const declare = (/** @type {Kind} */ one) =>
    edit(`Declare ${name}`, "Declare", declaration(one), async (body) => {
      await call("PUT", path, { body });
      toast({ says: `${name} is declared`, href: to.audit({ target: `kind:${name}` }), link: "audit" });
      void list.refresh();
    }, (body) => curl("PUT", path, { body }));

  /** @param {Kind} one */
  const facts = (one) => html`<dl class="facts">
      ${one.run_p95_ms === undefined ? "" : html`<dt>run</dt><dd>p50 ${duration(one.run_p50_ms)}, p95 ${duration(one.run_p95_ms)}</dd><dt>failed</dt><dd>${failedRatio(one.failed_ratio)} of attempts</dd><dt>workers</dt><dd>${count(one.workers)} ask for it</dd>`}
      <dt>queue</dt><dd>${html`<a href=${to.queue(one.queue ?? "default")}>${one.queue ?? "default"}</a>`}</dd>
      <dt>attempts</dt><dd>${one.max_attempts === null ? "as the server's default" : count(one.max_attempts)}</dd>
      <dt>timeout</dt><dd>${one.timeout_ms === null ? "none" : duration(one.timeout_ms)}</dd>
      ${one.retry ? html`<dt>retries</dt><dd>${retryWords(one.retry)}</dd>` : ""}
      ${one.concurrency === null ? "" : html`<dt>at the same time</dt><dd>${count(one.concurrency)}</dd>`}
      ${one.rate ? html`<dt>rate</dt><dd>${rateWords(one.rate)}</dd>` : ""}
      ${one.hidden.length ? html`<dt>hidden</dt><dd class="mono">${one.hidden.join(", ")}</dd>` : ""}</dl>
    ${one.schema ? schema() : html`<p class="meta">No schema: any JSON is accepted.</p>`}`;

  const causes = () => loaded(errors, (/** @type {Group[]} */ rows) => (rows.length === 0 ? html`<p class="meta">None of its jobs is dead.</p>` : html`<ul class="plain">${rows.map((group) => html`<li class="row"><a class="error-text" href=${to.error(group.fingerprint)}>${group.title}</a><b>${count(group.dead)}</b><span class="meta">last ${ago(group.last_seen)}</span></li>`)}</ul>`), { everyMs: EVERY_MS, rows: 2 });

  return () => html`${declared() ? "" : html`<h1>${name}</h1>`}${loaded(list, (/** @type {Kind[]} */ all) => {
    const one = all.find((each) => each.kind === name);
    if (!one) return failed(new Error(`no kind ${name} is declared`));
    return html`<div class="head"><h1>${name}</h1><div class="acts">${may("enqueue") ? html`<button type="button" @click=${() => enqueue(one)}>enqueue one …</button>` : ""}${may("admin") && !one.built_in ? html`<button type="button" @click=${() => declare(one)}>change …</button>` : ""}</div></div>
      ${one.counts ? html`<nav class="tabs" aria-label="jobs by status">${STATUSES.map((each) => html`<a href=${to.jobs({ kind: name, status: each })}>${status(each)} ${count(one.counts?.[each])}</a>`)}</nav>` : html`<p><a href=${to.jobs({ kind: name })}>its jobs</a></p>`}
      ${charts()}
      <section class="part"><h2>Dies of</h2>${causes()}</section>
      <section class="part"><h2>Declaration</h2>${facts(one)}</section>`;
  }, { everyMs: EVERY_MS })}`;
}
