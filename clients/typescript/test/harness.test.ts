/** Handlers without a server, and with that the rules of outcomes. */
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import test from "node:test";
import { Cancelled, Client, defineKind, Permanent, Retry, Snooze, Worker, type Context, type HandlerFunction } from "steadfast-queue";
import { Harness, type HarnessOptions, type HarnessOutcome } from "steadfast-queue/testing";
import { z } from "zod";
import { gate } from "./support.js";

function harness<P, R>(run: HandlerFunction<P, R>): Harness<P, P, R> {
  return new Harness(new Worker(new Client()).handle<P, R>("k", run));
}

function outcomeOf(run: (ctx: Context) => unknown, options: HarnessOptions = {}): Promise<HarnessOutcome<unknown>> {
  return harness<null, unknown>((_, ctx) => run(ctx)).run(null, options);
}

test("a value is the result, as JSON makes it; nothing is no result", async () => {
  const outcome = await outcomeOf(() => ({ at: new Date(0), gone: undefined }));
  assert.deepEqual([outcome.outcome, outcome.result], ["succeeded", { at: "1970-01-01T00:00:00.000Z" }]);
  assert.equal((await outcomeOf(() => undefined)).outcome, "succeeded");
});

test("an error is a failure with its message, causes and frames", async () => {
  const thrown = (): never => {
    throw new TypeError("no user", { cause: new Error("connection refused") });
  };
  const plain = await outcomeOf(thrown);
  assert.deepEqual([plain.outcome, plain.permanent, plain.error], ["failed", false, "TypeError: no user\ncaused by Error: connection refused"]);
  const framed = await outcomeOf(thrown, { stackFrames: true });
  assert.match(framed.error ?? "", /\n {4}at .*harness\.test/);
});

test("what is thrown need not be an error", async () => {
  for (const [thrown, says] of [["text", "text"], [undefined, "undefined"], [{ code: 7 }, '{"code":7}'], [10n, "a value that cannot be shown was thrown"]] as const) {
    const outcome = await outcomeOf(() => {
      throw thrown;
    });
    assert.deepEqual([outcome.outcome, outcome.error], ["failed", says]);
  }
});

test("permanent, retry and snooze are thrown; snooze may be returned", async () => {
  const permanent = await outcomeOf(() => {
    throw new Permanent("never", { errorGroup: "no user" });
  });
  assert.deepEqual([permanent.outcome, permanent.permanent, permanent.errorGroup], ["failed", true, "no user"]);
  const retry = await outcomeOf(() => {
    throw new Retry({ afterMs: 5_000.4, message: "throttled" });
  });
  assert.deepEqual([retry.outcome, retry.permanent, retry.retryAfterMs, retry.error], ["failed", false, 5_000, "Retry: throttled"]);
  const thrown = await outcomeOf(() => {
    throw new Snooze({ delayMs: 60_000 });
  });
  const returned = await outcomeOf(() => new Snooze({ delayMs: 60_000 }));
  for (const snoozed of [thrown, returned]) assert.deepEqual([snoozed.outcome, snoozed.delayMs], ["snoozed", 60_000]);
});

test("a result that is too large or no JSON is a permanent failure that says so", async () => {
  const large = await outcomeOf(() => "x".repeat(300 * 1024));
  assert.deepEqual([large.outcome, large.permanent], ["failed", true]);
  assert.match(large.error ?? "", /307202 bytes; at most 262144/);
  assert.equal((await outcomeOf(() => "é".repeat(130_000))).outcome, "succeeded");
  assert.equal((await outcomeOf(() => "é".repeat(132_000))).outcome, "failed");
  const cyclic: Record<string, unknown> = {};
  cyclic["self"] = cyclic;
  const strange = await outcomeOf(() => cyclic);
  assert.deepEqual([strange.outcome, strange.permanent], ["failed", true]);
  assert.match(strange.error ?? "", /the result is not JSON: TypeError/);
});

test("a handler that heeds its signal ends as the reason says", async () => {
  const expected = { cancel: "cancelled", lost: "lost", timeout: "failed", shutdown: "released", drain: "released" } as const;
  for (const [reason, outcome] of Object.entries(expected) as [keyof typeof expected, string][]) {
    for (const wait of [(ctx: Context) => sleep(60_000, null, { signal: ctx.signal }), (ctx: Context) => fetchLike(ctx.signal)]) {
      const started = gate();
      const one = harness<null, unknown>((_, ctx) => (started.open(), wait(ctx)));
      const running = one.run(null);
      await started.promise;
      one.stop(reason);
      assert.equal((await running).outcome, outcome, reason);
    }
  }
});

