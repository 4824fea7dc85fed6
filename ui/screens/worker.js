// One worker: when it was heard of, what it asks for, what it runs and how long each lease still holds.

import { curl, get, may } from "../api.js";
import { html } from "../core/html.js";
import { resource } from "../core/resource.js";
import { cancelJob } from "../parts/acts.js";
import { ago, status, time } from "../parts/bits.js";
import { drainWorker } from "../parts/drain.js";
import { loaded } from "../parts/states.js";
import { cursor, table, tableKeys } from "../parts/table.js";
import { to } from "../router.js";
import { count, plural, shortId } from "../words.js";

/** @typedef {import("../types.d.ts").Schemas["WorkerDetail"]} Worker */

const EVERY_MS = 2_000;

const SAYS = /** @type {Record<string, string>} */ ({
  live: "It fetches and beats.",
  deaf: "It beats but does not fetch, although it could: its process is alive and takes no jobs. Restart it.",
  draining: "It was told to take no more jobs.",
  gone: "It was not heard of for a while. What it ran is run again when its leases have expired.",
});

/** @type {import("../types.d.ts").ScreenMaker} */
export default function worker(screen) {
  const name = screen.params["worker"] ?? "";
  const path = `/workers/${encodeURIComponent(name)}`;
  const one = resource((abort) => get(path, { signal: abort }), { ending: screen.ending, everyMs: EVERY_MS });
  const at = cursor();
  screen.title(name);
  screen.curl(() => curl("GET", path));
  screen.keys(tableKeys({ keys: () => (one.peek().data?.jobs ?? []).map((/** @type {{ job_id: string }} */ job) => job.job_id) }));
  return () => html`${one.value.data ? "" : html`<h1>${name}</h1>`}${loaded(one, view, { everyMs: EVERY_MS })}`;

  /** @param {Worker} data */
  function view(data) {
    return html`<div class="head"><h1>${name}</h1><div class="acts">${may("operate") && data.state !== "gone" ? html`<button type="button" @click=${() => drainWorker(data, one.refresh)}>${data.told === "drain" ? "let it go on" : "drain …"}</button>` : ""}</div></div>
      <p class="sentence">${status(data.state)}. <span class="rest">${SAYS[data.state] ?? ""}</span></p>
      <dl class="facts"><dt>last fetch</dt><dd>${ago(data.last_fetch_at)}</dd><dt>last heartbeat</dt><dd>${ago(data.last_beat_at)}</dd><dt>first seen</dt><dd>${ago(data.started_at)}</dd>
        <dt>slots</dt><dd>${count(data.busy)} of ${count(data.concurrency)} busy</dd>
        <dt>kinds</dt><dd>${data.kinds ? data.kinds.map((kind, index) => html`${index ? ", " : ""}<a href=${to.kind(kind)}>${kind}</a>`) : "every kind"}</dd>
        <dt>queues</dt><dd>${data.queues ? data.queues.map((queue, index) => html`${index ? ", " : ""}<a href=${to.queue(queue)}>${queue}</a>`) : "every queue"}</dd>
        <dt>program</dt><dd>${[data.source, data.language, data.version, data.host, data.pid === null ? "" : `process ${data.pid}`].filter(Boolean).join(" · ")}</dd>
        ${data.token ? html`<dt>token</dt><dd>${data.token}</dd>` : ""}</dl>
      <section class="part"><h2>${plural(data.jobs.length, "job")} running</h2>${data.jobs.length === 0 ? html`<p class="meta">Nothing runs there now.</p>` : table({
        label: "running jobs",
        rows: data.jobs,
        key: (job) => job.job_id,
        href: (job) => to.job(job.job_id),
        cursor: at,
        columns: [
          { id: "id", label: "job", head: true, cell: (job) => html`<a href=${to.job(job.job_id)}><code>${shortId(job.job_id)}</code></a>` },
          { id: "kind", label: "kind", cell: (job) => job.kind },
          { id: "queue", label: "queue", cell: (job) => job.queue },
          { id: "attempt", label: "attempt", num: true, cell: (job) => count(job.attempt) },
          { id: "since", label: "since", cell: (job) => time(job.started_at) },
          { id: "lease", label: "lease ends", cell: (job) => ago(job.lease_expires_at) },
          { id: "act", label: "", cell: (job) => (may("operate") ? html`<button type="button" class="quiet" @click=${() => cancelJob({ id: job.job_id, kind: job.kind, status: "running" }, one.refresh)}>cancel …</button>` : "") },
        ],
      })}</section>
      <p class="page-end"><a href=${to.jobs({ worker: name })}>all its jobs</a> · <a href=${to.audit({ target: `worker:${name}` })}>audit</a></p>`;
  }
}
