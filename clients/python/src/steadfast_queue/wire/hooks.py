"""Hooks: who is told of the ends of jobs.

Shapes only; `tests/test_wire.py` compares them with docs/openapi.json."""

from __future__ import annotations

from typing import TypedDict

HookSecretText = str | list[str]


class HookDeclaration(TypedDict, total=False):
    """A hook, as it is put."""

    endpoint: str | None
    events: list[str] | None
    include: list[str] | None
    kinds: list[str] | None
    paused: bool | None
    queues: list[str] | None
    secret: HookSecretText | None
    url: str | None


class Hook(TypedDict):
    """A hook."""

    created_at: str
    dead_in_a_row: int
    endpoint: str | None
    events: list[str]
    include: list[str]
    kinds: list[str] | None
    missed: int
    name: str
    paused: bool
    paused_at: str | None
    paused_reason: str | None
    queues: list[str] | None
    secret: str | None
    updated_at: str
    url: str | None
