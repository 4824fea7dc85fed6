"""The pytest fixture `steadfast_server`: a real server with an empty store, for one test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .testing import Server


@pytest.fixture
def steadfast_server() -> Iterator[Server]:
    """Fails with the way out if there is no server program: a test that needs one must not pass without it."""
    try:
        server = Server()
    except FileNotFoundError as error:
        pytest.fail(str(error), pytrace=False)
    with server:
        yield server
