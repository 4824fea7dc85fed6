// Jobs: one filter field, tabs with exact counts, a list that does not move, and acts on what is selected or on all that matches.

import { apiUrl, curl, get, may } from "../api.js";
import { html } from "../core/html.js";
import { filterOf, queryOf } from "../core/query.js";
import { effect, signal, untracked } from "../core/signal.js";
import { pulse } from "../live.js";
import { ago, glyph, time } from "../parts/bits.js";
import { canBeOperation, openBulk } from "../parts/bulk.js";
import { openDialog } from "../parts/dialog.js";
import { filterField } from "../parts/filters.js";
import { empty, failed, skeleton } from "../parts/states.js";
import { currentKey, cursor, table, tableKeys } from "../parts/table.js";
import { utc } from "../prefs.js";
import { go, href, scrollToRestore, setQuery, to } from "../router.js";
import { GLYPHS, STATUSES, between, bytes, count, firstLine, plural, shortId, statusWord } from "../words.js";
import { ROWS_MAX, jobsList, keep, orderOf, recall } from "./jobs_list.js";

/** @typedef {import("../types.d.ts").JobSummary} Row */

/** Lists are read again at most so often, and only if a count has changed. */
const REFRESH_MS = 2000;

/** When something happens to it, or happened. @param {Row} job */
function when(job) {
  if (job.finished_at) return ago(job.finished_at);
  return job.status === "running" ? ago(job.started_at, "for") : ago(job.run_at, "due");
}

/** @type {Record<string, import("../parts/table.js").Column<Row> & { by?: boolean }>} */
const COLUMNS = {
  status: { id: "status", label: "", cell: (job) => glyph(job.status), by: true },
  kind: { id: "kind", label: "kind", head: true, cell: (job) => html`<a href=${to.job(job.id)}>${job.kind}</a>`, by: true },
  queue: { id: "queue", label: "queue", cell: (job) => job.queue, by: true },
  id: { id: "id", label: "id", cell: (job) => html`<code title=${job.id}>${shortId(job.id)}</code>`, by: true, wide: true },
  tries: { id: "tries", label: "tries", num: true, cell: (job) => `${job.attempts}/${job.max_attempts}`, by: true },
  when: { id: "when", label: "when", cell: when, by: true },
  ran: { id: "ran", label: "ran", num: true, cell: (job) => between(job.started_at, job.finished_at), wide: true },
  worker: { id: "worker", label: "worker", cell: (job) => job.locked_by ?? "", wide: true, by: true },
  created: { id: "created", label: "created", cell: (job) => time(job.created_at), wide: true },
  priority: { id: "priority", label: "priority", num: true, cell: (job) => job.priority, wide: true },
  key: { id: "key", label: "key", cell: (job) => job.idempotency_key ?? "", wide: true },
  group: { id: "group", label: "group", cell: (job) => job.group_key ?? "", wide: true },
  size: { id: "size", label: "payload", num: true, cell: (job) => bytes(job.payload_bytes), wide: true },
  what: { id: "what", label: "last error, or payload", grow: true, cell: (job) => html`<span class="error-text">${job.progress?.message ?? (firstLine(job.last_error) || job.payload_preview)}</span>`, by: true },
};

/** Exact counts by status, as far as the filter allows; null: not known. @param {Record<string, string>} filter @param {any[] | null} kinds */
function countsOf(filter, kinds) {
  const names = Object.keys(filter).filter((name) => name !== "status" && name !== "order");
  const known = pulse.value;
  if (!known) return null;
  if (names.length === 0) return known.totals;
  const sum = (/** @type {any[]} */ parts) => Object.fromEntries(STATUSES.map((status) => [status, parts.reduce((n, counts) => n + (counts[status] ?? 0), 0)]));
  if (names.length === 1 && filter.queue) {
    const wanted = filter.queue.split(",");
    const found = known.queues.filter(({ queue }) => wanted.includes(queue));
    return found.length === wanted.length || !known.more_queues ? sum(found.map(({ counts }) => counts)) : null;
  }
  if (names.length === 1 && filter.kind && kinds) {
    const found = kinds.filter(({ kind, counts }) => counts && filter.kind?.split(",").includes(kind));
    return found.length > 0 ? sum(found.map(({ counts }) => counts)) : null;
  }
  return null;
}

