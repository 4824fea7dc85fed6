// Which screen is shown where. The path is the API's; a screen is fetched when it is first needed.
//
// A module exports a default function: it is given a Screen (types.d.ts) and returns its view, which is rendered again whenever a signal
// that it reads has changed. To add a screen: a file here, a line below, an entry in the rail (shell.js).

/** @typedef {{ name: string, load: () => Promise<{ default: import("../types.d.ts").ScreenMaker }> }} Route */

/** @type {Record<string, Route>} */
export const ROUTES = {
  "/": { name: "Overview", load: () => import("./overview.js") },
  "/jobs": { name: "Jobs", load: () => import("./jobs.js") },
  "/jobs/:id": { name: "Job", load: () => import("./job.js") },
  "/errors": { name: "Dead letters", load: () => import("./errors.js") },
  "/errors/:fingerprint": { name: "Dead letters", load: () => import("./error.js") },
  "/queues": { name: "Queues", load: () => import("./queues.js") },
  "/queues/:queue": { name: "Queue", load: () => import("./queue.js") },
  "/kinds": { name: "Kinds", load: () => import("./kinds.js") },
  "/kinds/:kind": { name: "Kind", load: () => import("./kind.js") },
  "/workers": { name: "Workers", load: () => import("./workers.js") },
  "/workers/:worker": { name: "Worker", load: () => import("./worker.js") },
  "/operations": { name: "Operations", load: () => import("./operations.js") },
  "/operations/:id": { name: "Operation", load: () => import("./operation.js") },
  "/schedules": { name: "Schedules", load: () => import("./schedules.js") },
  "/schedules/:name": { name: "Schedule", load: () => import("./schedule.js") },
  "/limits": { name: "Limits", load: () => import("./limits.js") },
  "/audit": { name: "Audit", load: () => import("./audit.js") },
  "/tokens": { name: "Tokens", load: () => import("./tokens.js") },
  "/login": { name: "Log in", load: () => import("./login.js") },
};

/** Where else something is looked for. */
export const ALIASES = /** @type {Record<string, string>} */ ({ "/dead": "/errors", "/stats": "/", "/pulse": "/", "/problems": "/" });
