"""Tests of handlers without a server (`Harness`), and a real server for tests (`Server`, the fixture `steadfast_server`).

The harness runs a handler as the engine does, through its middleware and with its payload as JSON, and says how the attempt
ended. It never sleeps, retries or enqueues. The server is the real program with a store of its own; nothing is simulated."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import wire
from .client import Client
from .context import Context, Signal
from .errors import StopReason
from .execute import run_async, run_sync
from .handler import Handler
from .http import encode
from .job import Job
from .payload import to_json
from .worker import Worker

START_S = 60.0
"""60 s for a server to start: machines are slow."""


@dataclass(frozen=True)
class Attempt:
    """How an attempt ended in the harness."""

    outcome: wire.Outcome
    result: Any = None
    error: str | None = None
    permanent: bool = False
    retry_after: float | None = None
    """Seconds, of a failure with `Retry(after=…)`."""
    delay: float | None = None
    """Seconds, of a snooze."""
    progress: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """All that was reported, in order."""


class Harness:
    """Runs handlers of a worker, one attempt at a time.

    `stop` lets the handler find itself told to stop: `cancel`, `lost`, `timeout` or `shutdown`."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def run(
        self,
        handler: Handler[Any, Any] | str,
        payload: Any,
        *,
        attempt: int = 1,
        max_attempts: int = 3,
        stop: StopReason | None = None,
        stopping: bool = False,
        job: Mapping[str, Any] | None = None,
    ) -> Attempt:
        """One attempt with this payload. `job` overrides other fields of the job."""
        chosen = self._worker.handlers[handler] if isinstance(handler, str) else handler
        # Over the wire and back, as between a producer and a worker.
        fields = {
            **_job(chosen.kind, json.loads(encode(to_json(payload)))),
            "max_attempts": max_attempts,
            **(job or {}),
        }
        begun = Signal()
        if stopping:
            begun.set()
        context = Context(Job(fields), attempt, worker="harness", stopping=begun)
        progress: list[dict[str, Any]] = []
        context.on_progress(progress.append)
        if stop is not None:
            context.tell(stop)
        middleware = self._worker.middlewares
        if chosen.is_async:
            ended = asyncio.run(run_async(chosen, context, middleware, frames=False))
        else:
            ended = run_sync(chosen, context, middleware, frames=False)
        return Attempt(
            outcome=ended.outcome,
            result=None if ended.result is None else json.loads(ended.result),
            error=ended.error,
            permanent=ended.permanent,
            retry_after=None if ended.retry_after_ms is None else ended.retry_after_ms / 1000,
            delay=None if ended.delay_ms is None else ended.delay_ms / 1000,
            progress=progress,
        )


def _job(kind: str, payload: Any) -> dict[str, Any]:
    now = "2030-01-01T00:00:00Z"
    nothing = (
        "cost", "error_group", "finished_at", "group_key", "idempotency_key", "last_error", "notify", "progress",
        "result", "start_by", "timeout_ms", "trace", "unique",
    )  # fmt: skip
    return {
        **dict.fromkeys(nothing),
        "id": str(uuid.uuid4()),
        "kind": kind,
        "queue": "default",
        "payload": payload,
        "status": "running",
        "priority": 0,
        "attempts": 1,
        "max_attempts": 3,
        "cancel_requested": False,
        "locked_by": "harness",
        **dict.fromkeys(("created_at", "updated_at", "run_at", "started_at", "locked_at", "lease_expires_at"), now),
    }


class Server:
    """A real server in a temporary directory, on a port of the loopback: `with Server() as server: …`.

    `binary` defaults to STEADFAST_BIN, then to `steadfast` on the PATH. `environment` is for settings of the server."""

    def __init__(self, binary: str | None = None, environment: Mapping[str, str] | None = None) -> None:
        found = binary or os.environ.get("STEADFAST_BIN") or shutil.which("steadfast")
        if not found or not os.access(found, os.X_OK):
            raise FileNotFoundError(
                f"no server program ({found or 'none is on the PATH'}): set STEADFAST_BIN to the path of `steadfast`"
            )
        self.binary = str(Path(found).resolve())
        self._directory = tempfile.TemporaryDirectory(prefix="steadfast-")
        self.directory = Path(self._directory.name)
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        inherited = {
            k: v for k, v in os.environ.items() if not k.startswith(("STEADFAST_", "DATABASE_", "API_", "WORKER_"))
        }
        self.environment = {
            **inherited,
            "API_BIND_ADDR": f"127.0.0.1:{self.port}",
            "DATABASE_URL": f"sqlite://{self.directory / 'jobs.db'}",
            # Jobs are for the workers of the test.
            "STEADFAST_EXECUTOR": "none",
            "STEADFAST_REAP_INTERVAL_MS": "200",
            **(environment or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def token(self) -> str | None:
        return self.environment.get("STEADFAST_ADMIN_TOKEN")

    def client(self, token: str | None = None, **options: Any) -> Client:
        return Client(self.url, token or self.token, **options)

    def start(self) -> Server:
        log = (self.directory / "server.log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [self.binary, "serve"], cwd=self.directory, env=self.environment, stdout=log, stderr=log
            )
        give_up = time.monotonic() + START_S
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > give_up:
                self.kill()
                raise RuntimeError(f"the server did not start:\n{self.log()}")
            time.sleep(0.02)
        return self

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as answer:  # noqa: S310 (the loopback)
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    def log(self) -> str:
        path = self.directory / "server.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def kill(self) -> None:
        """SIGKILL: it cannot clean up. What it accepted is there after the next `start`."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, and waits for its end; the store stays until `close`."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def close(self) -> None:
        self.kill()
        self._directory.cleanup()

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
