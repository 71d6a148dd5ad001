"""The table of policies: names, parameters, and complaints about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hetsched.policies import POLICIES, describe_policy, make_policy, parameters_of
from hetsched.policies.loesch import Migration
from libtask.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from hetsched.policy import Policy


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_can_be_made_and_described(name: str) -> None:
    policy = make_policy(name, {})

    assert make_policy(name, parameters_of(policy)) == policy
    assert describe_policy(POLICIES[name]).endswith(".")


def test_parameters_take_their_values_from_text() -> None:
    policy = make_policy("migration", {"minimum_run_s": "2.5"})

    assert policy == Migration(minimum_run_s=2.5)
    assert parameters_of(policy) == {
        "minimum_run_s": 2.5,
        "minimum_remaining_s": 0.0,
        "objective": "performance",
        "least_affinity": 0.0,
    }


@pytest.mark.parametrize("kind", POLICIES.values(), ids=POLICIES)
def test_parameters_cannot_be_changed_in_place(kind: type[Policy]) -> None:
    policy = kind()

    for name in parameters_of(policy):
        with pytest.raises(AttributeError):
            setattr(policy, name, None)


def test_an_unknown_policy_is_named_with_the_known_ones() -> None:
    with pytest.raises(NotFoundError, match="no policy 'fifo'; there are: affinity, "):
        make_policy("fifo", {})


def test_an_unknown_parameter_is_named_with_the_known_ones() -> None:
    with pytest.raises(
        InputError,
        match="policy migration has no parameter 'speed'; "
        "it has: minimum_run_s, minimum_remaining_s",
    ):
        make_policy("migration", {"speed": 3})
    with pytest.raises(
        InputError, match=r"policy affinity has no .* it has: objective"
    ):
        make_policy("affinity", {"speed": 3})


def test_a_value_of_the_wrong_type_is_refused() -> None:
    with pytest.raises(InputError, match=r"policy migration: .*minimum_run_s"):
        make_policy("migration", {"minimum_run_s": "soon"})
    with pytest.raises(InputError, match=r"policy affinity: .*objective"):
        make_policy("affinity", {"objective": "speed"})
