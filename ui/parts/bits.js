// Time, status and copy: the smallest parts that every screen uses.

import { html } from "../core/html.js";
import { effect } from "../core/signal.js";
import { clockTick, storeNow } from "../live.js";
import { utc } from "../prefs.js";
import { GLYPHS, age, clock, exact, relative, statusWord } from "../words.js";
import { toast } from "./toast.js";

/** Glyph and word. @param {string} status @param {string} [word] */
export const status = (status, word = statusWord(status)) => html`<span class="status" data-status=${status}><span class="glyph" aria-hidden="true">${GLYPHS[status] ?? "·"}</span> ${word}</span>`;

/** Only the glyph, named for those who do not see it. @param {string} status */
export const glyph = (status) => html`<span class="status" data-status=${status}><span class="glyph" role="img" aria-label=${statusWord(status)} title=${statusWord(status)}>${GLYPHS[status] ?? "·"}</span></span>`;

/** How the time since, or until, is said. */
const FORMS = /** @type {Record<string, (at: string) => string>} */ ({
  ago: (at) => relative(at, storeNow()),
  for: (at) => `for ${age(at, storeNow())}`,
  due: (at) => (Date.parse(at) > storeNow() ? relative(at, storeNow()) : `due ${age(at, storeNow())}`),
});

/** `2 min ago`, with the exact time on hover; goes on by itself. @param {string | null | undefined} at @param {"ago" | "for" | "due"} [form] */
export const ago = (at, form = "ago") => (at ? html`<time class="tick" data-form=${form} datetime=${at} title=${exact(at, utc.value)}>${FORMS[form]?.(at)}</time>` : html`<span class="none">–</span>`);

/** Once a second all of them are written anew, without rendering what is around them. */
export const startTicking = () =>
  effect(() => {
    void clockTick.value;
    for (const element of document.querySelectorAll("time.tick")) {
      const { form = "ago" } = /** @type {HTMLElement} */ (element).dataset;
      const text = FORMS[form]?.(element.getAttribute("datetime") ?? "") ?? "";
      const node = [...element.childNodes].find((child) => child instanceof Text);
      if (node instanceof Text && node.data !== text) node.data = text;
    }
  });

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
