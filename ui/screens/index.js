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
  "/login": { name: "Log in", load: () => import("./login.js") },
};

/** Where else something is looked for. */
export const ALIASES = /** @type {Record<string, string>} */ ({ "/dead": "/errors", "/stats": "/", "/pulse": "/", "/problems": "/" });
