"""A worker with several processes."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

from steadfast_queue import Client, Context, Worker

logging.basicConfig(level="INFO", stream=sys.stderr, format="%(process)d %(message)s")
worker = Worker(Client(), concurrency=2, lease=2, grace=20, processes=3)


@worker.handler("pid")
def pid(payload: Any, ctx: Context) -> int:
    ctx.sleep(payload)
    return os.getpid()


if __name__ == "__main__":
    worker.run()
    print("ended in order", flush=True)
