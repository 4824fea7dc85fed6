// Tables: real ones, with rows that the keyboard walks through (j k, arrows), opens (Enter, o) and selects (x, Shift+x, a).
//
// Rows keep their place and their nodes as long as they keep their key. On narrow screens CSS turns a row into two lines with the same
// reading order. Selection lives with the caller, as a signal of keys.

import { html, repeat } from "../core/html.js";
import { signal } from "../core/signal.js";
import { go } from "../router.js";

/**
 * @template T
 * @typedef {object} Column
 * @property {string} id
 * @property {unknown} label "": the id is said to screen readers
 * @property {(row: T) => unknown} cell
 * @property {boolean} [num] right-aligned figures
 * @property {boolean} [grow] takes what is left, and is cut
 * @property {boolean} [head] names the row
 * @property {boolean} [wide] left out on narrow screens
 */

/**
 * @template T
 * @typedef {object} TableOptions
 * @property {string} label what the table is, for screen readers
 * @property {Column<T>[]} columns
 * @property {T[]} rows
 * @property {(row: T) => string} key
 * @property {(row: T) => string | null} [href] where Enter leads
 * @property {(row: T) => string} [mark] a word for CSS: `dimmed`, `red`, `amber`
 * @property {import("../core/signal.js").Signal<Set<string>>} [selected]
 * @property {ReturnType<typeof cursor>} [cursor]
 * @property {(row: T) => string} [memo] a row is drawn again only if its object or this has changed; its cells may read nothing else
 */

/** The row that the keyboard is on, of one table. */
export const cursor = () => signal(/** @type {string | null} */ (null));

/** @template T @param {TableOptions<T>} options */
export function table({ label, columns, rows, key, href, mark, selected, cursor: at, memo }) {
  const keys = rows.map(key);
  // Not looked at: moving on draws nothing anew, see `remember`.
  const place = at?.peek();
  const current = place && keys.includes(place) ? place : keys[0];
  const chosen = selected?.value;
  const all = chosen && keys.length > 0 && keys.every((one) => chosen.has(one));
  const some = chosen && keys.some((one) => chosen.has(one));
  return html`<div class="table-wrap"><table class="data" aria-label=${label}>
    <thead><tr>
      ${selected ? html`<th scope="col" class="pick"><input type="checkbox" aria-label="select all on this page" .checked=${Boolean(all)} .indeterminate=${Boolean(some && !all)} @change=${() => selectAll(selected, keys, !all)}></th>` : ""}
      ${columns.map((column) => html`<th scope="col" class=${classOf(column)}>${column.label === "" ? html`<span class="sr-only">${column.id}</span>` : column.label}</th>`)}
    </tr></thead>
    <tbody @keydown=${(/** @type {KeyboardEvent} */ event) => onArrow(event)} @focusin=${(/** @type {FocusEvent} */ event) => at && remember(event, at)}>
      ${repeat(rows, key, (row) => kept(row, memo && `${memo(row)} ${chosen?.has(key(row))} ${mark?.(row)}`, () => {
        const id = key(row);
        const link = href?.(row);
        return html`<tr data-key=${id} data-href=${link ?? null} class=${mark?.(row) ?? ""} tabindex=${at ? (id === current ? "0" : "-1") : null} aria-selected=${chosen ? String(chosen.has(id)) : null}
          @click=${(/** @type {MouseEvent} */ event) => onRowClick(event, link)}>
          ${selected ? html`<td class="pick"><input type="checkbox" tabindex="-1" aria-label=${`select ${id}`} .checked=${chosen?.has(id) ?? false} @click=${(/** @type {MouseEvent} */ event) => pick(selected, keys, id, event.shiftKey)}></td>` : ""}
          ${columns.map((column) => (column.head ? html`<th scope="row" class=${classOf(column)}>${column.cell(row)}</th>` : html`<td class=${classOf(column)} data-label=${typeof column.label === "string" ? column.label : null}>${column.cell(row)}</td>`))}
        </tr>`;
      }))}
    </tbody>
  </table></div>`;
}

/** @type {WeakMap<object, { depends: string, view: unknown }>} */
const views = new WeakMap();

/** @param {unknown} row @param {string | undefined} depends @param {() => unknown} view */
function kept(row, depends, view) {
  if (depends === undefined || typeof row !== "object" || row === null) return view();
  const known = views.get(row);
  if (known?.depends === depends) return known.view;
  const made = { depends, view: view() };
  views.set(row, made);
  return made.view;
}

