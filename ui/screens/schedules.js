// Schedules: when they fire, in words and in their zone; when next; what became of the ticks.

import { curl, may } from "../api.js";
import { html } from "../core/html.js";
import { ago, status } from "../parts/bits.js";
import { pages } from "../parts/pages.js";
import { openSchedule } from "../parts/schedule_form.js";
import { empty, loaded } from "../parts/states.js";
import { cursor, table, tableKeys } from "../parts/table.js";
import { to } from "../router.js";
import { count } from "../words.js";

/** @typedef {import("../types.d.ts").Schemas["Schedule"]} Schedule */

const EVERY_MS = 5_000;

/** @type {import("../types.d.ts").ScreenMaker} */
export default function schedules(screen) {
  const list = pages("/schedules", () => ({}), (/** @type {Schedule} */ one) => one.name, { ending: screen.ending, everyMs: EVERY_MS });
  const at = cursor();
  screen.curl(() => curl("GET", "/schedules"));
  screen.keys({ ...tableKeys({ keys: () => list.rows().map((one) => one.name) }), ...(may("admin") ? { n: ["new schedule", () => void openSchedule(null, list.again)] } : {}) });
  return () => html`<div class="head"><h1>Schedules</h1><div class="acts">${may("admin") ? html`<button type="button" @click=${() => openSchedule(null, list.again)}>new schedule …</button>` : ""}</div></div>
    ${loaded(list.first, () => view(list.rows()), { everyMs: EVERY_MS })}`;

  /** @param {Schedule[]} rows */
  function view(rows) {
    if (rows.length === 0) return empty("No schedules.", { command: "steadfast schedules put nightly --cron '30 2 * * *' --tz Europe/Berlin --kind report" });
    return html`${table({
      label: "schedules",
      rows,
      key: (one) => one.name,
      href: (one) => to.schedule(one.name),
      cursor: at,
      mark: (one) => (one.state === "ended" ? "dimmed" : ""),
      columns: [
        { id: "name", label: "name", head: true, cell: (one) => html`<a href=${to.schedule(one.name)}>${one.name}</a>` },
        { id: "when", label: "when", grow: true, cell: (one) => one.describe },
        { id: "zone", label: "zone", wide: true, cell: (one) => (one.cron ? one.tz : "") },
        { id: "kind", label: "kind", cell: (one) => one.job?.kind ?? "" },
        { id: "state", label: "state", cell: (one) => (one.state === "active" ? html`<span class="meta">active</span>` : status(one.state)) },
        { id: "next", label: "next", cell: (one) => html`<span class="narrow-only meta">next </span>${ago(one.next_runs[0])}` },
        { id: "last", label: "last", cell: (one) => html`<span class="narrow-only meta">last </span>${one.last_job_id ? html`<a href=${to.job(one.last_job_id)}>${ago(one.last_tick_at)}</a>` : ago(one.last_tick_at)}` },
        { id: "fired", label: "fired", num: true, cell: (one) => count(one.counts.fired) },
        { id: "not", label: "not fired", num: true, wide: true, cell: (one) => count(one.counts.skipped + one.counts.missed + one.counts.refused) },
        { id: "note", label: "", wide: true, cell: (one) => (one.last_error ? html`<span class="status" data-status="red">${one.last_error}</span>` : "") },
      ],
    })}${list.end()}`;
  }
}
