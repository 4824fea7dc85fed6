// The frame around every screen: header with the state of the line, rail with live counts, help.
//
// It shows the pulse; it never fetches. app.js puts the screen into <main>.

import { ASSETS, call, may, session } from "./api.js";
import { html, repeat } from "./core/html.js";
import { GOTO, bound } from "./keys.js";
import { clockTick, hangUp, heardAt, line, pulse, togglePause } from "./live.js";
import { openDialog } from "./parts/dialog.js";
import { letterKeys, nextTheme, roomy, theme, toggleDensity, toggleLetterKeys, toggleZone, utc } from "./prefs.js";
import { go, place, to } from "./router.js";
import { GLYPHS, clock, count, duration, zoneName } from "./words.js";

/** @typedef {{ name: string, href: () => string, path: string, count?: () => unknown, tone?: () => string, may?: "admin" | "operate" }} Entry */

const totals = () => pulse.value?.totals;
const reds = () => (pulse.value?.problems ?? []).filter((one) => one.severity !== "note" && !one.snoozed_until).length;

/** @type {Entry[]} */
const RAIL = [
  { name: "Overview", path: "/", href: to.overview, count: () => reds() || "", tone: () => (pulse.value?.problems?.some((one) => one.severity === "red" && !one.snoozed_until) ? "red" : "amber") },
  { name: "Jobs", path: "/jobs", href: to.jobs },
  { name: "Dead letters", path: "/errors", href: () => to.errors({ dead: "true" }), count: () => count(totals()?.failed_permanent), tone: () => (totals()?.failed_permanent ? "" : "zero") },
  { name: "Queues", path: "/queues", href: to.queues, count: () => (pulse.value ? `${pulse.value.more_queues ? "≥ " : ""}${pulse.value.queues.length}` : "") },
  { name: "Kinds", path: "/kinds", href: to.kinds },
  { name: "Workers", path: "/workers", href: to.workers, count: () => (pulse.value?.workers ? count(pulse.value.workers.live) : "") },
  { name: "Operations", path: "/operations", href: to.operations, count: () => pulse.value?.operations.length || "" },
  { name: "Schedules", path: "/schedules", href: to.schedules },
  { name: "Limits", path: "/limits", href: to.limits },
  { name: "Audit", path: "/audit", href: to.audit, may: "operate" },
  { name: "Tokens", path: "/tokens", href: to.tokens, may: "admin" },
];

const STATES = /** @type {const} */ (["queued", "running", "retrying"]);

/** @param {string} path */
const isHere = (path) => (path === "/" ? place.value.path === "/" : place.value.path === path || place.value.path.startsWith(`${path}/`));

/** @param {Entry} entry */
const railLink = (entry) => html`<li><a href=${entry.href()} aria-current=${isHere(entry.path) ? "page" : null}><span>${entry.name}</span><span class="n" data-tone=${entry.tone?.() ?? null}>${entry.count?.() ?? ""}</span></a>
  ${entry.path === "/jobs" ? html`<ul>${STATES.map((status) => html`<li><a href=${to.jobs({ status })}><span><span class="glyph" data-status=${status} aria-hidden="true">${GLYPHS[status]}</span> ${status}</span><span class="n">${count(totals()?.[status])}</span></a></li>`)}</ul>` : ""}</li>`;

export const rail = () => html`<nav class="rail" aria-label="screens">
  <a class="brand" href=${to.overview()}>steadfast</a>
  <ul>${repeat(RAIL.filter((entry) => !entry.may || may(entry.may)), (entry) => entry.path, railLink)}</ul>
  <div class="rail-foot">
    <button type="button" class="quiet" @click=${showHelp}>? keys</button>
    <button type="button" class="quiet" @click=${nextTheme} title="theme">◐ ${theme.value ?? "system"}</button>
    <button type="button" class="quiet" aria-pressed=${String(roomy.value)} @click=${toggleDensity}>roomy</button>
  </div>
</nav>`;

const BAR = ["/", "/jobs", "/errors", "/workers"];

