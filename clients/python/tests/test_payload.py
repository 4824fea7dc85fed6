"""Payloads and results between Python and JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pydantic
import pytest

from steadfast_queue import Context, Worker
from steadfast_queue.handler import merged
from steadfast_queue.outcome import ERROR_MAX_BYTES, error_text, of_result
from steadfast_queue.payload import InvalidPayload, decoder, schema, to_json
from steadfast_queue.testing import Harness


@dataclass
class Part:
    name: str


@dataclass
class Order:
    id: int
    parts: list[Part] = field(default_factory=list[Part])
    note: str | None = None
    first: Part | None = None


class Model(pydantic.BaseModel):
    user: int


def test_a_dataclass_goes_to_json_and_back() -> None:
    order = Order(1, [Part("a")], "n", Part("b"))
    wire = {"id": 1, "parts": [{"name": "a"}], "note": "n", "first": {"name": "b"}}
    assert to_json(order) == wire
    assert decoder(Order)(wire) == order


MISFITS: list[tuple[Any, str]] = [
    ({}, "lacks fields of Order: id"),
    ({"id": 1, "x": 2}, "unknown fields for Order: x"),
    ([], "not an object"),
    ({"id": 1, "parts": [{}]}, r"payload.parts\[0\] lacks"),
]


@pytest.mark.parametrize(("payload", "says"), MISFITS)
def test_a_payload_that_is_no_such_dataclass_says_why(payload: Any, says: str) -> None:
    with pytest.raises(InvalidPayload, match=says):
        decoder(Order)(payload)


def test_a_pydantic_model_validates_and_dumps() -> None:
    assert decoder(Model)({"user": "7"}) == Model(user=7)
    assert to_json({"in": [Model(user=7)]}) == {"in": [{"user": 7}]}
    with pytest.raises(InvalidPayload, match="not a Model"):
        decoder(Model)({"user": "x"})


def test_schemas_come_from_annotations() -> None:
    assert schema(Model) == Model.model_json_schema()
    made = schema(Order)
    assert made is not None
    assert (made["required"], made["properties"]["id"]) == (["id"], {"type": "integer"})
    assert schema(dict) is None


def test_a_declaration_changes_only_what_the_handler_says() -> None:
    declared: dict[str, Any] = {
        "kind": "k",
        "built_in": False,
        "concurrency": 5,
        "max_attempts": 3,
        "queue": None,
        "hidden": [],
    }
    assert merged(declared, {"max_attempts": 3}) is None
    assert merged(declared, {"max_attempts": 4}) == {"concurrency": 5, "max_attempts": 4}
    assert merged(None, {}) == {}


worker = Worker()


@worker.handler("order")
def order(payload: Order, ctx: Context) -> Any:
    return payload


def test_a_payload_that_does_not_fit_is_retried() -> None:
    attempt = Harness(worker).run("order", {"id": 1, "new_field": 2})
    assert (attempt.outcome, attempt.permanent) == ("failed", False)
    assert "unknown fields" in (attempt.error or "")


@pytest.mark.parametrize(
    ("value", "says"),
    [("x" * 300_000, "300002 bytes"), (object(), "not JSON"), (float("nan"), "not JSON"), ("\ud800", "not JSON")],
)
def test_a_result_that_cannot_be_stored_is_a_permanent_failure(value: Any, says: str) -> None:
    ended = of_result(value)
    assert (ended.outcome, ended.permanent) == ("failed", True)
    assert says in (ended.error or "")


def test_error_texts_keep_the_last_frames_and_the_message_within_the_limit() -> None:
    def deep(n: int) -> None:
        if n == 0:
            raise ValueError("m" * 20_000)
        deep(n - 1)

    with pytest.raises(ValueError, match="mmm") as raised:
        deep(50)
    text = error_text(raised.value, frames=True)
    assert text.startswith("Traceback (most recent call last):")
    assert text.splitlines()[-1].startswith("ValueError: mmm")
    assert len(text.encode()) <= ERROR_MAX_BYTES
    assert text.count("in deep") <= 20
    assert "Traceback" not in error_text(raised.value, frames=False)
