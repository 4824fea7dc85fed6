"""Heartbeats in a process of their own, for handlers that hold the GIL longer than a lease (`heartbeat="process"`).

The parent writes leases to the child's standard input and reads from its output what the server answered, one JSON object a
line. The child ends when its input ends: it cannot outlive its parent. It ignores SIGINT and SIGTERM, because heartbeats go on
while the parent shuts down."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from typing import IO, Any

from .context import logger
from .errors import Problem, Unreachable
from .heartbeat import RETRY_S, LeaseWatch, Listener, exchange
from .http import Address, Connection
from .lease import Held, LeaseTable, now


class HeartbeatProcess(LeaseWatch):
    """The parent's side. The watch stays here: only a handler's own process can tell it to stop."""

    def __init__(
        self,
        table: LeaseTable,
        address: Address,
        worker: str,
        lease_s: float,
        listener: Listener,
        *,
        beat_idle: bool,
    ) -> None:
        super().__init__(table)
        if address.ssl_context is not None:
            raise ValueError('heartbeat="process" takes no ssl_context: it cannot be handed to another process')
        self._listener = listener
        self._setup = {
            "address": {"url": address.url, "token": address.token},
            "worker": worker,
            "lease_s": lease_s,
            "beat_idle": beat_idle,
        }
        self._lock = threading.Lock()
        self._sent = 0
        self._added: dict[str, int] = {}
        self._child: subprocess.Popen[bytes] | None = None
        table.on_add = self._on_add
        table.on_remove = self._on_remove

    def start(self) -> None:
        self._spawn()
        super().start()

    def stop(self) -> None:
        super().stop()
        child = self._child
        if child is not None:
            close_quietly(child.stdin)
            try:
                child.wait(2.0)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            close_quietly(child.stdout)

    def _spawn(self) -> None:
        command = [sys.executable, "-c", "from steadfast_queue.heartbeat_process import main; main()"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        child = subprocess.Popen(  # noqa: S603 (this very program)
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self._child = child
        self._send(self._setup)
        self._on_add(self._table.all())
        threading.Thread(target=self._read, args=[child], name="steadfast-heartbeat-answers", daemon=True).start()

    def _send(self, *messages: dict[str, Any]) -> None:
        child = self._child
        if child is None or child.stdin is None:
            return
        lines = "".join(json.dumps(message) + "\n" for message in messages)
        try:
            child.stdin.write(lines.encode())
            child.stdin.flush()
        except (OSError, ValueError):
            pass  # it has ended; the reader notices and starts another

    def _on_add(self, leases: Iterable[Held]) -> None:
        with self._lock:
            for held in leases:
                self._sent += 1
                self._added[held.token] = self._sent
                add = {"add": {"job_id": held.job_id, "lease_token": held.token}, "seq": self._sent}
                self._send(add)
                held.context.on_progress(functools.partial(self._on_progress, held.token))
        self.poke()

    def _on_remove(self, leases: Iterable[Held]) -> None:
        with self._lock:
            for held in leases:
                self._added.pop(held.token, None)
            self._send(*({"remove": held.token} for held in leases))

    def _on_progress(self, token: str, progress: dict[str, Any]) -> None:
        with self._lock:
            if token in self._added:
                self._send({"progress": progress, "token": token})

    def _read(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdout is not None  # noqa: S101 (it is a pipe)
        for line in child.stdout:
            try:
                self._heard(json.loads(line))
            except Exception:  # nothing may end this thread while handlers run
                logger.exception("heartbeat process: unexpected message")
        if not self._stop:
            logger.error("the heartbeat process ended with %s; starting another", child.wait())
            if not self._wake_after(RETRY_S):
                self._spawn()

    def _wake_after(self, seconds: float) -> bool:
        threading.Event().wait(seconds)
        return self._stop

    def _heard(self, message: dict[str, Any]) -> None:
        if log := message.get("log"):
            logger.warning("heartbeat: %s", log)
        if refused := message.get("refused"):
            problem = Problem(refused["status"], refused["code"], refused["detail"])
            for held in self._table.all():
                self._table.lose(held, "the token is refused")
            self._listener.on_refused(problem)
        if "seq" in message:
            # All that the child knew of when it sent this heartbeat, but for those that it names.
            with self._lock:
                known = {token for token, seq in self._added.items() if seq <= message["seq"]}
            self._table.apply({**dict.fromkeys(known, "ok"), **message["changed"]}, message["sent_at"])
            self._listener.on_drain(message["drain"])
            self.poke()


def close_quietly(stream: IO[bytes] | None) -> None:
    try:
        if stream is not None:
            stream.close()
    except OSError:
        pass


class _Child:
    """The child's side."""

    def __init__(self, setup: dict[str, Any]) -> None:
        self._connection = Connection(Address(**setup["address"]))
        self._worker = setup["worker"]
        self._interval = float(setup["lease_s"]) / 3
        self._retry = min(RETRY_S, float(setup["lease_s"]) / 10)
        self._beat_idle = setup["beat_idle"]
        self._lock = threading.Lock()
        self._leases: dict[str, dict[str, Any]] = {}
        self._seq = 0
        self._unsent = b""
        os.set_blocking(1, False)

    def read(self) -> None:
        for line in sys.stdin.buffer:
            message = json.loads(line)
            with self._lock:
                if "add" in message:
                    self._leases[message["add"]["lease_token"]] = message["add"]
                    self._seq = message["seq"]
                elif "remove" in message:
                    self._leases.pop(message["remove"], None)
                elif message["token"] in self._leases:
                    self._leases[message["token"]]["progress"] = message["progress"]
        os._exit(0)  # the parent has ended, or wants this to end

    def beat(self) -> float:
        with self._lock:
            leases = [dict(lease) for lease in self._leases.values()]
            seq = self._seq
        if not leases and not self._beat_idle:
            return self._interval
        sent_at = now()
        try:
            statuses, drain = exchange(self._connection, self._worker, leases, max(0.1, self._interval))
        except Unreachable as error:
            self._tell({"log": f"{error}; trying again"})
            return self._retry
        except Problem as problem:
            said: dict[str, Any] = {"log": str(problem)}
            if problem.is_access:
                said["refused"] = {"status": problem.status, "code": problem.code, "detail": problem.detail}
            self._tell(said)
            return self._retry
        with self._lock:
            for lease in leases:
                kept = self._leases.get(lease["lease_token"])
                if kept is not None and kept.get("progress") == lease.get("progress"):
                    kept.pop("progress", None)
        changed = {token: status for token, status in statuses.items() if status != "ok"}
        self._tell({"seq": seq, "sent_at": sent_at, "drain": drain, "changed": changed})
        return self._interval

    def _tell(self, message: dict[str, Any]) -> None:
        """Never blocks: a parent that does not read must not keep this from sending heartbeats. What it misses is said again."""
        if not self._unsent:
            self._unsent = json.dumps(message).encode() + b"\n"
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(1, self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            os._exit(0)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = _Child(json.loads(sys.stdin.buffer.readline()))
    threading.Thread(target=child.read, daemon=True).start()
    pause = threading.Event()
    while True:
        pause.wait(child.beat())
