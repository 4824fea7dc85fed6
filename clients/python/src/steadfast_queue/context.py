"""What a handler is given besides its payload: who it is, whether to stop and why, progress, a logger.

A context decides nothing and sends nothing: the heartbeat reads its progress and tells it to stop."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable, Generator, MutableMapping
from typing import TYPE_CHECKING, Any

from .errors import Cancelled, Seconds, StopReason, to_seconds
from .job import Job

logger = logging.getLogger("steadfast_queue")

PERCENT_MAX = 100
MESSAGE_MAX_CHARS = 1000
"""1,000 characters of a progress message: it is for people."""

_current: contextvars.ContextVar[Context | None] = contextvars.ContextVar("steadfast_queue_context", default=None)


def current_context() -> Context | None:
    """The context of the handler that runs in this thread or task, if there is one."""
    return _current.get()


def set_current_context(context: Context) -> contextvars.Token[Context | None]:
    return _current.set(context)


def reset_current_context(token: contextvars.Token[Context | None]) -> None:
    _current.reset(token)


class Signal:
    """An event: threads `wait` for it, coroutines `await` it. Once set it stays set."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], object]] = []

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """True once it is set, False if the time is over before."""
        return self._event.wait(timeout)

    def set(self) -> None:
        with self._lock:
            self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def when_set(self, callback: Callable[[], object]) -> None:
        """Calls back once, in the thread that sets it; at once if it is set."""
        with self._lock:
            if not self._event.is_set():
                self._callbacks.append(callback)
                return
        callback()

    def forget(self, callback: Callable[[], object]) -> None:
        with self._lock:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

    def __await__(self) -> Generator[Any, None, None]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def resolve() -> None:
            if not future.done():
                future.set_result(None)

        def on_set() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(resolve)

        self.when_set(on_set)
        try:
            yield from future
        finally:
            self.forget(on_set)


if TYPE_CHECKING:
    _LoggerAdapter = logging.LoggerAdapter[logging.Logger]
else:
    _LoggerAdapter = logging.LoggerAdapter  # Python 3.10 cannot subscript it


class JobLogger(_LoggerAdapter):
    """Names the job in every line, and has `job_id`, `kind` and `attempt` as extra fields for structured logs."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        fields = dict(self.extra or {})
        kwargs["extra"] = {**fields, **(kwargs.get("extra") or {})}
        return f"{fields.get('kind')} {fields.get('job_id')} attempt {fields.get('attempt')}: {msg}", kwargs


class Context:
    """One attempt of one job."""

    def __init__(self, job: Job, attempt: int, *, worker: str, stopping: Signal) -> None:
        self.job = job
        self.attempt = attempt
        """1 for the first. Snoozes and releases do not count."""
        self.worker = worker
        self.stopping = stopping
        """Set when the worker begins to shut down: finish soon. `check` does not raise for it before the grace period ends."""
        self.draining = False
        """An operator asked the worker to drain, or the server is going away: finish what you have."""
        self.cancelled = Signal()
        """Set when the handler must stop, with `stop_reason`: what `check` raises for."""
        self._reason: StopReason | None = None
        self._lock = threading.Lock()
        self._progress: dict[str, Any] | None = None
        self._on_progress: Callable[[dict[str, Any]], None] | None = None
        self.log = JobLogger(logger, {"job_id": job.id, "kind": job.kind, "attempt": attempt})

    @property
    def is_last_attempt(self) -> bool:
        """If this attempt fails, the job is a dead letter."""
        return self.attempt >= self.job.max_attempts

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the handler must stop: `cancel`, `lost`, `timeout` or `shutdown`. None: it need not."""
        return self._reason

    def check(self) -> None:
        """Raises Cancelled if the handler must stop. Call it between steps."""
        if self._reason is not None:
            raise Cancelled(self._reason)

    def sleep(self, duration: Seconds) -> None:
        """Waits, and raises Cancelled as soon as the handler must stop. (In async handlers use `asyncio.sleep`.)"""
        self.cancelled.wait(to_seconds(duration))
        self.check()

    def key(self, part: object) -> str:
        """`<job id>-<part>`: an idempotency key for a call to somebody else, the same on every attempt."""
        return f"{self.job.id}-{part}"

    def progress(self, percent: float | None = None, message: str | None = None) -> None:
        """What operators see of a running job. The newest is sent with the next heartbeat; it may be called often."""
        report: dict[str, Any] = {}
        if percent is not None:
            report["percent"] = max(0, min(PERCENT_MAX, int(percent)))
        if message is not None:
            # A lone surrogate or a NUL would have the server refuse the heartbeat of all leases.
            text = message[:MESSAGE_MAX_CHARS].replace("\0", "")
            report["message"] = text.encode("utf-8", "replace").decode()
        with self._lock:
            self._progress = report
            send = self._on_progress
        if send is not None:
            send(report)

    # For the engine.

    def tell(self, reason: StopReason) -> bool:
        """The handler must stop. The first reason stands, but a lost lease overrides it: then nothing can be reported."""
        with self._lock:
            if self._reason == "lost" or (self._reason is not None and reason != "lost"):
                return False
            self._reason = reason
        self.cancelled.set()
        return True

    def take_progress(self) -> dict[str, Any] | None:
        """The newest progress that was not taken yet."""
        with self._lock:
            progress, self._progress = self._progress, None
            return progress

    def restore_progress(self, progress: dict[str, Any]) -> None:
        """It was taken and could not be sent; a newer one wins."""
        with self._lock:
            self._progress = self._progress or progress

    def on_progress(self, send: Callable[[dict[str, Any]], None]) -> None:
        with self._lock:
            self._on_progress = send
