// The page: starts everything, shows the screen that belongs to the URL, and the login where there is no session.
//
// Screens live as long as their path: a change of the query alone reaches them as a signal. What is particular to one is in screens/.

import { Problem, curl, may, session, whoAmI } from "./api.js";
import { html, render, repeat } from "./core/html.js";
import { computed, effect, signal, untracked } from "./core/signal.js";
import { bind, startKeys } from "./keys.js";
import { pulse, togglePause, watch } from "./live.js";
import { startTicking } from "./parts/bits.js";
import { showCommand } from "./parts/dialog.js";
import { failed, forbidden, skeleton } from "./parts/states.js";
import { announce, startToasts } from "./parts/toast.js";
import { toggleZone } from "./prefs.js";
import { go, match, place, startRouter, to } from "./router.js";
import { ALIASES, ROUTES } from "./screens/index.js";
import { bar, header, rail, showHelp } from "./shell.js";
import { quickFilter } from "./parts/quick_filter.js";

/** @typedef {import("./types.d.ts").Screen} Screen */
/** @typedef {{ id: number, path: string, view: () => unknown, ending: AbortController, name: string, curl: (() => string) | null, hasFilter: boolean }} Shown */

const shown = signal(/** @type {Shown | null} */ (null));
const title = signal("");

let made = 0;

/** @param {string} path */
async function show(path) {
  const alias = ALIASES[path];
  if (alias) return go(to.see(`/ui${alias}`), { replace: true });
  const found = match(ROUTES, path);
  shown.peek()?.ending.abort();
  const ending = new AbortController();
  /** @type {Shown} */
  const next = { id: ++made, path, view: () => skeleton(8), ending, name: found?.value.name ?? "Nothing here", curl: null, hasFilter: path === "/jobs" };
  title.value = next.name;
  shown.value = next;
  if (!found) {
    next.view = () => html`<h1>Nothing here</h1><div class="empty"><p>There is no page <code>${path}</code>.</p><p><a href=${to.overview()}>Overview</a> · <a href=${to.jobs()}>Jobs</a></p></div>`;
    return void (shown.value = { ...next });
  }
  // A token that may only enqueue or work.
  if (path !== "/login" && !may("read")) {
    next.view = () => html`<h1>${next.name}</h1>${forbidden("it takes a token with the scope read, operate or admin to look")}`;
    return void (shown.value = { ...next });
  }
  try {
    const { default: make } = await found.value.load();
    if (ending.signal.aborted) return;
    next.view = untracked(() => make(screenOf(next, found.params)));
  } catch (error) {
    if (ending.signal.aborted) return;
    reportError(error);
    next.view = () => html`<h1>${next.name}</h1>${failed(new Problem({ status: 0, detail: "this screen could not be loaded; the server may have a new version: reload the page" }), () => location.reload())}`;
  }
  shown.value = { ...next };
}

/** The query of this path: a screen that is being left does not see the next one's. @param {string} path */
function queryAt(path) {
  let last = place.peek().query;
  return computed(() => (place.value.path === path ? (last = place.value.query) : last));
}

/** @param {Shown} next @param {Record<string, string>} params @returns {Screen} */
const screenOf = (next, params) => ({
  params,
  query: queryAt(next.path),
  ending: next.ending.signal,
  keys: (bindings) => bind(bindings, next.ending.signal),
  title: (text) => void (title.value = text),
  curl: (call) => void (next.curl = call),
});

const showCurl = () => {
  const call = shown.peek()?.curl;
  if (call) showCommand(call());
};

function startShell() {
  const main = /** @type {HTMLElement} */ (document.getElementById("main"));
  effect(() => render(rail(), /** @type {Element} */ (document.getElementById("rail"))));
  effect(() => render(bar(), /** @type {Element} */ (document.getElementById("bar"))));
  effect(() => render(header(shown.value?.hasFilter || !may("read") ? "" : quickFilter(), shown.value?.curl ? showCurl : null), /** @type {Element} */ (document.getElementById("top"))));
  // Keyed: nothing of one job's page is left on the next one's.
  effect(() => render(repeat(shown.value ? [shown.value] : [], (one) => one.id, (one) => one.view()), main));
  effect(() => document.body.classList.toggle("bare", !session.value));
  effect(() => {
    const reds = (pulse.value?.problems ?? []).filter((one) => one.severity === "red" && !one.snoozed_until).length;
    document.title = `${reds ? `(${reds}) ` : ""}${title.value} · steadfast`;
    const icon = /** @type {HTMLLinkElement | null} */ (document.querySelector("link[rel=icon]"));
    const href = new URL(reds ? "./icon_red.svg" : "./icon.svg", import.meta.url).href;
    // Absolute: a relative one would lead elsewhere after the first click.
    if (icon && icon.getAttribute("href") !== href) icon.href = href;
  });
  // Only what appears or ends is said, never a tick.
  let known = /** @type {Map<string, string> | null} */ (null);
  effect(() => {
    const problems = pulse.value?.problems;
    if (!problems) return;
    const now = new Map(problems.filter((one) => one.severity !== "note").map((one) => [one.key, one.says]));
    if (known) {
      for (const [key, says] of now) if (!known.has(key)) announce(`New problem: ${says}`);
      for (const [key, says] of known) if (!now.has(key)) announce(`Ended: ${says}`);
    }
    known = now;
  });
}

function startScreens() {
  let path = "";
  effect(() => {
    const { path: next, href } = place.value;
    const known = session.value;
    untracked(() => {
      if (!known && next !== "/login") return go(to.login(href), { replace: true });
      if (next === path && shown.peek()) return;
      const first = path === "";
      path = next;
      show(next);
      // For screen readers and the keyboard, a new page begins at its top.
      if (!first) /** @type {HTMLElement} */ (document.getElementById("main")).focus({ preventScroll: true });
    });
  });
}

bind({
  "?": ["these keys", () => void showHelp()],
  "/": ["filter", () => /** @type {HTMLElement | null} */ (document.querySelector("#filter, #quick-filter"))?.focus()],
  p: ["pause or resume what is live", togglePause],
  u: ["times in UTC or local", toggleZone],
  y: ["this view as a curl command", showCurl],
});

async function start() {
  startToasts(/** @type {Element} */ (document.getElementById("toasts")), /** @type {Element} */ (document.getElementById("said")));
  startTicking();
  startRouter();
  startKeys();
  try {
    await whoAmI();
  } catch (error) {
    render(failed(/** @type {Error} */ (error), () => location.reload()), /** @type {Element} */ (document.getElementById("main")));
    return;
  }
  startShell();
  startScreens();
  effect(() => {
    if (session.value) untracked(watch);
  });
  document.documentElement.classList.add("started");
}

// For the console and for tests.
Object.assign(globalThis, { steadfast: { pulse, session, curl, go } });

start();
