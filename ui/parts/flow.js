// Flow and waits of one queue or kind over an hour, a day or a week: the same two charts as on the overview.
//
// Statistics, not truth: a crash loses up to 10 s of them, and the caption says so.

import { get } from "../api.js";
import { chart, chartCursor, wholeSteps } from "../core/chart.js";
import { html } from "../core/html.js";
import { resource } from "../core/resource.js";
import { storeNow } from "../live.js";
import { utc } from "../prefs.js";
import { href, place } from "../router.js";
import { clock, duration, rate } from "../words.js";

const EVERY_MS = 10_000;
const HOUR_MS = 3_600_000;
const SPANS = /** @type {Record<string, { ms: number, step: string }>} */ ({
  "1h": { ms: HOUR_MS, step: "minute" },
  "24h": { ms: 24 * HOUR_MS, step: "minute" },
  "7d": { ms: 168 * HOUR_MS, step: "hour" },
});

/** @param {import("../types.d.ts").Screen} screen @param {{ queue?: string, kind?: string }} of */
export function flowCharts(screen, of) {
  const span = () => (screen.query.value.get("~span") ?? "1h") in SPANS ? screen.query.value.get("~span") ?? "1h" : "1h";
  const chosen = () => /** @type {{ ms: number, step: string }} */ (SPANS[span()]);
  /** @param {AbortSignal} abort @returns {Promise<import("../types.d.ts").Series | null>} */
  const read = async (abort) => {
    const query = { ...of, from: new Date(storeNow() - chosen().ms).toISOString(), step: chosen().step };
    try {
      return await get("/series", { query, signal: abort });
    } catch (error) {
      if (/** @type {{ status?: number }} */ (error).status === 404) return null;
      throw error;
    }
  };
  const series = resource(read, { ending: screen.ending, everyMs: EVERY_MS });
  const moment = chartCursor();
  let shown = span();
  return () => {
    if (span() !== shown) {
      shown = span();
      queueMicrotask(series.refresh);
    }
    const data = wholeSteps(series.value.data);
    if (!data || data.t.length < 2) return "";
    const perSecond = (/** @type {number[]} */ values) => values.map((value) => value / (data.step_ms / 1000));
    const shared = { t: data.t, cursor: moment, clock: (/** @type {string} */ at) => clock(at, storeNow(), utc.value) };
    const link = (/** @type {string} */ name) => html`<a class="meta" href=${href(place.value.path, { "~span": name })} aria-current=${name === span() ? "true" : null}>${name}</a>`;
    return html`<section class="part"><div class="section-head"><h2>Flow</h2>${Object.keys(SPANS).map(link)}<span class="meta">statistics; a crash can lose 10 s of them</span></div>
      <div class="charts">${chart({ ...shared, label: "jobs/s", unit: rate, lines: [{ name: "enqueued", values: perSecond(data.enqueued), kind: "dashed", tone: "soft" }, { name: "succeeded", values: perSecond(data.succeeded) }, { name: "failed", values: perSecond(data.failed), tone: "dead" }] })}
      ${chart({ ...shared, label: "wait before a start", unit: duration, lines: [{ name: "p95", values: data.wait_p95_ms, tone: "ink" }, { name: "p50", values: data.wait_p50_ms, tone: "soft" }] })}
      ${chart({ ...shared, label: "run", unit: duration, lines: [{ name: "p95", values: data.run_p95_ms, tone: "ink" }, { name: "p50", values: data.run_p50_ms, tone: "soft" }] })}</div></section>`;
  };
}
