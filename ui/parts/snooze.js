// Snoozing a cause of death: problems do not speak of it until then. Longer than four hours needs a note.

import { call, curl } from "../api.js";
import { html } from "../core/html.js";
import { signal } from "../core/signal.js";
import { refreshSoon } from "../live.js";
import { to } from "../router.js";
import { duration } from "../words.js";
import { openDialog } from "./dialog.js";
import { toast } from "./toast.js";

const HOUR_MS = 3_600_000;
const LENGTHS = [HOUR_MS, 4 * HOUR_MS, 24 * HOUR_MS];

/** @param {string} fingerprint @param {string} title @param {() => void} done */
export function openSnooze(fingerprint, title, done) {
  const length = signal(HOUR_MS);
  const note = signal("");
  const path = `/errors/${fingerprint}/snooze`;
  const body = () => ({ for_ms: length.value, ...(note.value.trim() ? { note: note.value.trim() } : {}) });
  const needsNote = () => length.value > 4 * HOUR_MS;
  return openDialog({
    title: "Snooze this cause",
    body: () => html`<div class="form"><p class="error-text">${title}</p>
      <fieldset class="rates"><legend class="meta">for</legend>${LENGTHS.map((one) => html`<label class="check"><input type="radio" name="length" .checked=${length.value === one} @change=${() => (length.value = one)}> ${duration(one)}</label>`)}</fieldset>
      <label class="field"><span>note${needsNote() ? " (needed for more than 4 h)" : ""}</span><input type="text" maxlength="500" .value=${note.value} @input=${(/** @type {InputEvent} */ event) => (note.value = /** @type {HTMLInputElement} */ (event.target).value)}></label></div>`,
    confirm: () => `Snooze for ${duration(length.value)}`,
    ready: () => !needsNote() || note.value.trim() !== "",
    curl: () => curl("PUT", path, { body: body() }),
    act: async () => {
      await call("PUT", path, { body: body() });
      toast({ says: `snoozed for ${duration(length.peek())}`, href: to.audit({ target: `error:${fingerprint}` }), link: "audit" });
      refreshSoon();
      done();
    },
  });
}