/** @type {import("../types.d.ts").ScreenMaker} */
export default function jobs(screen) {
  const filter = () => filterOf(screen.query.value);
  const list = jobsList(() => filterOf(screen.query.peek()), screen.ending);
  const selected = signal(/** @type {Set<string>} */ (new Set()));
  const everything = signal(false);
  const kinds = signal(/** @type {any[] | null} */ (null));
  const at = cursor();
  const apply = (/** @type {Record<string, string>} */ next) => go(href("/jobs", queryOf(next, columnsQuery(screen.query.peek()))));
  const field = filterField({ filter, apply });

  screen.curl(() => curl("GET", "/jobs", { query: apiUrl("/jobs", screen.query.peek()).searchParams }));

  let shownFor = "";
  effect(() => {
    const query = queryOf(filter());
    untracked(() => {
      const before = recall(location.pathname + location.search);
      if (shownFor === "" && before && scrollToRestore() > 0) {
        list.restore(before.listed);
        selected.value = before.selected;
        requestAnimationFrame(() => scrollTo(0, scrollToRestore()));
      } else if (shownFor !== `?${query}`) {
        selected.value = new Set();
        everything.value = false;
        list.load();
      }
      shownFor = `?${query}`;
    });
    if (filterOf(screen.query.value).kind && !kinds.peek()) get("/kinds", { signal: screen.ending }).then((data) => (kinds.value = data), () => {});
  }, screen.ending);
  const shownAt = location.pathname;
  screen.ending.addEventListener("abort", () => keep(shownAt + (shownFor.length > 1 ? shownFor : ""), list.peek(), selected.peek()));

  // Only if a count of what is shown has changed, and never while a dialog is open.
  let seen = "";
  let waiting = 0;
  effect(() => {
    const counts = pulse.value && JSON.stringify(countsOf(filterOf(screen.query.peek()), kinds.peek()) ?? pulse.value.totals);
    if (!counts || counts === seen) return;
    // The first counts may be younger than the list: they are taken as a change, too.
    seen = counts;
    if (waiting) return;
    waiting = window.setTimeout(() => {
      waiting = 0;
      if (!document.hidden && !document.querySelector("dialog[open]") && !screen.ending.aborted) list.refresh();
    }, REFRESH_MS);
  }, screen.ending);

  const keys = () => list.peek().rows.map(({ id }) => id);
  /** @param {"redrive" | "cancel" | "delete"} action */
  const bulk = (action) => {
    if (!may(action === "delete" ? "admin" : "operate")) return;
    const here = currentKey();
    const ids = selected.peek().size > 0 ? [...selected.peek()] : here ? [here] : [];
    if (!everything.peek() && ids.length === 0) return;
    openBulk({ action, ...(everything.peek() ? { filter: filterOf(screen.query.peek()) } : { ids }), done: () => ((selected.value = new Set()), (everything.value = false), list.refresh()) });
  };
  screen.keys({
    ...tableKeys({ selected, keys }),
    Escape: ["select nothing", () => ((selected.value = new Set()), (everything.value = false))],
    r: ["redrive what is selected", () => bulk("redrive")],
    c: ["cancel what is selected", () => bulk("cancel")],
    Delete: ["delete what is selected", () => bulk("delete")],
    ".": ["show newer rows", () => void list.load()],
  });

  const selection = () => {
    const n = selected.value.size;
    if (n === 0) return "";
    const all = countsOf(filter(), kinds.value);
    const statuses = filter().status?.split(",") ?? STATUSES;
    const total = all ? statuses.reduce((sum, status) => sum + (all[/** @type {import("../words.js").Status} */ (status)] ?? 0), 0) : null;
    return html`<div class="selection" role="region" aria-label="selection">
      <span>${everything.value ? html`<b>all ${total === null ? "" : count(total)} matching</b>` : html`<b>${count(n)} selected</b>`}</span>
      ${!everything.value && canBeOperation(filter()) && (list.value.next || total === null || total > n) ? html`<button type="button" class="quiet" @click=${() => (everything.value = true)}>select all ${total === null ? "" : count(total)} matching</button>` : ""}
      <span class="space"></span>
      <span class="acts">${may("operate") ? html`<button type="button" @click=${() => bulk("redrive")}>redrive …</button><button type="button" @click=${() => bulk("cancel")}>cancel …</button>` : html`<span class="meta">read-only</span>`}${may("admin") ? html`<button type="button" @click=${() => bulk("delete")}>delete …</button>` : ""}
      <button type="button" class="quiet" @click=${() => ((selected.value = new Set()), (everything.value = false))} title="Esc">none</button></span>
    </div>`;
  };

  return () => {
    const { rows, left, newer, manyNewer, next, loading, error, looked, lookedTo } = list.value;
    const counts = countsOf(filter(), kinds.value);
    const chosen = filter().status;
    const columns = columnsOf(screen.query.value).map((id) => /** @type {import("../parts/table.js").Column<Row>} */ (COLUMNS[id]));
    const tab = (/** @type {string | undefined} */ status, /** @type {unknown} */ label, /** @type {number | undefined} */ n) => html`<a href=${href("/jobs", queryOf({ ...filter(), status: status ?? "" }, columnsQuery(screen.query.value)))} aria-current=${chosen === status ? "true" : null}>${label} <span class="n">${n === undefined ? "" : count(n)}</span></a>`;
    return html`<div class="head"><h1>Jobs</h1><span class="meta">${orderOf(filter()) === "next" ? "next to run first" : `${orderOf(filter())} first`}</span><span class="space"></span><button type="button" class="quiet wide-only" @click=${chooseColumns}>columns</button></div>
      ${field()}
      <nav class="tabs" aria-label="status">${tab(undefined, "all", counts ? STATUSES.reduce((sum, status) => sum + (counts[status] ?? 0), 0) : undefined)}${STATUSES.map((status) => tab(status, html`<span class="status" data-status=${status}><span class="glyph" aria-hidden="true">${GLYPHS[status]}</span></span> ${statusWord(status)}`, counts?.[status]))}</nav>
      ${newer > 0 ? html`<button type="button" class="newer" @click=${() => (scrollTo(0, 0), list.load())}>▲ ${count(newer, manyNewer)} newer</button>` : ""}
      ${error && rows.length > 0 ? html`<p class="notice" data-severity="amber" role="status">${error.message}</p>` : ""}
      ${error && rows.length === 0 ? failed(error, list.load) : rows.length > 0 ? table({ label: "jobs", columns, rows, key: (job) => job.id, href: (job) => to.job(job.id), mark: (job) => (left.has(job.id) ? "dimmed" : ""), selected, cursor: at, memo: () => `${utc.value} ${columns.map(({ id }) => id)}` }) : loading ? skeleton(12) : nothing(filter(), apply, next !== null)}
      ${rows.length > 0 || next ? html`<div class="page-end meta"><span>${plural(rows.length, "row")}${looked > rows.length ? html`; looked at ${plural(looked, "job")}${lookedTo ? html`, back to ${time(lookedTo)}` : ""}` : ""}</span>
        ${next ? (rows.length < ROWS_MAX ? html`<button type="button" ?disabled=${loading} @click=${() => list.older()}>${filter().text ? "look further" : "older"} ↓</button>` : html`<a class="button" href=${href("/jobs", queryOf({ ...filter(), created_before: rows.at(-1)?.created_at ?? "" }))}>older than these ↓</a>`) : html`<span>that is all</span>`}</div>` : ""}
      ${selection()}`;
  };
}

