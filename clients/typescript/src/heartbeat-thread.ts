/**
 * The heartbeat thread: `Beats` with an event loop and connections of its own, so that a handler which blocks the main
 * thread for a minute keeps its leases. Started by heartbeat.ts; messages are its commands, events are its answers.
 */
import { workerData, type MessagePort } from "node:worker_threads";
import { Beats, type BeatsEvent, type BeatsSetup, type HeldLease } from "./beats.js";
import type { ProgressReport } from "./wire.js";

export type Command =
  | { command: "add"; leases: HeldLease[] }
  | { command: "remove"; tokens: string[] }
  | { command: "progress"; reports: [token: string, progress: ProgressReport][] }
  | { command: "stop" };

const { setup, port } = workerData as { setup: BeatsSetup; port: MessagePort };
const beats = new Beats(setup, (event) => port.postMessage(event));

// The listener keeps the thread alive until it is told to stop, or the process ends.
port.on("message", (message: Command) => {
  if (message.command === "add") beats.add(message.leases);
  if (message.command === "remove") beats.remove(message.tokens);
  if (message.command === "progress") for (const [token, progress] of message.reports) beats.progress(token, progress);
  if (message.command === "stop") {
    beats.stop();
    port.close();
  }
});
port.postMessage({ event: "ready" } satisfies BeatsEvent);
