// The keyboard: one listener, a list of what is bound now, and the help that is made of that list.
//
// Letters act only outside of fields and dialogs, and can be switched off. Screens bind theirs through `screen.keys`.

import { letterKeys } from "./prefs.js";
import { go, to } from "./router.js";
import { signal } from "./core/signal.js";

/** @typedef {[says: string, act: (event: KeyboardEvent) => void]} Binding */

/** For the help. */
export const bound = signal(/** @type {Record<string, Binding>[]} */ ([]));

/** Screens by their letter, after g. */
export const GOTO = /** @type {Record<string, [string, () => string]>} */ ({
  o: ["Overview", to.overview],
  j: ["Jobs", to.jobs],
  d: ["Dead letters", to.errors],
  q: ["Queues", to.queues],
  k: ["Kinds", to.kinds],
  w: ["Workers", to.workers],
  p: ["Operations", to.operations],
  s: ["Schedules", to.schedules],
  l: ["Limits", to.limits],
  a: ["Audit", to.audit],
  t: ["Tokens", to.tokens],
});

/** @param {Record<string, Binding>} bindings @param {AbortSignal} [ending] */
export function bind(bindings, ending) {
  bound.value = [...bound.peek(), bindings];
  ending?.addEventListener("abort", () => {
    bound.value = bound.peek().filter((one) => one !== bindings);
  });
}

const isField = (/** @type {EventTarget | null} */ target) =>
  target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) && !(target instanceof HTMLInputElement && /^(checkbox|radio|button)$/.test(target.type));

let afterG = 0;

/** @param {KeyboardEvent} event */
function onKey(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "Escape" && isField(event.target)) return void (/** @type {HTMLElement} */ (event.target).blur());
  if (isField(event.target)) return;
  if (event.key.length === 1 && !letterKeys.peek()) return;
  if (Date.now() - afterG < 1500 && GOTO[event.key]) {
    afterG = 0;
    event.preventDefault();
    return go(/** @type {[string, () => string]} */ (GOTO[event.key])[1]());
  }
  if (event.key === "g") return void (afterG = Date.now());
  const name = event.shiftKey && event.key.length === 1 && /[A-Z]/.test(event.key) ? `Shift+${event.key.toLowerCase()}` : event.key;
  // Enter on a link or a button is the browser's.
  if (name === "Enter" && event.target instanceof Element && event.target.closest("a, button, summary, label")) return;
  for (const bindings of [...bound.peek()].reverse()) {
    const binding = bindings[name];
    if (!binding) continue;
    event.preventDefault();
    return binding[1](event);
  }
}

export const startKeys = () => document.addEventListener("keydown", onKey);
