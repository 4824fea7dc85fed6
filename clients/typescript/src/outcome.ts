/**
 * From what a handler did to what is reported: the one place that knows. Pure, so that the engine and the test harness
 * decide alike. It sends nothing: that is settle.ts.
 */
import type { Stop } from "./context.js";
import { plainText } from "./context.js";
import { Cancelled, PayloadMismatch, Permanent, Retry, Snooze } from "./errors.js";
import type { OutcomeReport } from "./wire.js";

/** An outcome without the lease that it is for. */
export type Report = Omit<OutcomeReport, "job_id" | "lease_token" | "result"> & {
  /** The result as JSON text. */
  resultJson?: string;
};

/** What the server keeps of a result. */
export const RESULT_MAX_BYTES = 256 * 1024;
/** What the server keeps of an error: 16 KiB. Counted in characters, of which some take up to four bytes. */
const ERROR_MAX_CHARS = 15_000;
const FRAMES_MAX = 20;
const CAUSES_MAX = 5;

const utf8 = new TextEncoder();

/** The handler returned. */
export function reportOfResult(result: unknown): Report {
  if (result instanceof Snooze) return reportOfSnooze(result);
  let json: string | undefined;
  try {
    json = JSON.stringify(result);
  } catch (error) {
    return failed(`the result is not JSON: ${errorLine(error)}`, { permanent: true });
  }
  if (json === undefined || json === "null") return { outcome: "succeeded" };
  // Most results are short; only others are worth measuring.
  const bytes = json.length * 3 > RESULT_MAX_BYTES ? utf8.encode(json).length : json.length;
  if (bytes > RESULT_MAX_BYTES) {
    return failed(`the result has ${bytes} bytes; at most ${RESULT_MAX_BYTES} are kept. Store it elsewhere and return where`, { permanent: true });
  }
  return { outcome: "succeeded", resultJson: json };
}

/** The handler threw. `undefined`: report nothing, the job belongs to another worker. */
export function reportOfError(error: unknown, stop: Stop, frames: boolean): Report | undefined {
  const must = stop.mustReason;
  if (must === "lost") return undefined;
  const stopped = isBecauseOfStop(error);
  if (must === "timeout" && stopped) return timedOut();
  if (must === "cancel" && stopped) return { outcome: "cancelled" };
  // It heeded the shutdown or the drain: back to the queue, the attempt does not count.
  if (stopped && (stop.reason === "shutdown" || stop.reason === "drain")) return { outcome: "released" };
  if (error instanceof Snooze) return reportOfSnooze(error);
  const text = errorText(error, frames);
  if (error instanceof Permanent) return failed(text, { permanent: true, errorGroup: error.errorGroup });
  if (error instanceof Retry) return failed(text, { retryAfterMs: error.afterMs, errorGroup: error.errorGroup });
  // A newer worker may know the payload: retried like any failure.
  if (error instanceof PayloadMismatch) return failed(error.message, {});
  // After a cancel the server records it as cancelled and keeps the error.
  return failed(text, {});
}

export function timedOut(timeoutMs?: number | null): Report {
  return failed(timeoutMs ? `timed out after ${timeoutMs} ms` : "timed out", {});
}

function reportOfSnooze(snooze: Snooze): Report {
  return { outcome: "snoozed", delay_ms: wholeMs(snooze.delayMs) };
}

function failed(error: string, more: { permanent?: boolean; retryAfterMs?: number; errorGroup?: string | undefined }): Report {
  const report: Report = { outcome: "failed", error: plainText(error).slice(0, ERROR_MAX_CHARS) };
  if (more.permanent) report.permanent = true;
  if (more.retryAfterMs !== undefined) report.retry_after_ms = wholeMs(more.retryAfterMs);
  if (more.errorGroup !== undefined) report.error_group = plainText(more.errorGroup).slice(0, 64);
  return report;
}

/** Our own reason, or an AbortError that somebody made of it. */
function isBecauseOfStop(error: unknown): boolean {
  for (let depth = 0; depth < CAUSES_MAX && error instanceof Error; depth++) {
    if (error instanceof Cancelled || error.name === "AbortError") return true;
    error = error.cause;
  }
  return false;
}

function wholeMs(ms: number): number {
  return Number.isFinite(ms) ? Math.max(0, Math.round(ms)) : 0;
}

/** `TypeError: message`. */
export function errorLine(error: unknown): string {
  if (error instanceof Error) return error.message === "" ? error.name : `${error.name}: ${error.message}`;
  try {
    return typeof error === "string" ? error : (JSON.stringify(error) ?? String(error));
  } catch {
    return "a value that cannot be shown was thrown";
  }
}

/** The message, its causes, and the newest frames. */
function errorText(error: unknown, frames: boolean): string {
  const lines = [errorLine(error)];
  let cause = error instanceof Error ? error.cause : undefined;
  for (let depth = 1; depth < CAUSES_MAX && cause !== undefined; depth++) {
    lines.push(`caused by ${errorLine(cause)}`);
    cause = cause instanceof Error ? cause.cause : undefined;
  }
  if (frames && error instanceof Error && typeof error.stack === "string") {
    lines.push(...error.stack.split("\n").filter((line) => /^\s+at /.test(line)).slice(0, FRAMES_MAX));
  }
  return lines.join("\n");
}
