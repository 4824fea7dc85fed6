// Operations on many jobs: which are under way, what became of the others.

import { curl } from "../api.js";
import { html } from "../core/html.js";
import { ago, status } from "../parts/bits.js";
import { operationFilter, progress } from "../parts/operation.js";
import { pages } from "../parts/pages.js";
import { empty, loaded } from "../parts/states.js";
import { cursor, table, tableKeys } from "../parts/table.js";
import { to } from "../router.js";
import { count } from "../words.js";

/** @typedef {import("../types.d.ts").Operation} Operation */

const EVERY_MS = 2_000;

/** @type {import("../types.d.ts").ScreenMaker} */
export default function operations(screen) {
  const list = pages("/operations", () => ({}), (/** @type {Operation} */ one) => one.id, { ending: screen.ending, everyMs: EVERY_MS });
  const at = cursor();
  screen.curl(() => curl("GET", "/operations"));
  screen.keys(tableKeys({ keys: () => list.rows().map((one) => one.id) }));
  return () => html`<h1>Operations</h1>${loaded(list.first, () => view(list.rows()), { everyMs: EVERY_MS })}`;

  /** @param {Operation[]} rows */
  function view(rows) {
    if (rows.length === 0) return empty("No operation yet.", { next: html`Redrives, cancels and deletes of many jobs appear here; they begin on the screens <a href=${to.errors()}>Dead letters</a> and <a href=${to.jobs()}>Jobs</a>.`, command: "steadfast jobs redrive --kind welcome --rate 50" });
    return html`${table({
      label: "operations",
      rows,
      key: (one) => one.id,
      href: (one) => to.operation(one.id),
      cursor: at,
      columns: [
        { id: "action", label: "action", head: true, cell: (one) => html`<a href=${to.operation(one.id)}>${one.action}</a>` },
        { id: "state", label: "state", cell: (one) => status(one.state) },
        { id: "progress", label: "progress", cell: progress },
        { id: "rate", label: "rate", num: true, wide: true, cell: (one) => `${count(one.rate)}/s` },
        { id: "jobs", label: "jobs", grow: true, cell: (one) => operationFilter(one) },
        { id: "by", label: "by", cell: (one) => one.by },
        { id: "begun", label: "begun", cell: (one) => ago(one.created_at) },
        { id: "reason", label: "note", wide: true, cell: (one) => one.reason ?? "" },
      ],
    })}${list.end()}`;
  }
}
