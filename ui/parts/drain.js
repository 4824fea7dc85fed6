// Draining a worker: it finishes what it runs and takes nothing more, until it is let go on.

import { call, curl, post } from "../api.js";
import { html } from "../core/html.js";
import { refreshSoon } from "../live.js";
import { to } from "../router.js";
import { plural } from "../words.js";
import { openDialog } from "./dialog.js";
import { toast, toastError } from "./toast.js";

/** @param {{ worker: string, busy: number, told: string }} one @param {() => void} done */
export async function drainWorker({ worker, busy, told }, done) {
  const path = `/workers/${encodeURIComponent(worker)}`;
  const audit = { href: to.audit({ target: `worker:${worker}` }), link: "audit" };
  if (told === "drain") {
    try {
      await post(`${path}/undrain`);
      toast({ says: `${worker} goes on`, ...audit });
      refreshSoon();
      done();
    } catch (error) {
      toastError(/** @type {import("../api.js").Problem} */ (error), `${worker} could not be told`);
    }
    return false;
  }
  return openDialog({
    title: `Drain ${worker}`,
    body: () => html`<p>It takes no more jobs; ${busy > 0 ? `the ${plural(busy, "job")} it runs ${busy === 1 ? "is" : "are"} finished first` : "it runs none now"}. It learns of it with its next call.</p>`,
    confirm: `Drain ${worker}`,
    curl: () => curl("POST", `${path}/drain`),
    act: async () => {
      await call("POST", `${path}/drain`);
      toast({ says: `${worker} drains`, ...audit });
      refreshSoon();
      done();
    },
  });
}
