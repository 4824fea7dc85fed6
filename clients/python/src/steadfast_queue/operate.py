"""What operators do: cancel, redrive, queues and limits, kinds, schedules, errors, operations, workers, hooks, audit, tokens;
and what is going on.

One method per route, named after it, with the JSON of the server as its result (`wire`). Producers' calls are in `client.py`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import quote

from . import wire
from .errors import Seconds, to_ms
from .http import Transport
from .job import Job, format_time
from .pages import Pages, with_query

if TYPE_CHECKING:
    from typing_extensions import Unpack


class OperatorCalls:
    """The operators' half of `Client`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def _do(
        self,
        method: str,
        *path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = True,
    ) -> Any:
        where = "/" + "/".join(quote(part, safe="") for part in path)
        return self._transport.call(method, where, body, headers=headers, repeatable=repeatable).json()

    # Jobs.

    def cancel(self, job_id: str) -> Literal["cancelled", "pending"]:
        """`cancelled`: it will not run. `pending`: it runs, and its worker is told with its next heartbeat."""
        answer: wire.CancelAnswer = self._do("POST", "jobs", job_id, "cancel")
        return cast(Literal["cancelled", "pending"], answer["status"])

    def redrive(self, job_id: str) -> Job:
        """A failed or cancelled job starts over."""
        # Not repeated blindly: a redriven job can fail again before the second try, which would redrive it once more.
        return Job(self._do("POST", "jobs", job_id, "redrive", repeatable=False))

    def delete(self, job_id: str) -> None:
        """Removes a finished job and its attempts."""
        self._do("DELETE", "jobs", job_id, repeatable=False)

    def explain(self, job_id: str) -> wire.JobExplanation:
        """Why the job is not running."""
        return cast(wire.JobExplanation, self._do("GET", "jobs", job_id, "explain"))

    # Queues and limits.

    def queues(self) -> Pages[wire.ListedQueue]:
        return Pages(self._transport, "/queues", {}, lambda raw: cast(wire.ListedQueue, raw))

    def queue(self, queue: str) -> wire.QueueWithLimits:
        return cast(wire.QueueWithLimits, self._do("GET", "queues", queue))

    def pause_queue(self, queue: str) -> wire.Queue:
        return cast(wire.Queue, self._do("POST", "queues", queue, "pause"))

    def resume_queue(self, queue: str) -> wire.Queue:
        return cast(wire.Queue, self._do("POST", "queues", queue, "resume"))

    def put_queue(self, queue: str, **settings: Unpack[wire.QueueSettings]) -> wire.QueueWithLimits:
        """Sets all limits of the queue: what is left out is no longer limited."""
        return cast(wire.QueueWithLimits, self._do("PUT", "queues", queue, body=settings))

    def explain_queue(self, queue: str) -> wire.QueueExplanation:
        return cast(wire.QueueExplanation, self._do("GET", "queues", queue, "explain"))

    def limits(self, queue: str) -> Pages[wire.Limit]:
        """The queue, then its groups: limits and usage."""
        path = f"/queues/{quote(queue, safe='')}/limits"
        return Pages(self._transport, path, {}, lambda raw: cast(wire.Limit, raw))

    def put_group(self, queue: str, group: str, **settings: Unpack[wire.GroupSettings]) -> wire.GroupSettingsAnswer:
        """Settings of one group of a queue, instead of those for every group."""
        return cast(wire.GroupSettingsAnswer, self._do("PUT", "queues", queue, "groups", group, body=settings))

    def delete_group(self, queue: str, group: str) -> None:
        """The group has the settings of the others again."""
        self._do("DELETE", "queues", queue, "groups", group, repeatable=False)

    def stats(self) -> wire.Stats:
        """Counts by queue (the first 1,000 by name) and in total."""
        return cast(wire.Stats, self._transport.call("GET", with_query("/stats", {"limit": 1000})).json())

    # Kinds.

    def kinds(self) -> list[wire.ListedKind]:
        return cast("list[wire.ListedKind]", self._do("GET", "kinds"))

    def put_kind(self, kind: str, **declaration: Unpack[wire.KindDeclaration]) -> wire.Kind:
        """Declares a kind: the whole of it, what is left out is unset."""
        return cast(wire.Kind, self._do("PUT", "kinds", kind, body=declaration))

    def delete_kind(self, kind: str) -> None:
        """No new jobs of this kind are taken; existing ones go on."""
        self._do("DELETE", "kinds", kind, repeatable=False)

    # Schedules.

    def schedules(self, *, state: wire.ScheduleState | None = None, kind: str | None = None) -> Pages[wire.Schedule]:
        query = {"state": state, "kind": kind}
        return Pages(self._transport, "/schedules", query, lambda raw: cast(wire.Schedule, raw))

    def schedule(self, name: str) -> wire.Schedule:
        return cast(wire.Schedule, self._do("GET", "schedules", name))

    def put_schedule(self, name: str, schedule: wire.NewSchedule, *, revision: int | None = None) -> wire.Schedule:
        """Creates or replaces a schedule. With `revision`, only if it has not been edited since (else 412)."""
        headers = None if revision is None else {"if-match": f'"{revision}"'}
        # With a revision, a repeated PUT would meet its own change.
        answer = self._do("PUT", "schedules", name, body=schedule, headers=headers, repeatable=revision is None)
        return cast(wire.Schedule, answer)

    def delete_schedule(self, name: str) -> None:
        """Its jobs stay."""
        self._do("DELETE", "schedules", name, repeatable=False)

    def pause_schedule(self, name: str) -> wire.Schedule:
        return cast(wire.Schedule, self._do("POST", "schedules", name, "pause"))

    def resume_schedule(self, name: str) -> wire.Schedule:
        return cast(wire.Schedule, self._do("POST", "schedules", name, "resume"))

    def run_schedule(self, name: str, *, tick: datetime | None = None) -> Job:
        """Enqueues its job now. With a `tick`, the job of that tick, once."""
        body = {} if tick is None else {"tick": format_time(tick)}
        return Job(self._do("POST", "schedules", name, "run", body=body, repeatable=tick is not None))

    def ticks(self, name: str, *, limit: int | None = None) -> list[wire.Tick]:
        """The newest ticks, and what became of them."""
        path = with_query(f"/schedules/{quote(name, safe='')}/ticks", {"limit": limit})
        return cast("list[wire.Tick]", self._transport.call("GET", path).json())

    def preview_schedule(self, **pattern: Unpack[wire.PreviewRequest]) -> wire.Preview:
        """When a schedule with this pattern would run."""
        return cast(wire.Preview, self._do("POST", "schedules", "preview", body=pattern))

    # Errors.

    def errors(
        self,
        *,
        kind: str | None = None,
        queue: str | None = None,
        since: datetime | None = None,
        dead: bool | None = None,
        snoozed: bool | None = None,
    ) -> Pages[wire.ErrorGroup]:
        """Dead letters by cause, those seen last first."""
        query = {"kind": kind, "queue": queue, "since": since, "dead": dead, "snoozed": snoozed}
        return Pages(self._transport, "/errors", query, lambda raw: cast(wire.ErrorGroup, raw))

    def error(self, fingerprint: str) -> wire.ErrorGroup:
        return cast(wire.ErrorGroup, self._do("GET", "errors", fingerprint))

    def snooze_error(
        self,
        fingerprint: str,
        *,
        duration: Seconds | None = None,
        until: datetime | None = None,
        note: str | None = None,
    ) -> wire.ErrorGroup:
        """Says that the cause is known, for some time. It changes neither jobs nor counts."""
        body: wire.NewSnooze = {
            "for_ms": None if duration is None else to_ms(duration),
            "until": None if until is None else format_time(until),
            "note": note,
        }
        return cast(wire.ErrorGroup, self._do("PUT", "errors", fingerprint, "snooze", body=body))

    def unsnooze_error(self, fingerprint: str) -> None:
        self._do("DELETE", "errors", fingerprint, "snooze", repeatable=False)

    # Operations: one action on many jobs.

    def preview_operation(self, **request: Unpack[wire.OperationPreviewRequest]) -> wire.OperationPreview:
        """What an operation would change; its `token` binds `begin_operation` to it."""
        return cast(wire.OperationPreview, self._do("POST", "operations", "preview", body=request))

    def begin_operation(self, **operation: Unpack[wire.NewOperation]) -> wire.Operation:
        """Redrive, cancel, delete, reprioritize or move all jobs that match, in the server, at a rate."""
        return cast(wire.Operation, self._do("POST", "operations", body=operation, repeatable=False))

    def operations(self, *, state: wire.OperationState | None = None) -> Pages[wire.Operation]:
        return Pages(self._transport, "/operations", {"state": state}, lambda raw: cast(wire.Operation, raw))

    def operation(self, operation_id: str) -> wire.Operation:
        return cast(wire.Operation, self._do("GET", "operations", operation_id))

    def pause_operation(self, operation_id: str) -> wire.Operation:
        return cast(wire.Operation, self._do("POST", "operations", operation_id, "pause"))

    def resume_operation(self, operation_id: str) -> wire.Operation:
        return cast(wire.Operation, self._do("POST", "operations", operation_id, "resume"))

    def stop_operation(self, operation_id: str) -> wire.Operation:
        return cast(wire.Operation, self._do("POST", "operations", operation_id, "stop"))

    def set_operation_rate(self, operation_id: str, rate: int) -> wire.Operation:
        """Jobs per second."""
        return cast(wire.Operation, self._do("PATCH", "operations", operation_id, body={"rate": rate}))

    # Workers, audit, tokens.

    def workers(self) -> Pages[wire.Worker]:
        return Pages(self._transport, "/workers", {}, lambda raw: cast(wire.Worker, raw))

    def worker(self, worker: str) -> wire.WorkerDetail:
        return cast(wire.WorkerDetail, self._do("GET", "workers", worker))

    def drain_worker(self, worker: str) -> wire.WorkerDetail:
        """It finishes what it has and gets no more jobs, until it is undrained."""
        return cast(wire.WorkerDetail, self._do("POST", "workers", worker, "drain"))

    def undrain_worker(self, worker: str) -> wire.WorkerDetail:
        return cast(wire.WorkerDetail, self._do("POST", "workers", worker, "undrain"))

    # What is going on.

    def pulse(self) -> wire.Overview:
        """Everything at once: counts, what is due, rates, workers, problems, operations. Of at most a second ago."""
        return cast(wire.Overview, self._do("GET", "pulse"))

    def problems(self) -> list[wire.ProblemSeen]:
        """What is wrong, in sentences, the worst first; each with the call that is usually made about it."""
        return cast("list[wire.ProblemSeen]", self._do("GET", "problems"))

    def series(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        step: Literal["minute", "hour", "day"] | None = None,
    ) -> wire.Series:
        """Rates, waits and run times over time: the last hour by minutes unless told otherwise."""
        asked = {"queue": queue, "kind": kind, "from": since, "to": until, "step": step}
        return cast(wire.Series, self._transport.call("GET", with_query("/series", asked)).json())

    # Hooks: who is told of the ends of jobs.

    def hooks(self) -> list[wire.Hook]:
        return cast("list[wire.Hook]", self._do("GET", "hooks"))

    def hook(self, name: str) -> wire.Hook:
        return cast(wire.Hook, self._do("GET", "hooks", name))

    def put_hook(self, name: str, **declaration: Unpack[wire.HookDeclaration]) -> wire.Hook:
        """Sets the hook, the whole of it. It is told of jobs that are enqueued from now on."""
        return cast(wire.Hook, self._do("PUT", "hooks", name, body=declaration))

    def pause_hook(self, name: str) -> wire.Hook:
        return cast(wire.Hook, self._do("POST", "hooks", name, "pause"))

    def resume_hook(self, name: str) -> wire.Hook:
        return cast(wire.Hook, self._do("POST", "hooks", name, "resume"))

    def delete_hook(self, name: str) -> None:
        self._do("DELETE", "hooks", name)

    def audit(
        self,
        *,
        action: str | None = None,
        token: str | None = None,
        target: str | None = None,
        since: datetime | None = None,
        before: datetime | None = None,
    ) -> Pages[wire.AuditEntry]:
        """What operators did, newest first."""
        query = {"action": action, "token": token, "target": target, "since": since, "before": before}
        return Pages(self._transport, "/audit", query, lambda raw: cast(wire.AuditEntry, raw))

    def tokens(self) -> list[wire.Token]:
        return cast("list[wire.Token]", self._do("GET", "tokens"))

    def create_token(
        self,
        name: str,
        scopes: list[wire.Scope],
        *,
        expires_in: Seconds | None = None,
        expires_at: datetime | None = None,
    ) -> wire.TokenMade:
        """A new token. Its secret is shown only here."""
        body: wire.NewToken = {"name": name, "scopes": scopes}
        if expires_in is not None:
            body["expires_in_ms"] = to_ms(expires_in)
        if expires_at is not None:
            body["expires_at"] = format_time(expires_at)
        return cast(wire.TokenMade, self._do("POST", "tokens", body=body, repeatable=False))

    def delete_token(self, token_id: str) -> None:
        """Revokes a token: it stops working within a second."""
        self._do("DELETE", "tokens", token_id, repeatable=False)

    def health(self) -> bool:
        """The server answers and reaches its store."""
        self._do("GET", "health")
        return True
