"""Producers' and operators' calls against the real server: every one of them once."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from conftest import MakeServer
from steadfast_queue import AsyncClient, Client, Context, JobFailed, NewJob, Permanent, Problem, Worker
from steadfast_queue.testing import Server
from support import until, until_status


def declare(client: Client, *kinds: str) -> None:
    for kind in kinds:
        client.put_kind(kind)


def test_jobs_are_enqueued_found_cancelled_redriven_and_deleted(client: Client) -> None:
    declare(client, "k")
    job = client.enqueue("k", {"user": 1}, queue="q", delay=3600, group="acme", cost=2, unique="u", start_within=7200)
    assert (job.created, job.status, job.group, job.cost) == (True, "queued", "acme", 2)
    assert job.unique is not None
    assert job.start_by is not None
    assert job.run_at - job.created_at > timedelta(minutes=59)
    again = client.enqueue("k", {"user": 2}, delay=3600, unique="u", queue="q")
    assert (again.id, again.created) == (job.id, False)
    assert client.get(job.id) == job
    assert client.explain(job.id)["verdict"] == "not_due"
    assert [found.id for found in client.jobs(queue="q", group="acme", status="queued")] == [job.id]
    assert client.cancel(job.id) == "cancelled"
    with pytest.raises(JobFailed, match="cancelled"):
        client.wait(job.id)
    assert client.redrive(job.id).status == "queued"
    with pytest.raises(Problem, match="409"):
        client.delete(job.id)
    client.cancel(job.id)
    client.delete(job.id)
    with pytest.raises(Problem) as gone:
        client.get(job.id)
    assert gone.value.status == 404


def test_the_same_key_is_the_same_job_and_another_payload_is_refused(client: Client) -> None:
    declare(client, "k")
    first = client.enqueue("k", {"a": 1}, idempotency_key="one")
    second = client.enqueue("k", {"a": 1}, idempotency_key="one")
    assert (second.id, second.created) == (first.id, False)
    with pytest.raises(Problem) as refused:
        client.enqueue("k", {"a": 2}, idempotency_key="one")
    assert refused.value.code == "idempotency_conflict"


def test_a_batch_is_stored_whole_or_not_at_all(client: Client) -> None:
    declare(client, "k")
    with pytest.raises(Problem) as refused:
        client.enqueue_many([NewJob("k", 1), NewJob("nobody_declared_it", 2)])
    assert [error["index"] for error in refused.value.errors] == [1]
    assert list(client.jobs()) == []
    jobs = client.enqueue_many(NewJob("k", n) for n in range(1234))
    assert len({job.id for job in jobs}) == 1234
    assert all(job.created for job in jobs)
    assert {job.id for job in client.jobs(kind="k", page_size=200)} == {job.id for job in jobs}


def test_queues_groups_and_kinds(client: Client) -> None:
    declare(client, "k")
    client.enqueue("k", {}, queue="mail", group="a/b")
    assert client.pause_queue("mail")["paused"]
    assert client.explain_queue("mail")["verdict"] == "queue_paused"
    assert not client.resume_queue("mail")["paused"]
    settings = client.put_queue("mail", concurrency=5, rate={"limit": 10, "per_ms": 1000}, groups={"order": "fair"})
    assert settings["concurrency"] == 5
    assert client.queue("mail")["rate"] == settings["rate"]
    assert client.put_group("mail", "a/b", weight=3)["weight"] == 3
    assert "a/b" in {limit["name"] for limit in client.limits("mail")}
    client.delete_group("mail", "a/b")
    assert [queue["queue"] for queue in client.queues()] == ["mail"]
    assert client.stats()["totals"]["queued"] == 1
    client.put_kind("k", schema={"type": "object", "required": ["user"]}, max_attempts=7)
    with pytest.raises(Problem) as refused:
        client.enqueue("k", {})
    assert refused.value.status == 422
    assert {kind["kind"]: kind["max_attempts"] for kind in client.kinds()}["k"] == 7
    client.delete_kind("k")
    with pytest.raises(Problem, match="unknown_kind"):
        client.enqueue("k", {"user": 1})


def test_schedules(client: Client) -> None:
    declare(client, "report")
    made = client.put_schedule("nightly", {"cron": "30 2 * * *", "tz": "UTC", "job": {"kind": "report", "payload": {}}})
    assert made["name"] == "nightly"
    with pytest.raises(Problem, match="revision_mismatch"):
        client.put_schedule(
            "nightly", {"cron": "0 3 * * *", "job": {"kind": "report", "payload": {}}}, revision=made["revision"] + 1
        )
    assert client.pause_schedule("nightly")["paused"]
    assert not client.resume_schedule("nightly")["paused"]
    assert client.run_schedule("nightly").kind == "report"
    tick = datetime(2027, 3, 28, 2, 30, tzinfo=timezone.utc)
    assert client.run_schedule("nightly", tick=tick).id == client.run_schedule("nightly", tick=tick).id
    assert [schedule["name"] for schedule in client.schedules(kind="report")] == ["nightly"]
    assert client.schedule("nightly")["cron"] == "30 2 * * *"
    assert isinstance(client.ticks("nightly", limit=5), list)
    assert len(client.preview_schedule(cron="0 0 * * *", count=3)["runs"]) == 3
    client.delete_schedule("nightly")
    assert list(client.schedules()) == []


def test_errors_operations_workers_and_audit(client: Client) -> None:
    worker, mended = Worker(client, concurrency=2, name="w-1"), list[bool]()

    @worker.handler("k", max_attempts=1)
    def handler(payload: int, ctx: Context) -> None:
        if not mended:
            raise Permanent("smtp 550")

    with worker.running():
        jobs = client.enqueue_many(handler.job(n) for n in range(5))
        for job in jobs:
            until_status(client, job.id, "failed_permanent")
        group = until("a group of errors", lambda: list(client.errors(kind="k", dead=True)))[0]
        assert client.error(group["fingerprint"])["dead"] == 5
        assert client.snooze_error(group["fingerprint"], duration=60, note="known")["snoozed"] is not None
        client.unsnooze_error(group["fingerprint"])
        until("the worker is listed", lambda: [w for w in client.workers() if w["worker"] == "w-1"])
        assert client.worker("w-1")["language"] == "python"

        mended.append(True)
        preview = client.preview_operation(action="redrive", filter={"kind": "k", "status": "failed_permanent"})
        assert preview["matches"] == 5
        operation = client.begin_operation(
            action="redrive", filter={"kind": "k", "status": "failed_permanent"}, rate=1, preview=preview["token"]
        )
        assert client.pause_operation(operation["id"])["state"] == "paused"
        assert client.set_operation_rate(operation["id"], 1000)["rate"] == 1000
        assert client.resume_operation(operation["id"])["state"] == "running"
        for job in jobs:
            until_status(client, job.id, "succeeded")
        until("it ends", lambda: client.operation(operation["id"])["state"] == "finished")
        assert [op["id"] for op in client.operations()] == [operation["id"]]
        with pytest.raises(Problem, match="operation_ended"):
            client.stop_operation(operation["id"])
    assert "put_kind" in {entry["action"] for entry in client.audit(target="kind:k")}


def test_tokens_and_what_they_may(make_server: MakeServer) -> None:
    server = make_server(STEADFAST_ADMIN_TOKEN="an-admin-token-for-tests")
    admin = server.client()
    made = admin.create_token("ci", ["enqueue"], expires_in=timedelta(days=1))
    assert [token["name"] for token in admin.tokens()] == ["ci"]
    declare(admin, "k")
    producer = server.client(made["token"])
    job = producer.enqueue("k", {}, idempotency_key="x")
    assert job.kind == "k"
    known = producer.enqueue("k", {}, idempotency_key="x")
    assert (known.id, known.created) == (job.id, False)
    with pytest.raises(Problem) as refused:
        producer.get(job.id)
    assert refused.value.is_access
    # A worker whose token may not declare kinds goes on without.
    worker = Worker(server.client(admin.create_token("w", ["work"])["token"]))
    worker.handler("k")(lambda payload: None)
    assert worker.declare() is False
    with worker.running():
        until_status(admin, job.id, "succeeded")
    admin.delete_token(made["id"])
    until("the token is refused", lambda: _is_refused(producer))


def _is_refused(client: Client) -> bool:
    try:
        client.enqueue("k", {})
    except Problem as problem:
        return problem.status == 401
    return False


def test_a_worker_declares_its_kinds_and_keeps_what_operators_set(client: Client) -> None:
    worker = Worker(client)
    worker.handler("k", max_attempts=5, timeout=30, schema={"type": "object"})(lambda payload: None)
    client.put_kind("k", concurrency=7)
    assert worker.declare() is True
    kind = {kind["kind"]: kind for kind in client.kinds()}["k"]
    assert (kind["max_attempts"], kind["timeout_ms"], kind["concurrency"]) == (5, 30000, 7)
    acts = len(list(client.audit(target="kind:k")))
    worker.declare()
    assert len(list(client.audit(target="kind:k"))) == acts, "nothing changed, nothing written"


def test_the_asynchronous_client_and_a_worker_inside_of_a_loop(server: Server) -> None:
    worker = Worker(server.client())

    @worker.handler("double")
    async def double(payload: int) -> int:
        await asyncio.sleep(0)
        return payload * 2

    async def main() -> list[Any]:
        async with worker.running(), AsyncClient(server.url) as client:
            jobs = await client.enqueue_many(double.job(n) for n in range(10))
            done = await asyncio.gather(*(client.wait(job.id, timeout=60) for job in jobs))
            assert [job.id async for job in client.jobs(page_size=3)] == [job.id for job in reversed(jobs)]
            return [job.result for job in done]

    assert asyncio.run(main()) == [n * 2 for n in range(10)]


def test_what_is_going_on_is_told_at_once_and_over_time(client: Client) -> None:
    client.put_kind("k")
    client.enqueue("k", {})
    pulse = client.pulse()
    assert pulse["ready"]
    assert pulse["totals"]["queued"] >= 1
    assert isinstance(client.problems(), list)
    series = client.series(kind="k", step="minute")
    assert len(series["t"]) == len(series["enqueued"])
    assert series["kind"] == "k"


def test_hooks_are_put_paused_and_deleted_and_a_job_names_one(client: Client) -> None:
    client.put_kind("k")
    client.put_hook(
        "billing",
        url="https://billing.example/hooks",
        secret="whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        events=["job.failed"],
    )
    assert client.hook("billing")["events"] == ["job.failed"]
    assert client.pause_hook("billing")["paused"]
    assert not client.resume_hook("billing")["paused"]
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    job = client.enqueue("k", {}, notify="billing", traceparent=parent)
    again = client.get(job.id)
    assert again.notify == "billing"
    assert again.trace is not None
    assert again.trace["traceparent"] == parent
    client.delete_hook("billing")
    assert client.hooks() == []
