// Workers by host: who is live, deaf, draining or gone; last fetch and last heartbeat apart. Kinds with due jobs and no worker come first.

import { curl, get } from "../api.js";
import { html } from "../core/html.js";
import { resource } from "../core/resource.js";
import { pulse } from "../live.js";
import { ago, status } from "../parts/bits.js";
import { drainWorker } from "../parts/drain.js";
import { empty, loaded } from "../parts/states.js";
import { cursor, table, tableKeys } from "../parts/table.js";
import { may } from "../api.js";
import { to } from "../router.js";
import { count, plural } from "../words.js";

/** @typedef {import("../types.d.ts").Schemas["Worker"]} Worker */

const EVERY_MS = 3_000;
const RANK = /** @type {Record<string, number>} */ ({ deaf: 0, draining: 1, live: 2, gone: 3 });

/** @type {import("../types.d.ts").ScreenMaker} */
export default function workers(screen) {
  const list = resource((abort) => get("/workers", { query: { limit: 200 }, signal: abort }), { ending: screen.ending, everyMs: EVERY_MS });
  const at = cursor();
  screen.curl(() => curl("GET", "/workers"));
  screen.keys(tableKeys({ keys: () => sorted(list.peek().data ?? []).map((one) => one.worker) }));
  return () => html`<h1>Workers</h1>${loaded(list, view, { everyMs: EVERY_MS })}`;

  /** @param {Worker[]} all */
  function view(all) {
    if (all.length === 0) return empty("No worker was seen within a day.", { next: "The built-in kinds run in `steadfast serve`; for your own, start a worker with the Rust library, a client, or over HTTP.", command: "steadfast worker" });
    const of = (/** @type {string} */ state) => all.filter((one) => one.state === state).length;
    const missing = (pulse.value?.problems ?? []).filter((one) => one.code === "no_worker");
    const says = ["live", "deaf", "draining", "gone"].filter(of).map((state) => `${count(of(state))} ${state}`).join(", ");
    return html`<p class="sentence">${plural(all.length, "worker")}: ${says}.</p>
      ${missing.map((one) => html`<p class="notice" data-severity="red">${one.says}</p>`)}
      ${table({
        label: "workers",
        rows: sorted(all),
        key: (one) => one.worker,
        href: (one) => to.worker(one.worker),
        cursor: at,
        mark: (one) => (one.state === "gone" ? "dimmed" : ""),
        columns: [
          { id: "worker", label: "worker", head: true, cell: (one) => html`<a href=${to.worker(one.worker)}>${one.worker}</a>` },
          { id: "state", label: "state", cell: (one) => status(one.state) },
          { id: "busy", label: "busy", num: true, cell: (one) => `${count(one.busy)}${one.concurrency === null ? "" : `/${count(one.concurrency)}`}` },
          { id: "fetch", label: "last fetch", cell: (one) => html`<span class="narrow-only meta">fetched </span>${ago(one.last_fetch_at)}` },
          { id: "beat", label: "last beat", cell: (one) => html`<span class="narrow-only meta">beat </span>${ago(one.last_beat_at)}` },
          { id: "kinds", label: "kinds", grow: true, cell: (one) => (one.kinds ? one.kinds.join(", ") : html`<span class="meta">every kind</span>`) },
          { id: "queues", label: "queues", wide: true, cell: (one) => (one.queues ? one.queues.join(", ") : html`<span class="meta">every queue</span>`) },
          { id: "host", label: "host", wide: true, cell: (one) => one.host ?? "" },
          { id: "version", label: "version", wide: true, cell: (one) => [one.language, one.version].filter(Boolean).join(" ") },
          { id: "act", label: "", cell: (one) => (may("operate") && one.state !== "gone" ? html`<button type="button" class="quiet" @click=${() => drainWorker(one, list.refresh)}>${one.told === "drain" ? "let it go on" : "drain …"}</button>` : "") },
        ],
      })}`;
  }
}

/** Trouble first, then by host and name. @param {Worker[]} all */
const sorted = (all) => [...all].sort((a, b) => (RANK[a.state] ?? 2) - (RANK[b.state] ?? 2) || (a.host ?? "").localeCompare(b.host ?? "") || (a.worker < b.worker ? -1 : 1));