/** @param {Column<any>} column */
const classOf = ({ id, num, grow, wide }) => `c-${id}${num ? " num" : ""}${grow ? " grow" : ""}${wide ? " wide-only" : ""}`;

/** A row is a link, except where something else in it is. @param {MouseEvent} event @param {string | null | undefined} link */
function onRowClick(event, link) {
  const target = /** @type {Element} */ (event.target);
  if (!link || target.closest("a, button, input, label, summary, select, .pick") || getSelection()?.toString()) return;
  if (event.metaKey || event.ctrlKey) window.open(link, "_blank", "noopener");
  else go(link);
}

/** @param {FocusEvent} event @param {import("../core/signal.js").Signal<string | null>} at */
function remember(event, at) {
  const row = /** @type {Element} */ (event.target).closest("tr[data-key]");
  if (!(row instanceof HTMLElement)) return;
  row.parentElement?.querySelector('tr[tabindex="0"]')?.setAttribute("tabindex", "-1");
  row.tabIndex = 0;
  at.value = row.dataset.key ?? null;
}

/** @param {KeyboardEvent} event */
function onArrow(event) {
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  if (!(event.target instanceof HTMLTableRowElement)) return;
  event.preventDefault();
  step(event.key === "ArrowDown" ? 1 : -1);
}

/** The rows of the page that can be walked. @returns {HTMLTableRowElement[]} */
const rowsOnPage = () => [...document.querySelectorAll("main tr[data-key][tabindex]")].filter((row) => row instanceof HTMLTableRowElement);

const rowAtFocus = () => /** @type {HTMLTableRowElement | null} */ (document.activeElement?.closest("tr[data-key][tabindex]") ?? null);

/** @param {1 | -1} by */
function step(by) {
  const rows = rowsOnPage();
  const row = rowAtFocus();
  // From where one looks, not from the top.
  const inView = () => rows.find((one) => one.getBoundingClientRect().top >= 44);
  const next = row ? rows[rows.indexOf(row) + by] : (inView() ?? rows[0]);
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

/** The key of the row at the keyboard's cursor. */
export const currentKey = () => rowAtFocus()?.dataset.key ?? null;

/** @type {WeakMap<object, string>} the row that a range begins at */
const anchors = new WeakMap();

/** @param {import("../core/signal.js").Signal<Set<string>>} selected @param {string[]} keys @param {string} id @param {boolean} range */
export function pick(selected, keys, id, range) {
  const next = new Set(selected.peek());
  const from = range ? keys.indexOf(anchors.get(selected) ?? id) : -1;
  const to = keys.indexOf(id);
  if (from >= 0 && to >= 0) for (const one of keys.slice(Math.min(from, to), Math.max(from, to) + 1)) next.add(one);
  else if (!next.delete(id)) next.add(id);
  if (!range) anchors.set(selected, id);
  selected.value = next;
}

/** @param {import("../core/signal.js").Signal<Set<string>>} selected @param {string[]} keys @param {boolean} on */
export function selectAll(selected, keys, on) {
  const next = new Set(selected.peek());
  for (const key of keys) on ? next.add(key) : next.delete(key);
  selected.value = next;
}

/**
 * The keys of a table, for `screen.keys`.
 * @param {{ selected?: import("../core/signal.js").Signal<Set<string>>, keys: () => string[] }} options keys: of the rows shown
 * @returns {Record<string, [string, (event: KeyboardEvent) => void]>}
 */
export function tableKeys({ selected, keys }) {
  const link = () => rowAtFocus()?.dataset.href;
  /** @type {Record<string, [string, (event: KeyboardEvent) => void]>} */
  const bindings = {
    j: ["next row", () => step(1)],
    k: ["row before", () => step(-1)],
    Enter: ["open", () => void (link() && go(/** @type {string} */ (link())))],
    o: ["open in a new tab", () => void (link() && window.open(link(), "_blank", "noopener"))],
  };
  if (!selected) return bindings;
  const toggle = (/** @type {boolean} */ range) => () => {
    const id = currentKey();
    if (id) pick(selected, keys(), id, range);
  };
  return {
    ...bindings,
    x: ["select", toggle(false)],
    "Shift+x": ["select up to here", toggle(true)],
    a: ["select the page", () => selectAll(selected, keys(), true)],
    Escape: ["select nothing", () => void (selected.value = new Set())],
  };
}
