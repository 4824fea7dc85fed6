// The field in the header of every screen: a job's id leads to it, all else to the list of jobs that match.

import { html } from "../core/html.js";
import { parseFilter } from "../core/query.js";
import { storeNow } from "../live.js";
import { go, to } from "../router.js";
import { toast } from "./toast.js";

/** @param {SubmitEvent} event */
function submit(event) {
  event.preventDefault();
  const field = /** @type {HTMLInputElement} */ (/** @type {HTMLFormElement} */ (event.target).elements.namedItem("q"));
  if (!field.value.trim()) return;
  const { job, filter, wrong } = parseFilter(field.value, storeNow());
  if (wrong.length > 0) return toast({ says: wrong.join("; "), severity: "amber" });
  field.value = "";
  field.blur();
  go(job ? to.job(job) : to.jobs(filter));
}

export const quickFilter = () => html`<form class="quick" role="search" @submit=${submit}><input id="quick-filter" name="q" type="search" autocomplete="off" spellcheck="false" placeholder="/ filter or job id" aria-label="filter jobs, or go to a job by its id"></form>`;
