// How values read.

import assert from "node:assert/strict";
import test from "node:test";
import { age, between, bytes, clock, count, duration, exact, firstLine, plural, rate, relative, shortId, statusWord, withTimes } from "../words.js";

const NOW = Date.parse("2026-11-18T13:04:07Z");

test("durations have two units at most and are never negative", () => {
  const cases = [[0, "0 s"], [0.2, "1 ms"], [42, "42 ms"], [400, "0.4 s"], [9_940, "9.9 s"], [41_900, "41 s"], [60_000, "1 min"], [724_000, "12 min"], [125_000, "2 min 5 s"], [3_600_000, "1 h"], [7_500_000, "2 h 5 min"], [40 * 3_600_000, "1 d 16 h"], [30 * 86_400_000, "30 d"], [-5000, "0 s"]];
  for (const [ms, said] of cases) assert.equal(duration(ms), said);
  assert.equal(duration(null), "–");
  assert.equal(duration(Number.NaN), "–");
  assert.equal(age("2026-11-18T14:04:07Z", NOW), "0 s", "a clock that is an hour off makes no negative age");
  assert.equal(between("2026-11-18T13:00:00Z", "2026-11-18T12:00:00Z"), "0 s");
});

test("times are relative to the store's clock", () => {
  assert.equal(relative("2026-11-18T13:02:07Z", NOW), "2 min ago");
  assert.equal(relative("2026-11-18T13:04:48Z", NOW), "in 41 s");
  assert.equal(relative("2026-11-18T13:04:07.5Z", NOW), "now");
  assert.equal(relative(null, NOW), "–");
  assert.equal(relative("rubbish", NOW), "–");
});

test("exact times name their zone", () => {
  assert.equal(exact("2026-11-18T13:04:07.123456Z", true), "2026-11-18 13:04:07.123 UTC");
  assert.equal(exact("2026-11-18T13:04:07Z", true), "2026-11-18 13:04:07 UTC");
  assert.equal(clock("2026-11-18T13:04:01Z", NOW, true), "13:04:01");
  assert.equal(clock("2026-11-17T13:04:01Z", NOW, true), "2026-11-17 13:04:01");
  assert.equal(withTimes("not due before 2026-11-18T13:22:13.543221Z: planned", NOW, true), "not due before 13:22:13: planned");
});

test("numbers are exact or say that they are not", () => {
  assert.equal(count(1203), "1,203");
  assert.equal(count(10000, true), "≥ 10,000");
  assert.equal(count(null), "–");
  assert.equal(plural(1, "job"), "1 job");
  assert.equal(plural(1204, "job"), "1,204 jobs");
  assert.deepEqual([0, 0.04, 0.26, 9.96, 312.4, null].map(rate), ["0", "< 0.1", "0.3", "10", "312", "–"]);
  assert.deepEqual([0, 1023, 1536, 262_144, 3 << 20].map(bytes), ["0 B", "1023 B", "1.5 KiB", "256 KiB", "3 MiB"]);
});

test("statuses and ids are short", () => {
  assert.equal(statusWord("failed_permanent"), "dead");
  assert.equal(statusWord("queued"), "queued");
  assert.equal(shortId("0192f3a4-1111-7000-8000-00000000a41c"), "0192f3…a41c");
  assert.equal(firstLine("  one\ntwo"), "one");
  assert.equal(firstLine("x".repeat(300)).length, 160);
  assert.equal(firstLine(null), "");
});
