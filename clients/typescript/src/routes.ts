/**
 * What every group of operator calls is made of: one route in one line, lists that follow their links, deletes that may be
 * repeated. It knows no routes: those are in operator.ts and client.ts.
 */
import { Problem } from "./errors.js";
import type { Answer, Call } from "./http.js";

export type Caller = <T>(call: Call) => Promise<Answer<T>>;
type Query = NonNullable<Call["query"]>;
export type Items<T> = AsyncGenerator<T, void, undefined>;

/** A segment of a path. */
export const seg = encodeURIComponent;

/** All items of a list, following `Link: rel="next"`. A page can be empty and have a next. */
export async function* pages<T>(call: Caller, path: string, query: Query): Items<T> {
  let next: Query | undefined = query;
  while (next) {
    const answer: Answer<T[]> = await call<T[]>({ method: "GET", path, query: next });
    yield* answer.body;
    next = nextQuery(answer.headers.get("link"));
  }
}

/** Only the query is taken from the link: the token must not follow it to another host. */
function nextQuery(link: string | null): Query | undefined {
  const target = link?.match(/<([^>]*)>\s*;\s*rel="?next"?/)?.[1];
  if (target === undefined) return undefined;
  return Object.fromEntries(new URLSearchParams(target.slice(target.indexOf("?") + 1)));
}

/**
 * DELETE. An answer that was lost leaves open whether it worked; asked again, 404 then means that it has.
 */
export async function remove(call: Caller, path: string): Promise<void> {
  try {
    await call({ method: "DELETE", path, repeat: "unsent" });
  } catch (error) {
    if (error instanceof Problem && error.code !== "outcome_unknown") throw error;
    await call({ method: "DELETE", path }).catch((again: unknown) => {
      if (!(again instanceof Problem && again.status === 404)) throw again;
    });
  }
}

/** One route each, in words: `read`, `items`, `replace`, `act`, `drop`. */
export class Routes {
  readonly #call: Caller;

  constructor(call: Caller) {
    this.#call = call;
  }

  protected async read<T>(path: string): Promise<T> {
    return (await this.#call<T>({ method: "GET", path })).body;
  }

  protected items<T>(path: string, query: Query = {}): Items<T> {
    return pages<T>(this.#call, path, query);
  }

  protected async replace<T>(path: string, body: unknown, headers: Record<string, string> = {}): Promise<T> {
    return (await this.#call<T>({ method: "PUT", path, body, headers })).body;
  }

  /** `always` for what may arrive twice without harm. */
  protected async act<T>(path: string, body?: unknown, repeat: "always" | "unsent" = "unsent"): Promise<T> {
    return (await this.#call<T>({ method: "POST", path, body, repeat })).body;
  }

  protected async patch<T>(path: string, body: unknown): Promise<T> {
    return (await this.#call<T>({ method: "PATCH", path, body, repeat: "always" })).body;
  }

  protected drop(path: string): Promise<void> {
    return remove(this.#call, path);
  }
}
