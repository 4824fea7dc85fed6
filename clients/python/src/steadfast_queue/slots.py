"""Where handlers run: threads for `def` handlers, one event loop on a thread of its own for `async def` handlers.

Threads are daemons and are started when needed: a handler that does not listen cannot keep the process from ending."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from .context import logger


class Slots:
    """Runs as many calls at the same time as it is given; the engine counts them."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._threads = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop_thread: threading.Thread | None = None

    def run_in_thread(self, call: Callable[[], None]) -> None:
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
            else:
                self._threads += 1
                name = f"steadfast-slot-{self._threads}"
                threading.Thread(target=self._serve, name=name, daemon=True).start()
        self._work.put(call)

    def _serve(self) -> None:
        while (call := self._work.get()) is not None:
            try:
                call()
            except BaseException:  # the engine's own code: handlers cannot raise through it
                logger.exception("unexpected error in a slot")
            del call  # the payload of a job must not live until the next one comes
            with self._lock:
                self._idle += 1

    def run_on_loop(self, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        loop = self._running_loop()

        def begin() -> None:
            task = loop.create_task(make())
            self._tasks.add(task)  # the loop keeps only weak references
            task.add_done_callback(self._tasks.discard)

        loop.call_soon_threadsafe(begin)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._loop_thread = threading.Thread(
                    target=self._serve_loop, args=[self._loop], name="steadfast-loop", daemon=True
                )
                self._loop_thread.start()
            return self._loop

    def _serve_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(asyncio.sleep(0))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    def stop(self) -> None:
        """Lets idle threads and the loop end. Calls that still run are left alone."""
        with self._lock:
            threads, loop = self._threads, self._loop
        for _ in range(threads):
            self._work.put(None)
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(loop.stop)
            if self._loop_thread is not None:
                self._loop_thread.join(1.0)
