// All kinds: how many of each, how often they fail, how long they run, who takes them.

import { curl, get } from "../api.js";
import { html } from "../core/html.js";
import { resource } from "../core/resource.js";
import { empty, loaded } from "../parts/states.js";
import { cursor, table, tableKeys } from "../parts/table.js";
import { to } from "../router.js";
import { count, duration, rate } from "../words.js";

/** What a server with /pulse says besides. @typedef {import("../types.d.ts").Schemas["Kind"] & { counts?: import("../types.d.ts").Counts, rates?: import("../types.d.ts").Rates | null, run_p50_ms?: number | null, run_p95_ms?: number | null, failed_ratio?: number | null, workers?: number | null }} Kind */

const EVERY_MS = 5_000;
/** One in five attempts: look at it. */
const RATIO_AMBER = 0.2;

/** @param {number | null | undefined} ratio */
export const failedRatio = (ratio) => (ratio === null || ratio === undefined ? html`<span class="none">–</span>` : html`<span class="status" data-status=${ratio >= RATIO_AMBER ? "amber" : "none"}>${Math.round(ratio * 1000) / 10} %</span>`);

/** @type {import("../types.d.ts").ScreenMaker} */
export default function kinds(screen) {
  const list = resource((abort) => get("/kinds", { signal: abort }), { ending: screen.ending, everyMs: EVERY_MS });
  const at = cursor();
  screen.curl(() => curl("GET", "/kinds"));
  screen.keys(tableKeys({ keys: () => (list.peek().data ?? []).map((/** @type {Kind} */ one) => one.kind) }));
  const of = (/** @type {Kind} */ one, /** @type {import("../types.d.ts").Status} */ status) => (one.counts ? html`<a href=${to.jobs({ kind: one.kind, status })}>${count(one.counts[status])}</a>` : "–");

  /** @param {Kind[]} rows */
  const view = (rows) => (rows.length === 0 ? empty("No kinds are declared.", { command: curl("PUT", "/kinds/welcome", { body: { max_attempts: 5 } }) }) : table({
    label: "kinds",
    rows,
    key: (one) => one.kind,
    href: (one) => to.kind(one.kind),
    cursor: at,
    columns: [
      { id: "kind", label: "kind", head: true, cell: (one) => html`<a href=${to.kind(one.kind)}>${one.kind}</a>${one.built_in ? html` <span class="meta">built in</span>` : ""}` },
      { id: "waiting", label: "queued", num: true, cell: (one) => of(one, "queued") },
      { id: "running", label: "running", num: true, cell: (one) => of(one, "running") },
      { id: "retrying", label: "retry", num: true, wide: true, cell: (one) => of(one, "retrying") },
      { id: "dead", label: "dead", num: true, cell: (one) => of(one, "failed_permanent") },
      { id: "rate", label: "out/s", num: true, wide: true, cell: (one) => rate(one.rates?.finished_per_s) },
      { id: "failed", label: "failed", num: true, cell: (one) => failedRatio(one.failed_ratio) },
      { id: "p50", label: "run p50", num: true, wide: true, cell: (one) => duration(one.run_p50_ms) },
      { id: "p95", label: "run p95", num: true, wide: true, cell: (one) => duration(one.run_p95_ms) },
      { id: "workers", label: "workers", num: true, cell: (one) => count(one.workers) },
      { id: "queue", label: "queue", wide: true, cell: (one) => one.queue ?? html`<span class="meta">default</span>` },
    ],
  }));
  return () => html`<h1>Kinds</h1>${loaded(list, view, { everyMs: EVERY_MS })}`;
}
