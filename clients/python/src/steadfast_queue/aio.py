"""The client for asyncio: the same calls, made in a small pool of threads.

The standard library has no asynchronous HTTP. Cancelling an awaited call does not undo it: the thread finishes what it sent."""

from __future__ import annotations

import asyncio
import functools
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from .client import Client, finished_or_late, wait_pauses
from .errors import Seconds, to_seconds
from .job import Job, NewJob
from .pages import Pages

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 8
"""8 calls at the same time; more wait for a thread."""


class AsyncPages(Generic[T]):
    """A list that comes in pages, for `async for`."""

    def __init__(self, client: AsyncClient, pages: Pages[T]) -> None:
        self._client, self._pages = client, pages

    async def __aiter__(self) -> AsyncIterator[T]:
        while (page := await self._client.run(self._pages.next_page)) is not None:
            for item in page:
                yield item


def _call(
    method: Callable[Concatenate[Client, P], T],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    @functools.wraps(method)
    async def call(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(lambda: method(self.sync, *args, **kwargs))

    return call


def _list(
    method: Callable[Concatenate[Client, P], Pages[T]],
) -> Callable[Concatenate[AsyncClient, P], AsyncPages[T]]:
    @functools.wraps(method)
    def call(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> AsyncPages[T]:
        return AsyncPages(self, method(self.sync, *args, **kwargs))

    return call


class AsyncClient:
    """`Client`, awaited. See there for what each call does; `sync` is the client underneath."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: Seconds = 30.0,
        retry_for: Seconds = 15.0,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.sync = Client(url, token, timeout=timeout, retry_for=retry_for, ssl_context=ssl_context)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="steadfast-client")

    async def run(self, call: Callable[[], T]) -> T:
        """Runs a call in the pool."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def enqueue_many(self, jobs: Iterable[NewJob]) -> list[Job]:
        """As `Client.enqueue_many`. The iterable is consumed before the first batch is sent."""
        ready = list(jobs)
        return await self.run(lambda: self.sync.enqueue_many(ready))

    async def wait(self, job_id: str, timeout: Seconds = 30.0) -> Job:
        """As `Client.wait`, without a thread that waits."""
        limit = to_seconds(timeout)
        give_up = time.monotonic() + limit
        pauses = wait_pauses()
        while True:
            job = await self.get(job_id)
            left = give_up - time.monotonic()
            if waited := finished_or_late(job, left, limit):
                return waited
            await asyncio.sleep(min(next(pauses), left))

    enqueue = _call(Client.enqueue)
    get = _call(Client.get)
    jobs = _list(Client.jobs)
    attempts = _call(Client.attempts)
    cancel = _call(Client.cancel)
    redrive = _call(Client.redrive)
    delete = _call(Client.delete)
    explain = _call(Client.explain)
    queues = _list(Client.queues)
    queue = _call(Client.queue)
    pause_queue = _call(Client.pause_queue)
    resume_queue = _call(Client.resume_queue)
    put_queue = _call(Client.put_queue)
    explain_queue = _call(Client.explain_queue)
    limits = _list(Client.limits)
    put_group = _call(Client.put_group)
    delete_group = _call(Client.delete_group)
    stats = _call(Client.stats)
    kinds = _call(Client.kinds)
    put_kind = _call(Client.put_kind)
    delete_kind = _call(Client.delete_kind)
    schedules = _list(Client.schedules)
    schedule = _call(Client.schedule)
    put_schedule = _call(Client.put_schedule)
    delete_schedule = _call(Client.delete_schedule)
    pause_schedule = _call(Client.pause_schedule)
    resume_schedule = _call(Client.resume_schedule)
    run_schedule = _call(Client.run_schedule)
    ticks = _call(Client.ticks)
    preview_schedule = _call(Client.preview_schedule)
    errors = _list(Client.errors)
    error = _call(Client.error)
    snooze_error = _call(Client.snooze_error)
    unsnooze_error = _call(Client.unsnooze_error)
    preview_operation = _call(Client.preview_operation)
    begin_operation = _call(Client.begin_operation)
    operations = _list(Client.operations)
    operation = _call(Client.operation)
    pause_operation = _call(Client.pause_operation)
    resume_operation = _call(Client.resume_operation)
    stop_operation = _call(Client.stop_operation)
    set_operation_rate = _call(Client.set_operation_rate)
    workers = _list(Client.workers)
    worker = _call(Client.worker)
    drain_worker = _call(Client.drain_worker)
    undrain_worker = _call(Client.undrain_worker)
    pulse = _call(Client.pulse)
    problems = _call(Client.problems)
    series = _call(Client.series)
    hooks = _call(Client.hooks)
    hook = _call(Client.hook)
    put_hook = _call(Client.put_hook)
    pause_hook = _call(Client.pause_hook)
    resume_hook = _call(Client.resume_hook)
    delete_hook = _call(Client.delete_hook)
    audit = _list(Client.audit)
    tokens = _call(Client.tokens)
    create_token = _call(Client.create_token)
    delete_token = _call(Client.delete_token)
    health = _call(Client.health)

    async def close(self) -> None:
        """Waits for calls that are under way, and closes connections."""
        await asyncio.to_thread(self._threads.shutdown)
        self.sync.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
