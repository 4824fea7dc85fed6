// JSON as a tree that folds, or raw: payloads, results, schemas. Numbers are shown as they were written (core/json.js).
//
// Text in it is text: nothing becomes a link, nothing is run.

import { html } from "../core/html.js";
import { Exact, writeJson } from "../core/json.js";
import { signal } from "../core/signal.js";
import { bytes } from "../words.js";
import { copyButton } from "./bits.js";

/** Larger than this starts folded. */
const FOLD_BYTES = 64 * 1024;
/** Of one list or object, before "more". */
const ITEMS = 100;

/**
 * @param {string} label
 * @param {() => unknown} read
 * @returns {() => unknown} a view that keeps whether it is raw or a tree, and how much is shown
 */
export function jsonView(label, read) {
  const raw = signal(false);
  const find = signal("");
  return () => {
    const value = read();
    const text = writeJson(value, 2);
    const folded = text.length > FOLD_BYTES;
    return html`<section class="json" aria-label=${label}>
      <h2>${label} <span class="meta">${bytes(new TextEncoder().encode(writeJson(value)).length)}</span>
        <button type="button" class="quiet" aria-pressed=${String(raw.value)} @click=${() => (raw.value = !raw.value)}>raw</button>${copyButton(() => text, label)}
        ${text.length > 2000 ? html`<input class="find" type="search" placeholder="find in it" aria-label=${`find in ${label}`} .value=${find.value} @input=${(/** @type {InputEvent} */ event) => (find.value = /** @type {HTMLInputElement} */ (event.target).value)}>` : ""}</h2>
      ${find.value ? matches(text, find.value) : raw.value ? html`<pre tabindex="0">${text}</pre>` : html`<div class="tree" role="group">${tree(value, !folded, 0)}</div>`}
    </section>`;
  };
}

/** @param {string} text @param {string} wanted */
function matches(text, wanted) {
  const lines = text.split("\n");
  const found = lines.flatMap((line, index) => (line.toLowerCase().includes(wanted.toLowerCase()) ? [`${index + 1}: ${line.trim()}`] : []));
  return html`<p class="meta">${found.length} of ${lines.length} lines</p><pre tabindex="0">${found.slice(0, 200).join("\n")}</pre>`;
}

/** @param {unknown} value @param {boolean} open @param {number} depth @returns {unknown} */
function tree(value, open, depth) {
  if (value === null || typeof value !== "object" || value instanceof Exact) return leaf(value);
  const entries = Array.isArray(value) ? value.map((item, index) => /** @type {[string, unknown]} */ ([String(index), item])) : Object.entries(value);
  const [left, right] = Array.isArray(value) ? "[]" : "{}";
  if (entries.length === 0) return html`<span class="punct">${left}${right}</span>`;
  return html`<details ?open=${open && depth < 4}><summary><span class="punct">${left}</span> <span class="meta">${entries.length} ${Array.isArray(value) ? (entries.length === 1 ? "item" : "items") : entries.length === 1 ? "field" : "fields"}</span></summary>
    <ul>${entries.slice(0, ITEMS).map(([key, item]) => html`<li><span class="key">${key}</span><span class="punct">: </span>${tree(item, open, depth + 1)}</li>`)}</ul>
    ${entries.length > ITEMS ? html`<p class="meta">${entries.length - ITEMS} more; see raw</p>` : ""}</details>`;
}

/** @param {unknown} value */
function leaf(value) {
  if (value === "(secret)") return html`<span class="hidden-value" title="hidden by the server">hidden</span>`;
  const kind = value === null ? "null" : value instanceof Exact ? "number" : typeof value;
  return html`<span class="leaf" data-type=${kind}>${writeJson(value)}</span>`;
}
