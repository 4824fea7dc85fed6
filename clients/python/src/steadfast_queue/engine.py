"""The worker engine: leases jobs for free slots, runs their handlers, hands outcomes over, and shuts down in bounded steps.

    lease loop --leases--> slots (threads, event loop) --outcomes--> settler
        ^ free slots only        ^ told to stop
        +-- long poll            +---- heartbeat (own thread or process, own connection)

The server decides who holds a lease; this only hurries. `worker.py` is what users see of it."""

from __future__ import annotations

import functools
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from .context import Context, Signal, logger
from .errors import Problem, Unreachable
from .execute import Middleware, Runnable, run_async, run_sync
from .heartbeat import Heartbeat, LeaseWatch
from .heartbeat_process import HeartbeatProcess
from .http import Address, Connection, backoff, encode
from .identity import worker_info
from .job import Job
from .lease import Held, LeaseTable, now
from .outcome import RELEASED, Outcome
from .settle import BACKLOG_MAX, Settler
from .slots import Slots
from .wire import Lease, Leases

POLL_SLACK_S = 20.0
"""20 s beyond the wait of a long poll: the server itself gives up after 10 s more."""
DRAIN_PAUSE_S = 5.0
"""5 s without leasing after the server said drain: behind the same name there may be another replica."""
CUT_AFTER_S = 1.0
"""1 s before the poll is cut: jobs that the server is about to hand out still arrive, and are given back. A server that has
claimed them when the connection is cut may not notice, and they would wait for their lease to expire."""
ABORT_S = 2.5
"""2.5 s for the answer to a poll that was cut."""
EMPTY_S = 0.2
"""0.2 s after an empty answer that came at once, instead of after the wait that was asked for: the server is going away, or
full. Without it this would be a busy loop."""
LISTEN_S = 1.0
"""1 s after the grace period for handlers that listen to end by themselves."""
FLUSH_S = 5.0


@dataclass(frozen=True)
class Settings:
    """How a worker works. `Worker` documents and checks them."""

    name: str
    concurrency: int
    queues: list[str] | None
    prefetch: int
    lease_ms: int
    wait_ms: int
    grace_s: float
    heartbeat: Literal["thread", "process"]
    error_frames: bool
    exit_on_drain: bool


