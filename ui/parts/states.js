// The states of data that is fetched: loading, old, failed, forbidden, nothing there. Each says which it is and what to do next.

import { Problem, session } from "../api.js";
import { html } from "../core/html.js";
import { clockTick } from "../live.js";
import { duration } from "../words.js";
import { copyButton } from "./bits.js";

/** Data older than this is said to be so. */
const STALE_MS = 10_000;
/** Nobody wants to see a spinner for less. */
const PATIENCE_MS = 300;

/**
 * @template T
 * @param {import("../core/resource.js").Resource<T>} resource
 * @param {(data: T) => unknown} view
 * @param {{ everyMs?: number, rows?: number }} [options] everyMs: how often it is fetched, if it is
 */
export function loaded(resource, view, { everyMs = 0, rows = 6 } = {}) {
  const { data, error, at, loading, since } = resource.value;
  void clockTick.value;
  if (data === null && error) return failed(error, resource.refresh);
  if (data === null) return skeleton(rows, loading && Date.now() - since > PATIENCE_MS);
  const old = Date.now() - at;
  const stale = error || (everyMs && old > Math.max(STALE_MS, 3 * everyMs));
  return html`${stale ? html`<p class="notice" data-severity="amber" role="status">Data of ${duration(old)} ago${error ? html`: ${error.message}${requestOf(error)}` : ""} <button type="button" class="quiet" @click=${() => resource.refresh()}>try again</button></p>` : ""}${view(data)}`;
}

/** @param {Error} error */
const requestOf = (error) => (error instanceof Problem && error.requestId ? html` <code class="meta">request ${error.requestId}</code>` : "");

/** Lines where rows will be. @param {number} rows @param {boolean} slow */
export const skeleton = (rows, slow = false) => html`<div class="skeleton" aria-busy="true">${Array.from({ length: rows }, () => html`<div></div>`)}${slow ? html`<p class="meta">loading …</p>` : ""}</div>`;

/** @param {Error} error @param {() => void} [retry] */
export function failed(error, retry) {
  const status = error instanceof Problem ? error.status : 0;
  if (status === 403) return forbidden(error.message);
  if (status === 404) return html`<div class="empty"><p>${sentence(error.message)}</p><p class="meta">It may have been deleted, or pruned after its retention.</p></div>`;
  return html`<div class="empty" role="alert"><p><span class="status" data-status="red"><span class="glyph" aria-hidden="true">✕</span></span> ${sentence(error.message)}${requestOf(error)}</p>
    ${retry ? html`<p><button type="button" @click=${() => retry()}>try again</button></p>` : ""}</div>`;
}

/** @param {string} text */
const sentence = (text) => (text ? `${text[0]?.toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}` : "");

/** @param {string} [why] */
export const forbidden = (why = "") => html`<div class="empty"><p>Not allowed for ${session.value?.name ?? "this token"}${session.value ? html` (${session.value.scopes.join(", ")})` : ""}.</p>${why ? html`<p class="meta">${sentence(why)}</p>` : ""}</div>`;

/** Nothing there: which emptiness it is, and the next step as a command that works. @param {unknown} says @param {{ command?: string, next?: unknown }} [more] */
export const empty = (says, { command, next } = {}) => html`<div class="empty"><p>${says}</p>${next ? html`<p>${next}</p>` : ""}${command ? commandLine(command) : ""}</div>`;

/** @param {string} command */
export const commandLine = (command) => html`<div class="command"><pre tabindex="0">${command}</pre>${copyButton(() => command, "command")}</div>`;
