"""Keeps leases alive: one call for all of them, every third of a lease, on a thread and a connection of its own.

It goes on until the last lease is settled, also while the worker shuts down. It never runs handlers and never settles. For
handlers that hold the interpreter's lock (GIL) for longer than a lease there is `heartbeat_process.py`."""

from __future__ import annotations

import threading
from typing import Any, Protocol

from .context import logger
from .errors import Problem, Unreachable
from .http import Address, Connection, encode
from .lease import LeaseTable, beats, now
from .wire import HeartbeatAnswer

BATCH_MAX = 1000
"""1,000 leases in one heartbeat: what the server takes."""
RETRY_S = 1.0
"""1 s after a heartbeat that was not answered, or a tenth of a short lease."""
IDLE_BEAT_S = 10.0
"""10 s: how often an idle worker asks whether it is to drain."""


class Listener(Protocol):
    """Who is told what heartbeats are answered."""

    def on_drain(self, draining: bool) -> None: ...

    def on_refused(self, problem: Problem) -> None: ...


def exchange(
    connection: Connection, worker: str, leases: list[dict[str, Any]], timeout: float
) -> tuple[dict[str, str], bool]:
    """One heartbeat: what the server says of each lease token, and whether the worker is to drain."""
    statuses: dict[str, str] = {}
    drain = False
    for start in range(0, max(1, len(leases)), BATCH_MAX):
        some = leases[start : start + BATCH_MAX]
        body = encode({"worker": worker, "leases": some})
        answer = connection.request("POST", "/leases/heartbeat", body, timeout)
        if answer.status != 200:
            raise answer.problem()
        said: HeartbeatAnswer = answer.json()
        drain = drain or said["worker"] == "drain"
        for beat, lease in zip(some, said["leases"], strict=True):
            statuses[beat["lease_token"]] = lease["status"]
    return statuses, drain


class LeaseWatch:
    """A thread that tells handlers whose lease or time is over. Sends nothing."""

    def __init__(self, table: LeaseTable) -> None:
        self._table = table
        self._wake = threading.Event()
        self._stop = False
        self._thread = threading.Thread(target=self._run, name="steadfast-heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop = True
        self._wake.set()
        self._thread.join(1.0)

    def poke(self) -> None:
        """There are new leases: look when their time is over."""
        self._wake.set()

    def _run(self) -> None:
        while not self._stop:
            try:
                wait = self._step()
            except Exception:  # nothing may end this thread while handlers run
                logger.exception("heartbeat: unexpected error")
                wait = RETRY_S
            self._wake.wait(wait)
            self._wake.clear()

    def _step(self) -> float:
        return self._table.watch()


class Heartbeat(LeaseWatch):
    """The watch, and the calls that keep leases alive."""

    def __init__(
        self,
        table: LeaseTable,
        address: Address,
        worker: str,
        lease_s: float,
        listener: Listener,
        *,
        beat_idle: bool,
    ) -> None:
        super().__init__(table)
        self._connection = Connection(address)
        self._worker = worker
        self._interval = lease_s / 3
        self._retry = min(RETRY_S, lease_s / 10)
        self._listener = listener
        self._beat_idle = beat_idle
        self._next = now() + self._interval

    def stop(self) -> None:
        super().stop()
        self._connection.close()

    def _step(self) -> float:
        if now() >= self._next:
            self._next = now() + self._beat()
        wait = self._table.watch()
        return max(0.0, min(wait, self._next - now()))

    def _beat(self) -> float:
        """Sends a heartbeat, and says when the next is due."""
        leases = self._table.all()
        if not leases and not self._beat_idle:
            return self._interval
        sent_at = now()
        # No longer than until the first lease is over: then its handler must be told.
        first = min((held.expires_at - sent_at for held in leases if not held.expired), default=self._interval)
        timeout = max(0.1, min(self._interval, first))
        said = beats(leases)
        try:
            statuses, drain = exchange(self._connection, self._worker, said, timeout)
        except (Unreachable, Problem) as error:
            for held, beat in zip(leases, said, strict=True):
                if "progress" in beat:
                    held.context.restore_progress(beat["progress"])
            if isinstance(error, Problem):
                return self._refused(error)
            logger.warning("heartbeat: %s; trying again", error)
            return self._retry
        self._table.apply(statuses, sent_at)
        self._listener.on_drain(drain)
        return self._interval if leases else max(self._interval, IDLE_BEAT_S)

    def _refused(self, problem: Problem) -> float:
        logger.warning("heartbeat: %s", problem)
        if problem.is_access:
            # Leases belong to the token that claimed them: without it they cannot be kept.
            for held in self._table.all():
                self._table.lose(held, "the token is refused")
            self._listener.on_refused(problem)
        return max(self._retry, min(problem.retry_after or 0.0, self._interval))
