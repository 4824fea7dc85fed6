"""HTTP/1.1 over `http.client`: one keep-alive connection, and a client with a pool of them that retries.

It knows nothing of jobs, follows no redirects and uses no proxies. Engine threads own a `Connection` each, so that a long
poll never delays a heartbeat; everything else goes through `Transport`."""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from .errors import Problem, Unreachable

CONNECT_TIMEOUT = 5.0
"""5 s: a server that does not accept by then is down; another try is due."""
IDLE_MAX = 8.0
"""8 s: the server closes idle connections after 10 s; a connection that old is not reused."""
POOL_MAX = 8
"""8 idle connections: as many as AsyncClient has threads."""
ANSWER_MAX_BYTES = 64 * 1024 * 1024
"""64 MiB: eight times the largest answer of the server (8 MiB of leases)."""
BACKOFF_FIRST, BACKOFF_MAX = 0.2, 5.0
USER_AGENT = "steadfast-queue-python/0.1"


@dataclass(frozen=True)
class Address:
    """Where the server is, and how to authenticate."""

    url: str
    token: str | None
    ssl_context: ssl.SSLContext | None = None

    def headers(self) -> dict[str, str]:
        headers = {"user-agent": USER_AGENT, "accept": "application/json"}
        if self.token:
            headers["authorization"] = f"Bearer {self.token}"
        return headers

    def __repr__(self) -> str:  # without the token: it may be logged
        return f"Address({self.url!r})"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        try:
            return json.loads(self.body) if self.body else None
        except ValueError as error:
            raise Problem(self.status, "not_json", f"the answer is not JSON: {error}") from None

    def problem(self) -> Problem:
        """What an answer that is not 2xx says."""
        retry_after = self.headers.get("retry-after")
        after = float(retry_after) if retry_after and retry_after.isdigit() else None
        try:
            body: Any = json.loads(self.body)
            return Problem(
                self.status,
                str(body["code"]),
                str(body["detail"]),
                title=str(body.get("title", "")),
                request_id=body.get("request_id"),
                retry_after=after,
                errors=body.get("errors"),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            # Somebody in between, a proxy perhaps.
            text = self.body[:200].decode("utf-8", "replace")
            return Problem(self.status, "not_a_problem", text, retry_after=after)


class Connection:
    """One connection, for one thread at a time; `abort` may be called from any. Reconnects when needed, never retries."""

    def __init__(self, address: Address) -> None:
        parts = urlsplit(address.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{address.url!r} is not the URL of a server: http://host:port or https://host")
        self._address = address
        self._prefix = parts.path.rstrip("/")
        self._host, self._port = parts.hostname, parts.port
        self._tls = parts.scheme == "https"
        self._http: http.client.HTTPConnection | None = None
        self._used_at = 0.0
        self._aborted = False

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None,
        timeout: float,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One exchange. `timeout` bounds each step of it, and the reading of the answer as a whole."""
        deadline = time.monotonic() + timeout
        connection = self._connected(min(timeout, CONNECT_TIMEOUT))
        sent = False
        try:
            assert connection.sock is not None  # noqa: S101 (connected above)
            connection.sock.settimeout(timeout)
            sent = True
            connection.request(method, self._prefix + path, body, self._headers(body, headers))
            if self._aborted:
                self.abort()
            answer = connection.getresponse()
            content = self._read(answer, connection, deadline)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Unreachable(f"{method} {path}: {_describe(error)}", sent=sent) from error
        except BaseException:
            self.close()
            raise
        self._used_at = time.monotonic()
        if answer.will_close:
            self.close()
        return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, content)

    def _connected(self, timeout: float) -> http.client.HTTPConnection:
        if self._http is not None and time.monotonic() - self._used_at < IDLE_MAX:
            return self._http
        self.close()
        if self._tls:
            context = self._address.ssl_context or ssl.create_default_context()
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                self._host, self._port, timeout=timeout, context=context
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        try:
            connection.connect()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Unreachable(f"cannot connect to {self._address.url}: {_describe(error)}", sent=False) from error
        self._http = connection
        return connection

    def _headers(self, body: bytes | None, more: Mapping[str, str] | None) -> dict[str, str]:
        headers = self._address.headers()
        if body is not None:
            headers["content-type"] = "application/json"
        if more:
            headers.update(more)
        return headers

    def _read(self, answer: http.client.HTTPResponse, connection: http.client.HTTPConnection, deadline: float) -> bytes:
        parts: list[bytes] = []
        size = 0
        while part := answer.read(1 << 20):
            parts.append(part)
            size += len(part)
            left = deadline - time.monotonic()
            if left <= 0 or size > ANSWER_MAX_BYTES:
                raise TimeoutError("the answer is too slow" if left <= 0 else "the answer is too large")
            if connection.sock is not None:
                connection.sock.settimeout(left)
        return b"".join(parts)

    def abort(self) -> None:
        """Ends a call that waits for its answer, from another thread. Only the sending half is closed: the server hangs up and
        keeps what it has not handed out, and an answer that is on its way still arrives."""
        self._aborted = True
        connection = self._http
        sock = connection.sock if connection is not None else None
        if sock is not None:
            try:
                # Not SSLSocket.shutdown, which forgets the keys that the rest of the answer needs.
                socket.socket.shutdown(sock, socket.SHUT_WR)
                sock.settimeout(2.0)
            except OSError:
                pass  # it is closed already

    def close(self) -> None:
        connection, self._http = self._http, None
        if connection is not None:
            connection.close()

    def __del__(self) -> None:  # a client that nobody closed is no reason for a warning
        if hasattr(self, "_http"):
            self.close()


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def backoff(tries: int, retry_after: float | None = None) -> float:
    """How long to wait after so many failed tries: 0.2 to 5 s, with jitter, and no less than the server asked for."""
    longest = min(BACKOFF_MAX, BACKOFF_FIRST * 2 ** min(tries, 10))
    wait = random.uniform(longest / 2, longest)
    return max(wait, min(retry_after, 60.0)) if retry_after else wait


class Transport:
    """Calls with retries, from any thread, over a pool of connections."""

    def __init__(self, address: Address, *, timeout: float = 30.0, retry_for: float = 15.0) -> None:
        self.address = address
        self._timeout = timeout
        self._retry_for = retry_for
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._closed = False

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        raw: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = True,
    ) -> Answer:
        """A 2xx answer, or an exception. A call that is not `repeatable` is tried again only if it was surely not done."""
        content = raw if raw is not None else encode(body) if body is not None else None
        give_up = time.monotonic() + self._retry_for
        tries = 0
        while True:
            error: Problem | Unreachable
            try:
                answer = self._once(method, path, content, headers, reuse=repeatable)
                if answer.status < 300:
                    return answer
                error = answer.problem()
                unknown = error.status not in (429, 503) or error.code == "outcome_unknown"
                if not error.is_temporary or (unknown and not repeatable):
                    raise error
            except Unreachable as unreachable:
                error = unreachable
                if unreachable.sent and not repeatable:
                    raise
            wait = backoff(tries, error.retry_after if isinstance(error, Problem) else None)
            tries += 1
            if time.monotonic() + wait > give_up:
                raise error
            time.sleep(wait)

    def _once(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str] | None, *, reuse: bool
    ) -> Answer:
        # On a connection of an earlier call nobody can tell whether a request that failed was received.
        connection = self._take() if reuse else Connection(self.address)
        answer = connection.request(method, path, body, self._timeout, headers)
        self._give_back(connection)
        return answer

    def _take(self) -> Connection:
        with self._lock:
            if self._closed:
                raise RuntimeError("the client is closed")
            if self._pid != os.getpid():  # forked: these sockets are the parent's
                self._idle, self._pid = [], os.getpid()
            return self._idle.pop() if self._idle else Connection(self.address)

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            if not self._closed and len(self._idle) < POOL_MAX:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        with self._lock:
            idle, self._idle, self._closed = self._idle, [], True
        for connection in idle:
            connection.close()


def encode(value: Any) -> bytes:
    """Compact JSON. What JSON cannot say (NaN, lone surrogates, other types) is a ValueError or TypeError here."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
