"""Fills a SQLite file that `steadfast migrate` has made with jobs in every status: promote_million.py FILE JOBS."""

import json
import random
import sqlite3
import sys
import time
import uuid

PER_HUNDRED = {"queued": 20, "succeeded": 60, "failed_permanent": 8, "cancelled": 4, "retrying": 6, "running": 2}
STATUSES = [status for status, share in PER_HUNDRED.items() for _ in range(share)]
COLUMNS = """seq id kind queue status priority attempts max_attempts run_at idempotency_key request_digest worker lease_token lease_ms
lease_expires_at started_at ended_at outcome created_at updated_at finished_at payload last_error result died_at group_key marks""".split()
OUTCOMES = {"succeeded": "succeeded", "failed_permanent": "failed", "retrying": "failed"}

path, jobs = sys.argv[1], int(sys.argv[2])
now = time.time_ns() // 1000
nonce = uuid.uuid4().bytes
random.seed(1)


def job_id(n):
    milliseconds = now // 1000 - 86_400_000 + n // 20
    return (milliseconds << 80 | 7 << 76 | (n & 0xFFF) << 64 | 2 << 62 | random.getrandbits(62)).to_bytes(16, "big")


def insert(table, columns, rows):
    db.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})", rows)


db = sqlite3.connect(path, isolation_level=None)
db.execute("PRAGMA synchronous = OFF")
db.execute("BEGIN")
counts = {}
for first in range(1, jobs + 1, 10_000):
    rows, attempts, options, dead = [], [], [], []
    for n in range(first, min(first + 10_000, jobs + 1)):
        status, id, at = STATUSES[n % 100], job_id(n), now - 86_400_000_000 + n
        kind, queue = f"kind{n % 20}", f"queue{n % 10}"
        finished = at + 1_000_000 if status in ("succeeded", "failed_permanent", "cancelled") else None
        started = at + 5 if status != "queued" else None
        tries = 0 if status == "queued" else 2 if status in ("retrying", "failed_permanent") else 1
        key = f"key-{n}" if n % 2 else None
        rows.append((
            n, id, kind, queue, status, n % 7 - 3, tries, 5, at, key, uuid.UUID(int=n).bytes if key else None,
            started and f"worker-{n % 50}", started and nonce, started and 30_000,
            now + 3_600_000_000 if status == "running" else None, started, finished, OUTCOMES.get(status), at, finished or at, finished,
            json.dumps({"to": f"user{n}@example.org", "template": "welcome", "data": "x" * 60}),
            f"smtp 451 of host {n % 300}" if tries == 2 else None, '{"sent":true}' if status == "succeeded" else None,
            finished if status in ("failed_permanent", "cancelled") else None, f"g{n % 500}" if n % 10 == 0 else None,
            16 if n % 50 == 0 else None,
        ))
        if tries == 2:
            attempts.append((id, 1, nonce, "worker-1", at, at + 1000, "failed", "smtp 450"))
        if n % 50 == 0:
            shown = json.dumps({"cost": 2, "unique": {"key": f"u{n}", "while": "unfinished", "on_conflict": "keep"}})
            options.append((n, shown, 2, None if finished else f"{kind}/u{n}", 1))
        if status == "failed_permanent":
            dead.append((n, n % 300))
        counts.setdefault((kind, queue), dict.fromkeys(PER_HUNDRED, 0))[status] += 1
    insert("jobs", COLUMNS, rows)
    insert("attempts", "job_id attempt lease_token worker started_at ended_at outcome error".split(), attempts)
    insert("job_options", "seq shown cost unique_key unique_while".split(), options)
    insert("dead_groups", ["seq", "fingerprint"], dead)
insert("counts", ["kind", "queue", *PER_HUNDRED], [(*lane, *by_status.values()) for lane, by_status in counts.items()])
db.execute("COMMIT")
