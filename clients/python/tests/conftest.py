"""Servers for tests: the real program on SQLite, and on PostgreSQL too if STEADFAST_TEST_POSTGRES_URL is set."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from steadfast_queue import Client
from steadfast_queue.testing import Server

POSTGRES_URL = os.environ.get("STEADFAST_TEST_POSTGRES_URL")
STORES = ["sqlite", "postgres"] if POSTGRES_URL else ["sqlite"]

MakeServer = Callable[..., Server]


def pytest_report_header() -> str:
    without = "; PostgreSQL is NOT tested, STEADFAST_TEST_POSTGRES_URL is not set"
    return f"steadfast: server {os.environ.get('STEADFAST_BIN')}, stores: {', '.join(STORES)}{'' if POSTGRES_URL else without}"


def pytest_sessionstart() -> None:
    binary = os.environ.get("STEADFAST_BIN")
    if not binary or not os.access(binary, os.X_OK):
        pytest.exit(f"STEADFAST_BIN is {binary!r}: set it to the path of the server program `steadfast`", returncode=2)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A module whose tests do not depend on the store names its own STORES."""
    if "make_server" in metafunc.fixturenames:
        metafunc.parametrize("make_server", getattr(cast(Any, metafunc).module, "STORES", STORES), indirect=True)


@pytest.fixture
def make_server(request: pytest.FixtureRequest) -> Iterator[MakeServer]:
    """Starts servers with settings, each with a store of its own, and ends them with the test."""
    servers: list[Server] = []

    def make(**settings: str) -> Server:
        environment = dict(settings)
        if request.param == "postgres":
            environment |= {
                "DATABASE_URL": POSTGRES_URL or "",
                "STEADFAST_DATABASE_SCHEMA": f"t{uuid.uuid4().hex[:12]}",
            }
        server = Server(environment=environment)
        servers.append(server)
        if request.param == "postgres":
            subprocess.run(
                [server.binary, "migrate"], env=server.environment, cwd=server.directory, check=True, timeout=60
            )
        return server.start()

    yield make
    for server in servers:
        server.close()


@pytest.fixture
def server(make_server: MakeServer) -> Server:
    return make_server()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with server.client() as client:
        yield client
