"""What type checkers must say about handlers: every `ignore` here is an error that they must find, or they complain.

Not run: `check` gives it to mypy and pyright."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from typing_extensions import assert_type

from steadfast_queue import AsyncClient, Client, Context, Job, NewJob, Worker

worker = Worker(Client())


@dataclass
class Welcome:
    user: int


@worker.handler("welcome", max_attempts=5, timeout=30)
def welcome(payload: Welcome, ctx: Context) -> dict[str, Any]:
    return {"user": payload.user}


@worker.handler("short")
def short(payload: int) -> None: ...


@worker.handler("coroutine")
async def coroutine(payload: Welcome, ctx: Context) -> int:
    return payload.user


def producers() -> None:
    assert_type(welcome.enqueue(Welcome(1), delay=60), Job)
    assert_type(welcome.job(Welcome(1)), NewJob)
    coroutine.enqueue(Welcome(1))
    short.enqueue(1)
    welcome.enqueue({"user": 1})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    coroutine.enqueue(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    short.enqueue("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    welcome.enqueue(Welcome(1), dealy=60)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def asynchronous(client: AsyncClient) -> None:
    assert_type(await client.enqueue("welcome", {}, priority=3), Job)
    await client.enqueue("welcome", {}, priority="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    async for job in client.jobs(status="queued"):
        assert_type(job, Job)
    client.jobs(status="finished")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
