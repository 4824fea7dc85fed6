"""The client: enqueue jobs, look at them, wait for them. Operators' calls are in `operate.py`, which this extends.

Synchronous and safe to share between threads; it keeps connections and nothing else. `aio.py` is the same for asyncio."""

from __future__ import annotations

import os
import ssl
import time
import uuid
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast
from urllib.parse import quote

from . import wire
from .errors import JobFailed, Seconds, WaitTimeout, to_seconds
from .http import Address, Answer, Transport, encode
from .job import EnqueueOptions, Job, NewJob
from .operate import OperatorCalls
from .pages import Pages
from .payload import to_json

if TYPE_CHECKING:
    from typing_extensions import Unpack

DEFAULT_URL = "http://127.0.0.1:8080"
BATCH_MAX = 1000
"""1,000 jobs: what the server takes in one batch."""
BATCH_MAX_BYTES = 7 * 1024 * 1024
"""7 MiB: the server takes 8 MiB."""
WAIT_FIRST, WAIT_LONGEST = 0.1, 2.0
"""0.1 s growing to 2 s: how often `wait` looks."""


class JobFilter(TypedDict, total=False):
    """Which jobs to list; all that is said must hold. The names are those of `GET /jobs`."""

    status: wire.Status | list[wire.Status] | None
    kind: str | list[str] | None
    queue: str | list[str] | None
    worker: str | None
    group: str | None
    error: str | None
    key: str | None
    created_after: datetime | None
    created_before: datetime | None
    finished_after: datetime | None
    finished_before: datetime | None
    text: str | None
    order: str | None
    view: str | None
    page_size: int | None
    """How many jobs one call fetches: 1 to 200, by default 50."""


class Client(OperatorCalls):
    """A client of one server.

    `url` and `token` default to STEADFAST_URL (else http://127.0.0.1:8080) and STEADFAST_TOKEN or the file that
    STEADFAST_TOKEN_FILE names. A call waits `timeout` seconds for its answer, and is repeated for up to `retry_for`
    seconds while the server is unreachable, overloaded or over a limit."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: Seconds = 30.0,
        retry_for: Seconds = 15.0,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        address = Address(url or os.environ.get("STEADFAST_URL") or DEFAULT_URL, token or _token(), ssl_context)
        super().__init__(Transport(address, timeout=to_seconds(timeout), retry_for=to_seconds(retry_for)))

    @property
    def url(self) -> str:
        return self.address.url

    @property
    def address(self) -> Address:
        return self._transport.address

    # Producers.

    def enqueue(self, kind: str | NewJob, payload: Any = None, **options: Unpack[EnqueueOptions]) -> Job:
        """Stores a job: when this returns, it is on stable storage.

        Every call gets a random idempotency key unless it names one, so that the retry of a call whose answer was lost does
        not make a second job."""
        job = kind if isinstance(kind, NewJob) else NewJob(kind, payload, options)
        body, own_key = wire_job(job, options if isinstance(kind, NewJob) else EnqueueOptions())
        answer = self._transport.call("POST", "/jobs", body, repeatable="idempotency_key" in body)
        return enqueued(answer, own_key)

    def enqueue_many(self, jobs: Iterable[NewJob]) -> list[Job]:
        """Stores jobs in batches of up to 1,000: each batch is stored in one transaction, all of it or none.

        The jobs of earlier batches stay if a later one is refused. An iterable is consumed batch by batch."""
        stored: list[Job] = []
        for items, keys in batches(jobs):
            raw = b'{"jobs":[' + b",".join(items) + b"]}"
            answer = self._transport.call("POST", "/jobs/batch", raw=raw, repeatable=None not in keys)
            results: wire.BatchResults = answer.json()
            for result, key in zip(results["results"], keys, strict=True):
                stored.append(_batched(result, key))
        return stored

    # Reading.

    def get(self, job_id: str) -> Job:
        return Job(self._transport.call("GET", f"/jobs/{_part(job_id)}").json())

    def jobs(self, **filters: Unpack[JobFilter]) -> Pages[Job]:
        """All jobs that match, newest first (waiting ones: the next to run first), fetched page by page."""
        query: dict[str, Any] = {**filters}
        query["limit"] = query.pop("page_size", None)
        return Pages(self._transport, "/jobs", query, Job)

    def attempts(self, job_id: str) -> list[wire.Attempt]:
        """What became of each start of the job, oldest first."""
        return cast("list[wire.Attempt]", self._transport.call("GET", f"/jobs/{_part(job_id)}/attempts").json())

    def wait(self, job_id: str, timeout: Seconds = 30.0) -> Job:
        """The job once it has succeeded. Raises JobFailed if it ends otherwise, WaitTimeout if it does not end in time."""
        limit = to_seconds(timeout)
        give_up = time.monotonic() + limit
        pauses = wait_pauses()
        while True:
            job = self.get(job_id)
            left = give_up - time.monotonic()
            if waited := finished_or_late(job, left, limit):
                return waited
            time.sleep(min(next(pauses), left))

    def close(self) -> None:
        """Closes idle connections. Calls that are under way end by themselves."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.url!r})"


