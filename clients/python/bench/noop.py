"""Jobs a second of one Python worker process whose handler does nothing, beside procrastinate on the same machine.

    pip install 'procrastinate==3.10.0' 'psycopg[binary,pool]'        # into an environment that has steadfast-queue
    STEADFAST_BIN=… python bench/noop.py                              # STEADFAST_POSTGRES_BIN names PostgreSQL's programs

Jobs are enqueued before the clock starts. It stops when the store has all of them as done. Contestants take turns, so that a busy
moment of the machine meets all of them. PostgreSQL is a private server on the loopback with its default settings (fsync on).

`prefetch` is a setting that procrastinate does not have, so the same concurrency without it, and the defaults of `Worker`, are
shown as well: compare those."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import logging
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from steadfast_queue import NewJob, Worker
from steadfast_queue.testing import Server

BATCH = 1000


@contextlib.contextmanager
def postgres() -> Generator[str]:
    """A private PostgreSQL, as an ordinary user if this is root."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    programs = os.environ.get("STEADFAST_POSTGRES_BIN") or (str(found[-1].parent) if found else "")
    directory = tempfile.mkdtemp(prefix="steadfast-bench-")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ordinary: list[str] = []
    if os.geteuid() == 0:
        shutil.chown(directory, "postgres", "postgres")
        ordinary = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
    data = f"{directory}/data"

    def run(*command: str) -> None:
        subprocess.run([*ordinary, *command], check=True, stdout=subprocess.DEVNULL, cwd=directory)

    run(f"{programs}/initdb", "-D", data, "-A", "trust", "-U", "postgres")
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={directory}"
    control = [f"{programs}/pg_ctl", "-D", data, "-w", "-l", f"{directory}/log"]
    run(*control, "-o", options, "start")
    try:
        yield f"postgres://postgres@127.0.0.1:{port}/postgres"
    finally:
        run(*control, "-m", "immediate", "stop")
        shutil.rmtree(directory, ignore_errors=True)


def steadfast(jobs: int, concurrency: int, *, url: str | None, on_loop: bool = False, prefetch: int = 0) -> float:
    """Seconds for all jobs, on SQLite or, with a URL, on PostgreSQL."""
    schema = f"bench{time.monotonic_ns()}"
    environment = {} if url is None else {"DATABASE_URL": url, "STEADFAST_DATABASE_SCHEMA": schema}
    server = Server(environment=environment)
    if url is not None:
        subprocess.run([server.binary, "migrate"], env=server.environment, check=True, stdout=subprocess.DEVNULL)
    with server:
        client = server.client()
        client.put_kind("noop")
        client.enqueue_many(NewJob("noop", {}) for _ in range(jobs))
        worker = Worker(client, concurrency=concurrency, prefetch=prefetch, declare=False)
        done, lock, left = threading.Event(), threading.Lock(), [jobs]

        def count() -> None:
            with lock:
                left[0] -= 1
                if left[0] == 0:
                    done.set()

        if on_loop:

            @worker.handler("noop")
            async def coroutine(payload: Any) -> None:
                count()
        else:

            @worker.handler("noop")
            def function(payload: Any) -> None:
                count()

        began = time.monotonic()
        with worker.running():
            done.wait()
            while client.stats()["totals"]["succeeded"] < jobs:
                time.sleep(0.005)
            took = time.monotonic() - began
    return took


def peer(jobs: int, concurrency: int, *, url: str) -> float:
    """The same with procrastinate: an async task, which is its fast way, and a worker that ends when the queue is empty."""
    procrastinate: Any = importlib.import_module("procrastinate")
    psycopg: Any = importlib.import_module("psycopg")
    database = f"peer{time.monotonic_ns()}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {database}")
    there = url.rsplit("/", 1)[0] + f"/{database}"
    app: Any = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=there, min_size=4, max_size=20))
    counted = [0]

    @app.task(name="noop")  # type: ignore[untyped-decorator]
    async def noop() -> None:
        counted[0] += 1

    async def drain() -> float:
        async with app.open_async():
            await app.schema_manager.apply_schema_async()
            for start in range(0, jobs, BATCH):
                await app.configure_task("noop").batch_defer_async(*[{}] * min(BATCH, jobs - start))
            with psycopg.connect(there, autocommit=True) as connection:
                connection.execute("VACUUM ANALYZE")  # what autovacuum would have done in a while
            began = time.monotonic()
            await app.run_worker_async(wait=False, concurrency=concurrency, install_signal_handlers=False)
            took = time.monotonic() - began
            assert counted[0] == jobs
            return took

    return asyncio.run(drain())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--peer-jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=50)
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    n = arguments.concurrency
    with postgres() as url:
        jobs, many = arguments.jobs, n * 4
        contestants: dict[str, tuple[int, Callable[[], float]]] = {
            "steadfast, SQLite, 10 (defaults)": (jobs, lambda: steadfast(jobs, 10, url=None)),
            "steadfast, PostgreSQL, 10 (defaults)": (jobs, lambda: steadfast(jobs, 10, url=url)),
            f"steadfast, PostgreSQL, {n}": (jobs, lambda: steadfast(jobs, n, url=url)),
            f"steadfast, PostgreSQL, {n}, prefetch {many}": (jobs, lambda: steadfast(jobs, n, url=url, prefetch=many)),
            f"steadfast, SQLite, {n}, prefetch {many}": (jobs, lambda: steadfast(jobs, n, url=None, prefetch=many)),
            f"steadfast, SQLite, {n}, prefetch {many}, async def": (
                jobs,
                lambda: steadfast(jobs, n, url=None, prefetch=many, on_loop=True),
            ),
            f"procrastinate, PostgreSQL, {n}, async def": (
                arguments.peer_jobs,
                lambda: peer(arguments.peer_jobs, n, url=url),
            ),
        }
        rates: dict[str, list[float]] = {name: [] for name in contestants}
        for turn in range(arguments.rounds):
            for name, (count, run) in contestants.items():
                rate = count / run()
                rates[name].append(rate)
                print(f"round {turn + 1}: {name}: {rate:,.0f} jobs/s", flush=True)
    print()
    for name, seen in rates.items():
        print(f"{name}: median {statistics.median(seen):,.0f} jobs/s ({min(seen):,.0f} to {max(seen):,.0f})")


if __name__ == "__main__":
    main()
