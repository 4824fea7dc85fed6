// Dead letters by cause: how many, of what, since when; each leads to its jobs and its redrive. What is snoozed is apart.

import { curl } from "../api.js";
import { html } from "../core/html.js";
import { ago } from "../parts/bits.js";
import { pages } from "../parts/pages.js";
import { empty, loaded } from "../parts/states.js";
import { cursor, table, tableKeys } from "../parts/table.js";
import { href, to } from "../router.js";
import { count, plural } from "../words.js";

/** @typedef {import("../types.d.ts").ErrorGroup} Group */

const EVERY_MS = 5_000;

/** Tabs are filters of the API. */
const TABS = /** @type {[string, Record<string, string>][]} */ ([
  ["active", { dead: "true", snoozed: "false" }],
  ["snoozed", { snoozed: "true" }],
  ["all that ever died", {}],
]);

/** @type {import("../types.d.ts").ScreenMaker} */
export default function errors(screen) {
  const given = () => Object.fromEntries([...screen.query.value].filter(([name]) => !name.startsWith("~")));
  const filter = () => (Object.keys(given()).length || screen.query.value.has("~all") ? given() : TABS[0]?.[1] ?? {});
  const list = pages("/errors", filter, (/** @type {Group} */ one) => one.fingerprint, { ending: screen.ending, everyMs: EVERY_MS });
  const at = cursor();
  let shown = JSON.stringify(filter());
  screen.curl(() => curl("GET", "/errors", { query: filter() }));
  screen.keys(tableKeys({ keys: () => list.rows().map((one) => one.fingerprint) }));
  return () => {
    const now = JSON.stringify(filter());
    if (now !== shown) {
      shown = now;
      queueMicrotask(list.again);
    }
    const { dead, snoozed } = filter();
    const tab = snoozed === "true" ? "snoozed" : dead === "true" ? "active" : "all that ever died";
    return html`<h1>Dead letters</h1>
      <nav class="tabs" aria-label="which">${TABS.map(([name, query]) => html`<a href=${href("/errors", Object.keys(query).length ? query : { "~all": "1" })} aria-current=${name === tab ? "page" : null}>${name}</a>`)}
        <a href=${to.jobs({ status: "cancelled" })}>cancelled jobs</a></nav>
      ${loaded(list.first, () => view(list.rows()), { everyMs: EVERY_MS })}`;
  };

  /** @param {Group[]} rows */
  function view(rows) {
    if (rows.length === 0) return empty(filter().snoozed === "true" ? "Nothing is snoozed." : "No dead letters: every job that has ended succeeded or was cancelled.");
    const total = rows.reduce((sum, one) => sum + one.dead, 0);
    return html`<p class="sentence"><span class="rest">${plural(rows.length, "cause")}, ${plural(total, "dead letter")}.</span></p>
      ${table({
        label: "causes of death",
        rows,
        key: (one) => one.fingerprint,
        href: (one) => to.error(one.fingerprint),
        cursor: at,
        columns: [
          { id: "title", label: "cause", head: true, grow: true, cell: (one) => html`<a class="error-text" href=${to.error(one.fingerprint)}>${one.title}</a>` },
          { id: "dead", label: "dead now", num: true, cell: (one) => html`<b>${count(one.dead)}</b>` },
          { id: "seen", label: "seen", num: true, wide: true, cell: (one) => count(one.seen_total) },
          { id: "kind", label: "kind", cell: (one) => html`<a href=${to.kind(one.kind)}>${one.kind}</a>` },
          { id: "queues", label: "queues", wide: true, cell: (one) => one.queues.map(({ queue }) => queue).join(", ") },
          { id: "first", label: "first", wide: true, cell: (one) => ago(one.first_seen) },
          { id: "last", label: "last", cell: (one) => ago(one.last_seen) },
          { id: "snoozed", label: "", cell: (one) => (one.snoozed ? html`<span class="meta">snoozed, ends ${ago(one.snoozed.until)}</span>` : "") },
        ],
      })}${list.end()}`;
  }
}
