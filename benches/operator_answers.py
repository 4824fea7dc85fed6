#!/usr/bin/env python3
"""How long an operator waits for answers when the store is full: lists, errors, explain, previews, pulse.

    cargo build --release
    python3 benches/operator_answers.py sqlite 10000000
    python3 benches/operator_answers.py postgres 10000000

A real server, asked over HTTP. Fifty jobs that nobody takes are the oldest, then so many finished ones (written by hand, as the
store would have, only faster), then 20,000 dead letters of three causes, 500 running jobs and 50,000 waiting ones. Every
question is asked 30 times on one connection; p50 and p95 are printed beside the budget. Needs PostgreSQL's server programs for
`postgres`. Standard library only.
"""

import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = os.environ.get("STEADFAST_BIN", str(ROOT / "target/release/steadfast"))
ASKED = 30
DEAD = 20_000
RUNNING = 500
WAITING = 50_000


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """`serve` without workers of its own, and one connection to it."""

    def __init__(self, url: str, home: Path):
        self.port = free_port()
        settings = {
            "DATABASE_URL": url,
            "API_BIND_ADDR": f"127.0.0.1:{self.port}",
            "STEADFAST_EXECUTOR": "none",
            "RUST_LOG": "off",
        }
        arguments = [PROGRAM, "serve", "--allow-undeclared-kinds"]
        self.process = subprocess.Popen(arguments, cwd=home, stdout=subprocess.DEVNULL,
                                        env={"PATH": os.environ["PATH"], **settings})
        deadline = time.monotonic() + 600
        while True:
            try:
                self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
                status, _, _ = self.ask("GET", "/readyz")
                if status == 200:
                    return
            except OSError:
                pass
            if time.monotonic() > deadline or self.process.poll() is not None:
                sys.exit("the server does not become ready")
            time.sleep(0.1)

    def ask(self, method: str, path: str, body=None):
        headers = {"content-type": "application/json"} if body is not None else {}
        text = json.dumps(body) if body is not None else None
        self.connection.request(method, path, text, headers)
        answer = self.connection.getresponse()
        content = answer.read()
        return answer.status, content, answer

    def expect(self, method: str, path: str, body=None):
        status, content, _ = self.ask(method, path, body)
        if status >= 300:
            sys.exit(f"{method} {path}: {status} {content[:400]!r}")
        return json.loads(content) if content else None

    def enqueue(self, count: int, kind: str, queue: str):
        made = []
        for start in range(0, count, 1000):
            jobs = [{"kind": kind, "queue": queue, "payload": {"user": n}} for n in range(start, min(count, start + 1000))]
            made += self.expect("POST", "/jobs/batch", {"jobs": jobs})["results"]
        return [result["job"]["id"] for result in made]

    def lease(self, kind: str, count: int):
        leases = []
        while len(leases) < count:
            ask = {"worker": "bench", "kinds": [kind], "max": min(1000, count - len(leases)), "lease_ms": 3_600_000}
            leases += self.expect("POST", "/leases", ask)["leases"]
        return leases

    def stop(self):
        self.connection.close()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


