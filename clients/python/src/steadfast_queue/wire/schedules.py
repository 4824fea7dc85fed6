"""Schedules and their ticks.

Shapes only; `tests/test_wire.py` compares them with docs/openapi.json."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

CatchUp = Literal["skip", "one", "all"]


Overlap = Literal["allow", "skip", "queue_one", "cancel"]


ScheduleSource = Literal["api", "library", "config"]


ScheduleState = Literal["active", "paused", "ended"]


TickFate = Literal["fired", "skipped", "missed", "refused"]


class _NewScheduledJob(TypedDict):
    kind: str
    payload: Any


class NewScheduledJob(_NewScheduledJob, total=False):
    max_attempts: int | None
    priority: int | None
    queue: str | None
    timeout_ms: int | None


class _NewSchedule(TypedDict):
    job: NewScheduledJob


class NewSchedule(_NewSchedule, total=False):
    anchor_at: str | None
    catch_up: CatchUp | None
    catch_up_max: int | None
    catch_up_window_ms: int | None
    cron: str | None
    end_at: str | None
    every_ms: int | None
    jitter_ms: int | None
    overlap: Overlap | None
    paused: bool | None
    start_at: str | None
    tz: str | None


class ScheduledJob(TypedDict):
    kind: str
    max_attempts: int | None
    payload: Any
    priority: int | None
    queue: str | None
    timeout_ms: int | None


class SkippedTick(TypedDict):
    reason: str
    tick: str


class TickCounts(TypedDict):
    fired: int
    missed: int
    refused: int
    skipped: int


class Schedule(TypedDict):
    anchor_at: str | None
    catch_up: CatchUp
    catch_up_max: int
    catch_up_window_ms: int
    counts: TickCounts
    created_at: str
    cron: str | None
    describe: str
    end_at: str | None
    every_ms: int | None
    held_tick: str | None
    jitter_ms: int
    job: ScheduledJob | None
    last_error: str | None
    last_job_id: str | None
    last_skip: SkippedTick | None
    last_tick_at: str | None
    name: str
    next_runs: list[str]
    overlap: Overlap
    paused: bool
    revision: int
    source: ScheduleSource
    start_at: str | None
    state: ScheduleState
    tz: str
    updated_at: str


class Tick(TypedDict):
    at: str
    fate: TickFate
    job_id: str | None
    reason: str | None
    tick: str


class PreviewRequest(TypedDict, total=False):
    anchor_at: str | None
    count: int | None
    cron: str | None
    end_at: str | None
    every_ms: int | None
    start_at: str | None
    tz: str | None


class Run(TypedDict):
    at: str
    local: str
    note: str | None


class Preview(TypedDict):
    describe: str
    runs: list[Run]
    tz: str


class RunRequest(TypedDict, total=False):
    tick: str | None
