"""The leases that this process holds: one `Held` per job, in a table that heartbeat, settler and engine share.

Judges only one thing by itself: that a lease whose duration has passed since the last good heartbeat is lost. The server
decides everything else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from .context import Context
from .execute import Runnable
from .wire import Lease

_BOOT_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def now() -> float:
    """A monotonic clock that goes on while the machine is suspended, where there is one: leases expire meanwhile."""
    return time.clock_gettime(_BOOT_CLOCK) if _BOOT_CLOCK is not None else time.monotonic()


class Held:
    """A lease, its handler and its context."""

    __slots__ = (
        "_ended", "_lock", "context", "expired", "good_at", "handler", "job_id", "lease_s", "lost", "timeout_at", "token",
    )  # fmt: skip

    def __init__(self, lease: Lease, context: Context, handler: Runnable, received_at: float) -> None:
        self.job_id = lease["job"]["id"]
        self.token = lease["lease_token"]
        self.lease_s = lease["lease_ms"] / 1000
        self.context = context
        self.handler = handler
        self.good_at = received_at
        """When the last heartbeat that was answered well was sent; at first, when the lease arrived."""
        timeout_ms = lease["job"]["timeout_ms"]
        self.timeout_at = None if timeout_ms is None else received_at + timeout_ms / 1000
        self.lost = False
        """The server said so: nothing can be reported any more."""
        self.expired = False
        """Its time is over by our clock: treated as lost, although a late report may still count."""
        self._lock = threading.Lock()
        self._ended = False

    def end(self) -> bool:
        """True for the first caller: its outcome counts. The handler and the shutdown may both try."""
        with self._lock:
            first, self._ended = not self._ended, True
            return first

    @property
    def is_ended(self) -> bool:
        """Its outcome is decided, and on its way or reported."""
        return self._ended

    @property
    def expires_at(self) -> float:
        return self.good_at + self.lease_s


class LeaseTable:
    """All leases that are not settled yet. Heartbeats are for all of them, also while their outcomes are on the way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, Held] = {}
        self.on_add: Callable[[Iterable[Held]], None] | None = None
        self.on_remove: Callable[[Iterable[Held]], None] | None = None

    def add(self, leases: list[Held]) -> None:
        with self._lock:
            for held in leases:
                self._held[held.token] = held
        if self.on_add is not None:
            self.on_add(leases)

    def remove(self, leases: Iterable[Held]) -> None:
        with self._lock:
            removed = [held for held in leases if self._held.pop(held.token, None) is not None]
        if removed and self.on_remove is not None:
            self.on_remove(removed)

    def all(self) -> list[Held]:
        with self._lock:
            return list(self._held.values())

    def __len__(self) -> int:
        return len(self._held)

    def apply(self, statuses: dict[str, str], sent_at: float) -> None:
        """What a heartbeat was answered, by lease token."""
        for token, status in statuses.items():
            with self._lock:
                held = self._held.get(token)
            if held is None:
                continue
            if status == "lost":
                self.lose(held, "the server says that it is not ours any more")
                continue
            held.good_at = max(held.good_at, sent_at)
            if status == "cancel" and held.context.tell("cancel"):
                held.context.log.info("cancel requested")

    def lose(self, held: Held, why: str) -> None:
        held.lost = True
        # A heartbeat can overtake the answer to the report of its outcome: then it is no news.
        if held.context.tell("lost") and not held.is_ended:
            held.context.log.warning("lease lost: %s", why)
        self.remove([held])

    def watch(self) -> float:
        """Tells handlers whose time is over, and says how long it is until the next one's is."""
        wait = 3600.0
        at = now()
        for held in self.all():
            if not held.expired:
                left = held.expires_at - at
                if left > 0:
                    wait = min(wait, left)
                else:
                    held.expired = True
                    if held.context.tell("lost") and not held.is_ended:
                        held.context.log.warning(
                            "no heartbeat was answered for %g s: treating the lease as lost", held.lease_s
                        )
            if held.timeout_at is not None and not held.is_ended:
                left = held.timeout_at - at
                if left > 0:
                    wait = min(wait, left)
                elif held.context.tell("timeout"):
                    held.context.log.warning("timed out after %g s", (held.context.job.timeout_ms or 0) / 1000)
        return wait


def beats(leases: Iterable[Held]) -> list[dict[str, Any]]:
    """What a heartbeat says of these leases, with the progress that is new."""
    made: list[dict[str, Any]] = []
    for held in leases:
        beat: dict[str, Any] = {"job_id": held.job_id, "lease_token": held.token}
        if progress := held.context.take_progress():
            beat["progress"] = progress
        made.append(beat)
    return made
