// One Chromium per test file, a new context per test, and what every page of every test must keep to: no error on the console, no
// report of the Content Security Policy, no request to another origin (SECURITY.md S54, S55).
//
// Chromium is Debian's (`apt-get install chromium`); CHROMIUM names another one.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";
import { ADMIN, STORE, startServer } from "./server.mjs";

const PROGRAM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
export const DESKTOP = { width: 1280, height: 800 };
export const PHONE = { width: 390, height: 844 };
const WAIT_MS = 20_000;

let browser = null;

async function launched() {
  if (!existsSync(PROGRAM)) throw new Error(`Chromium is not at ${PROGRAM}: apt-get install chromium, or name it in CHROMIUM`);
  browser ??= await chromium.launch({ executablePath: PROGRAM, args: FLAGS });
  return browser;
}

/** Every context that a test opened, with what its pages did wrong. */
let opened = [];

/** What the browser itself says of an answer that is not 2xx; whether it should have been one, the test says. */
const ofNetwork = /Failed to load resource/;

function watch(page, kept, origins) {
  const wrong = (what) => {
    if (!kept.allowed.some((pattern) => pattern.test(what))) kept.wrong.push(what);
  };
  page.on("console", (message) => {
    if (message.type() === "error" || /Content Security Policy|Trusted ?Type/i.test(message.text())) wrong(`console: ${message.text()}${ofNetwork.test(message.text()) ? ` ${message.location().url}` : ""}`);
  });
  page.on("pageerror", (error) => wrong(`error: ${error.stack}`));
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (!["data:", "blob:", "about:"].includes(url.protocol) && !origins.has(url.origin)) wrong(`another origin: ${url}`);
  });
}

/**
 * A page of the server. `token`: whose session it has (null: none). `allow`: what may be on the console, because the test makes it
 * happen. `page.problems()` is what was wrong so far.
 */
export async function open(server, { token = server.open ? null : ADMIN, path = "/ui/", viewport = DESKTOP, allow = [], url = server.url, load = true, ...rest } = {}) {
  const context = await (await launched()).newContext({ viewport, ...rest });
  context.setDefaultTimeout(WAIT_MS);
  const kept = { context, wrong: [], allowed: [...allow] };
  opened.push(kept);
  await context.addInitScript(() => {
    globalThis.reports = [];
    addEventListener("securitypolicyviolation", (event) => globalThis.reports.push(`${event.violatedDirective}: ${event.blockedURI} ${event.sample}`));
  });
  if (token) {
    const { name, value } = await server.session(token);
    await context.addCookies([{ name, value, url, httpOnly: true, sameSite: "Strict" }]);
  }
  const origins = new Set([new URL(url).origin]);
  context.on("page", (page) => watch(page, kept, origins));
  const page = await context.newPage();
  page.allow = (pattern) => kept.allowed.push(pattern);
  page.origins = origins;
  page.at = (where) => url + where;
  page.visit = async (where) => {
    await page.goto(url + where);
    await shown(page);
  };
  /** As a click on a link does it, without loading the page again. */
  page.follow = async (where) => {
    await page.evaluate((to) => globalThis.steadfast.go(to), where);
    await shown(page);
  };
  if (load) await page.visit(path);
  return page;
}

/** A screen is there, with what it fetched. */
export async function shown(page) {
  try {
    await page.waitForSelector("html.started main h1");
    await page.waitForFunction(() => !document.querySelector("main .skeleton"));
  } catch (error) {
    throw new Error(`${page.url()} shows no screen but: ${(await page.evaluate(() => document.body.innerText)).slice(0, 600)}\n${error.message.split("\n")[0]}`);
  }
}

async function finish() {
  const done = opened;
  opened = [];
  const wrong = [];
  for (const { context, wrong: said } of done) {
    for (const page of context.pages()) wrong.push(...(await page.evaluate(() => globalThis.reports ?? []).catch(() => [])));
    wrong.push(...said);
    await context.close();
  }
  assert.deepEqual(wrong, [], "the console is clean, the policy has nothing to report, nobody else was asked");
}

/** A test whose pages are looked after. `only`: the store it is for, where one is enough. */
export function check(name, body, { only } = {}) {
  if (only && only !== STORE) return;
  test(name, { timeout: 120_000 }, async (t) => {
    try {
      await body(t);
    } finally {
      const error = await finish().catch((one) => one);
      // What the test itself says is the first thing to read.
      if (error) t.after(() => assert.fail(error));
      if (error && process.env.STEADFAST_VERBOSE) console.error(error);
    }
  });
}

/** One server for the tests of a file. */
export function aServer(options, fill = async () => {}) {
  const holder = { server: null };
  before(async () => {
    holder.server = await startServer(options);
    await fill(holder.server);
  }, { timeout: 120_000 });
  after(async () => {
    await holder.server?.end();
    await browser?.close();
    browser = null;
  });
  return holder;
}

export const text = (page, selector = "main") => page.locator(selector).first().innerText();

/** Waits until the page says so. */
export const says = (page, pattern, selector = "main") =>
  page.waitForFunction(([where, source, flags]) => new RegExp(source, flags).test(document.querySelector(where)?.innerText ?? ""), [selector, pattern.source, pattern.flags]).catch(async (error) => {
    throw new Error(`the page never said ${pattern}: ${(await text(page, selector).catch(() => "nothing")).slice(0, 1500)}\n${error.message.split("\n")[0]}`);
  });

/** Presses the button of the open dialog, as soon as it may be. */
export async function confirm(page, name) {
  const button = page.locator("dialog[open] footer button[type=submit]");
  await page.waitForFunction(() => document.querySelector("dialog[open] footer button[type=submit]:not([disabled])"));
  if (name) assert.match(await button.innerText(), name);
  await button.click();
}