class Sqlite:
    def __init__(self, home: Path):
        self.file = home / "steadfast.db"
        self.url = f"sqlite://{self.file}"

    def finished(self, rows: int):
        file = sqlite3.connect(self.file, isolation_level=None)
        file.execute("PRAGMA synchronous = OFF")
        file.execute("PRAGMA cache_size = -500000")
        now_us = time.time_ns() // 1000
        token = secrets.token_bytes(16)

        def each():
            for n in range(rows):
                yield (job_id(now_us // 1000, n), now_us, now_us, now_us, now_us, now_us, now_us, token)

        file.execute("BEGIN IMMEDIATE")
        file.executemany(
            "INSERT INTO jobs (id, kind, queue, status, priority, attempts, max_attempts, run_at, created_at, updated_at, finished_at,"
            " started_at, ended_at, lease_token, lease_ms, worker, outcome, payload)"
            " VALUES (?1, 'welcome', 'default', 'succeeded', 0, 1, 3, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 30000, 'w', 'succeeded', '{\"user\":42}')",
            each(),
        )
        file.execute(
            "INSERT INTO counts VALUES ('welcome', 'default', 0, 0, 0, ?1, 0, 0)"
            " ON CONFLICT DO UPDATE SET succeeded = succeeded + ?1", (rows,))
        file.execute("COMMIT")
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        file.close()

    def end(self):
        pass


class Postgres:
    def __init__(self, home: Path):
        places = [shutil.which("initdb"), *sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))]
        self.programs = Path([str(place) for place in places if place][-1]).parent
        self.data = home / "data"
        self.port = free_port()
        self.data.mkdir()
        # The server refuses root.
        self.user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.getuid() == 0 else []
        if self.user:
            os.chmod(home, 0o755)
            shutil.chown(self.data, "postgres", "postgres")
        run = lambda *words: subprocess.run([*self.user, *words], check=True, stdout=subprocess.DEVNULL)
        run(str(self.programs / "initdb"), "-D", str(self.data), "-U", "bench", "-A", "trust", "--no-sync")
        options = f"-p {self.port} -k {self.data} -c listen_addresses=127.0.0.1 -c shared_buffers=1GB -c max_wal_size=8GB"
        run(str(self.programs / "pg_ctl"), "-D", str(self.data), "-o", options, "-l", str(self.data / "log"), "-w", "start")
        self.url = f"postgres://bench@127.0.0.1:{self.port}/postgres"

    def psql(self, text: str) -> str:
        asked = ["psql", self.url, "-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", "-c", text]
        answer = subprocess.run(asked, capture_output=True, text=True)
        if answer.returncode:
            sys.exit(answer.stderr)
        return answer.stdout.strip()

    def finished(self, rows: int):
        schema = self.psql("SELECT schemaname FROM pg_tables WHERE tablename = 'jobs'")
        now_ms = time.time_ns() // 1_000_000
        self.psql(f"""
            INSERT INTO {schema}.jobs (id, kind, queue, payload, status, priority, attempts, max_attempts, run_at, created_at, updated_at,
                finished_at, worker, lease_token, lease_ms, started_at, ended_at, outcome)
            SELECT (lpad(to_hex({now_ms} + n / 100000), 12, '0') || '70008' || lpad(to_hex(n), 15, '0'))::uuid, 'welcome', 'default',
                '{{"user":42}}', 'succeeded', 0, 1, 3, now(), now(), now(), now(), 'w', gen_random_uuid(), 30000, now(), now(), 'succeeded'
            FROM generate_series(0::bigint, {rows - 1}) n;
            INSERT INTO {schema}.count_deltas (queue, kind, was, is_now, n) VALUES ('default', 'welcome', NULL, 'succeeded', {rows})""")
        self.psql(f"VACUUM ANALYZE {schema}.jobs")

    def end(self):
        words = [str(self.programs / "pg_ctl"), "-D", str(self.data), "-m", "immediate", "stop"]
        subprocess.run([*self.user, *words], check=False, stdout=subprocess.DEVNULL)


def job_id(now_ms: int, n: int) -> bytes:
    """A UUID of version 7, so many to the millisecond that all are older than what comes afterwards."""
    return bytes.fromhex(f"{now_ms + n // 100_000:012x}70008{n:015x}")


