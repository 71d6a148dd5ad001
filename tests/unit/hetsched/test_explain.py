"""Why a task is where it is, in figures that can be added up by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from builders import Harness, a_resource, a_task
from hetsched import events as e
from hetsched.planning.explain import Explanation, Prospect, estimate, explain
from hetsched.planning.principles import RULE_A, RULE_B, RULE_D
from hetsched.system import Resource

CPU = a_resource("cpu", slots=2)
GPU = Resource("gpu0", "gpu", link_bytes_per_s=1e9)
SECONDS = {"heat": {"cpu": 8.0, "gpu0": 2.0}, "blur": {"cpu": 1.0, "gpu0": 5.0}}


def a_node(policy: str = "affinity", **fields: Any) -> Harness:
    return Harness([replace(CPU, **fields), GPU], SECONDS, policy)


def explained(harness: Harness, task: int) -> Explanation:
    system = harness.scheduler.system
    return explain(system, system.tasks[a_task(task).task])


def where(explanation: Explanation) -> dict[str, Prospect]:
    return {each.resource: each for each in explanation.prospects}


def test_the_prospects_count_the_tasks_ahead_on_every_resource() -> None:
    harness = a_node()
    for number in (1, 2, 3):
        harness.handle(a_task(number, "heat"))
    harness.handle(a_task(4, "heat"), at=1.0)

    found = explained(harness, 3)

    assert found.why == "waits for gpu0, behind 2 others"
    assert found.rule == RULE_A
    # the first has a second to go, then the second's two, then its own two
    last = where(explained(harness, 4))
    assert last["gpu0"].ahead == 3
    assert last["gpu0"].wait == pytest.approx(5.0)
    assert last["gpu0"].finish == pytest.approx(7.0)
    assert (last["cpu"].ahead, last["cpu"].finish) == (0, 8.0)
    assert (last["cpu"].affinity, last["gpu0"].affinity) == (0.25, 1.0)


def test_a_task_that_is_not_submitted_would_wait_behind_all() -> None:
    harness = a_node()
    for number in (1, 2):
        harness.handle(a_task(number, "heat"))
    state, system = harness.scheduler.state, harness.scheduler.system

    found = estimate(system, state.draft(a_task(3, "heat")))

    prospects = {each.resource: each for each in found}
    # two tasks of 2 s are before it on gpu0, and cpu is free
    assert (prospects["gpu0"].ahead, prospects["gpu0"].wait) == (2, 4.0)
    assert (prospects["gpu0"].finish, prospects["cpu"].finish) == (6.0, 8.0)
    assert a_task(3).task not in system.tasks
    harness.scheduler.check()


def test_the_rest_of_a_started_task_costs_a_move_elsewhere() -> None:
    harness = a_node()
    harness.handle(a_task(1, "heat", state_bytes=500_000_000, migration_s=0.25))
    epoch = harness.scheduler.system.tasks[a_task(1).task].epoch
    harness.handle(e.StripsDone(a_task(1).task, epoch, 0.5), at=1.0)

    found = explained(harness, 1)

    assert found.why == "runs on gpu0"
    there, here = where(found)["cpu"], where(found)["gpu0"]
    assert (here.wait, here.moving, here.finish) == (0.0, 0.0, 1.0)
    # half of 8 s, and 0.25 s + 0.5 GB over 1 GB/s
    assert (there.remaining, there.moving) == (4.0, 0.75)
    assert there.finish == 4.75
    assert 0 < there.spread < 4.0


def test_tasks_on_a_shared_resource_slow_each_other() -> None:
    harness = a_node(shared=True)
    harness.handle(a_task(1, "blur", kinds={"cpu"}))
    harness.handle(a_task(2, "blur", kinds={"cpu"}))

    found = where(explained(harness, 2))["cpu"]

    assert (found.wait, found.remaining, found.finish) == (0.0, 1.0, 2.0)


def test_code_that_waits_for_other_tasks_names_them() -> None:
    harness = a_node()
    for number in (1, 2, 3, 4):
        harness.handle(a_task(number, "heat", kinds={"gpu"}))
    one, two, three = (a_task(number).task for number in (1, 2, 3))
    harness.handle(e.OthersAwaited(one, 1, (three, two)))

    assert explained(harness, 1).why == "waits on gpu0 for 2, 3, which may use its slot"
    lent = "runs on gpu0, in the slot of a task that waits for it"
    assert [explained(harness, 3).why, explained(harness, 2).why] == [
        lent,
        "waits for gpu0, behind 2 others",
    ]
    harness.handle(e.TaskCancelled(two))
    assert explained(harness, 1).why == "waits on gpu0 for 3, which may use its slot"


@pytest.mark.parametrize(
    ("fields", "event", "note"),
    [
        ({"kinds": {"cpu"}}, None, "no implementation for gpu"),
        ({"resources": {"cpu"}}, None, "its owner does not want it there"),
        ({}, e.ResourceLost("gpu0"), "the resource is lost"),
        ({}, e.ResourceDrained("gpu0"), "the resource is being drained"),
    ],
)
def test_the_reason_a_task_cannot_run_on_a_resource_is_named(
    fields: dict[str, Any], event: e.Event | None, note: str
) -> None:
    harness = a_node()
    if event is not None:
        harness.handle(event)
    harness.handle(a_task(1, "heat", **fields))

    found = where(explained(harness, 1))["gpu0"]

    assert (found.note, found.finish) == (note, math.inf)


def test_a_task_that_waits_for_others_names_them() -> None:
    harness = a_node()
    harness.handle(a_task(1, "heat"))
    harness.handle(a_task(2, "heat", after=[1]))
    harness.handle(a_task(3, "heat", hold=True))

    assert explained(harness, 2).why == "waits for 1 to complete"
    assert explained(harness, 3).why == "is held until its owner releases it"


def test_a_task_without_a_usable_resource_says_so() -> None:
    harness = a_node()
    harness.handle(a_task(1, "heat", kinds={"fpga"}))

    assert explained(harness, 1).why == (
        "waits until a resource that can run it is usable"
    )


def test_the_rule_that_moved_a_task_is_named() -> None:
    harness = a_node("migration")
    harness.handle(a_task(1, "heat"))
    harness.handle(a_task(2, "heat"), at=0.5)
    assert explained(harness, 2).rule == RULE_B

    harness.handle(e.TaskFinished(a_task(1).task, 1), at=2.0)

    found = explained(harness, 2)
    assert found.rule == RULE_D
    assert found.why == "leaves cpu at its next checkpoint for gpu0"


def test_a_move_by_the_owner_is_named_as_the_rule() -> None:
    harness = a_node()
    harness.handle(a_task(1, "heat"))
    harness.handle(a_task(2, "heat"))

    harness.handle(e.TaskMoved(a_task(2).task, "cpu"))

    assert explained(harness, 2).rule == "its owner moved it to cpu"
