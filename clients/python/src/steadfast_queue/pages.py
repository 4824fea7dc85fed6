"""Lists that come in pages: iterated one by one, fetched page by page by following `Link: rel="next"`.

A page can be short, even empty, and still have a next one: only the link says when a list ends."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode, urlsplit

from .http import Answer, Transport
from .job import format_time

T = TypeVar("T")
_NEXT = re.compile(r'<([^>]*)>\s*;\s*rel="?next"?')


class Pages(Generic[T]):
    """An iterator over all items. Each page is fetched when it is needed."""

    def __init__(self, transport: Transport, path: str, query: Mapping[str, Any], convert: Callable[[Any], T]) -> None:
        self._transport = transport
        self._next: str | None = with_query(path, query)
        self._convert = convert
        self._page: Iterator[T] = iter(())

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        while True:
            for item in self._page:
                return item
            page = self.next_page()
            if page is None:
                raise StopIteration
            self._page = iter(page)

    def next_page(self) -> list[T] | None:
        """The items of the next page; None after the last one."""
        if self._next is None:
            return None
        answer = self._transport.call("GET", self._next)
        self._next = next_link(answer)
        return [self._convert(item) for item in answer.json()]


def next_link(answer: Answer) -> str | None:
    match = _NEXT.search(answer.headers.get("link", ""))
    if not match:
        return None
    parts = urlsplit(match[1])
    return f"{parts.path}?{parts.query}"


def with_query(path: str, query: Mapping[str, Any]) -> str:
    """Lists become comma lists, times RFC 3339, None is left out."""
    given = {name: _value(value) for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, (list, tuple)):
        return ",".join(str(item) for item in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return str(value)
