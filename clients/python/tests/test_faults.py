"""Workers that are killed, stopped and interrupted, and a server that goes away under them."""

from __future__ import annotations

import json
import random
import signal
import time
from functools import partial
from typing import Any

from steadfast_queue import Client, NewJob
from steadfast_queue.testing import Server
from support import Program, outcomes, program, totals, until, until_status

SEED = 7


def act(do: str, **more: Any) -> NewJob:
    return NewJob("act", {"do": do, **more}, {"max_attempts": 100})


def settings(**values: Any) -> str:
    return json.dumps(values)


def is_begun(client: Client, enqueued: int) -> bool:
    now = totals(client)
    return now["running"] > 0 or now["succeeded"] == enqueued


def has_more_than(client: Client, succeeded: int) -> bool:
    return totals(client)["succeeded"] > succeeded


def test_workers_killed_at_random_finish_every_job_once(server: Server, client: Client) -> None:
    client.put_kind("act")
    dice = random.Random(SEED)

    def start() -> Program:
        return Program("mixed.py", server.url, WORKER=settings(lease=1, concurrency=10))

    workers = [start(), start()]
    enqueued, kills = 0, 0
    try:
        while enqueued < 400:
            client.enqueue_many(act("sleep", s=0.06) for _ in range(40))
            enqueued += 40
            until("somebody is at work, or done", partial(is_begun, client, enqueued))
            # In the middle of it, whenever that is.
            time.sleep(dice.uniform(0.02, 0.3))
            victim = dice.randrange(2)
            assert workers[victim].process.poll() is None, workers[victim].log
            workers[victim].kill()
            kills += 1
            workers[victim] = start()
        until("all are done", lambda: totals(client)["succeeded"] == enqueued, 120)
    finally:
        for worker in workers:
            worker.kill()
    lost = 0
    for job in client.jobs(page_size=200):
        *others, last = outcomes(client, job.id)
        # Released: the worker died while its claim was under way, and the server gave the job back by itself.
        assert last == "succeeded", job.raw
        assert set(others) <= {"lease_expired", "released"}, others
        lost += len(others)
    assert lost > 0, "the workers were not killed at work"
    print(f"{enqueued} jobs succeeded once each; {kills} kills cost {lost} attempts")


def until_none_runs(client: Client) -> None:
    """The server gives back what it claimed for a worker that hung up, a moment later."""
    until("nothing runs", lambda: totals(client)["running"] == 0)


def test_sigterm_in_the_middle_of_work_loses_nothing_and_costs_no_attempt(server: Server, client: Client) -> None:
    client.put_kind("act")
    brief = client.enqueue(act("finish_when_stopping", s=0.5))
    long, deaf = client.enqueue(act("hang")), client.enqueue(act("deaf", s=3600))
    more = client.enqueue_many(act("sleep", s=0.05) for _ in range(200))
    with program("mixed.py", server.url, WORKER=settings(grace=3, lease=600, concurrency=6, prefetch=4)) as worker:
        for text in ("waits for the stop", "hang begins", "deaf begins"):
            worker.until_says(text)
        until("some are done", lambda: totals(client)["succeeded"] > 10)
        asked = time.monotonic()
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0, worker.log
        took = time.monotonic() - asked
        assert "ended in order" in worker.log
    # Grace, a second to listen, the flush, and a slow machine.
    assert took < 3 + 1 + 5 + 15
    assert outcomes(client, brief.id) == ["succeeded"]
    assert outcomes(client, long.id) == ["released"]
    assert outcomes(client, deaf.id) == ["released"]
    until_none_runs(client)
    for job in [client.get(job.id) for job in (long, deaf, *more)]:
        assert (job.status, job.attempts) in (("queued", 0), ("succeeded", 1)), job.raw
    # What was given back is done by the next worker, at its first attempt.
    client.cancel(deaf.id)
    client.cancel(long.id)
    with program("mixed.py", server.url, WORKER=settings(concurrency=20)):
        until("all are done", lambda: totals(client)["succeeded"] == 201)
    assert all(client.get(job.id).attempts == 1 for job in more)


def test_an_idle_worker_ends_at_once(server: Server, client: Client) -> None:
    with program("mixed.py", server.url, WORKER=settings(grace=300)) as worker:
        until("it polls", lambda: list(client.workers()))
        worker.signal(signal.SIGINT)
        assert worker.ended(20) == 0, worker.log
        assert "Traceback" not in worker.log


def test_the_second_signal_ends_the_process_at_once(server: Server, client: Client) -> None:
    client.put_kind("act")
    client.enqueue(act("deaf", s=3600))
    with program("mixed.py", server.url, WORKER=settings(grace=300)) as worker:
        worker.until_says("deaf begins")
        worker.signal(signal.SIGINT)
        worker.until_says("stopping")
        worker.signal(signal.SIGINT)
        assert worker.ended(20) == 1
        assert "Traceback" not in worker.log


def test_a_server_that_is_killed_and_comes_back_loses_nothing(server: Server, client: Client) -> None:
    client.put_kind("act")
    client.enqueue_many(act("sleep", s=0.1) for _ in range(300))
    with program("mixed.py", server.url, WORKER=settings(lease=5, concurrency=10)) as worker:
        for _ in range(3):
            done = totals(client)["succeeded"]
            until("some are done", partial(has_more_than, client, done + 10))
            server.kill()
            worker.until_says("trying again")
            server.start()
        until("all are done", lambda: totals(client)["succeeded"] == 300, 120)
        assert worker.process.poll() is None
    for job in client.jobs(page_size=200):
        *others, last = outcomes(client, job.id)
        assert last == "succeeded"
        assert set(others) <= {"lease_expired", "released"}, others


def test_a_worker_waits_for_a_server_that_is_not_there_yet(server: Server, client: Client) -> None:
    client.put_kind("act")
    job = client.enqueue(act("fine"))
    server.stop()
    with program("mixed.py", server.url, WORKER=settings(declare=False)) as worker:
        worker.until_says("cannot connect")
        server.start()
        assert client.wait(job.id, 60).status == "succeeded"


def test_jobs_that_come_in_while_a_worker_stops_are_not_taken_along(server: Server, client: Client) -> None:
    """Each runs once or is given back at once, far sooner than its lease of ten minutes expires."""
    client.put_kind("act")
    for _ in range(5):
        with program("mixed.py", server.url, WORKER=settings(lease=600, concurrency=3)) as worker:
            worker.until_says("worker ")
            jobs = client.enqueue_many(act("fine") for _ in range(3))
            worker.signal(signal.SIGTERM)
            assert worker.ended() == 0, worker.log
        until_none_runs(client)
        assert all(outcomes(client, job.id) in ([], ["released"], ["succeeded"]) for job in jobs)


def test_jobs_that_the_server_gives_back_are_not_left_to_time_out(server: Server, client: Client) -> None:
    client.put_kind("act")
    job = client.enqueue(act("hang"))
    with program("mixed.py", server.url, WORKER=settings(grace=0, lease=3600)) as worker:
        worker.until_says("hang begins")
        worker.signal(signal.SIGTERM)
        assert worker.ended(30) == 0, worker.log
    until_status(client, job.id, "queued")
