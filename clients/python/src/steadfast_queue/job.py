"""A job as the client shows it, and a job that is to be enqueued.

Views over the JSON of the server: nothing is fetched behind an attribute. Calls are in `client.py`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Literal, TypedDict, cast

from . import wire
from .errors import Seconds, to_ms

FINISHED = ("succeeded", "failed_permanent", "cancelled")

_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(?:Z|\+00:00)$")


def parse_time(text: str) -> datetime:
    """RFC 3339 in UTC, as the server writes it. (`fromisoformat` of Python 3.10 reads neither Z nor three digits.)"""
    match = _TIME.match(text)
    if not match:
        raise ValueError(f"{text!r} is not a time in UTC")
    seconds = datetime.strptime(match[1], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    return seconds.replace(microsecond=int((match[2] or "0")[:6].ljust(6, "0")))


def format_time(value: datetime) -> str:
    """RFC 3339 in UTC. A time without zone is refused: nobody knows which it means."""
    if value.utcoffset() is None:
        raise ValueError(f"{value!r} has no time zone: use an aware datetime, such as datetime.now(timezone.utc)")
    return value.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")


class Job:
    """One job, as it was when it was fetched. `raw` is the JSON. Times are aware datetimes in UTC."""

    __slots__ = ("created", "raw", "replaced")

    def __init__(self, raw: Mapping[str, Any], *, created: bool = False, replaced: bool = False) -> None:
        self.raw = raw
        self.created = created
        """Of an enqueue: this call made the job. False: the job was there, by its idempotency or unique key."""
        self.replaced = replaced
        """Of an enqueue with `unique` and `on_conflict: replace`: the waiting job was replaced."""

    def _get(self, name: str) -> Any:
        try:
            return self.raw[name]
        except KeyError:
            raise AttributeError(
                f"this job has no {name}: a token without the scope read sees only id and status of a job that it did not "
                "create, and view='summary' leaves payload and result out"
            ) from None

    def _time(self, name: str) -> datetime | None:
        value: str | None = self._get(name)
        return parse_time(value) if value is not None else None

    @property
    def id(self) -> str:
        return cast(str, self._get("id"))

    @property
    def status(self) -> wire.Status:
        return cast(wire.Status, self._get("status"))

    @property
    def kind(self) -> str:
        return cast(str, self._get("kind"))

    @property
    def queue(self) -> str:
        return cast(str, self._get("queue"))

    @property
    def payload(self) -> Any:
        return self._get("payload")

    @property
    def result(self) -> Any:
        return self._get("result")

    @property
    def priority(self) -> int:
        return cast(int, self._get("priority"))

    @property
    def attempts(self) -> int:
        return cast(int, self._get("attempts"))

    @property
    def max_attempts(self) -> int:
        return cast(int, self._get("max_attempts"))

    @property
    def last_error(self) -> str | None:
        return cast("str | None", self._get("last_error"))

    @property
    def error_group(self) -> str | None:
        return cast("str | None", self._get("error_group"))

    @property
    def progress(self) -> wire.Progress | None:
        return cast("wire.Progress | None", self._get("progress"))

    @property
    def cancel_requested(self) -> bool:
        return cast(bool, self._get("cancel_requested"))

    @property
    def idempotency_key(self) -> str | None:
        return cast("str | None", self._get("idempotency_key"))

    @property
    def group(self) -> str | None:
        return cast("str | None", self._get("group_key"))

    @property
    def cost(self) -> int | None:
        return cast("int | None", self._get("cost"))

    @property
    def unique(self) -> wire.Unique | None:
        return cast("wire.Unique | None", self._get("unique"))

    @property
    def notify(self) -> str | None:
        return cast("str | None", self._get("notify"))

    @property
    def trace(self) -> wire.Trace | None:
        return cast("wire.Trace | None", self._get("trace"))

    @property
    def timeout_ms(self) -> int | None:
        return cast("int | None", self._get("timeout_ms"))

    @property
    def worker(self) -> str | None:
        """Who runs it now."""
        return cast("str | None", self._get("locked_by"))

    @property
    def run_at(self) -> datetime:
        return parse_time(self._get("run_at"))

    @property
    def created_at(self) -> datetime:
        return parse_time(self._get("created_at"))

    @property
    def updated_at(self) -> datetime:
        return parse_time(self._get("updated_at"))

    @property
    def started_at(self) -> datetime | None:
        return self._time("started_at")

    @property
    def finished_at(self) -> datetime | None:
        return self._time("finished_at")

    @property
    def start_by(self) -> datetime | None:
        return self._time("start_by")

    @property
    def is_finished(self) -> bool:
        return self.status in FINISHED

    def __repr__(self) -> str:  # without the payload: it may be logged
        return f"<Job {self.raw.get('id')} {self.raw.get('kind', '')} {self.raw.get('status')}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash(self.id)


class EnqueueOptions(TypedDict, total=False):
    """What an enqueue can say besides kind and payload. Durations are seconds or timedeltas."""

    queue: str | None
    priority: int | None
    max_attempts: int | None
    delay: Seconds | None
    run_at: datetime | None
    timeout: Seconds | None
    idempotency_key: str | Literal[False] | None
    """None: a random one for each call. False: none at all; then the client repeats a call only if nothing was sent."""
    group: str | None
    cost: int | None
    start_by: datetime | None
    start_within: Seconds | None
    unique: str | wire.NewUnique | None
    """A key, which means one waiting job; or all of `{"key", "while", "on_conflict", "for_ms", "max_wait_ms"}`."""
    notify: str | None
    """A hook that is told of the end of this job, whatever its filter is."""
    traceparent: str | None
    """The trace that the job belongs to (W3C Trace Context); its handler finds it in `ctx.job.trace`."""
    tracestate: str | None


@dataclass(frozen=True)
class NewJob:
    """A job to be enqueued: made by `handler.job(payload)` or directly, taken by `enqueue` and `enqueue_many`."""

    kind: str
    payload: Any
    options: EnqueueOptions = field(default_factory=EnqueueOptions)

    def to_wire(self) -> dict[str, Any]:
        options = self.options
        unique = options.get("unique")
        body: dict[str, Any] = {
            "kind": self.kind,
            "payload": self.payload,
            "queue": options.get("queue"),
            "priority": options.get("priority"),
            "max_attempts": options.get("max_attempts"),
            "delay_ms": _ms(options.get("delay")),
            "run_at": _time(options.get("run_at")),
            "timeout_ms": _ms(options.get("timeout")),
            "idempotency_key": options.get("idempotency_key") or None,
            "group_key": options.get("group"),
            "cost": options.get("cost"),
            "start_by": _time(options.get("start_by")),
            "start_within_ms": _ms(options.get("start_within")),
            "unique": {"key": unique} if isinstance(unique, str) else unique,
            "notify": options.get("notify"),
            "traceparent": options.get("traceparent"),
            "tracestate": options.get("tracestate"),
        }
        return {name: value for name, value in body.items() if value is not None or name == "payload"}


def _ms(value: Seconds | None) -> int | None:
    return None if value is None else to_ms(value)


def _time(value: datetime | None) -> str | None:
    return None if value is None else format_time(value)
