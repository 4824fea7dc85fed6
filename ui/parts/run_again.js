// Run again with changes: a new job with an edited payload. The old one stays as it is, and both name each other.

import { Problem, call, curl } from "../api.js";
import { html } from "../core/html.js";
import { readJson, writeJson } from "../core/json.js";
import { signal } from "../core/signal.js";
import { refreshSoon } from "../live.js";
import { go, to } from "../router.js";
import { shortId } from "../words.js";
import { openDialog } from "./dialog.js";
import { toast } from "./toast.js";

/** How many reruns of one job are looked for a free key. */
const TRIES = 50;

/** @param {import("../types.d.ts").Job} job */
export async function runAgain(job) {
  const text = signal(writeJson(job.payload, 2));
  const hidden = text.peek().includes('"(secret)"');
  const problem = () => {
    try {
      readJson(text.value);
      return "";
    } catch (error) {
      return /** @type {Error} */ (error).message;
    }
  };
  // Written as text: numbers that a double cannot hold stay as they are.
  const body = (/** @type {string} */ key) => {
    const fields = { kind: job.kind, queue: job.queue, priority: job.priority, max_attempts: job.max_attempts, ...(job.timeout_ms ? { timeout_ms: job.timeout_ms } : {}), ...(job.group_key ? { group_key: job.group_key } : {}), idempotency_key: key };
    return `${writeJson(fields).slice(0, -1)},"payload":${text.peek()}}`;
  };
  const keyOf = (/** @type {number} */ n) => `rerun:${job.id}:${n}`;
  await openDialog({
    title: `Run ${job.kind} ${shortId(job.id)} again with changes`,
    wide: true,
    body: () => html`<div class="form">
      ${hidden ? html`<p class="notice" data-severity="amber">Parts of this payload are hidden by the server, shown as "(secret)". Put the real values in, or the new job has none.</p>` : ""}
      <label class="field"><span>payload</span><textarea rows="14" spellcheck="false" autofocus .value=${text.value} @input=${(/** @type {InputEvent} */ event) => (text.value = /** @type {HTMLTextAreaElement} */ (event.target).value)} aria-invalid=${problem() ? "true" : "false"}></textarea></label>
      ${problem() ? html`<p class="notice" data-severity="amber" role="alert">${problem()}</p>` : html`<p class="meta">A new job in ${job.queue} with the same priority and attempts. The kind's schema is checked when it is sent; this job stays as it is.</p>`}
    </div>`,
    confirm: "Enqueue the new job",
    ready: () => problem() === "",
    curl: () => curl("POST", "/jobs", { body: body(keyOf(1)) }),
    act: async () => {
      for (let n = 1; n <= TRIES; n++) {
        try {
          const { status, data } = await call("POST", "/jobs", { body: body(keyOf(n)) });
          // 200: this very payload was sent before under this key.
          if (status === 200 && n < TRIES) continue;
          toast({ says: `${job.kind} ${shortId(data.id)} is queued`, href: to.job(job.id), link: "back to the old one" });
          refreshSoon();
          return go(to.job(data.id));
        } catch (error) {
          if (!(error instanceof Problem) || error.code !== "idempotency_conflict") throw error;
        }
      }
      throw new Error(`this job was run again ${TRIES} times already`);
    },
  });
}
