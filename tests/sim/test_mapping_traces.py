"""Short traces with deadlines, worked out by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hetsim.simulate import simulate
from scenario_builders import a_scenario

if TYPE_CHECKING:
    from hetsim.result import Result


def a_machine(name: str, watts: float = 1.0, places: int | None = 3) -> dict[str, Any]:
    return {
        "name": name,
        "kind": name,
        "busy_watts": watts,
        "idle_watts": 0.0,
        "queue_limit": places,
    }


def a_kind(name: str, strips: int = 1, **seconds: float) -> dict[str, Any]:
    overrun = "stop_at_deadline"
    return {"name": name, "seconds": seconds, "strips": strips, "overrun": overrun}


def a_task(
    name: str, kind: str, arrival: float, deadline: float | None, **actual: float
) -> dict[str, Any]:
    task = {"id": name, "type": kind, "arrival": arrival, "deadline": deadline}
    return {**task, "actual_seconds": actual} if actual else task


def run(
    policy: str,
    machines: list[dict[str, Any]],
    kinds: list[dict[str, Any]],
    tasks: list[dict[str, Any]],
    **parameters: Any,
) -> Result:
    return simulate(a_scenario(machines, kinds, tasks), policy, parameters)


def told(result: Result) -> dict[str, Any]:
    """What became of each task: its state, and where it was from when to when."""
    return {
        str(task.id): (
            task.state,
            *((s.resource, s.start, s.finish) for s in task.segments),
        )
        for task in result.tasks
    }


ONE = [a_machine("m", 2.0)]
UNIT = [a_kind("a", m=4.0)]


def test_a_queue_has_so_many_places_and_is_served_in_order_of_mapping() -> None:
    machines = [a_machine("m", places=1)]
    kinds = [a_kind("a", m=4.0), a_kind("b", m=1.0)]
    tasks = [
        a_task("runs", "a", 0, 100),
        a_task("waits", "a", 1, 100),
        a_task("long", "a", 2, 100),
        a_task("short", "b", 3, 100),
    ]

    # At 4 a place is free: mm maps `short`, which ends first, and `long` at 8.
    assert told(run("mm", machines, kinds, tasks)) == {
        "runs": ("completed", ("m", 0.0, 4.0)),
        "waits": ("completed", ("m", 4.0, 8.0)),
        "short": ("completed", ("m", 8.0, 9.0)),
        "long": ("completed", ("m", 9.0, 13.0)),
    }


def test_mm_starts_what_is_late_and_stops_it_at_its_deadline() -> None:
    tasks = [a_task("in time", "a", 0, 4), a_task("late", "a", 0.5, 6)]

    result = run("mm", ONE, UNIT, tasks)

    assert told(result) == {
        "in time": ("completed", ("m", 0.0, 4.0)),
        "late": ("missed", ("m", 4.0, 6.0)),
    }
    assert (result.energy.busy, result.energy.wasted) == (12.0, 4.0)


def test_a_task_whose_deadline_passes_in_the_queue_is_dropped_when_its_turn_comes() -> (
    None
):
    machines = [a_machine("m", 2.0, places=1)]
    tasks = [
        a_task("runs", "a", 0, 100),
        a_task("expires", "a", 1, 3),
        a_task("next", "a", 2, 100),
    ]

    result = run("mm", machines, UNIT, tasks)

    # `expires` keeps the one place until 4; `next` is mapped then and starts at once.
    assert told(result) == {
        "runs": ("completed", ("m", 0.0, 4.0)),
        "expires": ("missed",),
        "next": ("completed", ("m", 4.0, 8.0)),
    }
    assert result.energy.wasted == 0.0


def test_elare_puts_off_what_is_infeasible_until_its_deadline() -> None:
    tasks = [
        a_task("early", "a", 0, 100, m=2.0),
        a_task("hopes", "a", 1, 7),
        a_task("in vain", "a", 1.5, 6.5),
    ]

    # Expected to be free at 4, the machine is free at 2: 2 + 4 <= 7, but 6 + 4 > 6.5.
    assert told(run("elare", ONE, UNIT, tasks)) == {
        "early": ("completed", ("m", 0.0, 2.0)),
        "hopes": ("completed", ("m", 2.0, 6.0)),
        "in vain": ("cancelled",),
    }


def test_the_authors_code_drops_what_is_infeasible_at_once() -> None:
    tasks = [a_task("early", "a", 0, 100, m=2.0), a_task("hopes", "a", 1, 7)]

    result = run("elare", ONE, UNIT, tasks, deferrals=3)

    assert told(result)["hopes"] == ("cancelled",)


def test_elare_prefers_the_thrifty_machine_while_it_is_in_time() -> None:
    machines = [a_machine("fast", 4.0), a_machine("slow", 1.0)]
    kinds = [a_kind("a", fast=2.0, slow=4.0)]
    tasks = [a_task("first", "a", 0, 10), a_task("second", "a", 0.5, 7)]

    result = run("elare", machines, kinds, tasks)

    # 4 J against 8 J; the second would end at 8 on the slow one.
    assert told(result) == {
        "first": ("completed", ("slow", 0.0, 4.0)),
        "second": ("completed", ("fast", 0.5, 2.5)),
    }


def test_felare_evicts_for_a_type_that_falls_behind() -> None:
    kinds = [a_kind(name, m=2.0) for name in ("a", "b", "c", "s")]
    # One of each type; that of `s` cannot be done in time, so `s` falls behind.
    tasks = [
        a_task("a1", "a", 0.0, 100),
        a_task("b1", "b", 0.1, 100),
        a_task("c1", "c", 0.2, 100),
        a_task("s1", "s", 0.3, 1.0),
        a_task("a2", "a", 10.0, 100),
        a_task("b2", "b", 10.1, 100),
        a_task("c2", "c", 10.2, 100),
        # Behind a2 alone it is done at 14, behind b2 at 16, behind c2 at 18.
        a_task("s2", "s", 10.3, 15.0),
    ]

    result = run("felare", ONE, kinds, tasks)

    found = told(result)
    assert found["s1"] == ("cancelled",)
    assert found["s2"] == ("completed", ("m", 12.0, 14.0))
    assert found["b2"] == ("evicted",)
    assert found["c2"] == ("evicted",)
    assert result.counts["evicted"] == 2


# ------------------------------------------------------------ fair-deadline


def test_fair_deadline_binds_late() -> None:
    """The machine is free earlier than expected: the more valuable task has come."""
    kinds = [a_kind("a", m=4.0), a_kind("b", m=1.0)]
    tasks = [
        a_task("runs", "a", 0, 100),
        a_task("long", "a", 1, 100),
        a_task("short", "b", 3, 100),
    ]

    found = told(run("fair-deadline", ONE, kinds, tasks))

    assert found["short"] == ("completed", ("m", 4.0, 5.0))
    assert found["long"] == ("completed", ("m", 5.0, 9.0))


def test_fair_deadline_starts_nothing_that_will_hardly_make_it() -> None:
    result = run("fair-deadline", ONE, UNIT, [a_task("tight", "a", 0, 3.9)])

    assert told(result) == {"tight": ("cancelled",)}
    assert result.energy.busy == 0.0


MACHINES = [a_machine("slow", 1.0), a_machine("fast", 2.0)]
SPLIT = [
    a_kind("x", strips=10, slow=10.0, fast=2.0),
    a_kind("y", strips=1, slow=100.0, fast=5.0),
]


def a_straggler(deadline: float) -> list[dict[str, Any]]:
    """A task on the slow machine that takes twice as long as expected there."""
    return [
        a_task("other", "y", 0, 5.5),
        a_task("lags", "x", 0.5, deadline, slow=20.0, fast=2.0),
    ]


def test_a_running_task_moves_to_where_it_makes_its_deadline() -> None:
    result = run("fair-deadline", MACHINES, SPLIT, a_straggler(12.0), patience=False)

    # At 5 the fast machine is free; 2 of 10 strips are done, the third is at 6.5.
    assert told(result) == {
        "other": ("completed", ("fast", 0.0, 5.0)),
        "lags": ("completed", ("slow", 0.5, 6.5), ("fast", 6.5, pytest.approx(7.9))),
    }


def test_without_preemption_it_misses_its_deadline() -> None:
    result = run(
        "fair-deadline",
        MACHINES,
        SPLIT,
        a_straggler(12.0),
        patience=False,
        preempt=False,
    )

    assert told(result)["lags"] == ("missed", ("slow", 0.5, 12.0))


def test_a_running_task_that_cannot_make_it_is_taken_off() -> None:
    machines = MACHINES[:1]
    kinds = [a_kind("x", strips=10, slow=10.0)]
    tasks = [a_task("lags", "x", 0.0, 13.0, slow=20.0), a_task("next", "x", 1.0, 30.0)]

    found = told(run("fair-deadline", machines, kinds, tasks))
    waits = told(run("fair-deadline", machines, kinds, tasks, preempt=False))

    state, (_, _, finish) = found["lags"]
    assert state == "missed"
    assert finish < 10.0
    assert found["next"][0] == "completed"
    assert waits["lags"] == ("missed", ("slow", 0.0, 13.0))
