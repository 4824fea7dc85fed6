"""SIGTERM and SIGINT as something that the main thread waits for.

A signal handler runs in the middle of whatever the main thread does, so it takes no locks; what wakes the main thread is the byte
that the interpreter writes into a socket (`set_wakeup_fd`), also for a signal that comes just before the wait begins. The second
signal ends the process."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
from types import FrameType
from typing import Any

STOP, NOW = b"s", b"n"
WOKEN = 0
"""What `wake` writes; the interpreter writes the numbers of signals, also of those that are not ours."""


class StopSignals:
    """Installs handlers while it is entered. The first signal ends `wait`, the second ends the process with status 1."""

    def __init__(self, *, control: socket.socket | None = None) -> None:
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._control = control
        """Of a child: where the parent says stop or now. Then signals only say stop, however many there are."""
        self._seen = 0
        self._wakeup_before = -1
        self._before: list[tuple[signal.Signals, Any]] = []

    def __enter__(self) -> StopSignals:
        self._before = [(number, signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGINT)]
        signal.signal(signal.SIGTERM, self._on_signal)
        # Ctrl-C goes to all processes of a terminal: a child is told by its parent.
        signal.signal(signal.SIGINT, signal.SIG_IGN if self._control is not None else self._on_signal)
        self._wakeup_before = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        if self._control is not None:
            threading.Thread(target=self._listen, name="steadfast-parent", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._before:
            signal.signal(number, handler)
        self._reader.close()
        self._writer.close()

    def wait(self) -> None:
        """Until the first signal, or `wake`."""
        while True:
            select.select([self._reader], [], [])
            if set(self._reader.recv(64)) & {WOKEN, signal.SIGTERM, signal.SIGINT}:
                return

    def wake(self) -> None:
        try:
            self._writer.send(bytes([WOKEN]))
        except OSError:
            pass  # full, which wakes as well; or closed, then nobody waits

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._seen += 1
        if self._seen > 1 and self._control is None:
            os._exit(1)  # leases run out

    def _listen(self) -> None:
        assert self._control is not None  # noqa: S101 (started only then)
        while True:
            try:
                said = self._control.recv(1)
            except OSError:
                said = b""
            if said == NOW:
                os._exit(1)
            self.wake()
            if not said:  # the parent has ended
                return
