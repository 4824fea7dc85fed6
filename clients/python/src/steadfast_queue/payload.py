"""Payloads and results between Python types and JSON: pydantic models, dataclasses, TypedDicts, plain JSON.

By duck typing, so that pydantic is used when a handler uses it and never imported otherwise. Validation of dataclasses is of
their fields' names, and of nested dataclasses; values are not checked, as everywhere in Python."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, Union, cast

T = TypeVar("T")


class InvalidPayload(ValueError):
    """The payload does not fit the handler. The job is retried: a newer worker may know it."""


def to_json(value: object) -> Any:
    """What goes over the wire: models and dataclasses become objects, everything else stays."""
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: to_json(item) for key, item in cast("dict[str, object]", value).items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in cast("Iterable[object]", value)]
    return value  # pyright: ignore[reportUnknownVariableType]


def decoder(annotation: Any) -> Callable[[Any], Any]:
    """How a handler's payload is read, by the annotation of its first parameter."""
    validate = getattr(annotation, "model_validate", None)
    if callable(validate):
        return _pydantic(annotation, cast(Callable[[Any], Any], validate))
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return lambda value: _dataclass(annotation, value, "payload")
    return lambda value: value


def _pydantic(annotation: Any, validate: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def decode(value: Any) -> Any:
        try:
            return validate(value)
        except ValueError as error:  # pydantic's ValidationError is one
            raise InvalidPayload(f"the payload is not a {annotation.__name__}: {error}") from None

    return decode


def _dataclass(cls: type[Any], value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise InvalidPayload(f"{where} is not an object, so it is not a {cls.__name__}")
    given = cast("dict[str, Any]", value)
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}
    if unknown := sorted(set(given) - set(fields)):
        raise InvalidPayload(f"{where} has unknown fields for {cls.__name__}: {', '.join(unknown)}")
    required = [name for name, f in fields.items() if not _has_default(f)]
    if missing := [name for name in required if name not in given]:
        raise InvalidPayload(f"{where} lacks fields of {cls.__name__}: {', '.join(missing)}")
    hints = typing.get_type_hints(cls)
    return cls(**{name: _nested(hints.get(name), item, f"{where}.{name}") for name, item in given.items()})


def _nested(annotation: Any, value: object, where: str) -> Any:
    """Dataclasses inside of dataclasses, lists and optional values."""
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        others = [a for a in arguments if a is not type(None)]
        return _nested(others[0], value, where) if len(others) == 1 else value
    if origin is list and isinstance(value, list) and arguments:
        return [
            _nested(arguments[0], item, f"{where}[{index}]") for index, item in enumerate(cast("Iterable[Any]", value))
        ]
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return _dataclass(annotation, value, where)
    return value  # pyright: ignore[reportUnknownVariableType]


def schema(annotation: Any) -> dict[str, Any] | None:
    """The JSON Schema with which the kind is declared, if the annotation has one to give."""
    make = getattr(annotation, "model_json_schema", None)
    if callable(make):
        return cast("dict[str, Any]", make())
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        hints = typing.get_type_hints(annotation)
        fields = [f for f in dataclasses.fields(annotation) if f.init]
        properties = {f.name: _scalar(hints.get(f.name)) for f in fields}
        required = [f.name for f in fields if not _has_default(f)]
        # Other properties are let in: two versions of a program run side by side during a deploy.
        return {"type": "object", "properties": properties, "required": required}
    return None


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def _scalar(annotation: Any) -> dict[str, Any]:
    names: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
    return {"type": names[annotation]} if annotation in (str, int, float, bool) else {}
