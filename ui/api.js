// Calls of the server's public JSON API, and where it is. The only place that calls fetch.
//
// The page is served at <prefix>/ui/_/<hash>/, so the API is three levels up, whatever the prefix is. A session is a cookie that
// scripts cannot read; nothing here ever holds a token. live.js keeps what changes by itself.

import { signal } from "./core/signal.js";

/** @typedef {import("./openapi.d.ts").components["schemas"]} Schemas */
/** @typedef {Schemas["Session"]} Session */
/** @typedef {{ query?: Record<string, unknown> | URLSearchParams | string, body?: unknown, signal?: AbortSignal | undefined, headers?: Record<string, string>, timeoutMs?: number, text?: boolean }} Options */

/** Where the API is; ends with a slash. */
export const API = new URL("../../../", import.meta.url);
/** Where the pages are; ends with a slash. */
export const UI = new URL("../../", import.meta.url);
/** What version of the assets is loaded. */
export const ASSETS = new URL("./", import.meta.url).pathname.split("/").at(-2) ?? "";

/** An answer that is not the one hoped for: RFC 9457, or none at all (`status` 0). */
export class Problem extends Error {
  /** @param {{ status: number, code?: string, title?: string, detail?: string, request_id?: string, errors?: unknown }} body */
  constructor(body) {
    super(body.detail || body.title || `the server answered ${body.status}`);
    this.status = body.status;
    this.code = body.code ?? "";
    this.title = body.title ?? "";
    this.requestId = body.request_id ?? "";
    this.errors = body.errors;
  }
}

/** Who is looking; null until known, or when nobody is logged in. @type {import("./core/signal.js").Signal<Session | null>} */
export const session = signal(/** @type {Session | null} */ (null));

const IMPLIED = /** @type {Record<string, string[]>} */ ({ admin: ["read", "operate", "enqueue", "work", "admin"], operate: ["read", "operate"] });

/** Whether the caller may; buttons that may not be used are not shown. @param {"read" | "operate" | "enqueue" | "admin"} scope */
export function may(scope) {
  return (session.value?.scopes ?? []).some((has) => has === scope || (IMPLIED[has] ?? []).includes(scope));
}

/** @param {string} path @param {Options["query"]} [query] */
export function apiUrl(path, query) {
  const url = new URL(path.replace(/^\//, ""), API);
  const given = query instanceof URLSearchParams || typeof query === "string" ? new URLSearchParams(query) : new URLSearchParams();
  if (query && !(query instanceof URLSearchParams) && typeof query === "object") {
    for (const [name, value] of Object.entries(query)) if (value !== undefined && value !== null && value !== "") given.set(name, String(value));
  }
  // What is the page's own is never sent.
  for (const [name, value] of given) if (!name.startsWith("~")) url.searchParams.append(name, value);
  return url;
}

/**
 * @param {string} method @param {string} path from the API's root, like `/jobs` @param {Options} [options]
 * @returns {Promise<{ status: number, data: any, headers: Headers }>} @throws {Problem}
 */
export async function call(method, path, { query, body, signal: abort, headers = {}, timeoutMs = 30_000, text = false } = {}) {
  const timeout = AbortSignal.timeout(timeoutMs);
  /** @type {RequestInit} */
  const request = {
    method,
    credentials: "same-origin",
    redirect: "error",
    headers: { accept: "application/json", ...headers },
    signal: abort ? any(abort, timeout) : timeout,
  };
  if (body !== undefined) {
    request.body = typeof body === "string" ? body : JSON.stringify(body);
    request.headers = { ...request.headers, "content-type": "application/json" };
  }
  // One of the two proofs that a request with the cookie comes from this page; the browser adds the other.
  if (method !== "GET") request.headers = { ...request.headers, "x-steadfast-session": "1" };
  let response;
  try {
    response = await fetch(apiUrl(path, query), request);
  } catch (error) {
    if (abort?.aborted) throw error;
    throw new Problem({ status: 0, code: "no_answer", detail: timeout.aborted ? `no answer within ${timeoutMs / 1000} s` : "the server cannot be reached" });
  }
  const answer = await response.text();
  const isJson = (response.headers.get("content-type") ?? "").includes("json");
  if (!response.ok && response.status !== 304) {
    const problem = isJson ? parse(answer) : {};
    if (response.status === 401 && path !== "/session") session.value = null;
    throw new Problem({ ...problem, status: response.status, request_id: problem.request_id ?? response.headers.get("x-request-id") ?? "" });
  }
  return { status: response.status, data: text ? answer : answer && isJson ? parse(answer) : null, headers: response.headers };
}

/** @param {string} text */
function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

/** AbortSignal.any is younger than the browsers we serve. @param {AbortSignal} first @param {AbortSignal} second */
function any(first, second) {
  if (AbortSignal.any) return AbortSignal.any([first, second]);
  const both = new AbortController();
  for (const one of [first, second]) one.aborted ? both.abort(one.reason) : one.addEventListener("abort", () => both.abort(one.reason), { once: true });
  return both.signal;
}

/** The data of a GET. @param {string} path @param {Options} [options] @returns {Promise<any>} */
export const get = async (path, options) => (await call("GET", path, options)).data;

/** @param {string} path @param {unknown} [body] @param {Options} [options] @returns {Promise<any>} */
export const post = async (path, body, options) => (await call("POST", path, { ...options, body })).data;

/** The query of the next page, from `Link`; null if there is none. @param {Headers} headers */
export function nextPage(headers) {
  const link = /<([^>]*)>;\s*rel="next"/.exec(headers.get("link") ?? "");
  return link ? new URL(/** @type {string} */ (link[1]), API).searchParams : null;
}

/** The same call for a terminal; the token is named, never known. @param {string} method @param {string} path @param {Options} [options] */
export function curl(method, path, { query, body } = {}) {
  const quote = (/** @type {string} */ text) => `'${text.replaceAll("'", "'\\''")}'`;
  const parts = ["curl"];
  if (method !== "GET") parts.push("-X", method);
  parts.push(quote(apiUrl(path, query).href));
  if (!session.peek()?.open) parts.push('-H "authorization: Bearer $STEADFAST_TOKEN"');
  if (body !== undefined) parts.push("-H 'content-type: application/json'", "-d", quote(typeof body === "string" ? body : JSON.stringify(body)));
  return parts.join(" ");
}

/** Who we are. Null: nobody; the shell then shows the login. @returns {Promise<Session | null>} */
export async function whoAmI() {
  try {
    session.value = await get("/session");
  } catch (error) {
    if (!(error instanceof Problem) || error.status !== 401) throw error;
    session.value = null;
  }
  return session.value;
}
