"""The types of the wire are those of the server: every shape is compared with docs/openapi.json, member by member."""

from __future__ import annotations

import json
import types
import typing
from pathlib import Path
from typing import Any, Literal, Union

import pytest

from steadfast_queue import AsyncClient, Client, wire

OPENAPI = Path(__file__).parents[3] / "docs" / "openapi.json"

DOCUMENT: dict[str, Any] = json.loads(OPENAPI.read_text())
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
NOT_OURS = {"Health", "Session", "NewSession", "Integer"}
"""Browsers' sessions and probes: not for this client."""
ANY = "anything"


def of_schema(schema: dict[str, Any]) -> frozenset[str]:
    """A schema as a set of alternatives, in a form in which types can be compared."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return of_schema(SCHEMAS[name]) if name in ("Integer", "Reason") or is_alias(name) else frozenset([name])
    for union in ("oneOf", "anyOf"):
        if union in schema:
            return frozenset[str]().union(*(of_schema(s) for s in schema[union]))
    if "enum" in schema:
        return frozenset(json.dumps(value) for value in schema["enum"])
    kinds = schema.get("type")
    if kinds is None:
        return frozenset(["Reason"]) if "allOf" in schema else frozenset([ANY])
    return frozenset[str]().union(*(of_kind(kind, schema) for kind in ([kinds] if isinstance(kinds, str) else kinds)))


def of_kind(kind: str, schema: dict[str, Any]) -> frozenset[str]:
    if kind == "array":
        return frozenset([f"list of {sorted(of_schema(schema['items']))}"])
    if kind == "object":
        if "properties" in schema:
            return frozenset(["object with " + ",".join(sorted(schema["properties"]))])
        values: Any = schema.get("additionalProperties")
        return frozenset([f"map of {sorted(of_schema(values)) if values else [ANY]}"])
    return frozenset([{"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}[kind]])


def is_alias(name: str) -> bool:
    return "enum" in SCHEMAS[name] or "oneOf" in SCHEMAS[name]


def of_type(hint: Any) -> frozenset[str]:
    """The same for a Python type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return frozenset[str]().union(*(of_type(a) for a in arguments))
    if origin is Literal:
        return frozenset(json.dumps(value) for value in arguments)
    if origin is list:
        return frozenset([f"list of {sorted(of_type(arguments[0]))}"])
    if origin is dict:
        return frozenset([f"map of {sorted(of_type(arguments[1]))}"])
    if hint is Any:
        return frozenset([ANY])
    if hint in (wire.BackoffRetry, wire.DelaysRetry):
        return frozenset(["object with " + ",".join(sorted(typing.get_type_hints(hint)))])
    return frozenset(["None" if hint is type(None) else hint.__name__])


def members(name: str) -> dict[str, tuple[frozenset[str], bool]]:
    """Of a schema: member → type, and whether it is always there."""
    schema = SCHEMAS[name]
    found: dict[str, tuple[frozenset[str], bool]] = {}
    for part in schema.get("allOf", [schema]):
        if "$ref" in part:
            found |= members(part["$ref"].rsplit("/", 1)[1])
        for member, its in part.get("properties", {}).items():
            found[member] = (of_schema(its), member in part.get("required", []))
    return found


NAMES = sorted(set(SCHEMAS) - NOT_OURS)


@pytest.mark.parametrize("name", NAMES)
def test_a_shape_is_what_the_server_says(name: str) -> None:
    ours = getattr(wire, name, None)
    assert ours is not None, f"{name} is in docs/openapi.json and not in steadfast_queue.wire"
    if is_alias(name):
        assert of_type(ours) == of_schema(SCHEMAS[name])
        return
    hints = typing.get_type_hints(ours)
    assert {member: (of_type(hint), member in ours.__required_keys__) for member, hint in hints.items()} == members(
        name
    )


def test_there_is_no_shape_that_the_server_does_not_have() -> None:
    assert set(wire.__all__) - set(SCHEMAS) == {"BackoffRetry", "DelaysRetry"}


NOT_CALLED = {
    "/api-docs/openapi.json", "/docs", "/docs/{file}", "/livez", "/readyz", "/metrics", "/pulse/stream", "/session",
}  # fmt: skip


def test_every_route_is_called_by_the_client() -> None:
    source = "".join(p.read_text() for p in (OPENAPI.parents[1] / "clients/python/src/steadfast_queue").glob("*.py"))
    missing: list[str] = []
    for path, methods in DOCUMENT["paths"].items():
        for method in methods.keys() & {"get", "post", "put", "delete", "patch"}:
            parts = [part for part in path.strip("/").split("/") if not part.startswith("{")]
            said = all(f'"{part}"' in source or f"/{part}" in source for part in parts)
            if path not in NOT_CALLED and not said:
                missing.append(f"{method} {path}")
    assert missing == []


def test_the_asynchronous_client_has_every_call_of_the_other() -> None:
    public = {name for name in dir(Client) if not name.startswith("_")} - {"address", "url"}
    assert public - set(dir(AsyncClient)) == set()
