// Time, status and copy: the smallest parts that every screen uses.

import { html } from "../core/html.js";
import { clockTick, storeNow } from "../live.js";
import { utc } from "../prefs.js";
import { GLYPHS, clock, exact, relative, statusWord } from "../words.js";
import { toast } from "./toast.js";

/** Glyph and word. @param {string} status @param {string} [word] */
export const status = (status, word = statusWord(status)) => html`<span class="status" data-status=${status}><span class="glyph" aria-hidden="true">${GLYPHS[status] ?? "·"}</span> ${word}</span>`;

/** Only the glyph, named for those who do not see it. @param {string} status */
export const glyph = (status) => html`<span class="status" data-status=${status}><span class="glyph" role="img" aria-label=${statusWord(status)} title=${statusWord(status)}>${GLYPHS[status] ?? "·"}</span></span>`;

/** `2 min ago`, with the exact time on hover. @param {string | null | undefined} at */
export function ago(at) {
  if (!at) return html`<span class="none">–</span>`;
  void clockTick.value;
  return html`<time datetime=${at} title=${exact(at, utc.value)}>${relative(at, storeNow())}</time>`;
}

/** The time of day, with how long ago on hover. @param {string | null | undefined} at */
export function time(at) {
  if (!at) return html`<span class="none">–</span>`;
  return html`<time datetime=${at} title=${exact(at, utc.value)}>${clock(at, storeNow(), utc.value)}</time>`;
}

/** @param {string} text @param {string} [what] */
export async function copy(text, what = "copied") {
  try {
    await navigator.clipboard.writeText(text);
    toast({ says: what });
  } catch {
    toast({ says: "the browser does not allow copying here", severity: "amber" });
  }
}

/** @param {() => string} text @param {string} label what is copied */
export const copyButton = (text, label) => html`<button type="button" class="quiet" aria-label=${`copy ${label}`} @click=${() => copy(text(), `${label} copied`)}>copy</button>`;
