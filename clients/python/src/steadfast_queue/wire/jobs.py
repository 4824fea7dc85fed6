"""Jobs, their attempts, and enqueues.

Shapes only; `tests/test_wire.py` compares them with docs/openapi.json."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

Status = Literal["queued", "running", "retrying", "succeeded", "failed_permanent", "cancelled"]


AttemptOutcome = Literal["succeeded", "failed", "timed_out", "lease_expired", "released", "snoozed", "cancelled"]


OnConflict = Literal["keep", "replace"]


UniqueWhile = Literal["waiting", "unfinished"]


class Progress(TypedDict):
    message: str | None
    percent: int | None


Unique = TypedDict(
    "Unique",
    {
        "for_ms": int | None,
        "key": str,
        "max_wait_ms": int | None,
        "on_conflict": OnConflict,
        "while": UniqueWhile,
    },
)


class Trace(TypedDict):
    """Where a job comes from, by W3C Trace Context."""

    traceparent: str
    tracestate: str | None


class Job(TypedDict):
    attempts: int
    cancel_requested: bool
    cost: int | None
    created_at: str
    error_group: str | None
    finished_at: str | None
    group_key: str | None
    id: str
    idempotency_key: str | None
    kind: str
    last_error: str | None
    lease_expires_at: str | None
    locked_at: str | None
    locked_by: str | None
    max_attempts: int
    notify: str | None
    payload: Any
    priority: int
    progress: Progress | None
    queue: str
    result: Any
    run_at: str
    start_by: str | None
    started_at: str | None
    status: Status
    timeout_ms: int | None
    trace: Trace | None
    unique: Unique | None
    updated_at: str


class JobSummary(TypedDict):
    attempts: int
    cancel_requested: bool
    cost: int | None
    created_at: str
    error_group: str | None
    finished_at: str | None
    group_key: str | None
    id: str
    idempotency_key: str | None
    kind: str
    last_error: str | None
    lease_expires_at: str | None
    locked_at: str | None
    locked_by: str | None
    max_attempts: int
    notify: str | None
    payload_bytes: int
    payload_preview: str
    priority: int
    progress: Progress | None
    queue: str
    run_at: str
    start_by: str | None
    started_at: str | None
    status: Status
    timeout_ms: int | None
    unique: Unique | None
    updated_at: str


ListedJob = Job | JobSummary


class _KnownJob(TypedDict):
    created: bool
    id: str
    status: Status


class KnownJob(_KnownJob, total=False):
    replaced: bool


class ReplayedJob(Job, total=False):
    replaced: bool


EnqueueReplay = ReplayedJob | KnownJob


class _NewUnique(TypedDict):
    key: str


# `while` is a keyword, hence the functional form.
_NewUniqueOptions = TypedDict(
    "_NewUniqueOptions",
    {"for_ms": int | None, "max_wait_ms": int | None, "on_conflict": OnConflict, "while": UniqueWhile},
    total=False,
)


class NewUnique(_NewUnique, _NewUniqueOptions):
    """Uniqueness among pending jobs of one kind."""


class _NewJob(TypedDict):
    kind: str
    payload: Any


class NewJob(_NewJob, total=False):
    cost: int | None
    delay_ms: int | None
    group_key: str | None
    idempotency_key: str | None
    max_attempts: int | None
    notify: str | None
    priority: int | None
    queue: str | None
    run_at: str | None
    start_by: str | None
    start_within_ms: int | None
    timeout_ms: int | None
    traceparent: str | None
    tracestate: str | None
    unique: NewUnique | None


class NewJobs(TypedDict):
    jobs: list[NewJob]


BatchJob = Job | KnownJob


class _BatchResult(TypedDict):
    created: bool
    job: BatchJob


class BatchResult(_BatchResult, total=False):
    replaced: bool


class BatchResults(TypedDict):
    results: list[BatchResult]


class Attempt(TypedDict):
    attempt: int
    ended_at: str | None
    error: str | None
    outcome: AttemptOutcome | None
    started_at: str
    worker: str


class CancelAnswer(TypedDict):
    status: str


class ItemError(TypedDict):
    detail: str
    index: int


class _Problem(TypedDict):
    code: str
    detail: str
    request_id: str
    status: int
    title: str
    type: str


class Problem(_Problem, total=False):
    errors: list[ItemError] | None
