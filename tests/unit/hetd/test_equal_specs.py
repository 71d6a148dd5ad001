"""Equal specifications that follow each other are one object."""

from __future__ import annotations

from msgspec import structs

from hetd.tasks.equal_specs import EqualSpecs
from libtask.messages import TaskSpec


def spec(**changed: object) -> TaskSpec:
    plain = TaskSpec("noop", {"n": [1, 2]}, kinds=["cpu"])
    return structs.replace(plain, **changed)


def test_equal_ones_in_a_row_are_shared() -> None:
    equal = EqualSpecs()
    first, second, third = spec(), spec(), spec()
    assert equal.shared(first) is first
    assert equal.shared(second) is first
    assert equal.shared(third) is first


def test_a_specification_that_differs_in_any_field_is_its_own() -> None:
    for changed in ({"params": {"n": [1, 3]}}, {"name": "x"}, {"cores": 1}):
        equal = EqualSpecs()
        first, other, like_first = spec(), spec(**changed), spec()
        assert equal.shared(first) is first
        assert equal.shared(other) is other
        assert equal.shared(like_first) is like_first


def test_parameters_that_are_equal_and_of_other_types_are_not_shared() -> None:
    for one, other in ((1, 1.0), (1, True), ([0], [False]), ({"a": 0}, {"a": 0.0})):
        equal = EqualSpecs()
        first, second = spec(params={"n": one}), spec(params={"n": other})
        assert equal.shared(first) is first
        assert equal.shared(second) is second
