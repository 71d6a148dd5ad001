"""Equal tasks of several submits: checked and described once, and each right all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from hetsched.ids import TaskId
from libtask import messages as m
from unit.daemon_shell import OTHER, USER, Shell, a_spec

if TYPE_CHECKING:
    from hetsched.events import TaskSubmitted


def submitted(shell: Shell, task: int) -> TaskSubmitted:
    return shell.runtime.scheduler.system.tasks[TaskId(task)].submitted


def spec_of(shell: Shell, task: int) -> m.TaskSpec:
    return shell.journal.live[task].spec


def test_equal_tasks_of_two_submits_share_their_specification(shell: Shell) -> None:
    (first,) = shell.submit(a_spec(hold=True))
    (second,) = shell.submit(a_spec(hold=True))

    assert spec_of(shell, first) is spec_of(shell, second)
    assert submitted(shell, second) == structs.replace(
        submitted(shell, first), task=TaskId(second)
    )


def test_parameters_of_other_types_are_another_specification(shell: Shell) -> None:
    (first,) = shell.submit(a_spec(hold=True, params={"n": 1}))
    (second,) = shell.submit(a_spec(hold=True, params={"n": True}))

    assert spec_of(shell, first).params["n"] is not True
    assert spec_of(shell, second).params["n"] is True


def test_equal_tasks_of_two_users_belong_to_their_owners(shell: Shell) -> None:
    (first,) = shell.submit(a_spec(hold=True), uid=USER)
    (second,) = shell.submit(a_spec(hold=True), uid=OTHER)
    (third,) = shell.submit(a_spec(hold=True), uid=USER)

    owners = [submitted(shell, task).owner for task in (first, second, third)]
    assert owners == [USER, OTHER, USER]


def test_each_task_has_its_own_deadline(shell: Shell) -> None:
    (first,) = shell.submit(a_spec(hold=True, deadline_s=60.0))
    (second,) = shell.submit(a_spec(hold=True, deadline_s=60.0))

    sooner, later = submitted(shell, first).deadline, submitted(shell, second).deadline
    assert sooner is not None
    assert later is not None
    assert sooner < later


def test_a_move_costs_what_the_configuration_says_now(shell: Shell) -> None:
    shell.submit(a_spec(hold=True))
    active = shell.parts.config
    active.replace(structs.replace(active.value, migration_ms=250.0))

    (second,) = shell.submit(a_spec(hold=True))

    assert submitted(shell, second).migration_s == 0.25


def test_a_priority_is_checked_again_under_other_limits(shell: Shell) -> None:
    shell.submit(a_spec(hold=True, priority=5))
    active = shell.parts.config
    limits = structs.replace(active.value.limits, priority=1)
    active.replace(structs.replace(active.value, limits=limits))

    error = shell.error(m.Submit(2, [a_spec(hold=True, priority=5)]))

    assert error.code == "not-allowed"
    assert "priority: expected -1 to 1, got 5" in error.text


def test_a_known_specification_does_not_let_a_reserved_field_in(shell: Shell) -> None:
    shell.submit(a_spec(hold=True))

    error = shell.error(m.Submit(2, [a_spec(hold=True, resumes="1-2")]))

    assert "only a requeue from a snapshot may set it" in error.text
