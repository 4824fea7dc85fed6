// Problems, red first: what is wrong in one sentence, since when, and the usual remedy as a button that says what it will do.

import { call, curl, may } from "../api.js";
import { html, repeat } from "../core/html.js";
import { signal } from "../core/signal.js";
import { refreshSoon, storeNow } from "../live.js";
import { to } from "../router.js";
import { GLYPHS, age } from "../words.js";
import { openBulk } from "./bulk.js";
import { openDialog } from "./dialog.js";
import { toast } from "./toast.js";

/** @typedef {import("../types.d.ts").ShownProblem} Shown */
/** @typedef {import("../types.d.ts").Remedy} Remedy */

const SNOOZES = /** @type {[string, number][]} */ ([["1 h", 3_600_000], ["4 h", 4 * 3_600_000], ["1 day", 86_400_000]]);
/** Who snoozes for longer says why. */
const NOTE_OVER_MS = 4 * 3_600_000;

/** @param {Remedy} remedy */
function perform(remedy) {
  // Many jobs are looked at first.
  if (remedy.path === "/operations" && remedy.body) {
    const { action, filter, ids } = /** @type {any} */ (remedy.body);
    return openBulk({ action, ...(ids ? { ids } : { filter }) });
  }
  const fingerprint = /^\/errors\/([0-9a-f]{16})\/snooze$/.exec(remedy.path)?.[1];
  if (fingerprint && remedy.method === "PUT") return snooze(fingerprint);
  return openDialog({
    title: remedy.says,
    body: () => html`<p>This is <code>${remedy.method} ${remedy.path}</code>.</p>`,
    confirm: remedy.says,
    curl: () => curl(remedy.method, remedy.path, remedy.body ? { body: remedy.body } : {}),
    act: async () => {
      await call(remedy.method, remedy.path, remedy.body ? { body: remedy.body } : {});
      toast({ says: `done: ${remedy.says}`, href: to.audit(), link: "audit" });
      refreshSoon();
    },
  });
}

/** Says that a cause is known. @param {string} fingerprint @param {() => void} [done] */
export function snooze(fingerprint, done) {
  const ms = signal(/** @type {number} */ (SNOOZES[1]?.[1]));
  const note = signal("");
  const body = () => ({ for_ms: ms.value, ...(note.value.trim() ? { note: note.value.trim() } : {}) });
  const path = `/errors/${fingerprint}/snooze`;
  return openDialog({
    title: "Snooze this cause",
    body: () => html`<div class="form"><p>It is known: no problem is shown for it until then. Jobs and counts stay as they are.</p>
      <fieldset class="rates"><legend class="meta">for</legend>${SNOOZES.map(([says, one]) => html`<label class="check"><input type="radio" name="for" .checked=${ms.value === one} @change=${() => (ms.value = one)}> ${says}</label>`)}</fieldset>
      <label class="field"><span>note${ms.value > NOTE_OVER_MS ? ", required" : ""}</span><input type="text" maxlength="500" .value=${note.value} @input=${(/** @type {InputEvent} */ event) => (note.value = /** @type {HTMLInputElement} */ (event.target).value)}></label></div>`,
    confirm: "Snooze it",
    ready: () => ms.value <= NOTE_OVER_MS || note.value.trim() !== "",
    curl: () => curl("PUT", path, { body: body() }),
    act: async () => {
      await call("PUT", path, { body: body() });
      toast({ says: "snoozed", undo: () => void call("DELETE", path).then(refreshSoon) });
      refreshSoon();
      done?.();
    },
  });
}

/** @param {Shown} one @param {number} index */
const row = (one, index) => html`<li data-severity=${one.severity}>
  <span class="status" data-status=${one.severity}><span class="glyph" role="img" aria-label=${one.severity === "note" ? "note" : `${one.severity} problem`}>${GLYPHS[one.severity]}</span></span>
  <span class="says">${one.says}</span>
  <span class="since meta">${one.since ? `since ${age(one.since, storeNow())}` : ""}${index < KEYS && may("operate") && one.do.length > 0 ? html` <kbd class="wide-only" title="key for the first remedy">${index + 1}</kbd>` : ""}</span>
  <span class="acts"><a class="button" href=${to.see(one.see)}>look</a>${may("operate") ? one.do.map((remedy) => html`<button type="button" @click=${() => perform(remedy)}>${remedy.says} …</button>`) : ""}</span>
</li>`;

/** So many problems have a digit as their key. */
const KEYS = 9;

/** Digits open the first remedy of the problem at that place. @param {() => Shown[]} problems @returns {Record<string, [string, () => void]>} */
export const problemKeys = (problems) =>
  Object.fromEntries(
    Array.from({ length: KEYS }, (_, index) => {
      const act = () => {
        const remedy = problems().filter((one) => !one.snoozed_until)[index]?.do[0];
        if (remedy && may("operate")) perform(remedy);
      };
      return [String(index + 1), [`mend problem ${index + 1}`, act]];
    }),
  );

/** @param {Shown[]} problems @param {number} more */
export function problemList(problems, more) {
  const shown = problems.filter((one) => !one.snoozed_until);
  const snoozed = problems.length - shown.length;
  if (problems.length === 0) return "";
  return html`<ul class="problems" aria-label="problems">${repeat(shown, (one) => one.key, row)}</ul>
    ${more > 0 || snoozed > 0 ? html`<p class="meta">${more > 0 ? `${more} more; ` : ""}${snoozed > 0 ? `${snoozed} snoozed` : ""}</p>` : ""}`;
}