def measure(server: Server, name: str, budget_ms: int, method: str, path: str, body=None):
    took = []
    for _ in range(ASKED):
        began = time.perf_counter()
        status, content, answer = server.ask(method, path, body)
        took.append((time.perf_counter() - began) * 1000)
        if status >= 300:
            print(f"{name:44} {status} {content[:160]!r}")
            return
    took.sort()
    looked = answer.getheader("x-looked") or ""
    rows = json.loads(content)
    count = len(rows) if isinstance(rows, list) else ""
    p50, p95 = took[ASKED // 2], took[ASKED * 95 // 100]
    print(f"{name:44} p50 {p50:7.1f} ms  p95 {p95:7.1f} ms  budget {budget_ms:4} ms  {'ok' if p95 <= budget_ms else 'OVER'}  {count} {looked}")


def main():
    store, rows = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10_000_000
    home = Path(tempfile.mkdtemp(dir=os.environ.get("BENCH_DIR", ROOT / "target")))
    place = Sqlite(home) if store == "sqlite" else Postgres(home)
    try:
        run(place, home, store, rows)
    finally:
        place.end()
        shutil.rmtree(home, ignore_errors=True)


def run(place, home: Path, store: str, rows: int):
    if store == "postgres":
        subprocess.run([PROGRAM, "migrate"], env={"PATH": os.environ["PATH"], "DATABASE_URL": place.url}, check=True, stdout=subprocess.DEVNULL)
    server = Server(place.url, home)
    stuck = server.enqueue(50, "stuck", "slow")
    server.stop()
    began = time.monotonic()
    place.finished(rows)
    print(f"{store}: {rows} finished rows written in {time.monotonic() - began:.0f} s")
    server = Server(place.url, home)
    server.enqueue(DEAD, "mail", "mail")
    causes = ["smtp 451 greylisted by mx", "connection refused", "no such user"]
    for start in range(0, DEAD, 1000):
        outcomes = [
            {"job_id": lease["job"]["id"], "lease_token": lease["lease_token"], "outcome": "failed", "permanent": True,
             "error": f"{causes[n % 3]} {n}"}
            for n, lease in enumerate(server.lease("mail", 1000))
        ]
        server.expect("POST", "/leases/settle", {"worker": "bench", "outcomes": outcomes})
    server.enqueue(RUNNING, "busy", "default")
    server.lease("busy", RUNNING)
    server.enqueue(WAITING, "welcome", "default")
    group = server.expect("GET", "/errors")[0]
    fingerprint = group.get("fingerprint") or group["group"]
    for name, budget, path in [
        ("waiting, 50 old ones behind everything", 100, "/jobs?status=queued,retrying&queue=slow&limit=100&view=summary"),
        ("waiting, all, next to run first", 100, "/jobs?status=queued&limit=100&view=summary"),
        ("newest of all", 100, "/jobs?limit=100&view=summary"),
        ("dead letters", 100, "/jobs?status=failed_permanent&limit=100&view=summary"),
        ("running", 100, "/jobs?status=running&limit=100&view=summary"),
        ("of one group of errors", 100, f"/jobs?error={fingerprint}&limit=100&view=summary"),
        ("of one worker", 100, "/jobs?worker=bench&status=running&limit=100&view=summary"),
        ("text in 10 M jobs, as far as one call looks", 500, "/jobs?text=nothing-like-it&limit=100&view=summary"),
        ("groups of errors", 50, "/errors"),
        ("one group of errors", 50, f"/errors/{fingerprint}"),
        ("why is it not running", 50, f"/jobs/{stuck[0]}/explain"),
        ("why does the queue not move", 50, "/queues/slow/explain"),
        ("queues", 50, "/queues"),
        ("kinds", 50, "/kinds"),
        ("workers", 50, "/workers"),
        ("stats", 50, "/stats"),
        ("pulse", 50, "/pulse"),
        ("problems", 50, "/problems"),
    ]:
        measure(server, name, budget, "GET", path)
    preview = lambda jobs: {"action": "redrive", "filter": jobs}
    for name, jobs in [
        ("preview: a group of errors", {"error": fingerprint}),
        ("preview: all dead letters", {"status": "failed_permanent"}),
        ("preview: dead letters of a kind", {"status": "failed_permanent", "kind": "mail"}),
    ]:
        measure(server, name, 250, "POST", "/operations/preview", preview(jobs))
    server.stop()


main()
