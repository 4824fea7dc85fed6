"""The engine against a scripted server: what it asks for, what it reports, and that it never reports twice at the same time."""

from __future__ import annotations

import threading
import time
from typing import Any

from steadfast_queue import Client, Context, Worker
from support import Reply, Scripted, job_json, problem, until


class Protocol:
    """The three calls of a server that hands out jobs, with places to step in."""

    def __init__(self, *payloads: Any, timeout_ms: int | None = None) -> None:
        self.lock = threading.Lock()
        self.left = [
            {"lease_token": f"t{n}", "lease_ms": 1000, "attempt": 1,
             "job": job_json(id=f"j{n}", payload=payload, status="running", timeout_ms=timeout_ms)}
            for n, payload in enumerate(payloads)
        ]  # fmt: skip
        self.asked: list[int] = []
        self.settled: list[dict[str, Any]] = []
        self.beaten: list[list[str]] = []
        self.settling = 0
        self.overlapped = False
        self.refuse: set[str] = set()
        self.beat_reply: Reply = None
        self.settle_replies: list[Reply] = []
        self.settle_delay = 0.0
        self.stop = threading.Event()

    def __call__(self, method: str, path: str, body: Any) -> Reply:
        if path == "/leases":
            return self.lease(body)
        if path == "/leases/heartbeat":
            self.beaten.append([beat["lease_token"] for beat in body["leases"]])
            said = [{"job_id": beat["job_id"], "status": "ok"} for beat in body["leases"]]
            return self.beat_reply or (200, {"worker": "run", "leases": said})
        return self.settle(body)

    def lease(self, body: Any) -> Reply:
        with self.lock:
            self.asked.append(body["max"])
            given, self.left = self.left[: body["max"]], self.left[body["max"] :]
        if not given:
            self.stop.wait(0.1)
        return 200, {"leases": given}

    def settle(self, body: Any) -> Reply:
        with self.lock:
            self.settling += 1
            self.overlapped = self.overlapped or self.settling > 1
            if self.settle_replies:
                self.settling -= 1
                return self.settle_replies.pop(0)
        time.sleep(self.settle_delay)  # stands for a slow server, waits for nothing
        with self.lock:
            self.settling -= 1
            if any(outcome.get("result") in self.refuse for outcome in body["outcomes"]):
                return 422, problem(422, "invalid", "this result is not taken")
            self.settled += body["outcomes"]
        return 200, {"outcomes": [{"job_id": o["job_id"], "status": "recorded"} for o in body["outcomes"]]}

    def outcome(self, job_id: str) -> str | None:
        with self.lock:
            return next((o["outcome"] for o in self.settled if o["job_id"] == job_id), None)


def make_worker(server: Scripted, **settings: Any) -> Worker:
    return Worker(Client(server.url), declare=False, lease=1, poll=1, **settings)


def test_it_asks_for_exactly_as_many_jobs_as_it_has_free_slots() -> None:
    protocol, gate = Protocol(*range(5)), threading.Event()
    with Scripted(protocol) as server:
        worker = make_worker(server, concurrency=3)
        worker.handler("k")(lambda payload: gate.wait(60) and None)
        with worker.running():
            until("three run", lambda: len(protocol.left) == 2)
            asked = list(protocol.asked)
            gate.set()
            until("all are settled", lambda: len(protocol.settled) == 5)
    assert asked == [3], "while all slots are busy it does not ask"
    assert all(1 <= more <= 3 for more in protocol.asked)


def test_prefetched_jobs_that_have_not_begun_are_given_back_at_once() -> None:
    protocol, begun = Protocol(*range(4)), threading.Event()
    with Scripted(protocol) as server:
        worker = make_worker(server, concurrency=1, prefetch=3)

        @worker.handler("k")
        def handler(payload: Any, ctx: Context) -> None:
            begun.set()
            ctx.stopping.wait(60)
            until("the others are released before this one ends", lambda: len(protocol.settled) == 3)

        with worker.running():
            assert begun.wait(60)
    assert protocol.asked[0] == 4
    assert [protocol.outcome(f"j{n}") for n in range(4)] == ["succeeded", "released", "released", "released"]


def test_settles_are_one_at_a_time_and_what_ended_meanwhile_is_one_batch() -> None:
    protocol = Protocol(*range(60))
    protocol.settle_delay = 0.1
    with Scripted(protocol) as server:
        worker = make_worker(server, concurrency=20)
        worker.handler("k")(lambda payload: payload)
        with worker.running():
            until("all are settled", lambda: len(protocol.settled) == 60)
        calls = [body for _, path, body in server.requests if path == "/leases/settle"]
    assert not protocol.overlapped
    assert len(calls) < 30, "they are batched"
    assert sorted(o["result"] for o in protocol.settled) == list(range(60))


