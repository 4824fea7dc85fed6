"""Queues, kinds, groups, their limits, and explanations.

Shapes only; `tests/test_wire.py` compares them with docs/openapi.json."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

GroupOrder = Literal["fair", "strict"]


class _NewRate(TypedDict):
    limit: int
    per_ms: int


class NewRate(_NewRate, total=False):
    burst: int | None


class Rate(TypedDict):
    burst: int
    limit: int
    per_ms: int


class StatusCounts(TypedDict):
    cancelled: int
    failed_permanent: int
    queued: int
    retrying: int
    running: int
    succeeded: int


class Queue(TypedDict):
    counts: StatusCounts
    oldest_ready_ms: int | None
    paused: bool
    queue: str


class QueueCounts(TypedDict):
    counts: StatusCounts
    oldest_ready_ms: int | None


class Rates(TypedDict):
    enqueued_per_s: float
    finished_per_s: float
    over_ms: int


class _Stats(TypedDict):
    queues: dict[str, QueueCounts]
    totals: StatusCounts


class Stats(_Stats, total=False):
    rates: Rates


class Usage(TypedDict):
    next_token_ms: int | None
    running: int
    waiting: str | None


class GroupDefaults(TypedDict, total=False):
    concurrency: int | None
    order: GroupOrder
    rate: NewRate | None


class GroupDefaultsAnswer(TypedDict):
    concurrency: int | None
    order: GroupOrder
    rate: Rate | None


class QueueSettings(TypedDict, total=False):
    concurrency: int | None
    groups: GroupDefaults | None
    rate: NewRate | None


class QueueWithLimits(Queue):
    concurrency: int | None
    groups: GroupDefaultsAnswer | None
    rate: Rate | None
    usage: Usage


class GroupSettings(TypedDict, total=False):
    concurrency: int | None
    paused: bool | None
    rate: NewRate | None
    weight: int | None


class GroupSettingsAnswer(TypedDict):
    concurrency: int | None
    paused: bool
    rate: Rate | None
    weight: int | None


class Limit(Usage):
    concurrency: int | None
    name: str
    own: GroupSettingsAnswer | None
    paused: bool
    rate: Rate | None
    scope: str
    weight: int


class BackoffRetry(TypedDict):
    base_ms: int
    cap_ms: int
    factor: float


class _DelaysRetry(TypedDict):
    delays_ms: list[int]


class DelaysRetry(_DelaysRetry, total=False):
    jitter: float | None


Retry = BackoffRetry | DelaysRetry


class RetryDeclaration(TypedDict, total=False):
    base_ms: int | None
    cap_ms: int | None
    delays_ms: list[int] | None
    factor: float | None
    jitter: float | None


class KindDeclaration(TypedDict, total=False):
    concurrency: int | None
    hidden: list[str] | None
    max_attempts: int | None
    priority: int | None
    queue: str | None
    rate: NewRate | None
    retry: RetryDeclaration | None
    schema: dict[str, Any] | None
    timeout_ms: int | None


class _Kind(TypedDict):
    built_in: bool
    concurrency: int | None
    hidden: list[str]
    kind: str
    max_attempts: int | None
    priority: int | None
    queue: str | None
    rate: Rate | None
    retry: Retry | None
    timeout_ms: int | None


class Kind(_Kind, total=False):
    schema: Any


class Ahead(TypedDict):
    at_least: bool
    n: int


class Reason(TypedDict):
    """Further members are the numbers of the reason, by its code."""

    code: str
    says: str


class WorkersSeen(TypedDict):
    for_kind: int
    for_queue: int
    idle_slots: int


class Explanation(TypedDict):
    ahead: Ahead | None
    as_of: str
    reasons: list[Reason]
    says: str
    since: str | None
    startable: bool
    verdict: str
    workers: WorkersSeen | None


class JobExplanation(Explanation):
    job_id: str


class QueueExplanation(Explanation):
    queue: str
