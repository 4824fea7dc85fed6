// A job's attempts on one axis of time, and the same as a table.

import { html, svg } from "../core/html.js";
import { intervals } from "../core/intervals.js";
import { storeNow } from "../live.js";
import { utc } from "../prefs.js";
import { to } from "../router.js";
import { GLYPHS, between, clock, duration, firstLine, statusWord } from "../words.js";
import { status, time } from "./bits.js";

/** @typedef {import("../types.d.ts").Attempt} Attempt */

const ROW = 20;
const TOP = 18;
/** The newest ones; all are in the table on demand. */
const SHOWN = 50;

/** @param {{ created_at: string, status: string, run_at: string }} job @param {Attempt[]} attempts oldest first @param {boolean} showAll @param {() => void} [more] */
export function timeline(job, attempts, showAll, more) {
  const shown = showAll ? attempts : attempts.slice(-SHOWN);
  const waits = job.status === "queued" || job.status === "retrying";
  const now = storeNow();
  const begin = shown.length < attempts.length ? /** @type {Attempt} */ (shown[0]).started_at : job.created_at;
  const parts = intervals({ created_at: begin, attempts: shown, until: now, waits });
  const rows = [...new Set(parts.map((one) => one.attempt))];
  const y = (/** @type {number} */ attempt) => TOP + rows.indexOf(attempt) * ROW + ROW / 2;
  const height = TOP + rows.length * ROW + 4;
  const byNumber = new Map(shown.map((one) => [one.attempt, one]));
  return html`<section class="part" aria-label="attempts"><h2>Attempts <span class="meta">${attempts.length === 0 ? "none yet" : attempts.length}</span></h2>
    ${attempts.length === 0 ? "" : html`<div class="axis-of-attempts wide-only"><svg class="timeline" role="img" aria-label="attempts over time; the table below says the same" height=${height}>
      ${svg`<text x="0" y="11">${clock(begin, now, utc.value)}</text><text x="100%" y="11" text-anchor="end">${waits || job.status === "running" ? "now" : clock(parts.at(-1)?.to ?? now, now, utc.value)}</text>`}
      ${parts.map((one) => {
        const attempt = byNumber.get(one.attempt);
        const outcome = attempt?.outcome ?? "running";
        const [left, right] = [one.x, one.x + one.width];
        if (one.kind === "run") {
          const toLeft = right > 66;
          const text = `${GLYPHS[outcome] ?? ""} ${statusWord(outcome)} · ${attempt?.worker ?? ""} · ${duration(one.to - one.from)}`;
          return svg`<line class="run" data-status=${outcome} x1=${`${left}%`} x2=${`${right}%`} y1=${y(one.attempt)} y2=${y(one.attempt)}></line><text x=${`${toLeft ? left : right}%`} dx=${toLeft ? -6 : 6} y=${y(one.attempt) + 4} text-anchor=${toLeft ? "end" : "start"}>${toLeft ? `${one.attempt}  ${text}` : `${text}`}</text>`;
        }
        const middle = (left + right) / 2;
        return svg`<line class="wait" x1=${`${left}%`} x2=${`${right}%`} y1=${y(one.attempt)} y2=${y(one.attempt)}></line>${one.folded ? svg`<line class="fold" x1=${`${middle}%`} x2=${`${middle}%`} y1="14" y2=${height}></line><text x=${`${middle}%`} y="11" text-anchor="middle">⌇ ${duration(one.to - one.from)} ⌇</text>` : ""}`;
      })}
    </svg></div>
    ${table(attempts.slice(-(showAll ? attempts.length : SHOWN)), job)}
    ${!showAll && attempts.length > SHOWN ? html`<p><button type="button" @click=${() => more?.()}>${attempts.length - SHOWN} older attempts</button></p>` : ""}`}
  </section>`;
}

/** The accessible form. @param {Attempt[]} attempts @param {{ created_at: string }} job */
const table = (attempts, job) => html`<div class="table-wrap"><table class="data" aria-label="attempts">
  <thead><tr><th scope="col" class="num">#</th><th scope="col">outcome</th><th scope="col">worker</th><th scope="col">started</th><th scope="col" class="num">waited</th><th scope="col" class="num">ran</th><th scope="col" class="grow">what it said</th></tr></thead>
  <tbody>${[...attempts].reverse().map((one, index, all) => {
    const before = all[index + 1];
    return html`<tr><th scope="row" class="num">${one.attempt}</th><td>${status(one.outcome ?? "running")}</td><td><a href=${to.worker(one.worker)}>${one.worker}</a></td><td>${time(one.started_at)}</td>
      <td class="num" data-label="waited">${before ? between(before.ended_at, one.started_at) : one.attempt === 1 ? between(job.created_at, one.started_at) : "–"}</td><td class="num" data-label="ran">${one.ended_at ? between(one.started_at, one.ended_at) : duration(storeNow() - Date.parse(one.started_at))}</td><td class="grow"><span class="error-text">${firstLine(one.error)}</span></td></tr>`;
  })}</tbody></table></div>`;
