// Form: axe on every screen in both themes and widths, 320 px, forced colours, reduced motion, and the keyboard alone.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { DESKTOP, PHONE, aServer, check, open, says, shown, text } from "./browser.mjs";
import { until } from "./server.mjs";
import { fill, screens } from "./world.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];

let world;
const holder = aServer({}, async (server) => {
  await server.token("ci", ["enqueue"]);
  world = await fill(server);
});

const paths = () => [...screens(world).map(([path]) => path), "/ui/login"];

async function violations(page, where) {
  await page.evaluate(`if (!globalThis.axe) { ${AXE} } 0`);
  const found = await page.evaluate((rules) => globalThis.axe.run(document, { runOnly: rules, resultTypes: ["violations"] }), RULES);
  return found.violations.map(({ id, nodes }) => `${where}: ${id} at ${nodes.map(({ target }) => target.join(" ")).slice(0, 3).join(", ")} (${nodes[0].any[0]?.message ?? nodes[0].all[0]?.message ?? ""})`);
}

for (const colorScheme of ["light", "dark"]) {
  for (const viewport of [DESKTOP, PHONE]) {
    check(`axe finds nothing on any screen, ${colorScheme}, ${viewport.width} px`, async () => {
      const page = await open(holder.server, { colorScheme, viewport, reducedMotion: "reduce" });
      const all = [];
      for (const path of paths()) {
        await page.follow(path);
        all.push(...(await violations(page, path)));
      }
      assert.deepEqual(all, []);
    });
  }
}

check("axe finds nothing in the dialogs", async () => {
  // Colours are looked at when they have arrived.
  const page = await open(holder.server, { path: `/ui/errors/${world.group}`, reducedMotion: "reduce" });
  const all = [];
  const look = async (name) => {
    await page.locator("dialog[open]").waitFor();
    all.push(...(await violations(page, name)));
    await page.keyboard.press("Escape");
    await page.waitForFunction(() => !document.querySelector("dialog"));
  };
  await page.keyboard.press("r");
  await page.locator("dialog[open] .note").waitFor();
  await look("redrive");
  await page.keyboard.press("s");
  await look("snooze");
  await page.keyboard.press("?");
  await look("keys");
  await page.keyboard.press("y");
  await look("curl");
  await page.visit("/ui/tokens");
  await page.keyboard.press("n");
  await look("new token");
  await page.visit("/ui/schedules/nightly");
  await page.getByRole("button", { name: /change/ }).click();
  await look("schedule");
  await page.visit("/ui/queues/mail");
  await page.getByRole("button", { name: /limits/ }).click();
  await look("limits");
  await page.getByRole("button", { name: /^pause/ }).click();
  await look("pause");
  await page.visit(`/ui/jobs/${world.dead}`);
  await page.keyboard.press("e");
  await look("run again");
  assert.deepEqual(all, []);
});

check("no screen scrolls sideways at 320 px, nor at 1280 px with 200 % zoom", async () => {
  for (const viewport of [{ width: 320, height: 640 }, { width: 640, height: 400 }]) {
    const page = await open(holder.server, { viewport });
    for (const path of paths()) {
      await page.follow(path);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(wide <= 0, `${path} is ${wide} px too wide at ${viewport.width} px`);
    }
  }
});

check("on a phone, what is pressed is at least 44 px high", async () => {
  const page = await open(holder.server, { viewport: PHONE, hasTouch: true, isMobile: true, path: `/ui/errors/${world.group}` });
  const low = await page.evaluate(() => [...document.querySelectorAll(".acts button, .acts .button, nav.bar a, nav.bar button")].filter((one) => one.offsetParent).map((one) => [one.textContent.trim(), one.getBoundingClientRect().height]).filter(([, height]) => height < 44));
  assert.deepEqual(low, []);
  await page.getByRole("button", { name: "More" }).click();
  await page.locator("dialog[open] a", { hasText: "Schedules" }).click();
  await page.waitForURL(/\/ui\/schedules$/);
});

