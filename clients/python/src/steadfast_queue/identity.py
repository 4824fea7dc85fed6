"""Who this worker is: a name that no other process has, and what operators see of it."""

from __future__ import annotations

import os
import re
import secrets
import socket

from .wire import WorkerInfo

VERSION = "0.1.0"
NAME = re.compile(r"[a-z0-9_.:-]{1,64}")


def worker_name() -> str:
    """`<host>-<pid>-<8 hex>`, in the alphabet of names."""
    host = re.sub(r"[^a-z0-9_.:-]", "-", socket.gethostname().lower())
    suffix = f"-{os.getpid()}-{secrets.token_hex(4)}"
    return (host or "host")[: 64 - len(suffix)] + suffix


def check_name(what: str, name: str) -> str:
    """Names of kinds, queues and workers."""
    if not NAME.fullmatch(name):
        raise ValueError(f"{what} {name!r} is not a name: 1 to 64 of a-z 0-9 _ . : -")
    return name


def worker_info(concurrency: int) -> WorkerInfo:
    return {
        "host": socket.gethostname()[:64],
        "pid": os.getpid(),
        "language": "python",
        "version": VERSION,
        "concurrency": concurrency,
    }
