"""Several engines in forked processes under a small parent, for handlers that keep the interpreter busy (`processes=4`).

The parent runs no handlers and starts no threads: it forks, hands signals on, and starts a dead child again with backoff. A
child whose parent dies shuts down by itself: its control socket ends."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from types import FrameType

from .context import logger
from .http import backoff
from .signals import NOW, STOP, StopSignals

STEADY_S = 30.0
"""30 s: a child that lived so long did not die of its start; the next one starts at once."""
LOOK_S = 0.2
EXIT_REFUSED = 3
"""The child was refused by the server: another one would be as well."""


class _Child:
    def __init__(self, pid: int, control: socket.socket) -> None:
        self.pid, self.control = pid, control
        self.started_at = time.monotonic()

    def say(self, word: bytes) -> None:
        try:
            self.control.send(word)
        except OSError:
            pass  # it has ended


class _Parent:
    def __init__(self, count: int, run: Callable[[StopSignals], None]) -> None:
        if not hasattr(os, "fork"):
            raise RuntimeError("processes needs fork: start several programs instead")
        self._run = run
        self._count = count
        self._children: dict[int, _Child] = {}
        self._signals = 0
        self._failures = 0
        self._refused = False
        self._start_at = 0.0
        self._wake, self._waker = socket.socketpair()
        self._waker.setblocking(False)

    def supervise(self, grace_s: float) -> int:
        before = [(n, signal.signal(n, self._on_signal)) for n in (signal.SIGTERM, signal.SIGINT)]
        try:
            while not self._signals and not self._refused:
                self._start_missing()
                self._reap()
                select.select([self._wake], [], [], LOOK_S)
            return self._stop(grace_s)
        finally:
            for number, handler in before:
                signal.signal(number, handler)
            self._wake.close()
            self._waker.close()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        if self._signals > 1:
            for child in list(self._children.values()):
                child.say(NOW)
            os._exit(1)
        try:
            self._waker.send(b".")
        except OSError:
            pass

    def _start_missing(self) -> None:
        while len(self._children) < self._count and time.monotonic() >= self._start_at:
            self._fork()

    def _fork(self) -> None:
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            theirs.close()
            self._children[pid] = _Child(pid, ours)
            return
        status = 1
        try:
            # The ends that tell brothers that the parent lives must not live on here.
            ours.close()
            for child in self._children.values():
                child.control.close()
            with StopSignals(control=theirs) as stop:
                self._run(stop)
            status = 0
        except BaseException as error:
            refused = type(error).__name__ == "Problem"
            status = EXIT_REFUSED if refused else 1
            if not refused:
                traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def _reap(self) -> None:
        for pid in list(self._children):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended:
                continue
            child = self._children.pop(pid)
            child.control.close()
            code = os.waitstatus_to_exitcode(status)
            if code == EXIT_REFUSED:
                self._refused = True
            elif not self._signals:
                steady = time.monotonic() - child.started_at > STEADY_S
                self._failures = 0 if steady else self._failures + 1
                wait = 0.0 if steady else backoff(self._failures)
                self._start_at = time.monotonic() + wait
                logger.error("worker process %d ended with %d; starting another in %.1f s", pid, code, wait)

    def _stop(self, grace_s: float) -> int:
        for child in self._children.values():
            child.say(STOP)
        # Beyond what each child needs for its own bounded steps.
        give_up = time.monotonic() + grace_s + 15.0
        while self._children and time.monotonic() < give_up:
            self._reap()
            select.select([], [], [], 0.05)
        for pid in self._children:
            logger.error("worker process %d does not end; killing it", pid)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        return 1 if self._refused or self._children else 0


def run_processes(count: int, run: Callable[[StopSignals], None], grace_s: float) -> None:
    """Until a signal. Ends the program with status 1 if the server refuses the workers or one does not end."""
    status = _Parent(count, run).supervise(grace_s)
    if status:
        sys.exit(status)
