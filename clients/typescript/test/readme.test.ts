/**
 * The README as a newcomer uses it: its blocks are compiled, strictly, and run against the real server. In this package by
 * default; STEADFAST_README_PROJECT names a project that has the package installed (./check makes one).
 */
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";
import { fileURLToPath } from "node:url";
import { RealServer, until } from "./support.js";

const PACKAGE = fileURLToPath(new URL("..", import.meta.url));
const PROJECT = process.env["STEADFAST_README_PROJECT"] ?? join(PACKAGE, "build", "readme");
const EXPECTED = ["handlers.ts", "worker.ts", "producer.ts", "kinds.ts", "operate.ts", "server.ts", "handlers.test.ts"];

/** `// name.ts` at the beginning of a block is its file. */
function blocks(): Map<string, string> {
  const readme = readFileSync(join(PACKAGE, "README.md"), "utf8");
  const found = [...readme.matchAll(/^```ts\n\/\/ (\S+\.ts)\n([\s\S]*?)^```$/gm)];
  assert.equal(found.length, readme.match(/^```ts$/gm)?.length, "a block of the README does not begin with the name of its file");
  return new Map(found.map(([, name, code]) => [name ?? "", code ?? ""]));
}

function compile(): void {
  const source = join(PROJECT, "src");
  rmSync(source, { recursive: true, force: true });
  mkdirSync(source, { recursive: true });
  const files = blocks();
  assert.deepEqual([...files.keys()], EXPECTED);
  for (const [name, code] of files) writeFileSync(join(source, name), code);
  writeFileSync(join(PROJECT, "tsconfig.json"), JSON.stringify({
    compilerOptions: {
      target: "ES2022", lib: ["ES2023", "ESNext.Disposable"], module: "NodeNext", strict: true, exactOptionalPropertyTypes: true,
      noUncheckedIndexedAccess: true, types: ["node"], rootDir: "src", outDir: "out",
    },
    include: ["src"],
  }));
  const tsc = join(PACKAGE, "node_modules", "typescript", "bin", "tsc");
  execFileSync(process.execPath, [tsc, "-p", PROJECT], { cwd: PROJECT, stdio: "inherit" });
}

interface Ran {
  code: number | null;
  output: string;
}

function run(file: string, env: Record<string, string>, flags: string[] = []): { ended: Promise<Ran>; kill: (signal: NodeJS.Signals) => void; output: () => string } {
  const child = spawn(process.execPath, [...flags, join(PROJECT, "out", file)], { cwd: PROJECT, env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data: Buffer) => (output += data.toString()));
  const ended = new Promise<Ran>((resolve) => child.once("exit", (code) => resolve({ code, output })));
  return { ended, kill: (signal) => child.kill(signal), output: () => output };
}

test("the blocks of the README compile and do what it says", async () => {
  compile();
  const server = await RealServer.start();
  const env = { STEADFAST_URL: server.url };
  // Not as part of this run: Node would report it as a subtest.
  delete process.env["NODE_TEST_CONTEXT"];
  const worker = run("worker.js", env);
  try {
    await until("the worker has started", async () => (await (await fetch(`${server.url}/kinds`)).text()).includes('"welcome"'));
    const producer = await run("producer.js", env).ended;
    assert.deepEqual([producer.code, producer.output], [0, "42\n3\n"], worker.output());
    const failing = await fetch(`${server.url}/jobs`, { method: "POST", headers: { "content-type": "application/json" }, body: '{"kind":"welcome","payload":{"user":-1}}' });
    const { id } = (await failing.json()) as { id: string };
    await until("it has failed", async () => (await (await fetch(`${server.url}/jobs/${id}`)).text()).includes("failed_permanent"));
    const operator = await run("operate.js", env).ended;
    assert.equal(operator.code, 0, operator.output);
    assert.match(operator.output, new RegExp(`${id} Permanent: no such user`));
    const web = run("server.js", { ...env, PORT: "0" });
    await until("it works", () => web.output().includes("listening"));
    web.kill("SIGTERM");
    assert.equal((await web.ended).code, 0, web.output());
    const tests = await run("handlers.test.js", env, ["--test"]).ended;
    assert.equal(tests.code, 0, tests.output);
    assert.match(tests.output, /pass 1|pass 3/);
    worker.kill("SIGTERM");
    assert.equal((await worker.ended).code, 0, worker.output());
  } finally {
    worker.kill("SIGKILL");
    await server.end();
  }
});
