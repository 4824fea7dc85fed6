"""How an attempt ended, and how return values and exceptions become that.

It runs nothing and sends nothing: `execute.py` calls handlers, `settle.py` reports outcomes."""

from __future__ import annotations

import asyncio
import traceback
from dataclasses import dataclass
from typing import Any

from . import wire
from .context import Context
from .errors import Cancelled, Permanent, Retry, Seconds, Snooze, StopReason, to_ms
from .http import encode
from .payload import InvalidPayload, to_json

RESULT_MAX_BYTES = 256 * 1024
"""256 KiB: the server's limit for results."""
ERROR_MAX_BYTES = 16 * 1024
"""16 KiB: where the server cuts error texts. Cut here, the end of a stack trace is kept, which tells most."""
FRAMES_MAX = 20
MESSAGE_MAX_BYTES = 8 * 1024


@dataclass(frozen=True)
class Outcome:
    """One of the outcomes of the worker protocol. `result` is encoded JSON."""

    outcome: wire.Outcome
    result: bytes | None = None
    error: str | None = None
    permanent: bool = False
    retry_after_ms: int | None = None
    delay_ms: int | None = None
    error_group: str | None = None

    def to_wire(self, job_id: str, lease_token: str) -> bytes:
        report: dict[str, Any] = {"job_id": job_id, "lease_token": lease_token, "outcome": self.outcome}
        if self.error is not None:
            report["error"] = self.error
        if self.permanent:
            report["permanent"] = True
        if self.retry_after_ms is not None:
            report["retry_after_ms"] = self.retry_after_ms
        if self.delay_ms is not None:
            report["delay_ms"] = self.delay_ms
        if self.error_group is not None:
            report["error_group"] = self.error_group
        encoded = encode(report)
        # The result is JSON already: it is not encoded twice.
        return encoded if self.result is None else encoded[:-1] + b',"result":' + self.result + b"}"


RELEASED = Outcome("released")
CANCELLED = Outcome("cancelled")


def failed(error: str, *, permanent: bool = False, after: Seconds | None = None, group: str | None = None) -> Outcome:
    return Outcome(
        "failed",
        error=_printable(error)[:ERROR_MAX_BYTES],
        permanent=permanent,
        retry_after_ms=None if after is None else to_ms(after),
        error_group=None if group is None else _printable(group)[:64] or None,
    )


def of_result(value: Any) -> Outcome:
    """What a handler's return value means."""
    if isinstance(value, (Snooze, Retry, Permanent)):
        return of_exception(value, frames=False)
    if value is None:
        return Outcome("succeeded")
    try:
        result = encode(to_json(value))
    except (TypeError, ValueError, RecursionError) as error:
        return failed(f"the handler's result is not JSON: {type(error).__name__}: {error}", permanent=True)
    if len(result) > RESULT_MAX_BYTES:
        return failed(
            f"the handler's result has {len(result)} bytes of JSON, the limit is {RESULT_MAX_BYTES}: "
            "store it elsewhere and return where it is",
            permanent=True,
        )
    return Outcome("succeeded", result=result)


def of_exception(error: BaseException, *, frames: bool) -> Outcome:
    """What an exception of a handler means, unless the handler was told to stop."""
    if isinstance(error, Snooze):
        return Outcome("snoozed", delay_ms=to_ms(error.delay))
    if isinstance(error, Retry):
        return failed(str(error), after=error.after, group=error.group)
    if isinstance(error, Permanent):
        return failed(str(error), permanent=True, group=error.group)
    if isinstance(error, InvalidPayload):
        return failed(str(error))
    return failed(error_text(error, frames=frames))


def of_stopped(reason: StopReason | None, context: Context) -> Outcome:
    """What it means that a handler ended by Cancelled."""
    if reason == "cancel":
        return CANCELLED
    if reason == "timeout":
        return timed_out(context)
    # Of a lost lease nothing is sent if the server said so. If only our clock did, the server may still take this.
    if reason in ("lost", "shutdown") or context.stopping.is_set():
        return RELEASED
    return failed("the handler raised Cancelled, but nobody told it to stop")


def timed_out(context: Context) -> Outcome:
    return failed(f"timed out after {(context.job.timeout_ms or 0) / 1000:g} s")


def is_stop(error: BaseException) -> bool:
    return isinstance(error, (Cancelled, asyncio.CancelledError))


def error_text(error: BaseException, *, frames: bool) -> str:
    """Type and message; with `frames`, after the last 20 frames, as Python prints them."""
    message = traceback.format_exception_only(type(error), error)[-1].strip()
    text = _cut(message, MESSAGE_MAX_BYTES)
    if not frames or error.__traceback__ is None:
        return text
    lines = traceback.format_list(traceback.extract_tb(error.__traceback__)[-FRAMES_MAX:])
    room = ERROR_MAX_BYTES - len(text.encode("utf-8", "replace")) - 64
    kept: list[str] = []
    for line in reversed(lines):
        room -= len(line.encode("utf-8", "replace"))
        if room < 0:
            break
        kept.insert(0, line)
    # The server knows this form: it finds the cause in the last line.
    return "Traceback (most recent call last):\n" + "".join(kept) + text


def _cut(text: str, max_bytes: int) -> str:
    return text.encode("utf-8", "replace")[:max_bytes].decode("utf-8", "ignore")


def _printable(text: str) -> str:
    """Text that JSON and both stores take: no lone surrogates, no NUL."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\\0")
