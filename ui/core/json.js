// JSON that keeps its numbers exact: what a double cannot hold is kept as it was written (12345678901234567890, 1.10, 1e400).
//
// For payloads and results, which are shown and edited. All else is read by JSON.parse. Never evaluates anything.

/** A number that a double would change. */
export class Exact {
  /** @param {string} source */
  constructor(source) {
    this.source = source;
  }
  toString() {
    return this.source;
  }
}

const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const SPACE = /[ \t\r\n]*/y;
/** As deep as the server takes (100), and a few that are around it. */
const DEPTH_MAX = 200;

/** @param {string} text @returns {unknown} @throws {SyntaxError} that says where */
export function readJson(text) {
  let at = 0;
  const fail = (/** @type {string} */ what) => {
    const line = text.slice(0, at).split("\n");
    return new SyntaxError(`${what} in line ${line.length}, column ${(line.at(-1) ?? "").length + 1}`);
  };
  const take = (/** @type {RegExp} */ pattern) => {
    pattern.lastIndex = at;
    const found = pattern.exec(text);
    if (!found) return null;
    at = pattern.lastIndex;
    return found[0];
  };
  const skip = () => void take(SPACE);
  const string = () => {
    const source = take(STRING);
    if (source === null) throw fail(text[at] === '"' ? "a string that does not end" : "expected a string");
    return /** @type {string} */ (JSON.parse(source));
  };
  /** @param {number} depth @returns {unknown} */
  const value = (depth) => {
    if (depth > DEPTH_MAX) throw fail("nested too deeply");
    skip();
    const char = text[at];
    if (char === "{") return object(depth);
    if (char === "[") return array(depth);
    if (char === '"') return string();
    for (const [word, meaning] of /** @type {[string, unknown][]} */ ([["true", true], ["false", false], ["null", null]])) {
      if (text.startsWith(word, at)) {
        at += word.length;
        return meaning;
      }
    }
    const source = take(NUMBER);
    if (source === null) throw fail(at < text.length ? `unexpected ${JSON.stringify(char)}` : "unexpected end");
    return String(Number(source)) === source ? Number(source) : new Exact(source);
  };
  /** @param {number} depth */
  const array = (depth) => {
    /** @type {unknown[]} */
    const items = [];
    at++;
    skip();
    if (text[at] === "]") return at++, items;
    for (;;) {
      items.push(value(depth + 1));
      skip();
      if (text[at] === "]") return at++, items;
      if (text[at] !== ",") throw fail("expected , or ]");
      at++;
    }
  };
  /** @param {number} depth */
  const object = (depth) => {
    /** @type {Record<string, unknown>} */
    const fields = {};
    at++;
    skip();
    if (text[at] === "}") return at++, fields;
    for (;;) {
      skip();
      const key = string();
      skip();
      if (text[at] !== ":") throw fail("expected :");
      at++;
      // A field called __proto__ is a field.
      Object.defineProperty(fields, key, { value: value(depth + 1), enumerable: true, configurable: true, writable: true });
      skip();
      if (text[at] === "}") return at++, fields;
      if (text[at] !== ",") throw fail("expected , or }");
      at++;
    }
  };
  const read = value(0);
  skip();
  if (at < text.length) throw fail(`unexpected ${JSON.stringify(text[at])} after the end`);
  return read;
}

/** @param {unknown} value @param {number} [indent] @param {string} [margin] @returns {string} */
export function writeJson(value, indent = 0, margin = "") {
  if (value instanceof Exact) return value.source;
  if (value === null || typeof value !== "object") return JSON.stringify(value) ?? "null";
  const inner = margin + " ".repeat(indent);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  const parts = Array.isArray(value)
    ? value.map((item) => writeJson(item, indent, inner))
    : Object.entries(value).map(([key, item]) => `${JSON.stringify(key)}:${indent ? " " : ""}${writeJson(item, indent, inner)}`);
  if (parts.length === 0) return `${open}${close}`;
  return indent ? `${open}\n${inner}${parts.join(`,\n${inner}`)}\n${margin}${close}` : `${open}${parts.join(",")}${close}`;
}
