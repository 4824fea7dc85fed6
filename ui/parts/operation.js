// An operation in words and as a bar, for its own screen and the list of them.

import { html } from "../core/html.js";
import { formatFilter } from "../core/query.js";
import { to } from "../router.js";
import { count, plural } from "../words.js";

/** @typedef {import("../types.d.ts").Operation} Operation */

/** What of its jobs has been looked after. @param {Operation} one */
export const done = ({ counts }) => counts.changed + counts.unchanged + counts.failed;

/** @param {Operation} one */
export const progress = (one) => html`<span class="row">${one.of === null ? "" : html`<progress class="progress" max=${Math.max(1, one.of)} value=${Math.min(one.of, done(one))} aria-label="progress"></progress>`}<span>${count(one.counts.changed)}${one.of === null ? "" : ` of ${count(one.of)}`}</span></span>`;

/** The filter as the API names it, without what says nothing. @param {Operation} one @returns {Record<string, string>} */
export function filterOf(one) {
  const entries = Object.entries(one.filter ?? {}).filter(([, value]) => value !== null && value !== undefined && !(Array.isArray(value) && value.length === 0));
  return Object.fromEntries(entries.map(([name, value]) => [name, Array.isArray(value) ? value.join(",") : String(value)]));
}

/** @param {Operation} one */
export const operationFilter = (one) => (one.ids ? plural(one.ids.length, "chosen job") : html`<a class="mono" href=${to.jobs(filterOf(one))}>${formatFilter(filterOf(one))}</a>`);
