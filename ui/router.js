// Where we are, and how to get elsewhere: the page's URL is the API's with /ui in front, with the same query.
//
// Keys of the query that begin with `~` are the page's own and never sent to the server. Which screen is shown where is in
// screens/index.js.

import { UI } from "./api.js";
import { signal } from "./core/signal.js";
import { queryOf } from "./core/query.js";

/** @typedef {{ path: string, query: URLSearchParams, href: string }} Place */

/** @returns {Place} */
const here = () => {
  const path = `/${location.pathname.slice(UI.pathname.length).replace(/\/+$/, "")}`;
  return { path, query: new URLSearchParams(location.search), href: location.pathname + location.search };
};

export const place = signal(here());

/** The link of a page. @param {string} path like `/jobs` @param {string | Record<string, string> | URLSearchParams} [query] */
export function href(path, query = "") {
  const text = typeof query === "string" ? query : query instanceof URLSearchParams ? query.toString() : queryOf(query);
  return UI.pathname.replace(/\/$/, "") + path + (text ? `?${text}` : "");
}

const part = encodeURIComponent;
/** Links to things, so that no screen spells a path. */
export const to = {
  overview: () => href("/"),
  jobs: (/** @type {Record<string, string>} */ filter = {}) => href("/jobs", filter),
  job: (/** @type {string} */ id) => href(`/jobs/${part(id)}`),
  queues: (/** @type {Record<string, string>} */ filter = {}) => href("/queues", filter),
  queue: (/** @type {string} */ queue) => href(`/queues/${part(queue)}`),
  kinds: (/** @type {Record<string, string>} */ filter = {}) => href("/kinds", filter),
  kind: (/** @type {string} */ kind) => href(`/kinds/${part(kind)}`),
  errors: (/** @type {Record<string, string>} */ filter = {}) => href("/errors", filter),
  error: (/** @type {string} */ fingerprint) => href(`/errors/${part(fingerprint)}`),
  workers: (/** @type {Record<string, string>} */ filter = {}) => href("/workers", filter),
  worker: (/** @type {string} */ worker) => href(`/workers/${part(worker)}`),
  operations: (/** @type {Record<string, string>} */ filter = {}) => href("/operations", filter),
  operation: (/** @type {string} */ id) => href(`/operations/${part(id)}`),
  schedules: (/** @type {Record<string, string>} */ filter = {}) => href("/schedules", filter),
  schedule: (/** @type {string} */ name) => href(`/schedules/${part(name)}`),
  limits: (/** @type {Record<string, string>} */ filter = {}) => href("/limits", filter),
  audit: (/** @type {Record<string, string>} */ filter = {}) => href("/audit", filter),
  tokens: (/** @type {Record<string, string>} */ filter = {}) => href("/tokens", filter),
  login: (/** @type {string} */ after = "") => href("/login", after ? { to: after } : {}),
  /** A path that the server names, like `/ui/workers`. */
  see: (/** @type {string} */ path) => (path.startsWith("/ui/") ? href(path.slice(3)) : href("/")),
};

/** @param {string} url of a page of ours @param {{ replace?: boolean, keepScroll?: boolean }} [how] */
export function go(url, { replace = false, keepScroll = false } = {}) {
  const target = new URL(url, location.href);
  if (target.origin !== location.origin || !target.pathname.startsWith(UI.pathname)) return void location.assign(target);
  if (!replace) {
    rememberScroll();
    history.pushState({ scroll: 0 }, "", target);
  } else history.replaceState(history.state, "", target);
  place.value = here();
  if (!replace && !keepScroll) scrollTo(0, 0);
}

/** Changes the query of this page, without a step for Back. @param {(query: URLSearchParams) => void} change @param {{ push?: boolean }} [how] */
export function setQuery(change, { push = false } = {}) {
  const query = new URLSearchParams(location.search);
  change(query);
  const text = query.toString();
  go(location.pathname + (text ? `?${text}` : ""), { replace: !push, keepScroll: true });
}

const rememberScroll = () => history.replaceState({ ...history.state, scroll: scrollY }, "");

/** Where the page was scrolled to when it was left by a link; a screen asks once its rows are there. */
export const scrollToRestore = () => /** @type {number} */ (history.state?.scroll ?? 0);

/** @template T @param {Record<string, T>} routes by pattern, like `/jobs/:id` @param {string} path */
export function match(routes, path) {
  const given = path.split("/");
  for (const [pattern, value] of Object.entries(routes)) {
    const wanted = pattern.split("/");
    if (wanted.length !== given.length) continue;
    /** @type {Record<string, string>} */
    const params = {};
    const fits = wanted.every((piece, index) => {
      const text = /** @type {string} */ (given[index]);
      if (!piece.startsWith(":")) return piece === text;
      try {
        params[piece.slice(1)] = decodeURIComponent(text);
      } catch {
        return false;
      }
      return text !== "";
    });
    if (fits) return { value, params, pattern };
  }
  return null;
}

/** Links of our own pages are followed here, everything else by the browser. */
export function startRouter() {
  history.scrollRestoration = "manual";
  addEventListener("popstate", () => {
    place.value = here();
  });
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
    if (!(link instanceof HTMLAnchorElement) || link.target || link.hasAttribute("download")) return;
    if (link.origin !== location.origin || !link.pathname.startsWith(UI.pathname) || link.getAttribute("href")?.startsWith("#")) return;
    event.preventDefault();
    go(link.href);
  });
}
