// The grammar of the filter field, and its other form, the query of the URL: `queue:mail status:retrying after:2h smtp 451`.
//
// Pure: text in, text out. What a filter means is the server's business (`GET /jobs`); names here are the API's, with a few short
// ones for typing. parts/filters.js is the field itself.

/** @typedef {Record<string, string>} Filter the query of `GET /jobs`, without cursor, limit and view */

export const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** What may be typed, and what it is called in the API. */
export const NAMES = /** @type {Record<string, string>} */ ({
  status: "status",
  kind: "kind",
  queue: "queue",
  worker: "worker",
  group: "group",
  error: "error",
  key: "key",
  after: "created_after",
  before: "created_before",
  finished_after: "finished_after",
  finished_before: "finished_before",
  text: "text",
  order: "order",
});

const SHORT = Object.fromEntries(Object.entries(NAMES).map(([short, name]) => [name, short]));
const TIMES = new Set(["created_after", "created_before", "finished_after", "finished_before"]);
/** Words for statuses that people say. */
const STATUSES = /** @type {Record<string, string>} */ ({ dead: "failed_permanent", failed: "failed_permanent", waiting: "queued,retrying", done: "succeeded" });
const TOKEN = /(?:([a-z_]+):)?(?:"((?:[^"\\]|\\.)*)"|(\S+))/gi;
const UNITS = /** @type {Record<string, number>} */ ({ s: 1e3, m: 60e3, min: 60e3, h: 3600e3, d: 86400e3, w: 7 * 86400e3 });

/**
 * A time as people type it: `2h` (ago), `14:00` (the last one), `2026-11-16 14:00`, RFC 3339. UTC where no zone is said.
 * @param {string} text @param {number} now @returns {string | null} RFC 3339
 */
export function readTime(text, now) {
  const ago = /^(\d+(?:\.\d+)?)(s|min|m|h|d|w)$/.exec(text);
  if (ago) return new Date(now - Number(ago[1]) * /** @type {number} */ (UNITS[/** @type {string} */ (ago[2])])).toISOString();
  const clock = /^(\d{1,2}):(\d{2})(?::(\d{2}))?$/.exec(text);
  if (clock) {
    const day = new Date(now);
    day.setUTCHours(Number(clock[1]), Number(clock[2]), Number(clock[3] ?? 0), 0);
    if (day.getTime() > now) day.setUTCDate(day.getUTCDate() - 1);
    return Number(clock[1]) < 24 && Number(clock[2]) < 60 ? day.toISOString() : null;
  }
  const date = /^(\d{4}-\d{2}-\d{2})(?:[ T](\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?))?(Z|[+-]\d{2}:?\d{2})?$/.exec(text);
  if (!date) return null;
  const at = Date.parse(`${date[1]}T${date[2] ?? "00:00"}${date[3] ?? "Z"}`);
  return Number.isNaN(at) ? null : new Date(at).toISOString();
}

/**
 * What somebody typed. Words without a name become `text`; a lone UUID is a job.
 * @param {string} typed @param {number} now
 * @returns {{ filter: Filter, job: string | null, wrong: string[] }}
 */
export function parseFilter(typed, now) {
  const trimmed = typed.trim();
  if (UUID.test(trimmed)) return { filter: {}, job: trimmed.toLowerCase(), wrong: [] };
  /** @type {Filter} */
  const filter = {};
  /** @type {string[]} */
  const words = [];
  const wrong = [];
  for (const [whole, short, quoted, bare] of trimmed.matchAll(TOKEN)) {
    const name = short && Object.hasOwn(NAMES, short.toLowerCase()) ? NAMES[short.toLowerCase()] : undefined;
    const value = quoted === undefined ? (bare ?? "") : quoted.replace(/\\(.)/g, "$1");
    if (short && !name && /^[a-z_]+$/i.test(short) && Object.hasOwn(SHORT, short.toLowerCase())) filter[short.toLowerCase()] = value;
    else if (!name) words.push(short === undefined ? value : whole);
    else if (TIMES.has(name)) {
      const at = readTime(value, now);
      if (at) filter[name] = at;
      else wrong.push(`${short}:${value} is no time; say 2h, 14:00 or 2026-11-16 14:00`);
    } else if (name === "text") words.push(value);
    else if (name === "status") filter.status = value.toLowerCase().split(",").map((word) => STATUSES[word] ?? word).join(",");
    else filter[name] = ["kind", "queue"].includes(name) && filter[name] ? `${filter[name]},${value}` : value;
  }
  if (words.length > 0) filter.text = words.join(" ");
  return { filter, job: null, wrong };
}

/** A filter as one would type it. @param {Filter} filter */
export function formatFilter(filter) {
  return Object.entries(filter)
    .filter(([name, value]) => value && Object.hasOwn(SHORT, name))
    .map(([name, value]) => `${SHORT[name]}:${/[\s"\\]/.test(value) ? JSON.stringify(value) : value}`)
    .join(" ");
}

/** The filter in a URL's query; keys that begin with `~` are the page's own. @param {URLSearchParams} query @returns {Filter} */
export function filterOf(query) {
  /** @type {Filter} */
  const filter = {};
  for (const [name, value] of query) if (Object.hasOwn(SHORT, name) && value) filter[name] = value;
  return filter;
}

/** @param {Filter} filter @param {Record<string, string>} [more] */
export function queryOf(filter, more = {}) {
  return new URLSearchParams(Object.entries({ ...filter, ...more }).filter(([, value]) => value)).toString();
}
