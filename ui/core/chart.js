// Charts over time: lines or bars in SVG, one cursor for all charts of a page, and a table with the same numbers.
//
// It draws what it is given: no smoothing, gaps where a value is null, the axis from 0. Colours are classes, never attributes of values.

import { html, svg } from "./html.js";
import { signal } from "./signal.js";

const WIDTH = 600;
const HEIGHT = 100;

/** @typedef {{ name: string, values: (number | null)[], kind?: "line" | "bar" | "dashed", tone?: "ink" | "soft" | "dead" | "blue" | "ochre" }} Line */

/**
 * @typedef {object} Chart
 * @property {string} label
 * @property {string[]} t RFC 3339, one per value
 * @property {Line[]} lines
 * @property {(value: number) => string} [unit] how a value is written
 * @property {(at: string) => string} clock how a time is written
 * @property {(index: number) => void} [pick] a click on a moment
 * @property {import("./signal.js").Signal<number | null>} [cursor] shared by charts with the same moments
 */

/** The moment under the pointer. */
export const chartCursor = () => signal(/** @type {number | null} */ (null));

/** @param {Chart} chart */
export function chart({ label, t, lines, unit = String, clock, pick, cursor }) {
  const top = roundUp(Math.max(0, ...lines.flatMap((line) => line.values.map((value) => value ?? 0))));
  const at = cursor?.value ?? null;
  const index = at !== null && at < t.length ? at : null;
  const x = (/** @type {number} */ i) => (t.length > 1 ? (i / (t.length - 1)) * WIDTH : WIDTH / 2);
  const y = (/** @type {number} */ value) => HEIGHT - (value / top) * HEIGHT;
  const indexOf = (/** @type {MouseEvent} */ event) => {
    const box = /** @type {Element} */ (event.currentTarget).getBoundingClientRect();
    return Math.max(0, Math.min(t.length - 1, Math.round(((event.clientX - box.left) / box.width) * (t.length - 1))));
  };
  return html`<figure class="chart">
    <figcaption><span>${label}</span>${lines.map((line) => html`<span class="legend" data-tone=${line.tone ?? "ink"} data-kind=${line.kind ?? "line"}>${line.name}${index === null ? "" : html` <b>${text(line.values[index], unit)}</b>`}</span>`)}<span class="meta">${index === null ? "" : clock(/** @type {string} */ (t[index]))}</span></figcaption>
    <div class="plot">
      <span class="axis meta" aria-hidden="true"><span>${unit(top)}</span><span>0</span></span>
      <svg role="img" aria-label=${`${label}: ${lines.map((line) => `${line.name} last ${text(line.values.at(-1), unit)}`).join(", ")}`} viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" class=${pick ? "picks" : ""}
        @pointermove=${(/** @type {PointerEvent} */ event) => cursor && (cursor.value = indexOf(event))} @pointerleave=${() => cursor && (cursor.value = null)} @click=${(/** @type {MouseEvent} */ event) => pick?.(indexOf(event))}>
        ${svg`<path class="base" d=${`M0 ${HEIGHT}H${WIDTH}`}></path>`}
        ${lines.map((line) => svg`<path data-tone=${line.tone ?? "ink"} data-kind=${line.kind ?? "line"} d=${line.kind === "bar" ? bars(line.values, x, y) : path(line.values, x, y)}></path>`)}
        ${index === null ? "" : svg`<path class="cursor" d=${`M${x(index)} 0V${HEIGHT}`}></path>`}
      </svg>
      <span class="times meta" aria-hidden="true"><span>${t[0] ? clock(t[0]) : ""}</span><span>${t.length > 2 ? clock(/** @type {string} */ (t[Math.floor(t.length / 2)])) : ""}</span><span>${t.length > 1 ? clock(/** @type {string} */ (t.at(-1))) : ""}</span></span>
    </div>
    <details class="twin"><summary class="meta">as a table</summary><div class="table-wrap" tabindex="0"><table class="data"><thead><tr><th scope="col">time</th>${lines.map((line) => html`<th scope="col" class="num">${line.name}</th>`)}</tr></thead>
      <tbody>${t.map((moment, i) => html`<tr><th scope="row">${clock(moment)}</th>${lines.map((line) => html`<td class="num">${text(line.values[i], unit)}</td>`)}</tr>`)}</tbody></table></div></details>
  </figure>`;
}

/** @param {number | null | undefined} value @param {(value: number) => string} unit */
const text = (value, unit) => (value === null || value === undefined ? "–" : unit(value));

/** The next 1, 2 or 5 with zeros. @param {number} value */
export function roundUp(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value) ?? value;
}

/** @param {(number | null)[]} values @param {(i: number) => number} x @param {(value: number) => number} y */
function path(values, x, y) {
  const isGap = (/** @type {number} */ index) => (values[index] ?? null) === null;
  return values.map((value, index) => {
    if (value === null) return "";
    // A value between two gaps would be a line without a length.
    const alone = isGap(index - 1) && isGap(index + 1);
    return `${isGap(index - 1) ? "M" : "L"}${x(index).toFixed(1)} ${y(value).toFixed(1)}${alone ? "h2" : ""}`;
  }).join("");
}

/**
 * Without the step that is still going on: it would look like a fall.
 * @template {{ t: string[], step_ms: number, as_of: string }} S
 * @param {S | null} series @returns {S | null}
 */
export function wholeSteps(series) {
  const last = series?.t.at(-1);
  if (!series || !last || Date.parse(last) + series.step_ms <= Date.parse(series.as_of)) return series;
  const cut = Object.entries(series).map(([name, value]) => [name, Array.isArray(value) ? value.slice(0, -1) : value]);
  return /** @type {S} */ (Object.fromEntries(cut));
}

/** @param {(number | null)[]} values @param {(i: number) => number} x @param {(value: number) => number} y */
const bars = (values, x, y) => values.map((value, index) => (value ? `M${x(index).toFixed(1)} ${HEIGHT}V${Math.min(HEIGHT - 1, y(value)).toFixed(1)}` : "")).join("");
