"""A worker whose jobs do what their payload says. Settings come from the environment."""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import json
import logging
import os
import sys
import time
from typing import Any

from steadfast_queue import Client, Context, Permanent, Problem, Retry, Snooze, Worker

logging.basicConfig(level="INFO", stream=sys.stderr, format="%(message)s")
DEFAULTS: dict[str, Any] = {"concurrency": 8, "lease": 1, "grace": 20}
SETTINGS: dict[str, Any] = DEFAULTS | json.loads(os.environ.get("WORKER", "{}"))
worker = Worker(Client(), **SETTINGS)


@worker.handler("act")
def act(payload: dict[str, Any], ctx: Context) -> Any:
    what = payload["do"]
    if what == "fail_once" and ctx.attempt == 1:
        raise Retry(after=0.05)
    if what == "raise_once" and ctx.attempt == 1:
        raise OSError("the disk is on fire")
    if what == "permanent":
        raise Permanent("no use")
    if what == "snooze" and ctx.job.last_error is None and payload.get("until", 0) > time.time():
        return Snooze(0.05)
    if what == "large":
        return "x" * 300 * 1024
    if what == "surrogate":
        return "\ud800"
    if what == "sleep":
        ctx.sleep(payload["s"])
    if what == "deaf":
        print("deaf begins", flush=True)
        time.sleep(payload["s"])
    if what == "hang":
        print("hang begins", flush=True)
        ctx.sleep(3600)
    if what == "finish_when_stopping":
        print("waits for the stop", flush=True)
        ctx.stopping.wait(60)
        ctx.sleep(payload["s"])
    if what == "hold_gil":
        hold_gil(payload["s"])
    if what == "hash":
        hash_for(payload["s"])
    return {"did": what}


@worker.handler("act_async")
async def act_async(payload: dict[str, Any], ctx: Context) -> Any:
    if payload["do"] == "hang":
        print("async hang begins", flush=True)
        await asyncio.sleep(3600)
    await asyncio.sleep(payload.get("s", 0))
    return {"did": payload["do"]}


def hold_gil(seconds: float) -> None:
    """Calls a C function that does not release the interpreter's lock: no other thread of this process runs meanwhile."""
    print("holds the GIL", flush=True)
    ctypes.PyDLL(None).usleep(ctypes.c_uint(int(seconds * 1e6)))


def hash_for(seconds: float) -> None:
    """Hashing of large data releases the lock: threads run, the processor is busy."""
    data = bytes(16 * 1024 * 1024)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        hashlib.sha256(data).digest()


if __name__ == "__main__":
    try:
        worker.run()
    except Problem as problem:
        sys.exit(f"refused: {problem}")
    print("ended in order", flush=True)
