"""The worker protocol: lease, heartbeat, settle.

Shapes only; `tests/test_wire.py` compares them with docs/openapi.json."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from .jobs import Job

Outcome = Literal["succeeded", "failed", "cancelled", "released", "snoozed"]


class WorkerInfo(TypedDict, total=False):
    concurrency: int | None
    host: str | None
    language: str | None
    pid: int | None
    version: str | None


class _LeaseRequest(TypedDict):
    worker: str


class LeaseRequest(_LeaseRequest, total=False):
    info: WorkerInfo | None
    kinds: list[str] | None
    lease_ms: int | None
    max: int | None
    queues: list[str] | None
    wait_ms: int | None


class Lease(TypedDict):
    attempt: int
    job: Job
    lease_ms: int
    lease_token: str


class Leases(TypedDict):
    leases: list[Lease]


class ProgressReport(TypedDict, total=False):
    message: str | None
    percent: int | None


class _Beat(TypedDict):
    job_id: str
    lease_token: str


class Beat(_Beat, total=False):
    progress: ProgressReport | None


class _Heartbeat(TypedDict):
    leases: list[Beat]
    worker: str


class Heartbeat(_Heartbeat, total=False):
    lease_ms: int | None


class BeatAnswer(TypedDict):
    job_id: str
    status: str


class HeartbeatAnswer(TypedDict):
    leases: list[BeatAnswer]
    worker: str


class _OutcomeReport(TypedDict):
    job_id: str
    lease_token: str
    outcome: Outcome
    result: Any


class OutcomeReport(_OutcomeReport, total=False):
    delay_ms: int | None
    error: str | None
    error_group: str | None
    permanent: bool | None
    retry_after_ms: int | None


class Settlement(TypedDict):
    outcomes: list[OutcomeReport]
    worker: str


class Settled(TypedDict):
    job_id: str
    status: str


class SettlementAnswer(TypedDict):
    outcomes: list[Settled]
