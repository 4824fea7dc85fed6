// JSON that keeps its numbers.

import assert from "node:assert/strict";
import test from "node:test";
import { Exact, readJson, writeJson } from "../core/json.js";
import { harmless, visible } from "../core/visible.js";

test("numbers are kept to the digit", () => {
  for (const text of ["12345678901234567890", "1e400", "1.10", "-0", "0.1000000000000000055511151231257827", "1E5", "9007199254740993"]) {
    assert.equal(writeJson(readJson(text)), text);
    assert.ok(readJson(text) instanceof Exact, text);
  }
  for (const text of ["0", "-17", "1.5", "9007199254740991"]) assert.equal(readJson(text), Number(text));
});

test("all else is as JSON.parse reads it", () => {
  for (const text of ['{"a":[1,2,{"b":null}],"c":"\\u00e4\\n\\"","d":true,"e":{}}', "[]", '""', "false", ' [ 1 , 2 ] ', '{"\\u0061":1}', '"\\ud83d\\ude00"', '"\\ud800"']) {
    assert.deepEqual(readJson(text), JSON.parse(text), text);
    assert.deepEqual(JSON.parse(writeJson(readJson(text), 2)), JSON.parse(text), text);
  }
});

test("a field called __proto__ is a field", () => {
  const read = readJson('{"__proto__":{"polluted":1}}');
  assert.deepEqual(Object.keys(read), ["__proto__"]);
  assert.equal({}.polluted, undefined);
  assert.equal(writeJson(read), '{"__proto__":{"polluted":1}}');
});

test("what is no JSON is refused, and where is said", () => {
  for (const bad of ["", "{", "[1,]", "{a:1}", "'x'", "01", "1 2", '{"a" 1}', '"\u0001"', "nul", "+1", ".5", '"\\x"', "[".repeat(300)]) assert.throws(() => readJson(bad), SyntaxError, bad);
  assert.throws(() => readJson('{\n  "a": 1,\n  b\n}'), /line 3, column 3/);
});

test("what is written is read again", () => {
  // A small generator: the same numbers every time.
  let state = 7;
  const next = (n) => (state = (state * 1103515245 + 12345) % 2147483648) % n;
  const value = (depth) => [() => null, () => next(2) === 1, () => next(1e9), () => new Exact(`${next(1e9)}${next(1e9)}.${next(1e9)}0`), () => String.fromCharCode(...Array.from({ length: next(8) }, () => next(0xd7ff))), () => Array.from({ length: next(4) }, () => value(depth + 1)), () => Object.fromEntries(Array.from({ length: next(4) }, (_, index) => [`k${index}${next(9)}`, value(depth + 1)]))][next(depth > 4 ? 5 : 7)]();
  for (let round = 0; round < 500; round++) {
    const made = value(0);
    for (const indent of [0, 2]) assert.deepEqual(readJson(writeJson(made, indent)), made);
  }
});

test("control and bidi characters are shown, not obeyed", () => {
  assert.equal(visible("a\u202eb\u0000c\u2066"), "a⟨202E⟩b⟨0000⟩c⟨2066⟩");
  assert.equal(visible("tab\tand\nline stay, ä and 😀 too"), "tab\tand\nline stay, ä and 😀 too");
  assert.equal(visible("\ud800"), "⟨D800⟩");
  assert.equal(visible("👩‍💻"), "👩‍💻", "joiners belong to words and emoji");
});

test("a script is no link", () => {
  for (const bad of ["javascript:alert(1)", " javascript:alert(1)", "data:text/html,x", "JAVASCRIPT:x", "vbscript:x", "\u0000javascript:x", "mailto:x", ""]) assert.equal(harmless("href", bad), "#", bad);
  for (const good of ["/ui/jobs", "./x", "../x", "?a=b", "#main", "https://host/x"]) assert.equal(harmless("href", good), good);
  assert.equal(harmless("title", "a\u202eb"), "a⟨202E⟩b");
});
