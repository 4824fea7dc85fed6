/**
 * What the tests share: a scripted server, the real one, a network that can be cut, worker processes, and waiting for
 * conditions. The real server is the binary in STEADFAST_BIN; without it those tests fail and say so.
 */
import { spawn, execFileSync, type ChildProcess } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { createServer, type IncomingMessage } from "node:http";
import { connect, createServer as createTcp, type AddressInfo, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { Logger } from "steadfast-queue";

/** Machines are slow; a condition that does not hold by then never will. */
const DEADLINE_MS = 60_000;

export async function until<T>(what: string, look: () => T | undefined | false | Promise<T | undefined | false>, withinMs = DEADLINE_MS): Promise<T> {
  for (const end = performance.now() + withinMs; ; ) {
    const found = await look();
    if (found !== undefined && found !== false) return found;
    if (performance.now() > end) throw new Error(`waited in vain: ${what}`);
    await sleep(20);
  }
}

/** A promise that somebody else resolves. */
export function gate<T = void>(): { promise: Promise<T>; open: (value: T) => void } {
  let open!: (value: T) => void;
  const promise = new Promise<T>((resolve) => (open = resolve));
  return { promise, open };
}

/** No two tests share a kind or a queue, also not on a database that others have used. */
export function unique(prefix: string): string {
  return `${prefix}-${randomBytes(4).toString("hex")}`;
}

export function keptLogs(): { logger: Logger; lines: string[] } {
  const lines: string[] = [];
  const line = (level: string) => (message: string, fields = {}) => void lines.push(`${level} ${message} ${JSON.stringify(fields)}`);
  return { lines, logger: { debug: line("debug"), info: line("info"), warn: line("warn"), error: line("error") } };
}

// A scripted server.

export interface Seen {
  method: string;
  path: string;
  query: URLSearchParams;
  headers: IncomingMessage["headers"];
  body: any;
}

export interface Scripted {
  status?: number;
  headers?: Record<string, string>;
  body?: unknown;
  /** Close the connection instead of answering. */
  hangUp?: boolean;
  /** Answer only then. */
  after?: Promise<unknown>;
}

export async function scriptedServer(answer: (seen: Seen, count: number) => Scripted): Promise<{ url: string; seen: Seen[]; close: () => void }> {
  const seen: Seen[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("error", () => undefined);
    request.on("end", async () => {
      const url = new URL(request.url ?? "/", "http://x");
      const text = Buffer.concat(chunks).toString();
      const one = { method: request.method ?? "", path: url.pathname, query: url.searchParams, headers: request.headers, body: text === "" ? undefined : JSON.parse(text) };
      seen.push(one);
      const scripted = answer(one, seen.length);
      await scripted.after;
      if (scripted.hangUp) return void request.socket.destroy();
      const status = scripted.status ?? 200;
      response.writeHead(status, { "content-type": "application/json", ...scripted.headers });
      response.end(status === 204 ? undefined : JSON.stringify(scripted.body ?? {}));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const close = (): void => {
    server.close();
    server.closeAllConnections();
  };
  return { url: `http://127.0.0.1:${port}`, seen, close };
}

// The real server.

export type Store = "sqlite" | "postgres";
/** PostgreSQL only if there is one to test with. */
export const STORES: readonly Store[] = process.env["STEADFAST_TEST_POSTGRES_URL"] ? ["sqlite", "postgres"] : ["sqlite"];

export function binary(): string {
  const path = process.env["STEADFAST_BIN"];
  if (!path) throw new Error("STEADFAST_BIN is not set: these tests need the server's binary, say STEADFAST_BIN=target/debug/steadfast");
  if (!existsSync(path)) throw new Error(`STEADFAST_BIN=${path}: there is no such file`);
  return path;
}

export class RealServer {
  #child: ChildProcess | undefined;
  #log = "";
  readonly #directory = mkdtempSync(join(tmpdir(), "steadfast-ts-"));

  private constructor(readonly port: number, private readonly env: Record<string, string>) {}

  static async start(store: Store = "sqlite", env: Record<string, string> = {}): Promise<RealServer> {
    const server = new RealServer(await freePort(), env);
    server.env["DATABASE_URL"] = store === "sqlite" ? `sqlite://${join(server.#directory, "jobs.db")}` : (process.env["STEADFAST_TEST_POSTGRES_URL"] ?? "");
    if (store === "postgres") execFileSync(binary(), ["migrate"], { env: server.#environment(), cwd: server.#directory, stdio: "pipe" });
    await server.up();
    return server;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  #environment(): Record<string, string> {
    const own = { API_BIND_ADDR: `127.0.0.1:${this.port}`, STEADFAST_EXECUTOR: "none", STEADFAST_REAP_INTERVAL_MS: "200", RUST_LOG: "warn" };
    return { PATH: process.env["PATH"] ?? "", ...own, ...this.env };
  }

  async up(): Promise<void> {
    const child = spawn(binary(), ["serve"], { env: this.#environment(), cwd: this.#directory, stdio: ["ignore", "pipe", "pipe"] });
    this.#child = child;
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (data: Buffer) => (this.#log += data.toString()));
    await until("the server is ready", async () => {
      if (child.exitCode !== null) throw new Error(`the server has ended: ${this.#log}`);
      const ready = await fetch(`${this.url}/readyz`).catch(() => undefined);
      return ready?.ok;
    });
  }

  /** SIGKILL: it cannot clean up. */
  async kill(): Promise<void> {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGKILL");
    await ended;
  }

  async end(): Promise<void> {
    await this.kill();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

async function freePort(): Promise<number> {
  const server = createTcp();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Between a worker and the server: a network that can be cut. */
export class Network {
  #cut = false;
  readonly #sockets = new Set<Socket>();
  readonly #server;

  private constructor(to: number) {
    this.#server = createTcp((socket) => {
      if (this.#cut) return void socket.destroy();
      const onward = connect(to, "127.0.0.1");
      for (const [one, other] of [[socket, onward], [onward, socket]] as const) {
        this.#sockets.add(one);
        one.on("error", () => other.destroy());
        one.on("close", () => (this.#sockets.delete(one), other.destroy()));
      }
      socket.pipe(onward).pipe(socket);
    });
  }

  static async to(port: number): Promise<Network> {
    const network = new Network(port);
    await new Promise<void>((resolve) => network.#server.listen(0, "127.0.0.1", resolve));
    return network;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  cut(): void {
    this.#cut = true;
    for (const socket of this.#sockets) socket.destroy();
  }

  mend(): void {
    this.#cut = false;
  }

  close(): void {
    this.cut();
    this.#server.close();
  }
}

/** fixtures/worker.ts as a process of its own. */
export class WorkerProcess {
  readonly child: ChildProcess;
  readonly exited: Promise<number | null>;
  output = "";

  constructor(env: Record<string, string>) {
    const script = fileURLToPath(new URL("./fixtures/worker.js", import.meta.url));
    this.child = spawn(process.execPath, [script], { env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"] });
    for (const stream of [this.child.stdout, this.child.stderr]) stream?.on("data", (data: Buffer) => (this.output += data.toString()));
    this.exited = new Promise((resolve) => this.child.once("exit", (code) => resolve(code)));
  }

  /** The exit code; null if a signal ended it. */
  ended(): Promise<number | null> {
    const timer = sleep(DEADLINE_MS, undefined, { ref: false }).then(() => {
      throw new Error(`the worker has not ended: ${this.output}`);
    });
    return Promise.race([this.exited, timer]);
  }

  says(text: string): Promise<true> {
    return until(`the worker says ${text}`, () => {
      if (this.output.includes(text)) return true;
      if (this.child.exitCode !== null) throw new Error(`the worker has ended: ${this.output}`);
      return undefined;
    });
  }

  kill(signal: NodeJS.Signals): void {
    this.child.kill(signal);
  }
}
