/**
 * steadfast-queue: client and worker for Steadfast. The producer half alone, for other runtimes than Node, is
 * `steadfast-queue/client`; handlers are tested with `steadfast-queue/testing`.
 */
export * from "./client.js";
export { Handler, VERSION, Worker } from "./worker.js";
export type { HandlerFunction, WorkerOptions } from "./worker.js";
export { Context } from "./context.js";
export type { StopReason } from "./errors.js";
export type { Logger, LogFields } from "./logger.js";
export type { Middleware } from "./slots.js";
