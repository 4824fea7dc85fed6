// Acts on one thing: cancel, redrive, delete, pause, resume. Each asks where it cannot be undone, does it once, and says what happened.
//
// Buttons are shown by scope; the server checks it (SECURITY.md S52). Acts on many jobs are parts/bulk.js.

import { Problem, call, curl, post } from "../api.js";
import { html } from "../core/html.js";
import { pulse, refreshSoon } from "../live.js";
import { to } from "../router.js";
import { count, plural, shortId } from "../words.js";
import { openDialog } from "./dialog.js";
import { toast, toastError } from "./toast.js";

const job = (/** @type {string} */ id) => `/jobs/${encodeURIComponent(id)}`;
const queuePath = (/** @type {string} */ queue) => `/queues/${encodeURIComponent(queue)}`;

/** @param {{ id: string, kind: string, status: string }} one @param {() => void} [done] */
export const cancelJob = ({ id, kind, status }, done) =>
  openDialog({
    title: `Cancel ${kind} ${shortId(id)}`,
    body: () => html`<p>${status === "running" ? "Its worker is told to stop; what it has done so far stays done." : "It will not run. It can be redriven later."}</p>`,
    confirm: "Cancel the job",
    danger: true,
    curl: () => curl("POST", `${job(id)}/cancel`),
    act: async () => {
      const { status } = await call("POST", `${job(id)}/cancel`);
      toast({ says: status === 202 ? `${kind} was asked to stop` : `${kind} is cancelled`, href: to.audit({ target: `job:${id}` }), link: "audit" });
      refreshSoon();
      done?.();
    },
  });

/** @param {{ id: string, kind: string }} one @param {() => void} [done] */
export const redriveJob = ({ id, kind }, done) =>
  openDialog({
    title: `Redrive ${kind} ${shortId(id)}`,
    body: () => html`<p>It is queued again with all its attempts. What it did before may happen again.</p>`,
    confirm: "Redrive the job",
    curl: () => curl("POST", `${job(id)}/redrive`),
    act: async () => {
      await post(`${job(id)}/redrive`);
      toast({ says: `${kind} is queued again`, href: to.job(id), link: "see it" });
      refreshSoon();
      done?.();
    },
  });

/** @param {{ id: string, kind: string }} one @param {() => void} [done] */
export const deleteJob = ({ id, kind }, done) =>
  openDialog({
    title: `Delete ${kind} ${shortId(id)}`,
    body: () => html`<p>The job and its attempts are removed for good. This cannot be undone.</p>`,
    confirm: "Delete the job",
    danger: true,
    curl: () => curl("DELETE", job(id)),
    act: async () => {
      await call("DELETE", job(id));
      toast({ says: `${kind} ${shortId(id)} is deleted`, href: to.audit({ target: `job:${id}` }), link: "audit" });
      refreshSoon();
      done?.();
    },
  });

/** Asks, because jobs will wait; can be taken back in the toast. @param {string} queue @param {() => void} [done] */
export const pauseQueue = (queue, done) => {
  const known = pulse.peek()?.queues.find((one) => one.queue === queue);
  const due = known?.due?.n ?? known?.counts.queued ?? 0;
  return openDialog({
    title: `Pause ${queue}`,
    body: () => html`<p>No job of it starts until it is resumed. ${plural(due, "due job")} will wait${known?.counts.running ? html`; the ${count(known.counts.running)} that run go on` : ""}.</p>`,
    confirm: `Pause ${queue}`,
    curl: () => curl("POST", `${queuePath(queue)}/pause`),
    act: async () => {
      await post(`${queuePath(queue)}/pause`);
      toast({ says: `${queue} is paused`, undo: () => void resumeQueue(queue, done) });
      refreshSoon();
      done?.();
    },
  });
};

/** @param {string} queue @param {() => void} [done] */
export async function resumeQueue(queue, done) {
  try {
    await post(`${queuePath(queue)}/resume`);
    toast({ says: `${queue} runs again`, href: to.queue(queue), link: "see it" });
    refreshSoon();
    done?.();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    toastError(error, `${queue} could not be resumed`);
  }
}
