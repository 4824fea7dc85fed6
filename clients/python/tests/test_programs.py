"""Ways to run a worker: several processes, the command line, reload, the pytest fixture."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from steadfast_queue import Client
from steadfast_queue.testing import Server
from support import Program, exists, outcomes, program, until, until_status

# How a program is run does not depend on the store.
STORES = ["sqlite"]

JOBS = """
from steadfast_queue import Client, Worker

worker = Worker(Client(), grace=5)

@worker.handler("hello")
def hello(payload):
    return "hello from {version}"
"""


def engines(worker: Program) -> set[int]:
    """The processes that have begun to work."""
    return {int(pid) for pid in re.findall(r"^(\d+) worker \S+ runs", worker.log, re.MULTILINE)}


def test_several_processes_work_and_a_dead_one_is_replaced(server: Server, client: Client) -> None:
    with program("forked.py", server.url) as worker:
        pids = until("three engines", lambda: p if len(p := engines(worker)) == 3 else None)
        jobs = [client.enqueue("pid", 0.3) for _ in range(6)]
        assert {client.wait(job.id, 60).result for job in jobs} <= pids
        victim = next(iter(pids))
        os.kill(victim, signal.SIGKILL)
        until("another one", lambda: len(engines(worker) - pids) == 1)
        long = client.enqueue("pid", 1.5)
        until_status(client, long.id, "running")
        # As a terminal does: to all of them.
        os.killpg(worker.process.pid, signal.SIGINT)
        assert worker.ended() == 0, worker.log
        assert "ended in order" in worker.log
        assert "Traceback" not in worker.log
    assert outcomes(client, long.id) == ["succeeded"]


def test_processes_end_when_their_parent_is_killed(server: Server, client: Client) -> None:
    with program("forked.py", server.url) as worker:
        pids = until("three engines", lambda: p if len(p := engines(worker)) == 3 else None)
        job = client.enqueue("pid", 1)
        until_status(client, job.id, "running")
        worker.process.kill()
        until("nobody is left", lambda: not any(exists(pid) for pid in pids))
    assert outcomes(client, job.id) == ["succeeded"], "an orphan finishes what it has"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__init__.py").touch()
    (tmp_path / "app" / "jobs.py").write_text(JOBS.format(version="one"))
    return tmp_path


def command(project: Path, url: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "steadfast_queue", *arguments],
        cwd=project,
        env={**os.environ, "STEADFAST_URL": url, "PYTHONDONTWRITEBYTECODE": "1"},
        stderr=subprocess.PIPE,
    )


def test_the_command_line_runs_a_worker_until_sigterm(server: Server, client: Client, project: Path) -> None:
    running = command(project, server.url, "app.jobs:worker")
    try:
        until("kinds are declared", lambda: any(k["kind"] == "hello" for k in client.kinds()))
        assert client.wait(client.enqueue("hello", {}).id, 60).result == "hello from one"
        running.send_signal(signal.SIGTERM)
        _, log = running.communicate(timeout=60)
        assert (running.returncode, b"Traceback" in log) == (0, False), log
    finally:
        running.kill()
        running.communicate()


def test_reload_starts_the_worker_again_when_a_file_changes(server: Server, client: Client, project: Path) -> None:
    running = command(project, server.url, "app.jobs:worker", "--reload")
    try:
        until("kinds are declared", lambda: any(k["kind"] == "hello" for k in client.kinds()))
        assert client.wait(client.enqueue("hello", {}).id, 60).result == "hello from one"
        (project / "app" / "jobs.py").write_text(JOBS.format(version="two, and longer"))
        until("the new code", lambda: client.wait(client.enqueue("hello", {}).id, 60).result != "hello from one")
        running.send_signal(signal.SIGTERM)
        _, log = running.communicate(timeout=60)
        assert running.returncode == 0, log
    finally:
        running.kill()
        running.communicate()


@pytest.mark.parametrize(
    ("name", "says"),
    [("app.jobs", "is not module:worker"), ("app.nothing:worker", "no module"), ("app.jobs:nobody", "has no nobody"),
     ("app.jobs:hello", "not a Worker")],
)  # fmt: skip
def test_a_worker_that_is_not_there_is_said_in_one_line(project: Path, name: str, says: str) -> None:
    ended = command(project, "http://127.0.0.1:1", name)
    _, log = ended.communicate(timeout=60)
    assert ended.returncode == 1
    assert says in log.decode()
    assert "Traceback" not in log.decode()


def test_the_fixture_for_users_is_a_server(steadfast_server: Server) -> None:
    assert steadfast_server.client().health()


def test_a_server_that_is_not_installed_is_said_with_the_way_out() -> None:
    with pytest.raises(FileNotFoundError, match="STEADFAST_BIN"):
        Server("/nowhere/steadfast")
