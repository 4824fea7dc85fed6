"""A handler: the function that runs jobs of one kind, and the typed way to enqueue them.

It holds a definition and runs nothing by itself; `execute.py` calls it, `Worker.handler` makes it."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, cast

from . import payload as payloads
from . import wire
from .context import Context
from .errors import Seconds, to_ms
from .execute import is_async_callable
from .identity import check_name
from .job import EnqueueOptions, Job, NewJob

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .client import Client

P = TypeVar("P")
R = TypeVar("R")


class HandlerOptions(TypedDict, total=False):
    """Defaults of the kind, with which it is declared and its jobs are enqueued."""

    queue: str | None
    priority: int | None
    max_attempts: int | None
    timeout: Seconds | None
    """How long one attempt may take."""
    retry: wire.RetryDeclaration | None
    concurrency: int | None
    """How many jobs of this kind run at the same time, in all workers together."""
    rate: wire.NewRate | None
    hidden: list[str] | None
    """JSON pointers to parts of payloads that readers are not shown."""
    schema: dict[str, Any] | None
    """A JSON Schema for payloads, instead of the one of the annotation."""


class Handler(Generic[P, R]):
    """Calling it calls the function itself, without a queue: `welcome(payload, ctx)`."""

    def __init__(self, kind: str, function: Callable[..., R], client: Client | None, options: HandlerOptions) -> None:
        self.kind = check_name("kind", kind)
        self.function = function
        self.options = options
        self.is_async = is_async_callable(function)
        self._client = client
        self._parameters, annotation = _signature(kind, function)
        self._decode = payloads.decoder(annotation)
        self._annotation = annotation
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", kind)

    def __call__(self, payload: P, context: Context | None = None) -> R:
        if self._parameters == 1:
            return self.function(payload)
        return self.function(payload, context)

    def job(self, payload: P, **options: Unpack[EnqueueOptions]) -> NewJob:
        """A job for `enqueue_many`, with the defaults of the handler."""
        given = {name: value for name, value in options.items() if value is not None}
        defaults = {
            name: self.options.get(name)
            for name in ("queue", "priority", "max_attempts", "timeout")
            if self.options.get(name) is not None
        }
        return NewJob(self.kind, payload, cast(EnqueueOptions, {**defaults, **given}))

    def enqueue(self, payload: P, **options: Unpack[EnqueueOptions]) -> Job:
        """Stores a job for this handler: when this returns, it is on stable storage."""
        if self._client is None:
            raise RuntimeError(f"the worker of {self.kind} has no client: use client.enqueue(handler.job(…))")
        return self._client.enqueue(self.job(payload, **options))

    def invoke(self, payload: Any, context: Context) -> Any:
        """Decodes the JSON of a payload and calls the function."""
        decoded = self._decode(payload)
        return self.function(decoded) if self._parameters == 1 else self.function(decoded, context)

    def declaration(self) -> wire.KindDeclaration:
        """What the handler says of its kind; nothing of what it does not say."""
        options = self.options
        schema = options.get("schema") or payloads.schema(self._annotation)
        timeout = options.get("timeout")
        said: dict[str, Any] = {
            "schema": schema,
            "timeout_ms": None if timeout is None else to_ms(timeout),
            **{
                name: options.get(name)
                for name in ("queue", "priority", "max_attempts", "retry", "concurrency", "rate", "hidden")
            },
        }
        return cast(wire.KindDeclaration, {name: value for name, value in said.items() if value is not None})

    def __repr__(self) -> str:
        return f"<Handler {self.kind}>"


def merged(declared: Mapping[str, Any] | None, said: wire.KindDeclaration) -> wire.KindDeclaration | None:
    """What to PUT so that what the handler says holds and what operators have set stays. None: it is so already."""
    now = {
        name: value
        for name, value in (declared or {}).items()
        if name in wire.KindDeclaration.__annotations__ and value not in (None, [])
    }
    wanted: dict[str, Any] = {**now, **said}
    if declared is not None and wanted == now:
        return None
    return cast(wire.KindDeclaration, wanted)


def _signature(kind: str, function: Callable[..., Any]) -> tuple[int, Any]:
    """How many parameters it takes (payload, and perhaps a context), and what its payload is."""
    parameters = [
        p
        for p in inspect.signature(function).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    required = [p for p in parameters if p.default is p.empty]
    if not len(parameters) >= 1 or len(required) > 2:
        raise TypeError(f"the handler of {kind} takes a payload, and a context if it wants one: (payload, ctx)")
    hints_of = function if inspect.isfunction(function) or inspect.ismethod(function) else type(function).__call__
    try:
        hints = typing.get_type_hints(hints_of)
    except NameError:
        # A name that exists for type checkers only, or a class that is local to a function.
        hints = {}
    annotation = hints.get(parameters[0].name, parameters[0].annotation)
    if isinstance(annotation, str):
        raise TypeError(
            f"the payload of {kind} is annotated {annotation!r}, which is not known where the handler is defined: "
            "define the class at the top of the module"
        )
    return min(len(parameters), 2), annotation
