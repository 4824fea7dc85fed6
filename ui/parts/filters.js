// The filter field: typed tokens with completion from what the page knows already, and chips that can be taken away.
//
// The grammar is core/query.js. It never asks the server by itself: the caller's `apply` does.

import { html, repeat } from "../core/html.js";
import { NAMES, formatFilter, parseFilter } from "../core/query.js";
import { signal } from "../core/signal.js";
import { pulse, storeNow } from "../live.js";
import { go, to } from "../router.js";
import { STATUSES, clock } from "../words.js";
import { utc } from "../prefs.js";

const SHORT = Object.fromEntries(Object.entries(NAMES).map(([short, name]) => [name, short]));

/** @param {string} word the token at the caret @returns {string[]} */
function complete(word) {
  const colon = word.indexOf(":");
  if (colon < 0) return Object.keys(NAMES).filter((name) => name.startsWith(word.toLowerCase())).map((name) => `${name}:`);
  const [name, typed] = [word.slice(0, colon), word.slice(colon + 1).toLowerCase()];
  const values = { status: [...STATUSES, "dead", "waiting"], queue: pulse.peek()?.queues.map(({ queue }) => queue) ?? [], order: ["newest", "oldest", "next"], after: ["5m", "1h", "24h", "7d"], before: ["1h", "24h"] }[name] ?? [];
  return values.filter((value) => value.toLowerCase().includes(typed) && value !== typed).slice(0, 8).map((value) => `${name}:${value} `);
}

/**
 * @param {{ filter: () => Record<string, string>, apply: (filter: Record<string, string>) => void, count?: () => unknown }} options
 * @returns {() => unknown}
 */
export function filterField({ filter, apply }) {
  const typed = signal("");
  const offers = signal(/** @type {string[]} */ ([]));
  const chosen = signal(-1);
  const wrong = signal(/** @type {string[]} */ ([]));
  const lastWord = () => typed.peek().split(/\s+/).at(-1) ?? "";
  const take = (/** @type {string} */ offer) => {
    typed.value = typed.peek().slice(0, typed.peek().length - lastWord().length) + offer;
    offers.value = offer.endsWith(":") ? complete(offer) : [];
    chosen.value = -1;
  };
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    const pointed = offers.peek()[chosen.peek()];
    if (pointed) return take(pointed);
    const parsed = parseFilter(typed.peek(), storeNow());
    if (parsed.job) return go(to.job(parsed.job));
    wrong.value = parsed.wrong;
    if (parsed.wrong.length > 0) return;
    typed.value = "";
    offers.value = [];
    apply({ ...filter(), ...parsed.filter });
  };
  const onKey = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape") return void (offers.value = []);
    if (event.key === "Backspace" && typed.peek() === "") {
      const names = Object.keys(filter());
      const last = names.at(-1);
      if (!last) return;
      event.preventDefault();
      typed.value = formatFilter({ [last]: /** @type {string} */ (filter()[last]) });
      return apply(without(last));
    }
    if (event.key === "Tab" && offers.peek().length > 0 && lastWord() !== "" && !event.shiftKey) {
      event.preventDefault();
      return take(/** @type {string} */ (offers.peek()[Math.max(0, chosen.peek())]));
    }
    const by = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (!by || offers.peek().length === 0) return;
    event.preventDefault();
    chosen.value = (chosen.peek() + by + offers.peek().length) % offers.peek().length;
  };
  const onInput = (/** @type {Event} */ event) => {
    typed.value = /** @type {HTMLInputElement} */ (event.target).value;
    wrong.value = [];
    chosen.value = -1;
    offers.value = complete(lastWord());
  };
  const without = (/** @type {string} */ name) => Object.fromEntries(Object.entries(filter()).filter(([one]) => one !== name));
  return () => html`<form class="filter" role="search" @submit=${submit}>
    <div class="field">
      ${repeat(Object.entries(filter()), ([name]) => name, ([name, value]) => html`<span class="chip">${SHORT[name]}:${/_after|_before/.test(name) ? clock(value, storeNow(), utc.value) : value}<button type="button" class="quiet" aria-label=${`remove ${SHORT[name]}:${value}`} @click=${() => apply(without(name))}>✕</button></span>`)}
      <input id="filter" type="text" role="combobox" aria-label="filter jobs, or go to a job by its id" aria-expanded=${String(offers.value.length > 0)} aria-controls="filter-offers" aria-autocomplete="list" aria-activedescendant=${chosen.value >= 0 ? `offer-${chosen.value}` : null} autocomplete="off" autocapitalize="none" spellcheck="false" placeholder=${Object.keys(filter()).length ? "and …" : "filter: queue:mail status:dead after:2h, or a job's id"} .value=${typed.value} @input=${onInput} @keydown=${onKey} @focus=${onInput} @blur=${() => setTimeout(() => (offers.value = []), 150)}>
    </div>
    <ul id="filter-offers" role="listbox" aria-label="completions" ?hidden=${offers.value.length === 0}>${offers.value.map((offer, index) => html`<li id=${`offer-${index}`} role="option" aria-selected=${String(index === chosen.value)} @mousedown=${(/** @type {Event} */ event) => (event.preventDefault(), take(offer))}>${offer}</li>`)}</ul>
    ${wrong.value.map((text) => html`<p class="notice" data-severity="amber" role="alert">${text}</p>`)}
  </form>`;
}
