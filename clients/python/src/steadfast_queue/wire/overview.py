"""The overview: what is going on, what is wrong, and statistics over time.

Shapes only; `tests/test_wire.py` compares them with docs/openapi.json."""

from __future__ import annotations

from typing import Any, TypedDict

from .limits import Kind, Queue, StatusCounts
from .operations import Operation


class DueCount(TypedDict):
    """How many jobs are due."""

    at_least: bool
    n: int


class FlowRates(TypedDict):
    """How fast jobs come and go, over the last minute."""

    enqueued_per_s: float
    failed_per_s: float
    finished_per_s: float
    over_ms: int
    started_per_s: float


class QueueWorkers(TypedDict):
    """Workers that ask for jobs of a queue."""

    busy: int
    live: int
    slots: int


class WorkerCounts(TypedDict):
    """Workers by state."""

    busy: int
    deaf: int
    draining: int
    gone: int
    live: int
    slots: int


class QueueActivity(TypedDict):
    """What is going on in a queue."""

    drained_in_ms: int | None
    due: DueCount
    paused_at: str | None
    paused_by: str | None
    rates: FlowRates
    wait_p95_ms: float | None
    workers: QueueWorkers


class KindActivity(TypedDict):
    """What is going on with a kind."""

    counts: StatusCounts
    failed_ratio: float | None
    rates: FlowRates
    run_p50_ms: float | None
    run_p95_ms: float | None
    workers: int


class ListedQueue(Queue, QueueActivity):
    """One queue, and what is going on in it."""


class ListedKind(Kind, KindActivity):
    """A declared kind, and what is going on with it."""


class PulseQueue(ListedQueue):
    """One queue of the overview."""

    spark: list[int]


class ProblemSubject(TypedDict, total=False):
    """What a problem is about; only what applies."""

    error: str | None
    job: str | None
    kind: str | None
    limit: str | None
    queue: str | None
    schedule: str | None
    worker: str | None


class _Remedy(TypedDict):
    method: str
    path: str
    says: str


class Remedy(_Remedy, total=False):
    """A call of this API."""

    body: dict[str, Any] | None


class ProblemSeen(TypedDict):
    """Something that is wrong."""

    code: str
    do: list[Remedy]
    key: str
    says: str
    see: str
    severity: str
    since: str | None
    snoozed_until: str | None
    subject: ProblemSubject


class Overview(TypedDict):
    """Everything at once."""

    assets: str | None
    at: str
    audit_seq: int | None
    more_problems: int
    more_queues: bool
    oldest_ready_ms: int | None
    operations: list[Operation]
    problems: list[ProblemSeen]
    queues: list[PulseQueue]
    rates: FlowRates
    ready: bool
    store: str
    totals: StatusCounts
    version: str
    workers: WorkerCounts


# `from` is a keyword, hence the functional form.
Series = TypedDict(
    "Series",
    {
        "as_of": str,
        "dead": list[int],
        "enqueued": list[int],
        "failed": list[int],
        "from": str,
        "kind": str | None,
        "queue": str | None,
        "run_p50_ms": list[float | None],
        "run_p95_ms": list[float | None],
        "started": list[int],
        "step": str,
        "step_ms": int,
        "succeeded": list[int],
        "t": list[str],
        "to": str,
        "wait_p50_ms": list[float | None],
        "wait_p95_ms": list[float | None],
    },
)