check("in forced colours focus, selection and states stay visible", async () => {
  const page = await open(holder.server, { forcedColors: "active", path: "/ui/jobs" });
  await page.locator("tr[data-key]").first().waitFor();
  await page.keyboard.press("j");
  await page.keyboard.press("x");
  const seen = await page.evaluate(() => {
    const row = document.activeElement;
    return { focused: row?.tagName, outline: getComputedStyle(row).outlineStyle, selected: row.getAttribute("aria-selected"), picked: row.querySelector("input").checked, glyph: row.querySelector(".glyph").textContent.trim() };
  });
  assert.equal(seen.focused, "TR");
  assert.notEqual(seen.outline, "none");
  assert.equal(seen.selected, "true");
  assert.equal(seen.picked, true);
  assert.notEqual(seen.glyph, "", "a state is a sign, never only a colour");
});

check("with reduced motion nothing moves", async () => {
  const page = await open(holder.server, { reducedMotion: "reduce", path: "/ui/jobs" });
  await page.keyboard.press("?");
  await page.locator("dialog[open]").waitFor();
  const moving = await page.evaluate(() => [...document.querySelectorAll("*")].filter((one) => {
    const { transitionDuration, animationDuration, animationName } = getComputedStyle(one);
    return transitionDuration.split(",").some((each) => parseFloat(each) > 0.001) || (animationName !== "none" && parseFloat(animationDuration) > 0.001);
  }).map((one) => one.outerHTML.slice(0, 80)));
  assert.deepEqual(moving, []);
});

check("single letters can be switched off", async () => {
  const page = await open(holder.server, { path: "/ui/jobs" });
  await page.keyboard.press("?");
  await page.locator("dialog[open] input[type=checkbox]").click();
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => !document.querySelector("dialog[open]"));
  await page.keyboard.press("g");
  await page.keyboard.press("q");
  await page.keyboard.press("?");
  assert.equal(await page.locator("dialog[open]").count(), 0);
  assert.match(page.url(), /\/ui\/jobs$/);
  await page.reload();
  await shown(page);
  await page.keyboard.press("y");
  assert.equal(await page.locator("dialog[open]").count(), 0, "it is remembered");
});

check("the skip link is the first stop, and there is one headline and one main region", async () => {
  const page = await open(holder.server, { path: "/ui/jobs" });
  await page.keyboard.press("Tab");
  assert.match(await page.evaluate(() => document.activeElement.textContent), /content/);
  assert.equal(await page.locator("h1").count(), 1);
  assert.equal(await page.locator("main").count(), 1);
});

check("times are UTC or local by a key, and relative ages follow the store's clock with the browser's clock 1 h off", async () => {
  const page = await open(holder.server, { load: false, timezoneId: "America/New_York" });
  await page.addInitScript(() => {
    const real = Date.now.bind(Date);
    Date.now = () => real() - 3_600_000;
  });
  await page.visit(`/ui/jobs/${world.dead}`);
  await says(page, /attempt 1 of/);
  assert.doesNotMatch(await text(page), /-\d+(\.\d+)? ?(ms|s|min|h)\b|in 59 min|in 1 h/);
  await page.visit("/ui/");
  const zone = () => page.locator("header button", { hasText: /:/ }).innerText();
  const before = await zone();
  await page.keyboard.press("u");
  await page.waitForFunction((old) => ![...document.querySelectorAll("header button")].some((one) => one.innerText === old), before);
  assert.notEqual((await zone()).replace(/[\d:]/g, ""), before.replace(/[\d:]/g, ""));
});

check("the 3 a.m. drill: from the overview to a paced redrive under way, by keyboard alone", async (t) => {
  const { server } = holder;
  const page = await open(server);
  await page.locator("main h1").waitFor();
  let keys = 0;
  const press = async (...names) => {
    for (const name of names) {
      await page.keyboard.press(name);
      keys++;
    }
  };
  await press("g", "d");
  await page.waitForURL(/\/ui\/errors/);
  await page.locator("tr[data-key]").first().waitFor();
  await press("j", "Enter");
  await page.waitForURL(/\/ui\/errors\/[0-9a-f]{16}$/);
  await shown(page);
  await press("r");
  await page.waitForFunction(() => document.activeElement?.matches("dialog[open] .note"));
  await page.waitForFunction(() => document.querySelector("dialog[open] footer button[type=submit]:not([disabled])"));
  await press("Enter");
  await page.waitForURL(/\/ui\/operations\/[0-9a-f-]{36}$/);
  const id = page.url().split("/").at(-1);
  const operation = await until("it is there", () => server.get(`/operations/${id}`));
  assert.equal(operation.action, "redrive");
  assert.equal(operation.rate, 50);
  t.diagnostic(`${keys} keys`);
  assert.ok(keys <= 6, `${keys} keys`);
});