/** Rejects with the reason itself, as fetch does. */
function fetchLike(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
}

test("check throws only when the handler must end; the signal and the reason say it too", async () => {
  const one = harness<null, string>((_, ctx) => {
    ctx.check();
    one.stopSoon("drain");
    ctx.check();
    assert.equal(ctx.stopReason, "drain");
    assert.ok(ctx.stopping.aborted && !ctx.signal.aborted);
    one.stop("cancel");
    assert.equal(ctx.stopReason, "cancel");
    assert.ok(ctx.signal.reason instanceof Cancelled);
    assert.throws(() => ctx.check(), Cancelled);
    return "went on";
  });
  assert.equal((await one.run(null)).outcome, "succeeded", "work that is done counts, also after a cancel");
});

test("an error of its own after a cancel is reported as one, and the server makes it a cancel", async () => {
  const one = harness<null, never>(() => {
    one.stop("cancel");
    throw new Error("the clean-up failed");
  });
  const outcome = await one.run(null);
  assert.deepEqual([outcome.outcome, outcome.error], ["failed", "Error: the clean-up failed"]);
});

test("a payload is checked; one that does not match is retried, because a newer worker may know it", async () => {
  const worker = new Worker(new Client());
  const double = worker.handle("double", { payload: z.object({ n: z.coerce.number() }) }, ({ n }) => n * 2);
  assert.equal((await new Harness(double).run({ n: "21" })).result, 42);
  const wrong = await new Harness(double).run({ n: "many" });
  assert.deepEqual([wrong.outcome, wrong.permanent], ["failed", false]);
  assert.match(wrong.error ?? "", /does not match the schema of double: n: /);
});

test("a kind can be defined apart from its handler, with types for both", async () => {
  const welcome = defineKind("welcome", { payload: z.object({ user: z.number().default(1) }), maxAttempts: 7 });
  // @ts-expect-error: a user is a number
  welcome.job({ user: "x" });
  assert.deepEqual(welcome.job({}, { delayMs: 5 }), { kind: "welcome", payload: {}, maxAttempts: 7, delayMs: 5 });
  const handler = new Worker(new Client({ retryForMs: 0 })).handle(welcome, ({ user }, ctx) => user.toFixed(1) + ctx.isLastAttempt);
  assert.equal((await new Harness(handler).run({}, { attempt: 7 })).result, "1.0true");
  // @ts-expect-error: the result is a string
  const wrong: Promise<{ result: number }> = handler.wait("1", { timeoutMs: 0 });
  await assert.rejects(wrong);
});

test("progress is kept within what the server takes", async () => {
  const outcome = await outcomeOf((ctx) => {
    ctx.progress(49.6, "a\0b\ud800");
    ctx.progress(101);
    ctx.progress(null, "x".repeat(5_000));
    ctx.log.info("seen");
    return ctx.key(3) === `${ctx.job.id}-3`;
  });
  assert.equal(outcome.result, true);
  assert.deepEqual(outcome.progress.slice(0, 2), [{ percent: 50, message: "a\ufffdb\ufffd" }, { percent: 100 }]);
  assert.equal(outcome.progress[2]?.message?.length, 1_000);
  assert.deepEqual(outcome.logs, ["seen"]);
});

test("middleware runs around the handler, the first outermost, and may answer itself", async () => {
  const steps: string[] = [];
  const around = (name: string) => async (_: unknown, __: unknown, next: () => Promise<unknown>): Promise<unknown> => {
    steps.push(`${name} in`);
    const result = await next();
    steps.push(`${name} out`);
    return result;
  };
  const outcome = await outcomeOf(() => steps.push("handler"), { middleware: [around("a"), around("b")] });
  assert.deepEqual(steps, ["a in", "b in", "handler", "b out", "a out"]);
  assert.equal(outcome.outcome, "succeeded");
  assert.equal((await outcomeOf(() => 1, { middleware: [() => 2] })).result, 2);
});

test("a worker refuses two handlers for one kind, and to start without any", async () => {
  const worker = new Worker(new Client());
  await assert.rejects(worker.start(), /has no handlers/);
  await assert.rejects(worker.run(), /has no handlers/);
  worker.handle("k", () => null);
  assert.throws(() => worker.handle("k", () => null), /has a handler already/);
  assert.match(worker.name, /^[a-z0-9_.:-]{1,64}$/);
});
