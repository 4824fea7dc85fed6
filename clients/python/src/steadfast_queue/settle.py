"""Reports outcomes: one call in flight, and everything that ended meanwhile is the next batch.

A report is repeated until the server answers (the same report again gets the same answer), until the server said that the lease
is lost, or until the lease has been over for a minute. It never decides what an outcome is."""

from __future__ import annotations

import threading
import time
from collections import deque

from .context import logger
from .errors import Problem, Unreachable
from .heartbeat import Listener
from .http import Address, Connection, backoff
from .lease import Held, LeaseTable, now
from .outcome import Outcome, failed
from .wire import SettlementAnswer

BATCH_MAX = 1000
"""1,000 outcomes in one call: what the server takes."""
BATCH_MAX_BYTES = 7 * 1024 * 1024
"""7 MiB: the server takes 8 MiB."""
LATE_S = 60.0
"""60 s after the end of a lease: a late report still counts if nobody has reaped the lease, for example after an outage."""
TIMEOUT_S = 30.0
SERVER_ERRORS_MAX = 5
"""5 times a 500 in a row: then outcomes are sent one by one, so that a single one cannot keep all others back."""
BACKLOG_MAX = 2000
"""2,000 unreported outcomes: beyond that no more jobs are leased."""


class Report:
    """An outcome on its way."""

    __slots__ = ("body", "held", "outcome")

    def __init__(self, held: Held, outcome: Outcome) -> None:
        self.held = held
        self.outcome = outcome
        self.body = outcome.to_wire(held.job_id, held.token)


class Settler:
    """A thread with a queue of reports and a connection."""

    def __init__(self, table: LeaseTable, address: Address, worker: str, listener: Listener) -> None:
        self._table = table
        self._worker = worker
        self._listener = listener
        self._connection = Connection(address)
        self._changed = threading.Condition()
        self._waiting: deque[Report] = deque()
        self._in_flight = 0
        self._stop = False
        self._thread = threading.Thread(target=self._run, name="steadfast-settle", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, held: Held, outcome: Outcome) -> None:
        with self._changed:
            self._waiting.append(Report(held, outcome))
            self._changed.notify_all()

    @property
    def backlog(self) -> int:
        return len(self._waiting) + self._in_flight

    def flush(self, timeout: float) -> bool:
        """Waits until everything is reported. False: not in this time."""
        give_up = time.monotonic() + timeout
        with self._changed:
            while self._waiting or self._in_flight:
                left = give_up - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
            return True

    def stop(self) -> None:
        with self._changed:
            self._stop = True
            self._changed.notify_all()
        self._thread.join(0.5)
        if self._waiting or self._in_flight:
            logger.error("%d outcomes could not be reported; their leases will expire", self.backlog)

    def _run(self) -> None:
        tries = 0
        while (batch := self._next_batch()) is not None:
            try:
                done, wait = self._send(batch), 0.0
            except Exception as error:  # nothing may end this thread: outcomes would be lost
                if not isinstance(error, (Problem, Unreachable)):
                    logger.exception("settle: unexpected error")
                done, wait = self._failed(error, batch, tries)
            with self._changed:
                self._in_flight = 0
                kept = set(map(id, done))
                self._waiting.extendleft(r for r in reversed(batch) if id(r) not in kept)
                self._changed.notify_all()
                self._table.remove([report.held for report in done])
                tries = 0 if done else tries + 1
                if wait and not self._stop:
                    self._changed.wait_for(lambda: self._stop, wait)
        self._connection.close()

    def _next_batch(self) -> list[Report] | None:
        with self._changed:
            while True:
                self._drop_hopeless()
                if self._waiting:
                    break
                if self._stop:
                    return None
                self._changed.wait()
            if self._stop:
                return None
            batch: list[Report] = []
            size = 0
            while self._waiting and len(batch) < BATCH_MAX:
                size += len(self._waiting[0].body) + 1
                if batch and size > BATCH_MAX_BYTES:
                    break
                batch.append(self._waiting.popleft())
            self._in_flight = len(batch)
            return batch

    def _drop_hopeless(self) -> None:
        """Called with the lock."""
        late = now() - LATE_S
        hopeless = [r for r in self._waiting if r.held.lost or (r.held.expired and r.held.expires_at < late)]
        if hopeless:
            gone = set(map(id, hopeless))
            self._waiting = deque(r for r in self._waiting if id(r) not in gone)
            self._table.remove([report.held for report in hopeless])
            for report in hopeless:
                report.held.context.log.warning("outcome %s dropped: the lease is lost", report.outcome.outcome)
            self._changed.notify_all()

    def _send(self, batch: list[Report]) -> list[Report]:
        body = b'{"worker":"%s","outcomes":[%s]}' % (self._worker.encode(), b",".join(r.body for r in batch))
        answer = self._connection.request("POST", "/leases/settle", body, TIMEOUT_S)
        if answer.status != 200:
            raise answer.problem()
        verdicts: SettlementAnswer = answer.json()
        for report, verdict in zip(batch, verdicts["outcomes"], strict=True):
            if verdict["status"] == "lost":
                report.held.context.log.warning("outcome %s not recorded: the lease is lost", report.outcome.outcome)
        return batch

    def _failed(self, error: Exception, batch: list[Report], tries: int) -> tuple[list[Report], float]:
        """What is done with although the call failed, and how long to wait before the next."""
        if isinstance(error, Problem) and error.is_access:
            logger.error("settle: %s; %d outcomes cannot be reported", error, len(batch))
            self._listener.on_refused(error)
            return batch, 0.0
        # One bad item has the whole call refused, or fails it in the server: the others must not suffer.
        is_refusal = isinstance(error, Problem) and not error.is_temporary and error.status < 500
        if is_refusal or (isinstance(error, Problem) and not error.is_temporary and tries >= SERVER_ERRORS_MAX):
            return self._one_by_one(batch), 0.0 if is_refusal else backoff(tries)
        logger.warning("settle: %s; trying again", error)
        return [], backoff(tries, error.retry_after if isinstance(error, Problem) else None)

    def _one_by_one(self, batch: list[Report]) -> list[Report]:
        """Those that are done with; the rest waits for the next call."""
        done: list[Report] = []
        for report in batch:
            try:
                done += self._send([report])
            except Unreachable:
                break
            except Problem as problem:
                if not problem.is_temporary and problem.status < 500:
                    self._report_refusal(report, problem)
                    done.append(report)
        return done

    def _report_refusal(self, report: Report, problem: Problem) -> None:
        """The server takes this outcome in no way: the job fails with what the server says."""
        report.held.context.log.error("the server refuses its outcome: %s", problem)
        refusal = failed(f"the server refused the outcome {report.outcome.outcome}: {problem.detail}", permanent=True)
        try:
            self._send([Report(report.held, refusal)])
        except (Problem, Unreachable) as error:
            report.held.context.log.error("its failure cannot be reported either, the lease will expire: %s", error)
