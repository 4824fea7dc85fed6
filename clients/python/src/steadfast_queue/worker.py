"""The worker: handlers by kind, how many run at the same time, and the ways to run it.

It collects what the engine needs and starts it: in the foreground until a signal (`run`), in the background of another program
(`running`), or in several processes (`processes.py`). How jobs are leased and settled is in `engine.py`."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from .client import Client
from .context import Context, logger
from .engine import Engine, Settings
from .errors import Problem, Seconds, Unreachable, to_ms, to_seconds
from .execute import Middleware
from .handler import Handler, HandlerOptions, merged
from .identity import check_name, worker_name
from .processes import run_processes
from .signals import StopSignals

if TYPE_CHECKING:
    from typing_extensions import Unpack

P = TypeVar("P")
R = TypeVar("R")
M = TypeVar("M", bound=Middleware)


class HandlerDecorator:
    """What `@worker.handler(…)` returns."""

    def __init__(self, worker: Worker, kind: str, options: HandlerOptions) -> None:
        self._worker, self._kind, self._options = worker, kind, options

    @overload
    def __call__(self, function: Callable[[P, Context], Awaitable[R]]) -> Handler[P, Awaitable[R]]: ...
    @overload
    def __call__(self, function: Callable[[P, Context], R]) -> Handler[P, R]: ...
    @overload
    def __call__(self, function: Callable[[P], R]) -> Handler[P, R]: ...
    def __call__(self, function: Callable[..., Any]) -> Handler[Any, Any]:
        handler: Handler[Any, Any] = Handler(self._kind, function, self._worker.client, self._options)
        self._worker.add(handler)
        return handler


class Worker:
    """Runs jobs of the kinds that it has handlers for.

    `concurrency`: jobs at the same time, in threads (`def`) or on one event loop (`async def`). `queues`: only these.
    `prefetch`: jobs leased beyond free slots, for very short jobs. `lease`: how long a job of a dead worker waits.
    `grace`: how long a shutdown waits for running jobs before it gives them back. `heartbeat="process"`: for handlers that
    hold the GIL longer than a lease. `processes`: that many forked engines, each with its own `concurrency`.
    `declare`: declare kinds at start, if the token may. `error_frames`: send the last 20 frames with errors.
    `exit_on_drain`: end when an operator drains this worker, instead of waiting to be undrained."""

    def __init__(
        self,
        client: Client | None = None,
        *,
        concurrency: int = 10,
        queues: list[str] | None = None,
        name: str | None = None,
        prefetch: int = 0,
        lease: Seconds = 30.0,
        poll: Seconds = 10.0,
        grace: Seconds = 30.0,
        heartbeat: Literal["thread", "process"] = "thread",
        processes: int = 1,
        declare: bool = True,
        error_frames: bool = True,
        exit_on_drain: bool = False,
    ) -> None:
        if not 1 <= concurrency <= 1000 or prefetch < 0 or processes < 1:
            raise ValueError("concurrency is 1 to 1,000, prefetch at least 0, processes at least 1")
        if not 1000 <= to_ms(lease) <= 3_600_000:
            raise ValueError("lease is 1 s to 1 h")
        if heartbeat not in ("thread", "process"):
            raise ValueError('heartbeat is "thread" or "process"')
        if queues is not None and not queues:
            raise ValueError("queues has at least one name: leave it out to mean all of them")
        self.client = client if client is not None else Client()
        self.concurrency, self.processes = concurrency, processes
        self._name = None if name is None else check_name("worker", name)
        self._queues = None if queues is None else [check_name("queue", queue) for queue in queues]
        self._prefetch = prefetch
        self._lease_ms, self._wait_ms, self._grace_s = to_ms(lease), to_ms(poll), to_seconds(grace)
        self._heartbeat: Literal["thread", "process"] = heartbeat
        self._declare, self._error_frames, self._exit_on_drain = declare, error_frames, exit_on_drain
        self.handlers: dict[str, Handler[Any, Any]] = {}
        self.middlewares: list[Middleware] = []
        self._engine: Engine | None = None
        self._problem: Problem | None = None

    # What it runs.

    def handler(self, kind: str, **options: Unpack[HandlerOptions]) -> HandlerDecorator:
        """Registers a function `(payload, ctx)` or `(payload)` for a kind. Its return value is the job's result."""
        return HandlerDecorator(self, kind, options)

    def add(self, handler: Handler[Any, Any]) -> None:
        if handler.kind in self.handlers:
            raise ValueError(f"there is a handler for {handler.kind} already")
        self.handlers[handler.kind] = handler

    def middleware(self, function: M) -> M:
        """Registers `(job, ctx, next)` around handlers: a `def` around `def` handlers, an `async def` around `async def` ones.
        The first that is registered is the outermost."""
        self.middlewares.append(function)
        return function

    def declare(self) -> bool:
        """Declares the kinds of all handlers with their schemas and defaults. What operators have set besides stays.
        False: the token may not; then somebody else declares them."""
        try:
            declared = {kind["kind"]: kind for kind in self.client.kinds()}
            for handler in self.handlers.values():
                known = declared.get(handler.kind)
                if known is not None and known["built_in"]:
                    continue
                wanted = merged(known, handler.declaration())
                if wanted is not None:
                    self.client.put_kind(handler.kind, **wanted)
        except Problem as problem:
            if problem.status != 403:
                raise
            logger.info("kinds are not declared by this worker: %s", problem.detail)
            return False
        return True

    # How it runs.

    def run(self) -> None:
        """Runs until SIGTERM or SIGINT: takes no more jobs, finishes what it has within the grace period, gives the rest back
        and returns. A second signal ends the process at once, with status 1. Raises Problem if the server refuses it."""
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("run() is for the main thread, which gets signals: use running() elsewhere")
        self._declare_if_wanted()
        if self.processes > 1:
            run_processes(self.processes, self._run_until, self._grace_s)
            return
        with StopSignals() as stop:
            self._run_until(stop)

    def _run_until(self, stop: StopSignals) -> None:
        engine = self._start()
        engine.over.when_set(stop.wake)
        stop.wait()
        logger.info("stopping: finishing what runs, for up to %g s", self._grace_s)
        self._stop()
        if engine.problem is not None:
            raise engine.problem

    def running(self) -> RunningWorker:
        """The worker in the background, for `with` and `async with`: inside of a web process, or in tests. It installs no
        signal handlers; leaving the block shuts it down as a signal would."""
        return RunningWorker(self)

    @property
    def name(self) -> str | None:
        """Its name on the server while it runs."""
        return self._engine.settings.name if self._engine is not None else self._name

    @property
    def problem(self) -> Problem | None:
        """Why it stopped by itself: the server refuses it."""
        return self._engine.problem if self._engine is not None else self._problem

    def _declare_if_wanted(self) -> None:
        if self._declare:
            try:
                self.declare()
            except Unreachable as error:
                logger.warning("kinds are not declared: %s", error)

    def _start(self) -> Engine:
        if not self.handlers:
            raise RuntimeError("the worker has no handlers: register some with @worker.handler(kind)")
        if self._engine is not None:
            raise RuntimeError("the worker runs already")
        settings = Settings(
            name=self._own_name(),
            concurrency=self.concurrency,
            queues=self._queues,
            prefetch=self._prefetch,
            lease_ms=self._lease_ms,
            wait_ms=self._wait_ms,
            grace_s=self._grace_s,
            heartbeat=self._heartbeat,
            error_frames=self._error_frames,
            exit_on_drain=self._exit_on_drain,
        )
        engine = Engine(self.client.address, settings, self.handlers, self.middlewares)
        engine.start()
        self._engine = engine
        logger.info(
            "worker %s runs %s: %d at a time",
            settings.name,
            ", ".join(sorted(self.handlers)),
            self.concurrency,
        )
        return engine

    def _own_name(self) -> str:
        if self._name is None:
            return worker_name()
        suffix = f"-{os.getpid()}" if self.processes > 1 else ""
        return self._name[: 64 - len(suffix)] + suffix

    def _stop(self, grace: float | None = None) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.shutdown(grace)
            self._problem = engine.problem


class RunningWorker(AbstractContextManager["RunningWorker"]):
    """A worker in the background; see `Worker.running`."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    def start(self) -> RunningWorker:
        self.worker._declare_if_wanted()  # pyright: ignore[reportPrivateUsage]
        engine = self.worker._start()  # pyright: ignore[reportPrivateUsage]
        # Refused: it leases no more, and says so in the log; the program around it decides what to do.
        engine.over.when_set(engine.stop_leasing)
        return self

    def stop(self, grace: Seconds | None = None) -> None:
        self.worker._stop(None if grace is None else to_seconds(grace))  # pyright: ignore[reportPrivateUsage]

    def __enter__(self) -> RunningWorker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> RunningWorker:
        return await asyncio.to_thread(self.start)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)
