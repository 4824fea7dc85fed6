"""Exceptions: what a handler raises to choose its outcome, and what the client raises about the server.

Nothing here talks to anybody. How an exception becomes an outcome is in `outcome.py`."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, NoReturn

if TYPE_CHECKING:
    from .job import Job
    from .wire import ItemError

Seconds = float | timedelta
"""A duration: a number of seconds, or a timedelta."""

StopReason = Literal["cancel", "lost", "timeout", "shutdown"]
"""Why a handler must stop: an operator cancelled the job, the lease was lost, its time is over, or the worker ends."""


class SteadfastError(Exception):
    """Base class of everything that this library raises."""


# What handlers raise.


class HandlerSignal(SteadfastError):
    """Base class of the exceptions with which a handler chooses its outcome. They may be raised or returned."""


class Permanent(HandlerSignal):
    """The job has failed and another attempt cannot help: it becomes a dead letter at once.

    `group` names the cause, for `errors`; without it the server finds one in the message."""

    def __init__(self, message: str, *, group: str | None = None) -> None:
        super().__init__(message)
        self.group = group

    @classmethod
    def throw(cls, message: str) -> NoReturn:
        """Raises, as an expression: `user = find(id) or Permanent.throw("no such user")`."""
        raise cls(message)


class Retry(HandlerSignal):
    """The attempt has failed; the next one starts `after` this time. Without `after`, as the kind's retry policy says."""

    def __init__(self, message: str = "", *, after: Seconds | None = None, group: str | None = None) -> None:
        super().__init__(message or "the handler asked for a retry")
        self.after = after
        self.group = group


class Snooze(HandlerSignal):
    """Not yet: the job starts again after `delay`, and this does not count as an attempt."""

    def __init__(self, delay: Seconds) -> None:
        super().__init__(f"snoozed for {delay}")
        self.delay = delay


class Cancelled(HandlerSignal):
    """Raised by `Context.check` when the handler must stop; `reason` says why. Let it pass."""

    def __init__(self, reason: StopReason | None = None) -> None:
        super().__init__(reason or "cancelled")
        self.reason = reason


# What the client raises.


class Problem(SteadfastError):
    """The server refused a call (RFC 9457). `code` is stable, `detail` is for people."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        title: str = "",
        request_id: str | None = None,
        retry_after: float | None = None,
        errors: list[ItemError] | None = None,
    ) -> None:
        super().__init__(f"{status} {code}: {detail}" if detail else f"{status} {code}")
        self.status = status
        self.code = code
        self.detail = detail
        self.title = title
        self.request_id = request_id
        self.retry_after = retry_after
        self.errors: list[ItemError] = errors or []

    @property
    def is_temporary(self) -> bool:
        """The same call may succeed later: over a limit, or the server or its store is unavailable."""
        return self.status in (408, 429, 502, 503, 504)

    @property
    def is_access(self) -> bool:
        """The token is missing, wrong, revoked or without the scope: no retry can help."""
        return self.status in (401, 403)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Problem, (self.status, self.code, self.detail))


class Unreachable(SteadfastError):
    """No answer: the connection failed or timed out, in all attempts. For a call that changes something it is not known
    whether it was done, unless `sent` is false."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class JobFailed(SteadfastError):
    """`wait` was called for a job that failed permanently or was cancelled. `job` is how it ended."""

    def __init__(self, job: Job) -> None:
        super().__init__(f"job {job.id} ({job.kind}) is {job.status}: {job.last_error or 'no error recorded'}")
        self.job = job


class WaitTimeout(SteadfastError, TimeoutError):
    """The job had not finished in time. It goes on; `job` is how it was when last seen."""

    def __init__(self, job: Job, timeout: float) -> None:
        super().__init__(f"job {job.id} ({job.kind}) is {job.status} after {timeout:g} s")
        self.job = job


def to_seconds(value: Seconds) -> float:
    """A duration in seconds; negative ones are refused."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"a duration of {seconds} s: it must be finite and not negative")
    return seconds


def to_ms(value: Seconds) -> int:
    """A duration in milliseconds, rounded, and never rounded to nothing."""
    seconds = to_seconds(value)
    return max(1, round(seconds * 1000)) if seconds else 0
