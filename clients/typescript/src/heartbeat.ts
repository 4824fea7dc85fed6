/**
 * Where heartbeats come from: a thread (the default) or a timer of the main thread. The engine sees one interface.
 * Should the thread end, the timer takes over with the leases that are held: a worker without heartbeats would lose them all.
 */
import { MessageChannel, receiveMessageOnPort, Worker as Thread, type MessagePort } from "node:worker_threads";
import { Beats, monotonicMs, type BeatsEvent, type BeatsSetup, type HeldLease } from "./beats.js";
import type { Command } from "./heartbeat-thread.js";
import type { Logger } from "./logger.js";
import type { ProgressReport } from "./wire.js";

export interface Heartbeat {
  /** Resolves when heartbeats can be sent: a job that is leased before could wait for its first one for too long. */
  readonly ready: Promise<void>;
  add(leases: readonly HeldLease[]): void;
  remove(tokens: readonly string[]): void;
  progress(token: string, progress: ProgressReport): void;
  /** Handles what has arrived, without waiting for the event loop. */
  listen(): void;
  stop(): void;
}

/** Far more often than heartbeats are sent. */
const REPORT_EVERY_MS = 50;

type Emit = (event: BeatsEvent) => void;

export function startHeartbeat(mode: "thread" | "inline", setup: BeatsSetup, emit: Emit, log: Logger): Heartbeat {
  return mode === "inline" ? new InlineHeartbeat(setup, emit) : new ThreadHeartbeat(setup, emit, log);
}

class InlineHeartbeat implements Heartbeat {
  readonly ready = Promise.resolve();
  readonly #beats: Beats;

  constructor(setup: BeatsSetup, emit: Emit) {
    this.#beats = new Beats(setup, emit);
  }

  add(leases: readonly HeldLease[]): void {
    this.#beats.add(leases);
  }

  remove(tokens: readonly string[]): void {
    this.#beats.remove(tokens);
  }

  progress(token: string, progress: ProgressReport): void {
    this.#beats.progress(token, progress);
  }

  listen(): void {
    // Nothing can arrive while the event loop is blocked.
  }

  stop(): void {
    this.#beats.stop();
  }
}

class ThreadHeartbeat implements Heartbeat {
  readonly ready: Promise<void>;
  readonly #held = new Map<string, HeldLease>();
  readonly #port: MessagePort;
  readonly #thread: Thread;
  #goodAt = 0;
  #stopped = false;
  /** Progress that the thread does not know yet. */
  readonly #reports = new Map<string, ProgressReport>();
  #reportedAt = 0;
  #reportLater: NodeJS.Timeout | undefined;
  /** Set once the thread has ended unasked. */
  #instead: InlineHeartbeat | undefined;

  constructor(
    private readonly setup: BeatsSetup,
    private readonly emit: Emit,
    private readonly log: Logger,
  ) {
    const { port1, port2 } = new MessageChannel();
    this.#port = port1;
    // No flags of the main thread: loaders and debuggers are not for this one.
    this.#thread = new Thread(new URL("./heartbeat-thread.js", import.meta.url), {
      name: "steadfast-heartbeat",
      workerData: { setup, port: port2 },
      transferList: [port2],
      execArgv: [],
    });
    this.#thread.on("error", (error) => this.#ended(String(error)));
    this.#thread.on("exit", (code) => this.#ended(`exit code ${code}`));
    // Its first message says that it runs; if it ends instead, the main thread beats.
    this.ready = new Promise((resolve) => {
      port1.once("message", () => resolve());
      this.#thread.once("exit", () => resolve());
    });
    port1.on("message", (event: BeatsEvent) => this.#handle(event));
    // Neither holds the process: the engine does, while it runs.
    port1.unref();
    this.#thread.unref();
  }

  add(leases: readonly HeldLease[]): void {
    for (const lease of leases) this.#held.set(lease.token, lease);
    if (this.#instead) return this.#instead.add(leases);
    this.#send({ command: "add", leases: [...leases] });
  }

  remove(tokens: readonly string[]): void {
    for (const token of tokens) this.#held.delete(token);
    if (this.#instead) return this.#instead.remove(tokens);
    this.#send({ command: "remove", tokens: [...tokens] });
  }

  progress(token: string, progress: ProgressReport): void {
    if (this.#instead) return this.#instead.progress(token, progress);
    this.#reports.set(token, progress);
    // A handler may report in a tight loop: the thread has to beat, not to read a million messages.
    if (monotonicMs() - this.#reportedAt >= REPORT_EVERY_MS) this.#report();
    else this.#reportLater ??= setTimeout(() => this.#report(), REPORT_EVERY_MS).unref();
  }

  listen(): void {
    if (this.#instead) return;
    for (let message = receiveMessageOnPort(this.#port); message; message = receiveMessageOnPort(this.#port)) {
      this.#handle(message.message as BeatsEvent);
    }
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#reportLater);
    this.#instead?.stop();
    this.#send({ command: "stop" });
    this.#port.close();
    // It ends by itself unless a call hangs; the process does not wait for it either way.
    void this.#thread.terminate();
  }

  #report(): void {
    clearTimeout(this.#reportLater);
    this.#reportLater = undefined;
    this.#reportedAt = monotonicMs();
    this.#send({ command: "progress", reports: [...this.#reports] });
    this.#reports.clear();
  }

  #send(command: Command): void {
    this.#port.postMessage(command);
  }

  #handle(event: BeatsEvent): void {
    if (event.event === "good") this.#goodAt = event.at;
    if (event.event === "lost") for (const token of event.tokens) this.#held.delete(token);
    this.emit(event);
  }

  #ended(why: string): void {
    if (this.#stopped || this.#instead) return;
    this.log.error(`the heartbeat thread has ended; heartbeats are sent by the main thread from now on: ${why}`);
    this.#instead = new InlineHeartbeat(this.setup, this.emit);
    this.#instead.add([...this.#held.values()].map((lease) => ({ ...lease, goodAt: Math.max(lease.goodAt, this.#goodAt) })));
  }
}