/** On narrow screens, at the bottom. */
export const bar = () => html`<nav class="bar" aria-label="main screens">
  ${RAIL.filter(({ path }) => BAR.includes(path)).map((entry) => html`<a href=${entry.href()} aria-current=${isHere(entry.path) ? "page" : null}>${entry.name.split(" ")[0]}<span class="n" data-tone=${entry.tone?.() ?? null}>${entry.path === "/" ? (entry.count?.() ?? "") : ""}</span></a>`)}
  <button type="button" aria-haspopup="dialog" @click=${showMore}>More</button>
</nav>`;

const showMore = () => openDialog({ title: "Screens", body: () => html`<ul class="more">${RAIL.filter((entry) => !entry.may || may(entry.may)).map((entry) => html`<li><a href=${entry.href()} @click=${closeDialogs}><span>${entry.name}</span> <span class="n">${entry.count?.() ?? ""}</span></a></li>`)}<li><button type="button" @click=${nextTheme}>theme: ${theme.value ?? "system"}</button></li>${session.value && !session.value.open ? html`<li><button type="button" @click=${() => (closeDialogs(), logOut())}>log out ${session.value.name}</button></li>` : ""}</ul>` });

const closeDialogs = () => document.querySelectorAll("dialog[open]").forEach((one) => /** @type {HTMLDialogElement} */ (one).close());

function lineView() {
  void clockTick.value;
  const { state, retryAt, says } = line.value;
  const old = heardAt.value ? Date.now() - heardAt.value : 0;
  const words = {
    starting: "connecting",
    live: "live",
    polling: "live (polling)",
    paused: "paused",
    retrying: `no answer, trying again in ${duration(Math.max(0, (retryAt ?? 0) - Date.now()))}`,
    stopping: "server is stopping",
  }[state];
  const bad = state === "retrying" || state === "stopping";
  return html`<button type="button" class="line quiet" data-state=${state} title=${says ?? (state === "paused" ? "resume (p)" : "pause (p)")} @click=${togglePause}><span class="glyph" aria-hidden="true">${bad ? "!" : state === "paused" ? "‖" : "●"}</span> <span class="word">${words}${bad && old > 10_000 ? html`; data of ${duration(old)} ago` : ""}</span></button>`;
}

/** @param {unknown} filter the field, on screens that have none of their own @param {(() => void) | null} showCurl */
export function header(filter, showCurl) {
  void clockTick.value;
  const who = session.value;
  const { assets } = pulse.value ?? {};
  return html`<header class="top">
    <a class="brand narrow-only" href=${to.overview()}>steadfast</a>
    ${filter}
    <span class="space"></span>
    ${assets && assets !== ASSETS ? html`<button type="button" class="primary" @click=${() => location.reload()}>new version: reload</button>` : ""}
    ${lineView()}
    <button type="button" class="quiet wide-only" title="local time or UTC (u)" @click=${toggleZone}><time>${clock(clockTick.value, clockTick.value, utc.value)}</time> ${zoneName(utc.value)}</button>
    ${showCurl ? html`<button type="button" class="quiet wide-only" title="this view as a command (y)" @click=${showCurl}>curl</button>` : ""}
    <span class="who wide-only">${who ? (who.open ? html`<span class="meta" title="no token was made yet: everybody on this machine may do everything">open on loopback</span>` : html`<span>${who.name}</span> <span class="meta">${may("admin") ? "admin" : may("operate") ? "operate" : may("read") ? "read-only" : who.scopes.join(", ")}</span> <button type="button" class="quiet" @click=${logOut}>log out</button>`) : ""}</span>
  </header>`;
}

export async function logOut() {
  hangUp();
  await call("DELETE", "/session").catch(() => {});
  session.value = null;
  go(to.login());
}

const GROUPS = ["everywhere", "on this screen"];

export const showHelp = () =>
  openDialog({
    title: "Keys",
    wide: true,
    body: () => html`<div class="help">
      ${repeat(bound.value, (bindings) => Object.keys(bindings).join(), (bindings, index) => html`<section><h3>${GROUPS[index] ?? "on this screen"}</h3><dl>${Object.entries(bindings).map(([key, [says]]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${says}</dd></div>`)}</dl></section>`)}
      <section><h3>go to: g, then</h3><dl>${Object.entries(GOTO).map(([key, [says]]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${says}</dd></div>`)}</dl></section>
    </div>
    <label class="check"><input type="checkbox" .checked=${letterKeys.value} @change=${toggleLetterKeys}> single letters act</label>`,
  });
