// The grammar of the filter field.

import assert from "node:assert/strict";
import test from "node:test";
import { filterOf, formatFilter, parseFilter, queryOf, readTime } from "../core/query.js";

const NOW = Date.parse("2026-11-18T13:04:07Z");
const parse = (typed) => parseFilter(typed, NOW);

test("tokens are the API's parameters", () => {
  assert.deepEqual(parse("queue:mail kind:welcome status:retrying worker:mx-1 error:9f2c41d0a1b2c3d4 key:order-17 group:acme").filter, { queue: "mail", kind: "welcome", status: "retrying", worker: "mx-1", error: "9f2c41d0a1b2c3d4", key: "order-17", group: "acme" });
  assert.deepEqual(parse("status:dead").filter, { status: "failed_permanent" });
  assert.deepEqual(parse("status:waiting,running").filter, { status: "queued,retrying,running" });
  assert.deepEqual(parse("queue:a queue:b").filter, { queue: "a,b" });
  assert.deepEqual(parse("created_after:2026-11-18").filter, { created_after: "2026-11-18" });
});

test("what has no name is text", () => {
  assert.deepEqual(parse("smtp 451").filter, { text: "smtp 451" });
  assert.deepEqual(parse('text:"connection reset" queue:mail').filter, { text: "connection reset", queue: "mail" });
  assert.deepEqual(parse("http://host:80/x").filter, { text: "http://host:80/x" });
  assert.deepEqual(parse('key:"with \\"quotes\\" in it"').filter, { key: 'with "quotes" in it' });
  assert.deepEqual(parse("").filter, {});
  assert.deepEqual(parse("constructor:1 __proto__:2").filter, { text: "constructor:1 __proto__:2" });
});

test("a lone UUID is a job, whatever its case", () => {
  assert.equal(parse(" 0192F3A4-1111-7000-8000-00000000A41C ").job, "0192f3a4-1111-7000-8000-00000000a41c");
  assert.equal(parse("queue:mail 0192f3a4-1111-7000-8000-00000000a41c").job, null);
});

test("times are typed as people say them", () => {
  assert.equal(readTime("2h", NOW), "2026-11-18T11:04:07.000Z");
  assert.equal(readTime("90s", NOW), "2026-11-18T13:02:37.000Z");
  assert.equal(readTime("14:00", NOW), "2026-11-17T14:00:00.000Z", "the last one");
  assert.equal(readTime("12:30", NOW), "2026-11-18T12:30:00.000Z");
  assert.equal(readTime("2026-11-16 14:00", NOW), "2026-11-16T14:00:00.000Z");
  assert.equal(readTime("2026-11-16T14:00:00+02:00", NOW), "2026-11-16T12:00:00.000Z");
  for (const bad of ["soon", "25:00", "2026-13-01", "1y", ""]) assert.equal(readTime(bad, NOW), null, bad);
  assert.deepEqual(parse("after:soon").wrong.length, 1);
  assert.deepEqual(parse('before:"2026-11-16 14:00"').filter, { created_before: "2026-11-16T14:00:00.000Z" });
});

test("a filter goes through the URL and the field unchanged", () => {
  for (const filter of [{ queue: "mail", status: "failed_permanent" }, { text: 'with "quotes" and\\backslash' }, { key: "a&b=c d" }, { created_after: "2026-11-16T14:00:00.000Z" }]) {
    assert.deepEqual(filterOf(new URLSearchParams(queryOf(filter))), filter);
    assert.deepEqual(parse(formatFilter(filter)).filter, filter);
  }
  assert.deepEqual(filterOf(new URLSearchParams("queue=mail&~cols=a&cursor=x&limit=5")), { queue: "mail" }, "what is the page's own, or a page's, is no filter");
});
