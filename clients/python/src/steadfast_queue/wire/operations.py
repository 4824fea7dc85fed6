"""What operators see and do: error groups, operations, workers, audit, tokens.

Shapes only; `tests/test_wire.py` compares them with docs/openapi.json."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from .jobs import Job

Scope = Literal["enqueue", "read", "work", "operate", "admin"]


OperationAction = Literal["redrive", "cancel", "delete", "reprioritize", "move"]


OperationState = Literal["running", "paused", "finished", "stopped"]


class ErrorQueue(TypedDict):
    dead: int
    queue: str
    seen_total: int


class ErrorSample(TypedDict):
    error: str | None
    job_id: str


class Snoozed(TypedDict):
    at: str
    by: str | None
    note: str | None
    until: str


class ErrorGroup(TypedDict):
    dead: int
    fingerprint: str
    first_seen: str
    kind: str
    last_seen: str
    outcome: str
    queues: list[ErrorQueue]
    sample: ErrorSample | None
    seen_total: int
    snoozed: Snoozed | None
    title: str


class NewSnooze(TypedDict, total=False):
    for_ms: int | None
    note: str | None
    until: str | None


class JobFilter(TypedDict, total=False):
    created_after: str | None
    created_before: str | None
    error: str | None
    finished_after: str | None
    finished_before: str | None
    group: str | None
    key: str | None
    kind: str | None
    queue: str | None
    status: str | None
    worker: str | None


class NewCanary(TypedDict):
    first: int
    need: int


class _NewOperation(TypedDict):
    action: OperationAction


class NewOperation(_NewOperation, total=False):
    canary: NewCanary | None
    filter: JobFilter | None
    ids: list[str] | None
    max: int | None
    preview: str | None
    priority: int | None
    rate: int | None
    reason: str | None
    to: str | None


class _OperationPreviewRequest(TypedDict):
    action: OperationAction


class OperationPreviewRequest(_OperationPreviewRequest, total=False):
    filter: JobFilter | None
    ids: list[str] | None
    priority: int | None
    to: str | None


class KindCount(TypedDict):
    count: int
    kind: str


class QueueCount(TypedDict):
    count: int
    queue: str


class OperationPreview(TypedDict):
    as_of: str
    by_kind: list[KindCount]
    by_queue: list[QueueCount]
    exact: bool
    looked_at: int
    matches: int
    newest: str | None
    oldest: str | None
    sample: list[Job]
    token: str


class OperationPatch(TypedDict):
    rate: int


class Canary(TypedDict):
    first: int
    need: int
    passed: bool


class OperationCounts(TypedDict):
    changed: int
    failed: int
    looked_at: int
    unchanged: int


class Operation(TypedDict):
    action: OperationAction
    by: str
    canary: Canary | None
    counts: OperationCounts
    created_at: str
    cutoff: str
    filter: JobFilter | None
    finished_at: str | None
    id: str
    ids: list[str] | None
    max: int | None
    next_step_at: str | None
    note: str | None
    of: int | None
    priority: int | None
    rate: int
    reason: str | None
    state: OperationState
    to: str | None
    updated_at: str


class Worker(TypedDict):
    as_of: str
    busy: int
    concurrency: int | None
    host: str | None
    kinds: list[str] | None
    language: str | None
    last_beat_at: str | None
    last_fetch_at: str | None
    last_seen_at: str
    pid: int | None
    queues: list[str] | None
    source: str
    started_at: str
    state: str
    token: str | None
    told: str
    version: str | None
    worker: str


class WorkerJob(TypedDict):
    attempt: int
    job_id: str
    kind: str
    lease_expires_at: str | None
    queue: str
    started_at: str | None


class WorkerDetail(Worker):
    jobs: list[WorkerJob]


class _AuditEntry(TypedDict):
    action: str
    at: str
    count: int
    seq: int
    target: str
    token_name: str


class AuditEntry(_AuditEntry, total=False):
    after: dict[str, Any] | None
    before: dict[str, Any] | None
    detail: dict[str, Any] | None
    reason: str | None
    remote: str | None
    request_id: str | None
    token_id: str | None


class _NewToken(TypedDict):
    name: str
    scopes: list[Scope]


class NewToken(_NewToken, total=False):
    expires_at: str | None
    expires_in_ms: int | None


class Token(TypedDict):
    created_at: str
    created_by: str | None
    expired: bool
    expires_at: str | None
    id: str
    last_used_at: str | None
    name: str
    scopes: list[Scope]


class TokenMade(TypedDict):
    expires_at: str | None
    id: str
    name: str
    scopes: list[Scope]
    token: str
