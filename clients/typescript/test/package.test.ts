/** What the package promises about itself. */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import test from "node:test";
import { VERSION } from "steadfast-queue";

const PACKAGE = new URL("..", import.meta.url);
const description = JSON.parse(readFileSync(new URL("package.json", PACKAGE), "utf8"));
const read = (file: string): string => readFileSync(new URL(`src/${file}`, PACKAGE), "utf8");

test("the version is the same everywhere, and the server's minor", () => {
  const server = /^version = "(\d+\.\d+)\./m.exec(readFileSync(new URL("../../Cargo.toml", PACKAGE), "utf8"))?.[1];
  assert.equal(VERSION, description.version);
  assert.ok(VERSION.startsWith(`${server}.`), `the server is ${server}`);
});

test("there are no dependencies", () => {
  for (const field of ["dependencies", "peerDependencies", "optionalDependencies", "bundleDependencies"]) assert.equal(description[field], undefined);
});

test("the producer half imports nothing of Node", () => {
  const seen = new Set<string>();
  const visit = (file: string): void => {
    if (seen.has(file)) return;
    seen.add(file);
    for (const [, from] of read(file).matchAll(/^(?:import|export) (?!type).*? from "([^"]+)";$/gms)) {
      assert.match(from ?? "", /^\.\//, `${file} imports ${from}`);
      visit((from ?? "").slice(2).replace(/\.js$/, ".ts"));
    }
  };
  visit("client.ts");
  assert.ok(seen.has("http.ts") && seen.has("operator.ts") && !seen.has("engine.ts"), [...seen].join(", "));
});

test("the lock file names no registry", () => {
  assert.doesNotMatch(readFileSync(new URL("package-lock.json", PACKAGE), "utf8"), /"resolved"|https?:\/\/[^"]*(registry|npm)[^"]*\.tgz/);
});

test("no file is too long to be read", () => {
  for (const folder of ["", "wire/"]) {
    for (const file of readdirSync(new URL(`src/${folder}`, PACKAGE)).filter((name) => name.endsWith(".ts"))) {
      assert.ok(read(folder + file).split("\n").length <= 300, `${folder}${file} has more than 300 lines`);
    }
  }
});
