// Text of others, made harmless to the eye: control and bidi characters are shown instead of obeyed (SECURITY.md S56).
//
// core/html.js applies it to every text; nothing else has to. It never changes what is copied from a raw payload.

// Not the joiners U+200C and U+200D: they are part of words and of emoji.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

/** @param {string} text */
export const visible = (text) => text.replace(HIDDEN, (char) => `\u27e8${char.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}\u27e9`);

/** What an attribute is set to. A script is no link, and what is read out is shown like text. @param {string} name @param {string} text */
export function harmless(name, text) {
  if (name === "href" || name === "src") return /^(?:\.{0,2}\/|[?#]|https?:)/.test(text) ? text : "#";
  return name === "title" || name === "aria-label" ? visible(text) : text;
}
