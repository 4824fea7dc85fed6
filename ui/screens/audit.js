// Who did what, when, to what. Nothing here can be changed; the filters are the API's, and what is shown can be saved.

import { call, curl, may, nextPage } from "../api.js";
import { html } from "../core/html.js";
import { ago } from "../parts/bits.js";
import { pages } from "../parts/pages.js";
import { saveAs } from "../parts/save.js";
import { empty, forbidden, loaded } from "../parts/states.js";
import { cursor, table, tableKeys } from "../parts/table.js";
import { setQuery, to } from "../router.js";
import { count, shortId } from "../words.js";

/** @typedef {import("../types.d.ts").AuditEntry} Entry */

const EVERY_MS = 5_000;
/** More than this is a matter for the API. */
const SAVED_MAX = 10_000;

/** Where the subject is shown. @param {string} target */
function subject(target) {
  const [what, ...rest] = target.split(":");
  const name = rest.join(":");
  /** @type {Record<string, (name: string) => string>} */
  const links = { job: to.job, queue: to.queue, kind: to.kind, schedule: to.schedule, operation: to.operation, worker: to.worker, error: to.error };
  const link = links[what ?? ""];
  return link && name ? html`<a href=${link(name)}>${target}</a>` : target;
}

/** @param {unknown} value */
const short = (value) => (value === null || value === undefined ? "" : JSON.stringify(value));

/** @type {import("../types.d.ts").ScreenMaker} */
export default function audit(screen) {
  const filter = () => Object.fromEntries([...screen.query.value].filter(([name]) => !name.startsWith("~")));
  if (!may("operate")) return () => html`<h1>Audit</h1>${forbidden("reading the audit needs the scope operate or admin")}`;
  const list = pages("/audit", filter, (/** @type {Entry} */ one) => String(one.seq), { ending: screen.ending, everyMs: EVERY_MS });
  const at = cursor();
  let shown = JSON.stringify(filter());
  screen.curl(() => curl("GET", "/audit", { query: filter() }));
  screen.keys(tableKeys({ keys: () => list.rows().map((one) => String(one.seq)) }));
  const field = (/** @type {string} */ name) => html`<label class="field"><span>${name}</span><input type="text" autocomplete="off" .value=${filter()[name] ?? ""} @change=${(/** @type {Event} */ event) => {
    const { value } = /** @type {HTMLInputElement} */ (event.target);
    setQuery((query) => (value.trim() ? query.set(name, value.trim()) : query.delete(name)));
  }}></label>`;

  /** All that match, page after page. */
  const save = async (/** @type {"csv" | "jsonl"} */ form) => {
    /** @type {Entry[]} */
    const rows = [];
    /** @type {any} */
    let query = { ...filter(), limit: 200 };
    while (query && rows.length < SAVED_MAX) {
      const { data, headers } = await call("GET", "/audit", { query, signal: screen.ending });
      rows.push(...data);
      query = nextPage(headers);
    }
    saveAs(`audit.${form}`, form === "csv" ? csv(rows) : rows.map((row) => JSON.stringify(row)).join("\n"));
  };

  return () => {
    const now = JSON.stringify(filter());
    if (now !== shown) {
      shown = now;
      queueMicrotask(list.again);
    }
    return html`<div class="head"><h1>Audit</h1><div class="acts"><button type="button" @click=${() => save("csv")}>save as CSV</button><button type="button" @click=${() => save("jsonl")}>save as JSON lines</button></div></div>
      <div class="row form-row">${field("action")}${field("token")}${field("target")}</div>
      ${loaded(list.first, () => view(list.rows()), { everyMs: EVERY_MS })}`;
  };

  /** @param {Entry[]} rows */
  function view(rows) {
    if (rows.length === 0) return Object.keys(filter()).length ? empty("Nothing matches.", { next: html`<a href=${to.audit()}>remove the filters</a>` }) : empty("Nobody has done anything yet.");
    return html`${table({
      label: "audit",
      rows,
      key: (one) => String(one.seq),
      cursor: at,
      columns: [
        { id: "at", label: "when", cell: (one) => ago(one.at) },
        { id: "by", label: "who", head: true, cell: (one) => one.token_name },
        { id: "action", label: "did", cell: (one) => one.action.replaceAll("_", " ") },
        { id: "target", label: "to", cell: (one) => subject(one.target) },
        { id: "count", label: "jobs", num: true, wide: true, cell: (one) => (one.count === 1 ? "" : count(one.count)) },
        { id: "change", label: "change", grow: true, cell: (one) => html`<span class="mono meta">${[short(one.before), short(one.after)].filter(Boolean).join(" → ")}</span>` },
        { id: "reason", label: "note", wide: true, cell: (one) => one.reason ?? "" },
        { id: "from", label: "from", wide: true, cell: (one) => html`<span class="meta">${one.remote ?? ""}</span>` },
        { id: "request", label: "request", wide: true, cell: (one) => html`<code class="meta" title=${one.request_id ?? null}>${shortId(one.request_id ?? "")}</code>` },
      ],
    })}${list.end()}`;
  }
}

const COLUMNS = /** @type {(keyof Entry)[]} */ (["seq", "at", "token_name", "action", "target", "count", "before", "after", "reason", "remote", "request_id"]);

/** A cell that a spreadsheet would take for a formula begins with a quote. @param {unknown} value */
function cell(value) {
  const text = value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return `"${safe.replaceAll('"', '""')}"`;
}

/** @param {Entry[]} rows */
const csv = (rows) => [COLUMNS.join(","), ...rows.map((row) => COLUMNS.map((name) => cell(row[name])).join(","))].join("\r\n");
