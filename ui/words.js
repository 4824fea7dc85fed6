// Every number, duration, time and status as people read it. The only place with such words; screens write sentences with them.
//
// Pure: the clock is passed in (live.js knows the store's), the zone is a setting of the page. Never returns a negative duration.

/** @typedef {"queued" | "running" | "retrying" | "succeeded" | "failed_permanent" | "cancelled"} Status */

/** In the order of tabs and counts. */
export const STATUSES = /** @type {Status[]} */ (["queued", "running", "retrying", "succeeded", "failed_permanent", "cancelled"]);

/** A status is a glyph and a word, never a colour alone. */
export const GLYPHS = /** @type {Record<string, string>} */ ({
  queued: "○",
  running: "◐",
  retrying: "↻",
  succeeded: "✓",
  failed_permanent: "✕",
  cancelled: "⊘",
  paused: "‖",
  failed: "✕",
  timed_out: "✕",
  lease_expired: "✕",
  released: "↩",
  snoozed: "…",
  live: "●",
  idle: "○",
  deaf: "!",
  draining: "◑",
  gone: "✕",
  red: "✕",
  amber: "!",
  note: "·",
});

const WORDS = /** @type {Record<string, string>} */ ({ failed_permanent: "dead", timed_out: "timed out", lease_expired: "lease expired", snoozed: "snoozed" });

/** @param {string} status */
export const statusWord = (status) => WORDS[status] ?? status;

const numbers = new Intl.NumberFormat("en", { useGrouping: true });

/** @param {number | null | undefined} n @param {boolean} [atLeast] */
export function count(n, atLeast = false) {
  if (n === null || n === undefined) return "–";
  return `${atLeast ? "≥ " : ""}${numbers.format(n)}`;
}

/** `1 job`, `2 jobs`. @param {number} n @param {string} noun @param {string} [plural] */
export const plural = (n, noun, plural = `${noun}s`) => `${count(n)} ${n === 1 ? noun : plural}`;

/** @param {number | null | undefined} perSecond */
export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined) return "–";
  if (perSecond === 0) return "0";
  if (perSecond < 0.1) return "< 0.1";
  return perSecond < 10 ? String(Math.round(perSecond * 10) / 10) : numbers.format(Math.round(perSecond));
}

/** @param {number | null | undefined} bytes */
export function bytes(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  if (bytes < 1024) return `${bytes} B`;
  if (bytes < 1024 * 1024) return `${Math.round(bytes / 102.4) / 10} KiB`;
  return `${Math.round(bytes / 104857.6) / 10} MiB`;
}

/** Two units at most: `0.4 s`, `41 s`, `12 min`, `2 h 5 min`, `3 d 4 h`. @param {number | null | undefined} ms */
export function duration(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return "–";
  const whole = Math.max(0, ms);
  if (whole < 1000) return whole === 0 ? "0 s" : whole < 100 ? `${Math.max(1, Math.round(whole))} ms` : `${Math.round(whole / 100) / 10} s`;
  const s = whole / 1000;
  if (s < 10) return `${Math.round(s * 10) / 10} s`;
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return s < 600 && Math.floor(s % 60) ? `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s` : `${Math.floor(s / 60)} min`;
  const [big, small, bigWord, smallWord] = s < 86400 ? [3600, 60, "h", "min"] : [86400, 3600, "d", "h"];
  const rest = Math.floor((s % big) / small);
  return `${Math.floor(s / big)} ${bigWord}${rest && s / big < 10 ? ` ${rest} ${smallWord}` : ""}`;
}

/** `2 min ago`, `in 41 s`, `now`. @param {string | null | undefined} at @param {number} now */
export function relative(at, now) {
  if (!at) return "–";
  const ms = Date.parse(at) - now;
  if (Number.isNaN(ms)) return "–";
  if (Math.abs(ms) < 1000) return "now";
  return ms > 0 ? `in ${duration(ms)}` : `${duration(-ms)} ago`;
}

/** Since then. @param {string | null | undefined} at @param {number} now */
export const age = (at, now) => (at ? duration(now - Date.parse(at)) : "–");

/** @param {string | null | undefined} from @param {string | null | undefined} to */
export const between = (from, to) => (from && to ? duration(Date.parse(to) - Date.parse(from)) : "–");

/** @param {Date} date @param {boolean} utc */
const parts = (date, utc) => {
  const pad = (/** @type {number} */ n, size = 2) => String(n).padStart(size, "0");
  return utc
    ? { day: date.toISOString().slice(0, 10), time: date.toISOString().slice(11, 19), ms: date.toISOString().slice(19, 23) }
    : {
        day: `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`,
        time: `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`,
        ms: `.${pad(date.getMilliseconds(), 3)}`,
      };
};

/** The zone that times are shown in. @param {boolean} utc */
export const zoneName = (utc) => (utc ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone);

/** In full, with zone. @param {string | number | null | undefined} at @param {boolean} utc */
export function exact(at, utc) {
  if (at === null || at === undefined) return "–";
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return "–";
  const { day, time, ms } = parts(date, utc);
  return `${day} ${time}${ms === ".000" ? "" : ms} ${zoneName(utc)}`;
}

/** `13:04:07`, with the day if it is another one than `now`'s. @param {string | number} at @param {number} now @param {boolean} utc */
export function clock(at, now, utc) {
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return "–";
  const { day, time } = parts(date, utc);
  return day === parts(new Date(now), utc).day ? time : `${day} ${time}`;
}

/** A sentence of the server with its times as the page shows them. @param {string} text @param {number} now @param {boolean} utc */
export const withTimes = (text, now, utc) => text.replace(/\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z/g, (at) => clock(at, now, utc));

/** `0192f3…a41c`: what differs between UUIDs v7 made together is the end. @param {string} id */
export const shortId = (id) => (id.length > 14 ? `${id.slice(0, 6)}…${id.slice(-4)}` : id);

/** The first line, cut. @param {string | null | undefined} text @param {number} [max] */
export function firstLine(text, max = 160) {
  const line = (text ?? "").trim().split("\n", 1)[0] ?? "";
  return line.length > max ? `${line.slice(0, max - 1)}…` : line;
}
