// Dialogs: a real <dialog>, focus goes in and comes back, and what is asked for is done once.
//
// Confirm buttons cannot be reached within 300 ms of appearing: a click that was meant for something else does nothing.

import { html, render } from "../core/html.js";
import { effect, signal } from "../core/signal.js";
import { Problem } from "../api.js";
import { commandLine } from "./states.js";

const GUARD_MS = 300;

/**
 * @typedef {object} Dialog
 * @property {string} title
 * @property {() => unknown} body rendered again when a signal it reads changes
 * @property {string | (() => string)} [confirm] what the button says, with its number; none: only close
 * @property {() => boolean} [ready] whether it may be pressed
 * @property {boolean} [danger]
 * @property {() => Promise<unknown> | unknown} [act] done once; a failure is shown and the dialog stays
 * @property {() => string} [curl] the same call for a terminal
 * @property {boolean} [wide]
 */

/** @param {Dialog} dialog @returns {Promise<boolean>} whether it was done */
export function openDialog({ title, body, confirm, ready = () => true, danger = false, act, curl, wide = false }) {
  const element = document.createElement("dialog");
  element.className = wide ? "wide" : "";
  element.setAttribute("aria-label", title);
  const before = document.activeElement;
  const ending = new AbortController();
  const armed = signal(false);
  const busy = signal(false);
  const failure = signal(/** @type {Error | null} */ (null));
  const showCurl = signal(false);
  let done = false;
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!armed.peek() || busy.peek() || !ready() || !act) return;
    busy.value = true;
    failure.value = null;
    try {
      await act();
      done = true;
      element.close();
    } catch (error) {
      failure.value = /** @type {Error} */ (error);
    } finally {
      busy.value = false;
    }
  };
  const view = () => html`<form @submit=${submit}>
    <h2>${title}</h2>
    <div class="body">${body()}</div>
    ${failure.value ? html`<p class="notice" data-severity="red" role="alert">${failure.value.message}${failure.value instanceof Problem && failure.value.requestId ? html` <code class="meta">request ${failure.value.requestId}</code>` : ""}</p>` : ""}
    ${showCurl.value && curl ? commandLine(curl()) : ""}
    <footer>
      ${curl ? html`<button type="button" class="quiet" aria-expanded=${String(showCurl.value)} @click=${() => (showCurl.value = !showCurl.value)}>curl</button>` : ""}
      <span class="space"></span>
      <button type="button" @click=${() => element.close()}>${confirm ? "cancel" : "close"}</button>
      ${confirm ? html`<button type="submit" class=${danger ? "danger" : "primary"} ?disabled=${!armed.value || busy.value || !ready()}>${busy.value ? "working …" : typeof confirm === "function" ? confirm() : confirm}</button>` : ""}
    </footer>
  </form>`;
  return new Promise((resolve) => {
    document.body.append(element);
    effect(() => render(view(), element), ending.signal);
    element.addEventListener("close", () => {
      ending.abort();
      element.remove();
      if (before instanceof HTMLElement && before.isConnected) before.focus({ preventScroll: true });
      resolve(done);
    });
    // A click on what is behind it leaves it.
    element.addEventListener("mousedown", (event) => {
      if (event.target === element && !busy.peek()) element.close();
    });
    element.showModal();
    /** @type {HTMLElement | null} */ (element.querySelector("[autofocus], .body input, .body textarea, .body select"))?.focus();
    setTimeout(() => (armed.value = true), GUARD_MS);
  });
}

/** The call of a view, to be copied. @param {string} command */
export const showCommand = (command) => openDialog({ title: "The same with curl", body: () => commandLine(command), wide: true });