class Engine:
    """One run of a worker, from `start` to `shutdown`."""

    def __init__(
        self,
        address: Address,
        settings: Settings,
        handlers: Mapping[str, Runnable],
        middleware: Sequence[Middleware],
    ) -> None:
        self.settings = settings
        self.stopping = Signal()
        self.over = Signal()
        """Set when the engine wants to end: it was refused, or drained and told to exit then."""
        self.problem: Problem | None = None
        self._handlers = dict(handlers)
        self._middleware = tuple(middleware)
        self._table = LeaseTable()
        self._slots = Slots()
        self._settler = Settler(self._table, address, settings.name, self)
        make = HeartbeatProcess if settings.heartbeat == "process" else Heartbeat
        self._heartbeat: LeaseWatch = make(
            self._table,
            address,
            settings.name,
            settings.lease_ms / 1000,
            self,
            beat_idle=settings.exit_on_drain,
        )
        self._poll = Connection(address)
        self._lease_thread = threading.Thread(target=self._lease_loop, name="steadfast-lease", daemon=True)
        self._changed = threading.Condition()
        self._pending: deque[Held] = deque()
        self._running: dict[str, Held] = {}
        self._stop = threading.Event()
        self._draining = False
        self._drained_until = 0.0

    def start(self) -> None:
        self._heartbeat.start()
        self._settler.start()
        self._lease_thread.start()

    # Leasing.

    def _lease_loop(self) -> None:
        tries = 0
        while not self._stop.is_set():
            try:
                room = self._wait_for_room()
                drained_s = self._drained_until - time.monotonic()
                if drained_s > 0:
                    self._poll.close()  # the next one may reach another replica
                    self._stop.wait(drained_s)
                if room == 0 or self._stop.is_set():
                    continue
                asked_at = time.monotonic()
                leases = self._lease(room)
                self._accept(leases)
                tries = 0
                if not leases and time.monotonic() - asked_at < min(EMPTY_S, self.settings.wait_ms / 1000):
                    self._stop.wait(EMPTY_S)
            except Problem as problem:
                if problem.is_access or problem.status in (400, 422):
                    self.on_refused(problem)
                    break
                self._pause(problem, tries, problem.retry_after)
                tries += 1
            except Unreachable as error:
                self._pause(error, tries)
                tries += 1
            except Exception as error:  # a loop that dies silently is a worker that stands still
                logger.exception("lease: unexpected error")
                self._pause(error, tries)
                tries += 1
        self._poll.close()

    def _pause(self, error: Exception, tries: int, retry_after: float | None = None) -> None:
        if not self._stop.is_set():
            logger.warning("lease: %s; trying again", error)
            self._stop.wait(backoff(tries, retry_after))

    def _wait_for_room(self) -> int:
        """How many more jobs may be leased; waits while there is no room."""
        capacity = self.settings.concurrency + self.settings.prefetch
        with self._changed:
            while not self._stop.is_set():
                room = capacity - len(self._running) - len(self._pending)
                if room > 0 and self._settler.backlog < BACKLOG_MAX:
                    return min(room, 1000)
                self._changed.wait(1.0)  # bounded: the settler does not notify
        return 0

    def _lease(self, room: int) -> list[Lease]:
        settings = self.settings
        request = {
            "worker": settings.name,
            "kinds": list(self._handlers),
            "max": room,
            "lease_ms": settings.lease_ms,
            "wait_ms": settings.wait_ms,
            "info": worker_info(settings.concurrency),
        }
        if settings.queues is not None:
            request["queues"] = settings.queues
        answer = self._poll.request("POST", "/leases", encode(request), settings.wait_ms / 1000 + POLL_SLACK_S)
        if answer.status != 200:
            raise answer.problem()
        leases: Leases = answer.json()
        return leases["leases"]

    def _accept(self, leases: list[Lease]) -> None:
        if not leases:
            return
        received_at = now()
        accepted: list[Held] = []
        for lease in leases:
            job = Job(lease["job"])
            context = Context(job, lease["attempt"], worker=self.settings.name, stopping=self.stopping)
            context.draining = self._draining
            accepted.append(Held(lease, context, self._handlers[job.kind], received_at))
        self._table.add(accepted)
        self._heartbeat.poke()
        with self._changed:
            self._pending.extend(accepted)
        if self._stop.is_set():
            self._release_pending()
        else:
            self._start_pending()

    # Running.

    def _start_pending(self) -> None:
        with self._changed:
            ready: list[Held] = []
            while self._pending and len(self._running) < self.settings.concurrency:
                held = self._pending.popleft()
                self._running[held.token] = held
                ready.append(held)
        for held in ready:
            if held.handler.is_async:
                self._slots.run_on_loop(functools.partial(self._run_async, held))
            else:
                self._slots.run_in_thread(functools.partial(self._run_sync, held))

    def _run_sync(self, held: Held) -> None:
        self._ended(held, run_sync(held.handler, held.context, self._middleware, frames=self.settings.error_frames))

    async def _run_async(self, held: Held) -> None:
        frames = self.settings.error_frames
        self._ended(held, await run_async(held.handler, held.context, self._middleware, frames=frames))

    def _ended(self, held: Held, outcome: Outcome) -> None:
        if held.lost:
            held.context.log.info("ended after its lease was lost; nothing is reported")
        elif held.end():
            self._settler.put(held, outcome)
        with self._changed:
            self._running.pop(held.token, None)
            self._changed.notify_all()
        if not self._stop.is_set():
            self._start_pending()
        else:
            self._release_pending()

    # What heartbeat and settler are told.

    def on_drain(self, draining: bool) -> None:
        if draining:
            self._drained_until = time.monotonic() + DRAIN_PAUSE_S
        if draining == self._draining:
            return
        self._draining = draining
        logger.info("told to drain: taking no more jobs" if draining else "taking jobs again")
        for held in self._table.all():
            held.context.draining = draining
        if draining and self.settings.exit_on_drain:
            self.over.set()

    def on_refused(self, problem: Problem) -> None:
        if self.problem is None:
            self.problem = problem
            logger.error("the server refuses this worker: %s", problem)
        self.over.set()

    # Ending. Each step has its own deadline and does not need the one before.

    def stop_leasing(self) -> None:
        """Asks for no more jobs; what the poll still brings is given back."""
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        self._release_pending()

    def shutdown(self, grace_s: float | None = None) -> None:
        """Finishes what runs, for `grace_s` seconds; gives the rest back; reports everything; ends."""
        grace_s = self.settings.grace_s if grace_s is None else grace_s
        grace_ends = time.monotonic() + grace_s
        self.stop_leasing()
        self.stopping.set()
        self._lease_thread.join(CUT_AFTER_S)
        self._poll.abort()
        self._wait_until_idle(max(0.0, grace_ends - time.monotonic()))
        self._lease_thread.join(ABORT_S)
        self._release_pending()
        for held in self._all_running():
            held.context.tell("shutdown")
        self._wait_until_idle(LISTEN_S)
        for held in self._all_running():
            if not held.lost and held.end():
                held.context.log.warning(
                    "its handler does not listen: the job is released while the handler still runs"
                )
                self._settler.put(held, RELEASED)
        self._settler.flush(FLUSH_S)
        self._settler.stop()
        self._heartbeat.stop()
        self._slots.stop()

    def _release_pending(self) -> None:
        with self._changed:
            pending, self._pending = self._pending, deque()
        for held in pending:
            if held.end():
                self._settler.put(held, RELEASED)

    def _all_running(self) -> list[Held]:
        with self._changed:
            return list(self._running.values())

    def _wait_until_idle(self, timeout: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._running, timeout)
