"""A worker at work against the real server: all kinds of handlers, cancellation, lost leases, heartbeats, drain, tokens."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from typing import Any

import pytest

from conftest import MakeServer
from steadfast_queue import Client, Context, NewJob, Worker
from steadfast_queue.testing import Server
from support import children, exists, outcomes, program, totals, until, until_status

LEASE_S = 1.0


def act(do: str, **more: Any) -> NewJob:
    return NewJob("act", {"do": do, **more}, {"max_attempts": 5})


def settings(**values: Any) -> str:
    return json.dumps(values)


def test_two_thousand_jobs_of_all_sorts_end_as_they_should(server: Server, client: Client) -> None:
    client.put_kind("act")
    client.put_kind("act_async")
    soon = time.time() + 1
    sorts = ["fail_once", "raise_once", "snooze", "permanent", "large", "surrogate", "fine", "fine"]
    jobs = [act(sorts[n % len(sorts)], until=soon) for n in range(1790)]
    jobs += [NewJob("act_async", {"do": "fine"}) for _ in range(200)]
    hang = [NewJob("act", {"do": "hang"}, {"timeout": 2, "max_attempts": 1}) for _ in range(5)]
    hang += [NewJob("act_async", {"do": "hang"}, {"timeout": 2, "max_attempts": 1}) for _ in range(5)]
    stored = client.enqueue_many([*hang, *jobs])
    with program("mixed.py", server.url, WORKER=settings(concurrency=32, lease=10)) as worker:
        ended = ("succeeded", "failed_permanent", "cancelled")
        until("all end", lambda: sum(totals(client)[status] for status in ended) == 2000, 120)
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0, worker.log
    dead = {"permanent": "no use", "large": "307202 bytes", "surrogate": "not JSON", "hang": "timed out"}
    found = {job.id: job for job in client.jobs(page_size=200)}
    for job in stored:
        seen, what = found[job.id], job.payload["do"]
        if what in dead:
            assert seen.status == "failed_permanent", (what, seen.raw)
            # A timeout is reported by the worker or found by the server, whoever is first.
            assert dead[what] in (seen.last_error or "") or what == "hang", seen.raw
        else:
            assert (seen.status, seen.result) == ("succeeded", {"did": what}), seen.raw
        assert seen.attempts == (2 if what in ("fail_once", "raise_once") else 1), (what, seen.raw)
    raised = next(job for job in found.values() if job.payload["do"] == "raise_once")
    assert "OSError: the disk is on fire" in (raised.last_error or "")
    assert "in act" in (raised.last_error or ""), "the frames are there"


def test_a_cancel_is_seen_within_a_third_of_a_lease(server: Server, client: Client) -> None:
    worker, told = Worker(client, concurrency=2, lease=9), list[tuple[str | None, float]]()

    @worker.handler("sync")
    def sync(payload: Any, ctx: Context) -> None:
        ctx.cancelled.wait(60)
        told.append((ctx.stop_reason, time.monotonic()))
        ctx.check()

    with worker.running():
        job = sync.enqueue({})
        until_status(client, job.id, "running")
        asked = time.monotonic()
        assert client.cancel(job.id) == "pending"
        until_status(client, job.id, "cancelled")
    assert told[0][0] == "cancel"
    # 3 s is a third of the lease; the rest is for a slow machine, and well below a whole lease.
    assert told[0][1] - asked < 6
    assert outcomes(client, job.id) == ["cancelled"]


def test_a_coroutine_is_cancelled(server: Server, client: Client) -> None:
    with program("mixed.py", server.url) as worker:
        until("kinds are declared", lambda: any(k["kind"] == "act_async" for k in client.kinds()))
        job = client.enqueue("act_async", {"do": "hang"})
        worker.until_says("async hang begins")
        client.cancel(job.id)
        until_status(client, job.id, "cancelled")


def test_progress_reaches_operators(server: Server, client: Client) -> None:
    worker = Worker(client, lease=1)

    @worker.handler("k")
    def handler(payload: Any, ctx: Context) -> None:
        ctx.progress(40, "half way")
        ctx.stopping.wait(60)

    with worker.running():
        job = handler.enqueue({})
        until("progress", lambda: client.get(job.id).progress == {"percent": 40, "message": "half way"})


def test_a_worker_that_stood_still_notices_that_its_lease_is_lost(server: Server, client: Client) -> None:
    client.put_kind("act")
    job = client.enqueue(act("hang"))
    with program("mixed.py", server.url, WORKER=settings(lease=1, concurrency=1)) as sleeper:
        sleeper.until_says("hang begins")
        sleeper.signal(signal.SIGSTOP)
        until("the lease is reaped", lambda: client.get(job.id).status == "retrying")
        client.pause_queue("default")
        sleeper.signal(signal.SIGCONT)
        sleeper.until_says("lost")
        # Its only slot is free again: the handler was told and has ended.
        client.cancel(job.id)
        client.resume_queue("default")
        after = client.enqueue(act("fine"))
        assert client.wait(after.id, 60).result == {"did": "fine"}
    assert outcomes(client, job.id) == ["lease_expired"]


def test_leases_are_treated_as_lost_when_no_heartbeat_is_answered(server: Server, client: Client) -> None:
    worker, begun, told = Worker(client, lease=1, concurrency=1), threading.Event(), list[str | None]()

    @worker.handler("k")
    def handler(payload: Any, ctx: Context) -> None:
        begun.set()
        ctx.cancelled.wait(60)
        told.append(ctx.stop_reason)
        ctx.check()

    with worker.running():
        handler.enqueue({})
        # Not "the job is running": the answer that says so to the worker may still be on its way.
        until("the handler has begun", begun.is_set)
        server.kill()
        until("the handler is told, without a server", lambda: told)
        assert told == ["lost"]
        client.close()


@pytest.mark.parametrize("heartbeat", ["thread", "process"])
def test_a_handler_that_is_busy_longer_than_its_lease_keeps_it(server: Server, client: Client, heartbeat: str) -> None:
    """Hashing releases the GIL. A C call that keeps it starves a thread: that needs the process."""
    client.put_kind("act")
    work = ["hash", "deaf"] if heartbeat == "thread" else ["hash", "hold_gil"]
    with program("mixed.py", server.url, WORKER=settings(lease=1, heartbeat=heartbeat)) as worker:
        jobs = [client.enqueue(act(do, s=4)) for do in work]
        for job in jobs:
            assert client.wait(job.id, 60).status == "succeeded"
            assert outcomes(client, job.id) == ["succeeded"], worker.log


def test_a_handler_that_holds_the_gil_loses_its_lease_without_the_process(server: Server, client: Client) -> None:
    """Shows that the test above can fail."""
    client.put_kind("act")
    job = client.enqueue(act("hold_gil", s=4))
    with program("mixed.py", server.url, WORKER=settings(lease=1, concurrency=1)) as worker:
        worker.until_says("holds the GIL")
        until("the lease expires", lambda: "lease_expired" in outcomes(client, job.id))


def test_the_heartbeat_process_ends_with_its_parent_and_is_started_again_when_it_dies(
    server: Server, client: Client
) -> None:
    client.put_kind("act")
    job = client.enqueue(act("sleep", s=4))
    with program("mixed.py", server.url, WORKER=settings(lease=1, heartbeat="process")) as worker:
        until_status(client, job.id, "running")
        child = until("it has a child", lambda: children(worker))[0]
        os.kill(child, signal.SIGKILL)
        worker.until_says("the heartbeat process ended")
        second = until("another child", lambda: [pid for pid in children(worker) if pid != child])[0]
        assert client.wait(job.id, 60).status == "succeeded"
        worker.process.kill()
        until("it ends with its parent", lambda: not exists(second))


def test_a_revoked_token_ends_the_worker_with_what_the_server_says(make_server: MakeServer) -> None:
    server = make_server(STEADFAST_ADMIN_TOKEN="an-admin-token-for-tests")
    admin = server.client()
    admin.put_kind("act")
    token = admin.create_token("w", ["work"])
    job = admin.enqueue(act("hang"))
    with program("mixed.py", server.url, STEADFAST_TOKEN=token["token"]) as worker:
        worker.until_says("hang begins")
        admin.delete_token(token["id"])
        assert worker.ended() == 1
        assert "refused: 401" in worker.log
    until("its lease expires", lambda: outcomes(admin, job.id) == ["lease_expired"])


def test_a_drained_worker_finishes_what_it_has_and_waits_to_be_undrained(server: Server, client: Client) -> None:
    client.put_kind("act")
    with program("mixed.py", server.url, WORKER=settings(name="w-1", concurrency=2)) as worker:
        first = client.enqueue(act("sleep", s=3))
        until_status(client, first.id, "running")
        client.drain_worker("w-1")
        worker.until_says("told to drain")
        second = client.enqueue(act("fine"))
        assert client.wait(first.id, 60).status == "succeeded"
        assert client.get(second.id).status == "queued"
        client.undrain_worker("w-1")
        assert client.wait(second.id, 60).status == "succeeded"


def test_a_worker_can_end_when_it_is_drained(server: Server, client: Client) -> None:
    client.put_kind("act")
    with program("mixed.py", server.url, WORKER=settings(name="w-1", exit_on_drain=True)) as worker:
        until("it is known", lambda: [w for w in client.workers() if w["worker"] == "w-1"])
        client.drain_worker("w-1")
        assert worker.ended() == 0, worker.log
