"""Calls, retries and what is never sent twice, against a scripted server."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from steadfast_queue import AsyncClient, Client, JobFailed, NewJob, Problem, Unreachable, WaitTimeout
from steadfast_queue.http import backoff
from steadfast_queue.job import format_time, parse_time
from support import Reply, Scripted, job_json, problem


def answers(*replies: Reply) -> Any:
    """One after the other; the last one for ever."""
    left = list(replies)
    lock = threading.Lock()

    def answer(method: str, path: str, body: Any) -> Reply:
        with lock:
            return left.pop(0) if len(left) > 1 else left[0]

    return answer


def test_an_enqueue_whose_answer_was_lost_is_sent_again_with_the_same_random_key() -> None:
    replayed = (200, job_json(), {"Idempotent-Replayed": "true"})
    with Scripted(answers(None, (503, problem(503, "store_unavailable")), replayed)) as server:
        job = Client(server.url).enqueue("k", {"user": 1})
    keys = {body["idempotency_key"] for _, _, body in server.requests}
    assert len(server.requests) == 3
    assert len(keys) == 1
    assert job.created, "a replay of a key that only this call knows is its own job"


def test_two_enqueues_have_different_keys_and_a_given_key_is_kept() -> None:
    with Scripted(answers((201, job_json()))) as server:
        client = Client(server.url)
        client.enqueue("k", {})
        client.enqueue("k", {})
        client.enqueue("k", {}, idempotency_key="mine")
    first, second, third = (body["idempotency_key"] for _, _, body in server.requests)
    assert first != second
    assert third == "mine"


def test_a_replay_of_a_given_key_is_not_a_new_job() -> None:
    with Scripted(answers((200, job_json(), {"Idempotent-Replayed": "true"}))) as server:
        assert not Client(server.url).enqueue("k", {}, idempotency_key="mine").created


def test_an_enqueue_without_key_is_not_sent_again_if_it_may_have_arrived() -> None:
    with Scripted(answers(None, (201, job_json()))) as server, pytest.raises(Unreachable) as raised:
        Client(server.url).enqueue("k", {}, idempotency_key=False)
    assert raised.value.sent
    assert len(server.requests) == 1


ONCE: dict[str, Callable[[Client], object]] = {
    "begin_operation": lambda client: client.begin_operation(action="redrive", ids=["x"]),
    "create_token": lambda client: client.create_token("ci", ["enqueue"]),
    "run_schedule": lambda client: client.run_schedule("nightly"),
}


@pytest.mark.parametrize("call", ONCE)
def test_what_would_happen_twice_is_not_sent_twice(call: str) -> None:
    unknown = (503, problem(503, "outcome_unknown"))
    with Scripted(answers(unknown, (200, {}))) as server, pytest.raises(Problem, match="outcome_unknown"):
        ONCE[call](Client(server.url))
    assert len(server.requests) == 1


def test_a_refusal_is_a_problem_with_all_that_the_server_says() -> None:
    body = {**problem(422, "invalid", "item 0"), "errors": [{"index": 0, "detail": "no"}]}
    with Scripted(answers((422, body))) as server, pytest.raises(Problem) as raised:
        Client(server.url).enqueue_many([NewJob("k", {})])
    assert (raised.value.status, raised.value.code, raised.value.errors) == (422, "invalid", body["errors"])
    assert len(server.requests) == 1


def test_an_answer_that_is_no_problem_document_is_still_a_problem() -> None:
    with Scripted(lambda m, p, b: (502, "<html>")) as server, pytest.raises(Problem, match="502"):
        Client(server.url, retry_for=0).get("x")


def test_retry_after_is_heeded_and_retries_are_bounded() -> None:
    assert backoff(0, retry_after=30) >= 30
    assert all(0.1 <= backoff(n) <= 5 for n in range(20))
    busy = (429, problem(429, "queue_full"), {"Retry-After": "60"})
    with Scripted(answers(busy)) as server, pytest.raises(Problem, match="queue_full"):
        Client(server.url, retry_for=5).enqueue("k", {})
    assert len(server.requests) == 1, "60 s is beyond what it would wait"


def test_nobody_listens() -> None:
    with Scripted(answers((200, {}))) as server:
        pass
    with pytest.raises(Unreachable) as raised:
        Client(server.url, retry_for=0.3).get("x")
    assert not raised.value.sent


def test_options_of_an_enqueue_are_those_of_the_wire() -> None:
    at = datetime(2030, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    with Scripted(answers((201, job_json()))) as server:
        Client(server.url).enqueue(
            "k", {"a": 1}, queue="q", priority=5, max_attempts=2, delay=1.5, timeout=timedelta(minutes=1),
            idempotency_key="i", group="acme", cost=3, start_within=60, unique="u",
        )  # fmt: skip
        Client(server.url).enqueue("k", None, run_at=at, start_by=at, unique={"key": "u", "while": "unfinished"})
    assert server.requests[0][2] == {
        "kind": "k", "payload": {"a": 1}, "queue": "q", "priority": 5, "max_attempts": 2, "delay_ms": 1500,
        "timeout_ms": 60000, "idempotency_key": "i", "group_key": "acme", "cost": 3, "start_within_ms": 60000,
        "unique": {"key": "u"},
    }  # fmt: skip
    second = server.requests[1][2]
    assert (second["run_at"], second["start_by"]) == ("2030-01-01T10:00:00Z", "2030-01-01T10:00:00Z")
    assert second["payload"] is None


def test_a_time_without_zone_and_a_negative_delay_are_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        format_time(datetime(2030, 1, 1))
    with pytest.raises(ValueError, match="negative"):
        NewJob("k", {}, {"delay": -1}).to_wire()


@pytest.mark.parametrize(("text", "micros"), [("", 0), (".5", 500000), (".123456", 123456), (".123456789", 123456)])
def test_times_of_the_server_are_read(text: str, micros: int) -> None:
    assert parse_time(f"2030-01-02T03:04:05{text}Z") == datetime(2030, 1, 2, 3, 4, 5, micros, tzinfo=timezone.utc)


def test_many_jobs_go_in_batches_that_fit() -> None:
    def answer(method: str, path: str, body: Any) -> Reply:
        return 200, {"results": [{"created": True, "job": job_json(payload=j["payload"])} for j in body["jobs"]]}

    with Scripted(answer) as server:
        jobs = Client(server.url).enqueue_many(NewJob("k", n) for n in range(2500))
        Client(server.url).enqueue_many(NewJob("k", "x" * 250_000) for _ in range(40))
    assert [job.payload for job in jobs] == list(range(2500))
    sizes = [len(body["jobs"]) for _, _, body in server.requests]
    assert sizes[:3] == [1000, 1000, 500]
    assert len(sizes) == 5, "10 MB do not fit into one call of 8 MiB"
    assert max(len(json.dumps(body)) for _, _, body in server.requests) < 8 * 1024 * 1024


def test_lists_follow_the_link_also_past_an_empty_page() -> None:
    pages: dict[str, Reply] = {
        "/jobs?status=queued%2Cretrying": (200, [job_json(id="a")], {"Link": '</jobs?cursor=1>; rel="next"'}),
        "/jobs?cursor=1": (200, [], {"Link": '</jobs?cursor=2>; rel="next"'}),
        "/jobs?cursor=2": (200, [job_json(id="b")]),
    }
    with Scripted(lambda m, path, b: pages[path]) as server:
        jobs = Client(server.url).jobs(status=["queued", "retrying"])
        assert [job.id for job in jobs] == ["a", "b"]


def test_wait_returns_raises_or_gives_up() -> None:
    running, done = job_json(status="running"), job_json(status="succeeded", result=7)
    dead = job_json(status="failed_permanent", last_error="smtp 550")
    with Scripted(answers((200, running), (200, done))) as server:
        assert Client(server.url).wait("j1").result == 7
    with Scripted(answers((200, dead))) as server, pytest.raises(JobFailed, match="smtp 550"):
        Client(server.url).wait("j1")
    with Scripted(answers((200, running))) as server, pytest.raises(WaitTimeout):
        Client(server.url).wait("j1", timeout=0.2)


def test_the_token_is_sent_and_never_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("id.secret\n")
    monkeypatch.setenv("STEADFAST_TOKEN_FILE", str(tmp_path / "token"))
    with Scripted(answers((200, []))) as server:
        monkeypatch.setenv("STEADFAST_URL", server.url)
        client = Client()
        client.kinds()
    assert server.headers[0]["authorization"] == "Bearer id.secret"
    assert "secret" not in repr(client) + repr(client.address)


def test_a_job_that_shows_little_says_why() -> None:
    with Scripted(answers((200, {"id": "j1", "status": "queued", "created": False}))) as server:
        job = Client(server.url).enqueue("k", {}, idempotency_key="x")
    assert (job.id, job.status) == ("j1", "queued")
    with pytest.raises(AttributeError, match="scope read"):
        _ = job.payload


def test_the_asynchronous_client_does_the_same() -> None:
    def answer(method: str, path: str, body: Any) -> Reply:
        if path.startswith("/jobs?"):
            return (200, [job_json(id="a")], {"Link": '</jobs/2>; rel="next"'}) if "cursor" not in path else (200, [])
        if path.startswith("/jobs/2"):
            return 200, [job_json(id="b")]
        return 200 if method == "GET" else 201, job_json(status="succeeded")

    async def use(url: str) -> tuple[list[str], str]:
        async with AsyncClient(url) as client:
            jobs = [job.id async for job in client.jobs(kind="k")]
            many = await asyncio.gather(*(client.enqueue("k", n) for n in range(20)))
            assert len(many) == 20
            return jobs, (await client.wait("j1")).status

    with Scripted(answer) as server:
        assert asyncio.run(use(server.url)) == (["a", "b"], "succeeded")
