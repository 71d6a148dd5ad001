"""Faults in users' documents are told by their place, what is expected, and what is there."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any, Literal, NewType

import msgspec
import pytest
from msgspec import Meta

from libtask.complaints import OBJECT, complaint_of, convert, described
from libtask.errors import InputError

Watts = NewType("Watts", float)


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    source: str | int = msgspec.field(name="from")
    share: Annotated[float, Meta(ge=0, le=1)] = 0.0
    times: dict[str, Annotated[float, Meta(ge=0)] | None] = {}
    pair: tuple[int, str] = (0, "")


class Outer(msgspec.Struct, forbid_unknown_fields=True):
    name: str = ""
    on: bool = False
    cores: int | Literal["all"] | None = None
    kind: Literal["cpu", "gpu", "fpga"] = "cpu"
    power: Watts | None = None
    inner: list[Inner] = []
    users: dict[str, Inner] = {}
    anything: Any = None


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        (5, "expected a table, got 5"),
        ({"name": 5}, "name: expected a text, got 5"),
        ({"on": "yes"}, 'on: expected true or false, got "yes"'),
        ({"cores": 1.5}, 'cores: expected a whole number or "all", got 1.5'),
        ({"cores": "any"}, 'cores: expected a whole number or "all", got "any"'),
        ({"kind": "dsp"}, 'kind: expected "cpu", "gpu" or "fpga", got "dsp"'),
        ({"power": "much"}, 'power: expected a number, got "much"'),
        ({"power": dt.date(2026, 1, 2)}, 'power: expected a number, got "2026-01-02"'),
        ({"inner": {}}, "inner: expected a list, got {}"),
        ({"inner": [{"from": 1}, 7]}, "inner[1]: expected a table, got 7"),
        ({"inner": [{}]}, "inner[0].from: is missing"),
        (
            {"inner": [{"from": []}]},
            "inner[0].from: expected a text or a whole number, got []",
        ),
        (
            {"inner": [{"from": 1, "share": 2}]},
            "inner[0].share: expected a number <= 1.0, got 2",
        ),
        (
            {"inner": [{"from": 1, "times": {"a": 1.0, "b": None, "c": -1}}]},
            "inner[0].times.c: expected a number >= 0.0, got -1",
        ),
        (
            {"inner": [{"from": 1, "pair": [1, 2]}]},
            "inner[0].pair[1]: expected a text, got 2",
        ),
        (
            {"users": {"ann": {"from": 1}, "bob": {"from": 1, "shares": 1}}},
            "users.bob.shares: unknown key (did you mean share?)",
        ),
        ({"knd": "cpu"}, "knd: unknown key (did you mean kind?)"),
        ({"name": ["x" * 99]}, f'name: expected a text, got ["{"x" * 55}...'),
    ],
)
def test_a_fault_is_named_by_its_place(document: Any, complaint: str) -> None:
    with pytest.raises(InputError) as caught:
        convert(document, Outer)

    assert str(caught.value) == complaint


def test_a_part_of_a_document_has_the_place_where_it_stands() -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert([{}], list[Inner])

    told = complaint_of(caught.value, [{}], list[Inner], root="task[3].inputs")
    assert told == "task[3].inputs[0].from: is missing"


def test_a_map_has_the_word_of_its_language() -> None:
    with pytest.raises(InputError, match="inner\\[0\\]: expected an object, got 1"):
        convert({"inner": [1]}, Outer, OBJECT)

    assert described(dict[str, int], OBJECT) == "an object"
    assert described(list[int] | None) == "a list"
