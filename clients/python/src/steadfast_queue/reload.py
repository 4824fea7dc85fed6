"""Runs a worker as a child process and starts it again when a Python file below the current directory changes.

For development: it looks at file times twice a second, without watching the file system."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

LOOK_S = 0.5
FILES_MAX = 20_000
"""20,000 files: more are some other project's; those beyond are not watched."""
SKIPPED = {".git", ".venv", "venv", "node_modules", "__pycache__", "target", "site-packages"}
STOP_S = 40.0
"""40 s: a grace period of 30 s and the bounded steps after it."""


def run_and_reload(arguments: list[str], directory: Path | None = None) -> int:
    """Until a signal; the exit status of the last child."""
    root = directory or Path.cwd()
    stopped: list[int] = []

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stopped:
            os._exit(1)
        stopped.append(number)

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    while True:
        seen = file_times(root)
        # A session of its own: Ctrl-C comes from here, once.
        child = subprocess.Popen(  # noqa: S603 (this very program)
            [sys.executable, "-m", "steadfast_queue", *arguments], start_new_session=True
        )
        changed = False
        while not stopped and not changed:
            time.sleep(LOOK_S)
            changed = file_times(root) != seen
        status = _stop(child)
        if stopped:
            return status
        print("steadfast_queue: files changed, starting again", file=sys.stderr, flush=True)


def _stop(child: subprocess.Popen[bytes]) -> int:
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
    try:
        return child.wait(STOP_S)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


def file_times(root: Path) -> dict[str, int]:
    """When each Python file was last changed."""
    times: dict[str, int] = {}
    for directory, subdirectories, files in os.walk(root):
        subdirectories[:] = [name for name in subdirectories if name not in SKIPPED]
        for name in files:
            if name.endswith(".py") and len(times) < FILES_MAX:
                path = os.path.join(directory, name)
                try:
                    times[path] = os.stat(path).st_mtime_ns
                except OSError:
                    continue  # deleted meanwhile
    return times
