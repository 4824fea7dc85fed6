"""Runs one handler on one lease, inside its middleware, and says how it ended.

Used by the engine and by `testing.Harness` alike. It never raises: whatever a handler does is the outcome of its own job."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from .context import Context, reset_current_context, set_current_context
from .job import Job
from .outcome import Outcome, is_stop, of_exception, of_result, of_stopped

logger = logging.getLogger("steadfast_queue")

Middleware = Callable[[Job, Context, Callable[[], Any]], Any]
"""`def m(job, ctx, next)` around `def` handlers, `async def m(job, ctx, next)` around `async def` handlers."""


class Runnable(Protocol):
    """What the engine needs of a handler."""

    @property
    def kind(self) -> str: ...

    @property
    def is_async(self) -> bool: ...

    def invoke(self, payload: Any, context: Context) -> Any:
        """Decodes the payload and calls the function; of an async one, the coroutine is returned."""
        ...


def is_async_callable(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 (an object with an async __call__)
    )


def run_sync(handler: Runnable, context: Context, middleware: Sequence[Middleware], *, frames: bool) -> Outcome:
    """For a `def` handler, in the thread that calls it."""
    token = set_current_context(context)
    try:
        context.check()
        call: Callable[[], Any] = lambda: handler.invoke(context.job.payload, context)  # noqa: E731
        for layer in reversed(middleware):
            if not is_async_callable(layer):
                call = _around(layer, context, call)
        value = call()
        if inspect.isawaitable(value):
            if inspect.iscoroutine(value):
                value.close()
            raise TypeError("the handler returned a coroutine: declare it with async def")
        # Work that was done is reported, also if a cancel or a shutdown came meanwhile.
        return of_result(value)
    except BaseException as error:
        return _of_error(error, context, frames)
    finally:
        reset_current_context(token)


async def run_async(handler: Runnable, context: Context, middleware: Sequence[Middleware], *, frames: bool) -> Outcome:
    """The same for an `async def` handler. The task is cancelled when the handler must stop."""
    token = set_current_context(context)
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(_call_async(handler, context, middleware))

    def on_stop() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(task.cancel)

    context.cancelled.when_set(on_stop)
    try:
        return of_result(await task)
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and not task.done():
            task.cancel()
        return _of_error(error, context, frames)
    finally:
        context.cancelled.forget(on_stop)
        reset_current_context(token)


async def _call_async(handler: Runnable, context: Context, middleware: Sequence[Middleware]) -> Any:
    context.check()

    async def innermost() -> Any:
        return await handler.invoke(context.job.payload, context)

    call: Callable[[], Awaitable[Any]] = innermost
    for layer in reversed(middleware):
        if is_async_callable(layer):
            call = _around(layer, context, call)
    return await call()


def _around(layer: Middleware, context: Context, inner: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: layer(context.job, context, inner)


def _of_error(error: BaseException, context: Context, frames: bool) -> Outcome:
    try:
        if is_stop(error):
            return of_stopped(context.stop_reason, context)
        outcome = of_exception(error, frames=frames)
    except Exception as broken:  # an exception whose __str__ raises, a negative delay
        logger.exception("cannot describe an exception of type %s", type(error).__name__)
        outcome = Outcome("failed", error=f"{type(error).__name__} (it cannot be described: {type(broken).__name__})")
    if outcome.outcome == "failed":
        last = outcome.permanent or context.is_last_attempt
        context.log.log(logging.ERROR if last else logging.WARNING, "failed: %s", outcome.error)
    return outcome