def test_a_settle_without_answer_is_sent_again_and_kept_alive_meanwhile() -> None:
    protocol = Protocol("x")
    protocol.settle_replies = [None, (503, problem(503, "store_unavailable")), (500, problem(500, "internal"))]
    with Scripted(protocol) as server:
        worker = make_worker(server)
        worker.handler("k")(lambda payload: payload)
        with worker.running():
            until("it is settled", lambda: protocol.outcome("j0") == "succeeded")
    assert sum(path == "/leases/settle" for _, path, _ in server.requests) == 4
    assert ["t0"] in protocol.beaten


def test_one_outcome_that_the_server_refuses_does_not_keep_the_others_back() -> None:
    protocol = Protocol("good", "bad", "fine")
    protocol.refuse = {"bad"}
    protocol.settle_delay = 0.05
    with Scripted(protocol) as server:
        worker = make_worker(server, concurrency=3)
        worker.handler("k")(lambda payload: payload)
        with worker.running():
            until("all are settled", lambda: len(protocol.settled) == 3)
    assert [protocol.outcome(f"j{n}") for n in range(3)] == ["succeeded", "failed", "succeeded"]
    failure = next(o for o in protocol.settled if o["outcome"] == "failed")
    assert failure["permanent"]
    assert "this result is not taken" in failure["error"]


def test_heartbeats_go_on_until_the_last_job_has_ended_also_while_it_shuts_down() -> None:
    protocol, begun = Protocol("x"), threading.Event()
    with Scripted(protocol) as server:
        worker = make_worker(server)

        @worker.handler("k")
        def handler(payload: Any, ctx: Context) -> None:
            begun.set()
            ctx.stopping.wait(60)
            already = len(protocol.beaten)
            # Longer than the lease of one second: without heartbeats it would be lost.
            until("heartbeats of a worker that stops", lambda: len(protocol.beaten) >= already + 5)
            ctx.check()

        with worker.running():
            assert begun.wait(60)
    assert protocol.outcome("j0") == "succeeded"


def test_a_heartbeat_that_says_lost_stops_the_handler_and_drops_its_outcome() -> None:
    protocol, told = Protocol("x"), list[str | None]()
    protocol.beat_reply = (200, {"worker": "run", "leases": [{"job_id": "j0", "status": "lost"}]})
    with Scripted(protocol) as server:
        worker = make_worker(server)

        @worker.handler("k")
        def handler(payload: Any, ctx: Context) -> None:
            ctx.cancelled.wait(60)
            told.append(ctx.stop_reason)

        with worker.running():
            until("it is told", lambda: told)
    assert told == ["lost"]
    assert protocol.settled == []


def test_drain_reaches_the_context_and_stops_leasing() -> None:
    protocol, seen = Protocol("x"), threading.Event()
    protocol.beat_reply = (200, {"worker": "drain", "leases": [{"job_id": "j0", "status": "ok"}]})
    with Scripted(protocol) as server:
        worker = make_worker(server)

        @worker.handler("k")
        def handler(payload: Any, ctx: Context) -> None:
            until("the context says so", lambda: ctx.draining)
            seen.set()

        with worker.running():
            assert seen.wait(60)
            until("it is settled", lambda: protocol.outcome("j0") == "succeeded")


def test_a_timeout_stops_the_handler_and_is_its_failure() -> None:
    protocol = Protocol("x", timeout_ms=300)
    with Scripted(protocol) as server:
        worker = make_worker(server)
        worker.handler("k")(lambda payload, ctx: ctx.sleep(60))
        with worker.running():
            until("it has failed", lambda: protocol.outcome("j0") == "failed")
    assert protocol.settled[0]["error"] == "timed out after 0.3 s"


def test_a_server_that_hangs_does_not_stop_the_shutdown() -> None:
    """Heartbeats and settles are never answered; every step of the shutdown has its own end."""
    hang = threading.Event()
    protocol = Protocol("x")

    def answer(method: str, path: str, body: Any) -> Reply:
        if path != "/leases":
            hang.wait(60)
            return None
        return protocol(method, path, body)

    with Scripted(answer) as server:
        worker = make_worker(server, grace=0.2)
        begun = threading.Event()

        @worker.handler("k")
        def handler(payload: Any, ctx: Context) -> None:
            begun.set()
            ctx.sleep(60)

        running = worker.running().start()
        assert begun.wait(60)
        began = time.monotonic()
        running.stop()
        took = time.monotonic() - began
        hang.set()
    # 0.2 s of grace, 2.5 s for the poll, 1 s to listen, 5 s to flush, 1.5 s for threads, and a slow machine.
    assert took < 30


def test_a_worker_that_is_refused_stops_and_says_why() -> None:
    with Scripted(lambda m, p, b: (403, problem(403, "forbidden", "the scope work is missing"))) as server:
        worker = make_worker(server)
        worker.handler("k")(lambda payload: None)
        with worker.running() as running:
            refused = until("it is refused", lambda: running.worker.problem)
    assert refused.detail == "the scope work is missing"
    assert sum(path == "/leases" for _, path, _ in server.requests) == 1
