"""Mapping events worked out by hand, as `hetsim map` reads them."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from hetsim.map_once import map_once, mapper_of
from hetsim.mapping_event import FORMAT, decode_event
from libtask.errors import InputError

MACHINES: list[dict[str, Any]] = [
    {"running": None, "queue": []},
    {"running": None, "queue": []},
]


def an_event(**keys: Any) -> dict[str, Any]:
    """Two idle machines; two types; the second machine is slow and thrifty."""
    return {
        "format": FORMAT,
        "now": 10.0,
        "eet": [[2, 4], [3, 5]],
        "p_dyn": [3.0, 1.0],
        "slots": 2,
        "machines": MACHINES,
        "arriving": [],
        **keys,
    }


def a_waiter(name: str, kind: int = 0, deadline: float | None = 100) -> dict[str, Any]:
    return {"id": name, "type": kind, "deadline": deadline}


def a_runner(name: str, kind: int, start: float, deadline: float = 100) -> Any:
    return {"id": name, "type": kind, "deadline": deadline, "start": start}


def mapped(policy: str, settings: dict[str, Any] | None = None, **keys: Any) -> Any:
    event = decode_event(json.dumps(an_event(**keys)))
    return map_once(event, mapper_of(policy, settings or {}, event))


# ------------------------------------------------------------ MM, MSD, MMU


def test_mm_gives_the_fastest_machine_the_task_that_ends_first() -> None:
    arriving = [a_waiter("slow", 1), a_waiter("quick", 0), a_waiter("later", 0)]

    result = mapped("mm", arriving=arriving)

    assert result.map == {"quick": 0}
    assert result.unmapped == ["slow", "later"]


def test_mm_counts_the_queue_ahead_until_each_deadline() -> None:
    # r ends at 12, q is cut at 13 by its deadline: 13 + 2 ties with nothing, 10 + 4 is less.
    busy = {"running": a_runner("r", 0, 10.0), "queue": [a_waiter("q", 1, 13)]}

    result = mapped("mm", machines=[busy, MACHINES[1]], arriving=[a_waiter("x")])

    assert result.map == {"x": 1}


def test_mm_maps_late_tasks_too() -> None:
    result = mapped("mm", arriving=[a_waiter("late", 0, 11)])

    assert result.map == {"late": 0}


def test_msd_goes_by_deadline_then_by_completion() -> None:
    arriving = [a_waiter("b", 1, 20), a_waiter("a", 0, 20), a_waiter("c", 0, 30)]

    assert mapped("msd", arriving=arriving).map == {"a": 0}
    assert mapped("msd", arriving=[*arriving, a_waiter("d", 1, 19)]).map == {"d": 0}


def test_mmu_goes_by_what_is_left_and_puts_late_tasks_last() -> None:
    # Complete at 12 (type 0) or 13 (type 1): 3.5 s left, 3 s left, 1 s too late.
    arriving = [
        a_waiter("late", 0, 11),
        a_waiter("a", 0, 15.5),
        a_waiter("b", 1, 16),
    ]

    assert mapped("mmu", arriving=arriving).map == {"b": 0}
    assert mapped("mmu", arriving=arriving[:1]).map == {"late": 0}
    # As printed, 1 / (deadline - e): 9, 13.5 and 13.
    assert mapped("mmu", {"urgency": "execution"}, arriving=arriving).map == {"late": 0}


# ------------------------------------------------------------ ELARE


def test_elare_takes_least_energy_that_is_in_time() -> None:
    # Type 0: 6 J until 12 on machine 0, 4 J until 14 on machine 1.
    assert mapped("elare", arriving=[a_waiter("x", 0, 14)]).map == {"x": 1}
    assert mapped("elare", arriving=[a_waiter("x", 0, 13.9)]).map == {"x": 0}
    assert mapped("elare", arriving=[a_waiter("x", 0, 11.9)]).unmapped == ["x"]


def test_a_completion_at_the_deadline_is_in_time_in_one_reading() -> None:
    arriving = [a_waiter("x", 0, 14)]

    theirs = mapped("elare", {"reading": "authors-code"}, arriving=arriving)

    assert theirs.map == {"x": 0}


def test_elare_maps_at_most_one_task_to_a_machine_the_cheapest() -> None:
    arriving = [a_waiter("b", 1), a_waiter("a", 0), a_waiter("hasty", 1, 13)]

    result = mapped("elare", arriving=arriving)

    assert result.map == {"a": 1, "hasty": 0}
    assert result.unmapped == ["b"]


def test_a_full_machine_is_left_out() -> None:
    full = {"running": a_runner("r", 0, 9.0), "queue": [a_waiter("q"), a_waiter("p")]}

    result = mapped(
        "elare", machines=[MACHINES[0], full], arriving=[a_waiter("x"), a_waiter("y")]
    )

    assert result.map == {"x": 0}
    assert result.unmapped == ["y"]


def test_a_task_that_overruns_is_expected_to_end_now() -> None:
    # It was to end at 7, so the next one ends at 10 + 4 = 14.
    slow = {"running": a_runner("r", 0, 3.0), "queue": []}
    keys: dict[str, Any] = {
        "machines": [MACHINES[0], slow],
        "arriving": [a_waiter("x", 0, 13.9)],
    }

    assert mapped("elare", **keys).map == {"x": 0}
    assert mapped("elare", {"overrunning": "unclamped"}, **keys).map == {"x": 1}


def test_expired_tasks_are_dropped() -> None:
    arriving = [
        a_waiter("gone", 0, 9.5),
        a_waiter("now", 0, 10),
        a_waiter("x", 0, None),
    ]

    result = mapped("elare", arriving=arriving)

    assert result.expired == ["gone", "now"]
    assert result.map == {"x": 1}


def test_where_a_type_cannot_run_it_is_not_mapped() -> None:
    result = mapped("elare", eet=[[2, None], [3, 5]], arriving=[a_waiter("x")])

    assert result.map == {"x": 0}


# ------------------------------------------------------------ FELARE

FIG_2: dict[str, Any] = {"eet": [[1]] * 4, "p_dyn": [1.0], "machines": MACHINES[:1]}


def test_the_numbers_of_figure_2() -> None:
    result = mapped("felare", completion_rates=[0.20, 0.60, 0.15, 0.45], **FIG_2)
    mean = 0.35
    deviation = math.sqrt((0.15**2 + 0.25**2 + 0.20**2 + 0.10**2) / 4)

    assert deviation == pytest.approx(0.184, abs=0.0005)
    assert result.fairness_limit == pytest.approx(mean - deviation)
    assert result.fairness_limit == pytest.approx(0.166, abs=0.0005)
    assert result.suffered == [2]


def test_the_second_picture_of_figure_2() -> None:
    result = mapped("felare", completion_rates=[0.23, 0.50, 0.25, 0.42], **FIG_2)

    assert result.fairness_limit == pytest.approx(0.236, abs=0.001)
    assert result.suffered == [0]


def test_with_two_types_and_a_factor_of_one_nobody_suffers() -> None:
    for low, high in [(0.0, 1.0), (0.2, 0.8), (0.1, 0.7), (0.33, 0.34)]:
        result = mapped("felare", completion_rates=[low, high])

        assert result.suffered == []


def test_suffered_tasks_go_first_and_alone() -> None:
    # Type 1 suffers; type 0 would take less energy on machine 1.
    arriving = [a_waiter("a", 0), a_waiter("b", 1), a_waiter("hasty", 0, 12.5)]
    keys: dict[str, Any] = {"completion_rates": [0.9, 0.1], "fairness_factor": 0.5}

    result = mapped("felare", arriving=arriving, **keys)

    assert result.suffered == [1]
    assert result.map == {"b": 1}
    assert result.unmapped == ["a", "hasty"]


def busy(*queue: dict[str, Any]) -> list[dict[str, Any]]:
    """Machine 0 runs until 12 and has a queue; machine 1 is busy until 50."""
    return [
        {"running": a_runner("r", 0, 10.0), "queue": list(queue)},
        {"running": a_runner("s", 0, 46.0), "queue": []},
    ]


SUFFERING: dict[str, Any] = {"completion_rates": [0.9, 0.1], "fairness_factor": 0.5}


def test_tasks_make_way_from_the_tail_until_the_suffered_one_fits() -> None:
    # Behind both: 12 + 2 + 2 + 3 = 19; behind one: 17; behind none: 15.
    machines = busy(a_waiter("p"), a_waiter("q"))
    arriving = [a_waiter("b", 1, 17)]

    result = mapped("felare", machines=machines, arriving=arriving, **SUFFERING)
    more = mapped(
        "felare", machines=machines, arriving=[a_waiter("b", 1, 15)], **SUFFERING
    )

    assert (result.evicted, result.map) == (["q"], {"b": 0})
    assert (more.evicted, more.map) == (["q", "p"], {"b": 0})


def test_tasks_that_suffer_themselves_stay() -> None:
    machines = busy(a_waiter("p"), a_waiter("q", 1))
    arriving = [a_waiter("b", 1, 18)]

    result = mapped("felare", machines=machines, arriving=arriving, **SUFFERING)

    assert (result.evicted, result.map) == (["p"], {"b": 0})


def test_nobody_makes_way_in_vain_unless_so_read() -> None:
    machines = busy(a_waiter("p"), a_waiter("q"))
    keys: dict[str, Any] = {
        "machines": machines,
        "arriving": [a_waiter("b", 1, 14)],
        **SUFFERING,
    }

    assert mapped("felare", **keys).evicted == []
    literal = mapped("felare", {"evict_in_vain": True}, **keys)
    assert (literal.evicted, literal.map) == (["q", "p"], {})


def test_others_go_while_no_suffered_task_is_feasible_in_one_reading() -> None:
    arriving = [a_waiter("b", 1, 12), a_waiter("a", 0)]
    theirs = {"others": "wait"}

    assert mapped("felare", arriving=arriving, **SUFFERING).map == {"a": 1}
    assert mapped("felare", theirs, arriving=arriving, **SUFFERING).map == {}


# ------------------------------------------------------------ complaints


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({"format": "x"}, 'format: expected "hetsim/mapping-1", got "x"'),
        ({"now": "soon"}, 'now: expected a number, got "soon"'),
        ({"eet": [[1]]}, "eet[0]: expected 2 numbers, one a machine, got 1"),
        ({"p_dyn": [1.0]}, "p_dyn: expected 2 numbers, one a machine, got 1"),
        (
            {"arriving": [a_waiter("x", 7)]},
            "arriving[0].type: no type 7; there are: 0 to 1",
        ),
        (
            {"arriving": [a_waiter("x"), a_waiter("x")]},
            'arriving[1].id: "x" is there already',
        ),
        (
            {"arriving": [a_waiter("x", 0, "soon")]},  # type: ignore[arg-type]
            'arriving[0].deadline: expected a number, got "soon"',
        ),
        (
            {"completion_rates": [0.5]},
            "completion_rates: expected 2 numbers, one a type, got 1",
        ),
        (
            {"machines": [{"running": {"id": "r", "type": 0}}, MACHINES[1]]},
            "machines[0].running.start: is missing",
        ),
    ],
)
def test_a_malformed_event_is_named_by_its_place(
    keys: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InputError) as caught:
        mapped("elare", **keys)

    assert str(caught.value) == complaint


def test_felare_needs_completion_rates_and_other_policies_do_not_map() -> None:
    with pytest.raises(InputError, match="completion_rates: is missing"):
        mapped("felare")
    with pytest.raises(InputError, match="affinity is none of mm"):
        mapped("affinity")
