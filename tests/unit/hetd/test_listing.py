"""A user's own tasks are found without a look at everybody's history."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hetd.store import Batch
from hetd.tasks.page import TaskPage, encode
from hetsched.tasks import State, TaskRuntime
from libtask import messages as m
from unit.daemon_shell import OTHER, USER, Shell, a_spec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HISTORY = 5000
MINE = (7, 2500, 4999)
"""Those of `HISTORY` ended tasks that are the user's; the others are another's."""
EACH = 10
"""Instructions of SQLite between two counts."""


COMPLETED = TaskRuntime(State.COMPLETED)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    first = Shell(tmp_path)
    ended = [
        TaskPage(n, USER if n in MINE else OTHER, a_spec(), n, COMPLETED)
        for n in range(1, HISTORY + 1)
    ]
    pages = [(each.id, 9, encode(each), each.owner) for each in ended]
    first.store.submit(Batch(tasks=pages))
    first.store.flush()
    first.close()
    again = Shell(tmp_path)
    again.runtime.restore()
    yield again
    again.close()


def listed(shell: Shell, uid: int, **fields: int) -> tuple[list[int], int]:
    """List a user's tasks; return their ids, and the work that SQLite had with it."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += EACH
        return 0

    connection = shell.store.connection
    connection.set_progress_handler(count, EACH)
    request = m.ListTasks(1, mine=True, **fields)  # type: ignore[arg-type]  # whole numbers
    found = [info.id for info in shell.ask(request, uid).tasks]
    connection.set_progress_handler(None, 0)
    return found, steps


def test_who_has_no_tasks_waits_for_no_look_at_those_of_others(shell: Shell) -> None:
    found, steps = listed(shell, 4321)

    assert found == []
    assert steps < 100


def test_own_tasks_are_found_among_many_of_others(shell: Shell) -> None:
    waiting = shell.submit(a_spec(hold=True))
    shell.submit(*[a_spec(hold=True)] * 3, uid=OTHER)
    shell.commit()

    everything, steps = listed(shell, USER)
    assert everything == [*waiting, *reversed(MINE)]
    assert steps < 300

    assert listed(shell, USER, limit=2)[0] == [*waiting, MINE[2]]
    assert listed(shell, USER, limit=2, before=MINE[2])[0] == [MINE[1], MINE[0]]


def test_the_history_of_all_is_listed_to_a_ruler_only(shell: Shell) -> None:
    page = m.ListTasks(1, limit=HISTORY)

    assert len(shell.ask(page, 0).tasks) == HISTORY
    assert len(shell.ask(page, OTHER).tasks) == HISTORY - len(MINE)


def test_what_has_just_ended_is_its_owners(shell: Shell) -> None:
    (task,) = shell.submit(a_spec(hold=True))
    shell.ask(m.Control(1, "cancel", [task]))

    assert listed(shell, USER, limit=1)[0] == [task]
    assert listed(shell, 4321)[0] == []
