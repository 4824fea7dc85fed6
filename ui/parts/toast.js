// What one's own acts did, in words, and the one live region of the page.
//
// A toast names what happened, how many, and leads on. It goes by itself after 8 s unless it is pointed at, and the last ones stay
// readable in the region.

import { html, render, repeat } from "../core/html.js";
import { effect, signal } from "../core/signal.js";

/** @typedef {{ says: string, href?: string | undefined, link?: string, undo?: (() => void) | undefined, severity?: "note" | "amber" | "red" }} Toast */

const SHOWN_MS = 8000;
let last = 0;
const shown = signal(/** @type {(Toast & { id: number })[]} */ ([]));
const spoken = signal("");

/** Speaks to screen readers; for problems that appear or end, and for results. @param {string} text */
export function announce(text) {
  spoken.value = text === spoken.peek() ? `${text}\u00a0` : text;
}

/** @param {Toast} toast */
export function toast(toast) {
  const id = ++last;
  shown.value = [...shown.peek().slice(-3), { ...toast, id }];
  announce(toast.says);
  const end = () => {
    // Somebody is about to click it.
    if (document.querySelector(`.toast[data-id="${id}"]:is(:hover, :focus-within)`)) return void setTimeout(end, 2000);
    dismiss(id);
  };
  setTimeout(end, toast.severity === "red" ? SHOWN_MS * 3 : SHOWN_MS);
}

/** @param {number} id */
const dismiss = (id) => void (shown.value = shown.peek().filter((one) => one.id !== id));

/** What went wrong with an act. @param {unknown} error @param {string} what */
export function toastError(error, what) {
  const { message, requestId } = /** @type {{ message: string, requestId?: string }} */ (error);
  toast({ says: `${what}: ${message}${requestId ? ` (request ${requestId})` : ""}`, severity: "red" });
}

/** @param {Toast & { id: number }} one */
const view = (one) => html`<div class="toast" data-id=${one.id} data-severity=${one.severity ?? "note"}>
  <span>${one.says}</span>
  ${one.href ? html`<a href=${one.href}>${one.link ?? "see"}</a>` : ""}
  ${one.undo ? html`<button type="button" class="quiet" @click=${() => (dismiss(one.id), one.undo?.())}>undo</button>` : ""}
  <button type="button" class="quiet" aria-label="dismiss" @click=${() => dismiss(one.id)}>✕</button>
</div>`;

/** @param {Element} container @param {Element} region */
export function startToasts(container, region) {
  effect(() => render(repeat(shown.value, (one) => one.id, view), container));
  effect(() => {
    region.textContent = spoken.value;
  });
}
