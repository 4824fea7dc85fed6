/**
 * One HTTP call and its retries. Uses only `fetch`, so it runs in Node, Deno, Bun and at the edge.
 * It knows no routes: those are in client.ts, operator.ts and the worker's files. It never follows a redirect, because
 * the token must not leave for another host.
 */
import { Problem, Unreachable } from "./errors.js";
import type { Problem as ProblemBody } from "./wire.js";

/** First wait between attempts, doubled each time. */
const BACKOFF_FIRST_MS = 200;
/** The longest: a server that restarts is found again within seconds. */
const BACKOFF_LONGEST_MS = 5_000;
/** Failures before anything was sent. Everything else may have arrived. */
const UNSENT = new Set([
  "ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT",
]);
/** These say: not now. 502 and 504 come from proxies. */
const TRY_AGAIN = new Set([429, 502, 503, 504]);

export interface Server {
  /** Without a slash at its end. */
  url: string;
  token: string | undefined;
  /** Of one request. */
  timeoutMs: number;
  /** No new attempt starts later than this after the first one. */
  retryForMs: number;
}

export interface Call {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  path: string;
  query?: Record<string, string | number | boolean | undefined>;
  /** A value to be sent as JSON. */
  body?: unknown;
  /** Or JSON that is text already. */
  json?: string;
  headers?: Record<string, string>;
  timeoutMs?: number;
  signal?: AbortSignal | undefined;
  /**
   * `always`: the call may arrive twice without harm. `unsent` (default for POST): it is repeated only if the server
   * surely has not acted on it.
   */
  repeat?: "always" | "unsent";
}

export interface Answer<T> {
  status: number;
  headers: Headers;
  body: T;
  /** 1, or more if the call was repeated. */
  tries: number;
}

/** Between half of it and all of it, so that a fleet does not return at the same moment. */
export function backoffMs(tries: number): number {
  const full = Math.min(BACKOFF_LONGEST_MS, BACKOFF_FIRST_MS * 2 ** Math.min(tries, 10));
  return full * (0.5 + Math.random() / 2);
}

/** Resolves after `ms`, or rejects with the signal's reason. */
export function delay(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const aborted = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", aborted);
      resolve();
    }, ms);
    signal?.addEventListener("abort", aborted, { once: true });
  });
}

/** True if the same call may succeed later. */
export function isTemporary(error: unknown): boolean {
  return error instanceof Unreachable || (error instanceof Problem && (TRY_AGAIN.has(error.status) || error.status === 408));
}

/** One attempt. Throws `Problem`, `Unreachable`, or the reason of the caller's signal. */
export async function callOnce<T>(server: Server, call: Call): Promise<Answer<T>> {
  const controller = new AbortController();
  const timeoutMs = call.timeoutMs ?? server.timeoutMs;
  const timer = setTimeout(() => controller.abort(new Error(`no answer within ${timeoutMs} ms`)), timeoutMs);
  const abort = (): void => controller.abort(call.signal?.reason);
  if (call.signal?.aborted) abort();
  call.signal?.addEventListener("abort", abort, { once: true });
  try {
    const response = await fetch(server.url + pathOf(call), requestOf(server, call, controller.signal));
    // The body, too, has to arrive before the timeout.
    const text = await response.text();
    if (!response.ok) throw problemOf(response, text);
    return { status: response.status, headers: response.headers, body: parse<T>(response, text), tries: 1 };
  } catch (error) {
    if (error instanceof Problem) throw error;
    if (call.signal?.aborted) throw call.signal.reason;
    throw unreachable(server, call, controller.signal.aborted ? controller.signal.reason : error);
  } finally {
    clearTimeout(timer);
    call.signal?.removeEventListener("abort", abort);
  }
}

/** With retries: 429, 502–504 and connection failures, `Retry-After` honoured, for `retryForMs` at most. */
export async function callWithRetries<T>(server: Server, call: Call): Promise<Answer<T>> {
  const repeat = call.repeat ?? (call.method === "POST" || call.method === "PATCH" ? "unsent" : "always");
  const giveUpAt = performance.now() + server.retryForMs;
  for (let tries = 1; ; tries++) {
    try {
      return { ...(await callOnce<T>(server, call)), tries };
    } catch (error) {
      if (!isTemporary(error) || (repeat === "unsent" && mayHaveHappened(error))) throw error;
      const asked = error instanceof Problem ? (error.retryAfterMs ?? 0) : 0;
      const waitMs = Math.max(asked, backoffMs(tries - 1));
      if (performance.now() + waitMs > giveUpAt) throw error;
      await delay(waitMs, call.signal);
    }
  }
}

function mayHaveHappened(error: unknown): boolean {
  if (error instanceof Unreachable) return error.maybeSent;
  // 502 and 504: a proxy does not know. 408 and 429: refused before anything was done.
  if (error instanceof Problem) return error.code === "outcome_unknown" || error.status === 502 || error.status === 504;
  return true;
}

function pathOf(call: Call): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(call.query ?? {})) if (value !== undefined) query.set(name, String(value));
  return query.size > 0 ? `${call.path}?${query}` : call.path;
}

function requestOf(server: Server, call: Call, signal: AbortSignal): RequestInit {
  const headers: Record<string, string> = { accept: "application/json", ...call.headers };
  if (server.token) headers["authorization"] = `Bearer ${server.token}`;
  const request: RequestInit = { method: call.method, headers, signal, redirect: "manual" };
  const json = call.json ?? (call.body === undefined ? undefined : JSON.stringify(call.body));
  if (json !== undefined) {
    headers["content-type"] = "application/json";
    request.body = json;
  }
  return request;
}

function parse<T>(response: Response, text: string): T {
  if (text === "") return undefined as T;
  try {
    return JSON.parse(text) as T;
  } catch {
    throw new Problem(response.status, { detail: "the answer is not JSON; check the URL" });
  }
}

function problemOf(response: Response, text: string): Problem {
  let body: Partial<ProblemBody> = {};
  try {
    const parsed: unknown = JSON.parse(text);
    if (typeof parsed === "object" && parsed !== null) body = parsed;
  } catch {
    // A proxy's page: the status has to do.
  }
  const location = response.headers.get("location");
  if (location && response.status < 400) body = { ...body, detail: `redirected to ${location}; set that as the URL` };
  return new Problem(response.status, body, retryAfterMs(response.headers.get("retry-after")));
}

function retryAfterMs(header: string | null): number | undefined {
  if (header === null) return undefined;
  const ms = /^\d+$/.test(header) ? Number(header) * 1000 : Date.parse(header) - Date.now();
  return Number.isFinite(ms) && ms > 0 ? ms : undefined;
}

function unreachable(server: Server, call: Call, error: unknown): Unreachable {
  const cause = (error as { cause?: { code?: string; message?: string } } | undefined)?.cause;
  const says = cause?.message || cause?.code || (error instanceof Error ? error.message : String(error));
  const maybeSent = !UNSENT.has(cause?.code ?? "");
  return new Unreachable(`${call.method} ${server.url}${call.path}: ${says}`, maybeSent, error);
}
