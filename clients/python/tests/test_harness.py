"""Handlers without a server: every outcome, middleware, contexts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from steadfast_queue import Cancelled, Context, Handler, Job, Permanent, Retry, Snooze, Worker, current_context
from steadfast_queue.context import Signal
from steadfast_queue.errors import StopReason
from steadfast_queue.testing import Attempt, Harness


def run(function: Callable[..., Any], payload: Any = None, **options: Any) -> Attempt:
    worker = Worker()
    handler: Any = worker.handler("k")(function)
    return Harness(worker).run(handler, payload, **options)


def raises(error: BaseException) -> Callable[[Any, Context], Any]:
    def handler(payload: Any, ctx: Context) -> Any:
        raise error

    return handler


def returns(value: Any) -> Callable[[Any], Any]:
    return lambda payload: value


def test_a_return_value_is_the_result() -> None:
    assert run(returns({"a": (1, 2)})).result == {"a": [1, 2]}
    assert run(returns(None)).outcome == "succeeded"


def test_outcomes_are_raised_or_returned() -> None:
    for handler in (raises, returns):
        assert run(handler(Snooze(60))) == Attempt("snoozed", delay=60.0)
        assert run(handler(Retry("busy", after=5))) == Attempt("failed", error="busy", retry_after=5.0)
        assert run(handler(Permanent("no"))) == Attempt("failed", error="no", permanent=True)


def test_any_other_exception_is_a_failure_that_is_retried() -> None:
    assert run(raises(KeyError("x"))) == Attempt("failed", error="KeyError: 'x'")
    assert run(raises(SystemExit(3))).outcome == "failed"


def test_an_exception_that_cannot_be_printed_is_still_a_failure() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert "Broken" in (run(raises(Broken())).error or "")


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [("cancel", "cancelled"), ("timeout", "failed"), ("shutdown", "released"), ("lost", "released")],
)
def test_a_handler_that_is_told_to_stop_ends_with_the_outcome_of_the_reason(reason: StopReason, outcome: str) -> None:
    seen: list[str | None] = []

    def handler(payload: Any, ctx: Context) -> None:
        seen.append(ctx.stop_reason)
        ctx.check()

    async def on_loop(payload: Any, ctx: Context) -> None:
        await asyncio.sleep(3600)

    assert run(handler, stop=reason).outcome == outcome
    assert run(on_loop, stop=reason).outcome == outcome
    assert seen == [], "it does not begin"


def test_cancelled_without_reason_is_a_release_while_stopping_and_else_a_failure() -> None:
    assert run(raises(Cancelled()), stopping=True).outcome == "released"
    assert run(raises(Cancelled())).outcome == "failed"


def test_permanent_can_be_thrown_in_an_expression() -> None:
    def handler(payload: dict[str, Any]) -> Any:
        return payload.get("user") or Permanent.throw("no user")

    assert run(handler, {"user": 1}).result == 1
    assert run(handler, {}).permanent


def test_the_context_says_who_and_how_often_and_takes_progress() -> None:
    def handler(payload: Any, ctx: Context) -> Any:
        assert current_context() is ctx
        ctx.progress(150, "over\0\ud800")
        ctx.progress(message="half")
        return [ctx.attempt, ctx.is_last_attempt, ctx.key(1) == f"{ctx.job.id}-1"]

    attempt = run(handler, attempt=3)
    assert attempt.result == [3, True, True]
    assert attempt.progress == [{"percent": 100, "message": "over?"}, {"message": "half"}]
    assert current_context() is None


def test_middleware_wraps_handlers_of_its_own_kind_outermost_first() -> None:
    worker, seen = Worker(), list[str]()

    @worker.middleware
    def outer(job: Job, ctx: Context, call_next: Callable[[], Any]) -> Any:
        seen.append(f"outer {job.kind}")
        return {"wrapped": call_next()}

    @worker.middleware
    def inner(job: Job, ctx: Context, call_next: Callable[[], Any]) -> Any:
        seen.append("inner")
        return call_next()

    @worker.middleware
    async def on_loop(job: Job, ctx: Context, call_next: Callable[[], Any]) -> Any:
        seen.append("async")
        return [await call_next()]

    worker.handler("plain")(lambda payload: 1)

    @worker.handler("coroutine")
    async def coroutine(payload: Any) -> int:
        return 2

    harness = Harness(worker)
    assert harness.run("plain", None).result == {"wrapped": 1}
    assert harness.run(coroutine, None).result == [2]
    assert seen == ["outer plain", "inner", "async"]


def test_handlers_are_checked_when_they_are_registered() -> None:
    worker = Worker()
    with pytest.raises(TypeError, match="payload"):
        Handler("k", lambda: None, None, {})
    with pytest.raises(ValueError, match="not a name"):
        worker.handler("No Name")(lambda payload: None)
    worker.handler("k")(lambda payload: None)
    with pytest.raises(ValueError, match="already"):
        worker.handler("k")(lambda payload: None)


def test_a_signal_is_waited_for_by_threads_and_coroutines() -> None:
    signal = Signal()

    async def main() -> str:
        waits = asyncio.ensure_future(_await(signal))
        await asyncio.sleep(0)
        await asyncio.to_thread(signal.set)
        return await asyncio.wait_for(waits, 10)

    assert asyncio.run(main()) == "set"
    assert signal.wait(0)


async def _await(signal: Signal) -> str:
    await signal
    return "set"
