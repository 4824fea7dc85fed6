/**
 * The types of the HTTP API, field for field: what the server sends and takes. Types only, no code.
 * Names are those of docs/openapi.json; a test compares every field, so the server and this client cannot drift apart.
 */
export type * from "./wire/jobs.js";
export type * from "./wire/leases.js";
export type * from "./wire/queues.js";
export type * from "./wire/schedules.js";
export type * from "./wire/operations.js";
export type * from "./wire/hooks.js";