def _token() -> str | None:
    if token := os.environ.get("STEADFAST_TOKEN"):
        return token
    if path := os.environ.get("STEADFAST_TOKEN_FILE"):
        return Path(path).read_text(encoding="utf-8").strip()
    return None


def wire_job(job: NewJob, more: EnqueueOptions | None = None) -> tuple[dict[str, Any], str | None]:
    """The body of an enqueue, and the random key if one was made for it."""
    options: EnqueueOptions = {**job.options, **more} if more else job.options
    body = NewJob(job.kind, to_json(job.payload), options).to_wire()
    if "idempotency_key" in body or options.get("idempotency_key") is False:
        return body, None
    key = body["idempotency_key"] = str(uuid.uuid4())
    return body, key


def enqueued(answer: Answer, own_key: str | None) -> Job:
    raw: dict[str, Any] = answer.json()
    # With a key that only this call knows, "seen before" means an earlier try of this very call.
    own_retry = own_key is not None and answer.headers.get("idempotent-replayed") == "true"
    return Job(raw, created=answer.status == 201 or own_retry, replaced=raw.get("replaced", False))


def _batched(result: wire.BatchResult, key: str | None) -> Job:
    raw = cast("dict[str, Any]", result["job"])
    own_retry = key is not None and raw.get("idempotency_key") == key
    return Job(raw, created=result["created"] or own_retry, replaced=result.get("replaced", False))


def batches(jobs: Iterable[NewJob]) -> Iterator[tuple[list[bytes], list[str | None]]]:
    """Encoded jobs with their keys, as many as fit into one call. A key is None if the job must not have one."""
    items: list[bytes] = []
    keys: list[str | None] = []
    size = 0
    for job in jobs:
        body, _ = wire_job(job)
        item = encode(body)
        if items and (len(items) == BATCH_MAX or size + len(item) > BATCH_MAX_BYTES):
            yield items, keys
            items, keys, size = [], [], 0
        items.append(item)
        keys.append(body.get("idempotency_key"))
        size += len(item) + 1
    if items:
        yield items, keys


def wait_pauses() -> Iterator[float]:
    pause = WAIT_FIRST
    while True:
        yield pause
        pause = min(WAIT_LONGEST, pause * 1.5)


def finished_or_late(job: Job, left: float, limit: float) -> Job | None:
    """The job if it succeeded, None to look again; otherwise raises."""
    if job.status == "succeeded":
        return job
    if job.is_finished:
        raise JobFailed(job)
    if left <= 0:
        raise WaitTimeout(job, limit)
    return None


def _part(text: str) -> str:
    return quote(text, safe="")
