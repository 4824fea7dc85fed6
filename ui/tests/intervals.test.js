// The axis of attempts, and the list that does not move.

import assert from "node:assert/strict";
import test from "node:test";
import { intervals } from "../core/intervals.js";
import { merge, orderOf } from "../screens/jobs_list.js";

const at = (seconds) => new Date(Date.parse("2026-11-18T12:00:00Z") + seconds * 1000).toISOString();
const life = (attempts, until, waits = false) => intervals({ created_at: at(0), attempts: attempts.map(([from, to], index) => ({ attempt: index + 1, started_at: at(from), ended_at: to === null ? null : at(to) })), until: Date.parse(at(until)), waits });

test("intervals follow each other and fill the axis", () => {
  const found = life([[1, 3], [4, 6]], 10, true);
  assert.deepEqual(found.map(({ kind, attempt }) => `${kind}${attempt}`), ["wait1", "run1", "wait2", "run2", "wait3"]);
  let x = 0;
  for (const one of found) {
    assert.ok(Math.abs(one.x - x) < 1e-9 && one.width > 0);
    x += one.width;
  }
  assert.ok(Math.abs(x - 100) < 1e-6, `${x}`);
});

test("a wait that dwarfs the runs is folded, and what runs is not", () => {
  const found = life([[1, 3], [603, 605]], 605);
  assert.deepEqual(found.map(({ folded }) => folded), [false, false, true, false]);
  assert.ok(found[2].width < 10 && found[1].width > 20);
  assert.ok(!life([], 100000, true)[0].folded, "a job that only waits is not folded away");
});

test("clocks that disagree make no negative interval", () => {
  for (const one of life([[5, 3], [2, null]], 1)) assert.ok(one.to >= one.from && one.width >= 0);
});

test("sixty attempts fit", () => {
  const found = life(Array.from({ length: 60 }, (_, index) => [index * 100, index * 100 + 1]), 6000);
  assert.ok(Math.abs(found.reduce((sum, one) => sum + one.width, 0) - 100) < 1e-6);
  assert.ok(found.every(({ width }) => width > 0));
});

const row = (id, more = {}) => ({ id: `0${id}`, updated_at: "1", run_at: at(id), ...more });

test("new rows are counted and do not move what is shown", () => {
  const shown = [5, 4, 3].map((id) => row(id));
  const after = merge(shown, new Set(), [row(7), row(6), row(5), row(4, { updated_at: "2", status: "running" }), row(3)], true, "newest");
  assert.deepEqual(after.rows.map(({ id }) => id), ["05", "04", "03"]);
  assert.equal(after.rows[0], shown[0], "the same object: nothing to draw");
  assert.equal(after.rows[1].status, "running");
  assert.deepEqual([after.newer, after.manyNewer, after.left.size], [2, false, 0]);
});

test("a row that should be on the page and is not has left; one beyond it is not known to have", () => {
  const shown = [9, 8, 7, 2].map((id) => row(id));
  const after = merge(shown, new Set(), [row(9), row(7), row(5)], false, "newest");
  assert.deepEqual([...after.left], ["08"]);
  const whole = merge(shown, after.left, [row(9), row(8)], true, "newest");
  assert.deepEqual([...whole.left], ["07", "02"], "and one that is back has not left");
});

test("a page of nothing but new rows means at least as many", () => {
  const after = merge([row(1)], new Set(), [row(9), row(8)], false, "newest");
  assert.deepEqual([after.newer, after.manyNewer], [2, true]);
});

test("waiting jobs are listed as they will run", () => {
  assert.equal(orderOf({ status: "queued" }), "next");
  assert.equal(orderOf({ status: "queued,retrying" }), "next");
  assert.equal(orderOf({ status: "queued,running" }), "newest");
  assert.equal(orderOf({}), "newest");
  assert.equal(orderOf({ status: "queued", order: "oldest" }), "oldest");
  const after = merge([row(1), row(2), row(3)], new Set(), [row(2), row(3)], false, "next");
  assert.deepEqual([...after.left], ["01"], "it runs now");
});