/** @param {Record<string, string>} filter @param {(filter: Record<string, string>) => void} apply @param {boolean} more */
function nothing(filter, apply, more) {
  const names = Object.keys(filter);
  if (names.length === 0) return empty("No job was ever enqueued here.", { next: "Put one in; the page turns live with the first:", command: curl("POST", "/jobs", { body: { kind: "summarize_text", payload: { text: "It works. The rest is up to you.", max_words: 3 } } }) });
  return empty(more ? "Nothing found so far." : "No job matches.", { next: html`Remove ${names.map((name) => html`<button type="button" @click=${() => apply(Object.fromEntries(Object.entries(filter).filter(([one]) => one !== name)))}>${name}: ${filter[name]}</button> `)}` });
}

const DEFAULT = Object.values(COLUMNS).filter((column) => column.by).map(({ id }) => id);

/** @param {URLSearchParams} query */
const columnsOf = (query) => {
  const wanted = query.get("~cols")?.split(",").filter((id) => COLUMNS[id]) ?? [];
  return wanted.length > 0 ? wanted : DEFAULT;
};

/** @param {URLSearchParams} query @returns {Record<string, string>} */
const columnsQuery = (query) => (query.get("~cols") ? { "~cols": /** @type {string} */ (query.get("~cols")) } : {});

function chooseColumns() {
  const chosen = signal(new Set(columnsOf(new URLSearchParams(location.search))));
  const toggle = (/** @type {string} */ id) => {
    const next = new Set(chosen.peek());
    if (!next.delete(id)) next.add(id);
    chosen.value = next;
    const ids = Object.keys(COLUMNS).filter((one) => next.has(one));
    setQuery((query) => (ids.join() === DEFAULT.join() || ids.length === 0 ? query.delete("~cols") : query.set("~cols", ids.join())));
  };
  openDialog({ title: "Columns", body: () => html`<div class="form">${Object.keys(COLUMNS).map((id) => html`<label class="check"><input type="checkbox" .checked=${chosen.value.has(id)} @change=${() => toggle(id)}> ${id}</label>`)}</div>` });
}
