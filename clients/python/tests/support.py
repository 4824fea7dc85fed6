"""Conditions with a deadline, worker programs as processes, and a server that says what a test tells it to."""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

from steadfast_queue import Client

T = TypeVar("T")
DEADLINE = 60.0
"""60 s: machines are slow; a condition that is not met by then never will be."""
PROGRAMS = Path(__file__).parent / "programs"


def until(what: str, look: Callable[[], T | None], deadline: float = DEADLINE) -> T:
    """Waits for a condition; fails with `what` if it is not met in time."""
    give_up = time.monotonic() + deadline
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < give_up, f"waited in vain: {what}"
        time.sleep(0.01)


def until_status(client: Client, job_id: str, status: str) -> None:
    until(f"{job_id} is {status}, not {client.get(job_id).status}", lambda: client.get(job_id).status == status)


def outcomes(client: Client, job_id: str) -> list[str]:
    return [attempt["outcome"] or "running" for attempt in client.attempts(job_id)]


def totals(client: Client) -> dict[str, int]:
    return cast("dict[str, int]", client.stats()["totals"])


class Program:
    """A worker program from tests/programs, with its output."""

    def __init__(self, name: str, url: str, **variables: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAMS / name)],
            env={**os.environ, "STEADFAST_URL": url, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.append(line.decode("utf-8", "replace"))

    @property
    def log(self) -> str:
        return "".join(self._lines)

    def until_says(self, text: str) -> None:
        until(f"{text!r} in the log:\n{self.log}", lambda: text in self.log)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self, timeout: float = DEADLINE) -> int:
        code = self.process.wait(timeout)
        self._reader.join(5)
        return code

    def kill(self) -> None:
        """SIGKILL to the program and to all that it started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self._reader.join(5)
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def program(name: str, url: str, **variables: str) -> Generator[Program]:
    started = Program(name, url, **variables)
    try:
        yield started
    finally:
        started.kill()


def children(worker: Program) -> list[int]:
    path = f"/proc/{worker.process.pid}/task"
    found: list[int] = []
    for task in os.listdir(path):
        with open(f"{path}/{task}/children") as file:
            found += [int(pid) for pid in file.read().split()]
    return found


def exists(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


Reply = tuple[int, Any] | tuple[int, Any, dict[str, str]] | None
"""Status, JSON and headers; None: the connection is closed without an answer."""


class Scripted:
    """An HTTP server whose answers a test chooses: `answer(method, path, body)`. Records all requests."""

    def __init__(self, answer: Callable[[str, str, Any], Reply]) -> None:
        self.requests: list[tuple[str, str, Any]] = []
        self.headers: list[dict[str, str]] = []
        scripted = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                raw = self.rfile.read(int(self.headers.get("content-length") or 0))
                body = json.loads(raw) if raw else None
                scripted.headers.append({k.lower(): v for k, v in self.headers.items()})
                scripted.requests.append((self.command, self.path, body))
                reply = answer(self.command, self.path, body)
                if reply is None:
                    self.close_connection = True
                    return
                content = b"" if reply[1] is None else json.dumps(reply[1]).encode()
                self.send_response(reply[0])
                for name, value in (reply[2] if len(reply) > 2 else {}).items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = handle_any  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.02], daemon=True)
        self._thread.start()

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def problem(status: int, code: str, detail: str = "because") -> dict[str, Any]:
    return {"type": f"urn:x:{code}", "title": code, "status": status, "code": code, "detail": detail, "request_id": "r"}


def job_json(**fields: Any) -> dict[str, Any]:
    """A job as the server shows it."""
    names = (
        "cost error_group finished_at group_key idempotency_key last_error lease_expires_at locked_at locked_by payload "
        "progress result start_by started_at timeout_ms unique"
    )
    at = "2030-01-01T00:00:00.5Z"
    times = {"created_at": at, "updated_at": at, "run_at": at}
    known = {"id": "j1", "kind": "k", "queue": "default", "status": "queued", "priority": 0, "attempts": 0}
    return {**dict.fromkeys(names.split()), **times, **known, "max_attempts": 3, "cancel_requested": False, **fields}
