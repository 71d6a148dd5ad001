"""The judge of the torture runs: it accepts what was promised, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from torture.history import FAILS, Found, History, complaints, name_of

if TYPE_CHECKING:
    from collections.abc import Callable


def good() -> tuple[History, list[Found]]:
    """Two tasks of one submit, told about; one of a submit that nobody answered."""
    history = History()
    history.ask("a", [10, 11])
    history.acknowledge("a", [1, 2])
    history.acknowledge("a", [1, 2])
    history.ask("b", [20])
    history.ask("c", [30])
    history.ask("d", [40])
    history.refuse("d")
    history.ask_to_cancel(2)
    history.tell(Found(1, name_of("a", 0), "running"))
    history.tell(Found(1, "", "completed", 10))
    tasks = [
        Found(1, "a/0", "completed", 10),
        Found(2, "a/1", "cancelled"),
        Found(3, "b/0", "completed", 20),
    ]
    return history, tasks


def test_a_daemon_that_keeps_its_promise_gets_no_complaint() -> None:
    assert complaints(*good()) == []


def test_a_cancelled_task_may_complete_all_the_same() -> None:
    history, tasks = good()
    tasks[1] = Found(2, "a/1", "completed", 11)

    assert complaints(history, tasks) == []


BROKEN: dict[str, tuple[Callable[[History, list[Found]], object], list[str]]] = {
    "lost": (
        lambda _, tasks: tasks.pop(1),
        [
            "task 2 (a/1) was acknowledged and is lost",
            "submit a is there with 1 of its 2 tasks",
        ],
    ),
    "doubled": (
        lambda _, tasks: tasks.append(Found(4, "b/0", "completed", 20)),
        ["name b/0 belongs to 2 tasks: submitted twice"],
    ),
    "one id twice": (
        lambda _, tasks: tasks.append(tasks[2]),
        [
            "id 3 belongs to 2 tasks: submitted twice",
            "name b/0 belongs to 2 tasks: submitted twice",
        ],
    ),
    "invented": (
        lambda _, tasks: tasks.append(Found(9, "z/0", "completed")),
        ["task 9 ('z/0') was never asked for"],
    ),
    "wrong result": (
        lambda _, tasks: tasks.__setitem__(2, Found(3, "b/0", "completed", 21)),
        ["task 3 has the result 21, not 20"],
    ),
    "changed result": (
        lambda history, _: history.tell(Found(3, "b/0", "completed", 7)),
        ["task 3 had the result 7 and has 20: recorded twice"],
    ),
    "an end taken back": (
        lambda history, _: history.tell(Found(3, "b/0", "failed", None, "lost")),
        ["task 3 had ended as failed and is completed"],
    ),
    "told and lost": (
        lambda history, _: history.tell(Found(5, "", "queued")),
        ["task 5 was reported as queued and is lost"],
    ),
    "told under another name": (
        lambda history, _: history.tell(Found(3, "c/0", "queued")),
        ["task 3 was c/0 and is b/0"],
    ),
    "two answers": (
        lambda history, _: history.acknowledge("a", [1, 3]),
        [
            "submit a was answered with (1, 2), then with (1, 3)",
            "task 3 was acknowledged as a/1 and is b/0",
        ],
    ),
    "too few ids": (
        lambda history, _: history.acknowledge("b", []),
        ["submit b of 1 tasks was answered with 0 ids"],
    ),
    "refused and done": (
        lambda history, _: history.refuse("b"),
        ["submit b was refused and is there"],
    ),
    "cancelled by nobody": (
        lambda history, _: history.cancels.clear(),
        ["task 2 is cancelled, which nobody asked for"],
    ),
    "failed": (
        lambda _, tasks: tasks.__setitem__(2, Found(3, "b/0", "failed", None, "lost")),
        ["task 3 is failed: lost"],
    ),
    "unfinished": (
        lambda _, tasks: tasks.__setitem__(2, Found(3, "b/0", "preempted")),
        ["task 3 has not ended: it is preempted"],
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_way_of_breaking_the_promise_is_named(name: str) -> None:
    spoil, expected = BROKEN[name]
    history, tasks = good()

    spoil(history, tasks)

    assert complaints(history, tasks) == expected


def test_a_task_that_is_to_fail_fails() -> None:
    history = History()
    history.ask("a", [FAILS, FAILS])
    tasks = [Found(1, "a/0", "failed"), Found(2, "a/1", "completed", {})]

    assert complaints(history, tasks) == [
        "task 2 has the result {}, not '<fails by itself>'"
    ]


def test_what_has_not_ended_yet_is_right_while_a_run_goes_on() -> None:
    history, tasks = good()
    tasks[2] = Found(3, "b/0", "running")

    assert complaints(history, tasks, settled=False) == []
