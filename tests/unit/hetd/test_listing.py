"""A user's own tasks are found without a look at everybody's history."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from hetd.store import Batch
from hetd.tasks.page import TaskPage, encode
from hetsched.tasks import State, TaskRuntime
from libtask import messages as m
from unit.daemon_shell import OTHER, USER, Shell, a_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from collections.abc import Set as AbstractSet
    from pathlib import Path

HISTORY = 5000
MINE = (7, 2500, 4999)
"""Those of `HISTORY` ended tasks that are the user's; the others are another's."""
EACH = 10
"""Instructions of SQLite between two counts."""


COMPLETED = TaskRuntime(State.COMPLETED)


@contextmanager
def restored(
    folder: Path, ended: list[TaskPage], marked: AbstractSet[int] = frozenset()
) -> Iterator[Shell]:
    """Start with these ended tasks in the store."""
    first = Shell(folder)
    pages = [
        (each.id, int(each.finished or 0), encode(each), each.owner) for each in ended
    ]
    first.store.submit(Batch(tasks=pages, marked=set(marked)))
    first.store.flush()
    first.close()
    again = Shell(folder)
    again.runtime.restore()
    yield again
    again.close()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    ended = [
        TaskPage(n, USER if n in MINE else OTHER, a_spec(), n, COMPLETED, finished=9.0)
        for n in range(1, HISTORY + 1)
    ]
    with restored(tmp_path, ended) as shell:
        yield shell


def listed(shell: Shell, uid: int, **fields: object) -> tuple[list[int], int]:
    """List a user's tasks; return their ids, and the work that SQLite had with it."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += EACH
        return 0

    connection = shell.store.connection
    connection.set_progress_handler(count, EACH)
    request = m.ListTasks(1, **{"mine": True, **fields})  # type: ignore[arg-type]  # of a request
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


def test_a_page_of_unfinished_tasks_takes_no_look_at_the_others(
    restart: Callable[..., Shell],
) -> None:
    shell = restart()
    waiting = [
        task for _ in range(6) for task in shell.submit(*[a_spec(hold=True)] * 500)
    ]
    shell.commit()

    found, steps = listed(shell, 0, mine=False, limit=300)

    assert found == waiting[:-301:-1]
    assert (
        steps < 5000
    )  # a look at all of them takes six for each, and a page has two steps


@pytest.mark.parametrize("uid", [0, USER])
def test_unfinished_tasks_and_ended_ones_of_all_ages_stand_in_order(
    restart: Callable[..., Shell], uid: int
) -> None:
    shell = restart()
    tasks = [
        task for _ in range(3) for task in shell.submit(*[a_spec(hold=True)] * 400)
    ]
    shell.ask(m.Control(1, "cancel", tasks[::3]))
    shell.commit()
    shell.ask(m.Control(1, "cancel", tasks[1::3][-300:]))  # not stored yet
    gone = [
        *tasks[::3][-40:],
        *tasks[1::3][-40:],
    ]  # in one step, which awaits no commit
    shell.ask(m.DeleteTasks(1, gone))

    found: list[int] = []
    for _ in range(6):
        before = found[-1] if found else None
        found += listed(shell, uid, mine=False, limit=270, before=before)[0]

    assert found == sorted(set(tasks).difference(gone), reverse=True)


def test_the_history_of_all_is_listed_to_a_ruler_only(shell: Shell) -> None:
    page = m.ListTasks(1, limit=HISTORY)

    assert len(shell.ask(page, 0).tasks) == HISTORY
    assert len(shell.ask(page, OTHER).tasks) == HISTORY - len(MINE)


def test_what_has_just_ended_is_its_owners(shell: Shell) -> None:
    (task,) = shell.submit(a_spec(hold=True))
    shell.ask(m.Control(1, "cancel", [task]))

    assert listed(shell, USER, limit=1)[0] == [task]
    assert listed(shell, 4321)[0] == []


def ended_as(number: int) -> TaskPage:
    """Return the page of one of many ended tasks: few have a name or a job, or failed."""
    state = State.FAILED if number in MINE else State.COMPLETED
    name = f"sweep.{number}" if number in (100, 101) else "alone" * (number == 200)
    job = "nightly" * (number == 300)
    spec = a_spec(name=name, job=job)
    return TaskPage(
        number, USER, spec, number, TaskRuntime(state), finished=float(number)
    )


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Shell]:
    """One user's long history: task 7 ended in second 7, and so on."""
    ended = [ended_as(number) for number in range(1, HISTORY + 1)]
    with restored(tmp_path, ended, {100, 101, 200, 300, *MINE}) as shell:
        yield shell


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"name": "sweep"}, [101, 100]),
        ({"name": "sweep.101"}, [101]),
        ({"name": "*o*"}, [200]),
        ({"name": "sw"}, []),
        ({"job": "nightly"}, [300]),
        ({"job": "*"}, [300]),
        ({"states": ["failed"]}, [*reversed(MINE)]),
        ({"states": ["failed", "running"], "limit": 2}, [4999, 2500]),
        ({"states": ["failed"], "before": 2500}, [7]),
    ],
)
def test_few_of_many_are_found_without_reading_the_others(
    own: Shell, fields: dict[str, Any], expected: list[int]
) -> None:
    before = own.journal.bytes_read
    found, steps = listed(own, USER, **fields)

    assert found == expected
    assert own.journal.bytes_read - before < 10_000
    assert steps < 1000
    assert listed(own, OTHER, **fields)[0] == []


def test_names_of_tasks_that_wait_or_have_just_ended_are_found(own: Shell) -> None:
    waiting, ended, other = own.submit(
        a_spec(hold=True, name="sweep.7"),
        a_spec(hold=True, name="sweep.8"),
        a_spec(hold=True, name="sweeper"),
    )
    own.ask(m.Control(1, "cancel", [ended, other]))

    assert listed(own, USER, name="sweep")[0] == [ended, waiting, 101, 100]
    own.commit()
    assert listed(own, USER, name="sweep")[0] == [ended, waiting, 101, 100]
    assert listed(own, USER, states=["cancelled"])[0] == [other, ended]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, HISTORY + 1),
        ({"since": 4001.0}, 1001),
        ({"states": sorted(m.ENDED)}, HISTORY),
        ({"states": sorted(m.ENDED), "since": 4001.0}, 1000),
        ({"states": ["failed"]}, 3),
        ({"states": ["completed"]}, HISTORY - 3),
        ({"states": ["completed"], "before": 100}, 98),
        ({"states": ["completed", "failed"]}, HISTORY),
        ({"states": ["completed", "held"]}, HISTORY - 2),
        ({"states": ["held"]}, 1),
        ({"states": ["queued"]}, 0),
        ({"name": "sweep"}, 2),
    ],
)
def test_tasks_are_counted(own: Shell, fields: dict[str, Any], expected: int) -> None:
    own.submit(a_spec(hold=True))
    own.commit()
    before = own.journal.bytes_read

    answer = own.ask(m.ListTasks(1, mine=True, count=True, **fields), USER)

    assert answer.count == expected
    assert own.journal.bytes_read - before < 10_000


def test_completed_tasks_since_a_time_are_counted(own: Shell) -> None:
    request = m.ListTasks(1, mine=True, count=True, states=["completed"], since=4001.0)

    assert own.ask(request, USER).count == 999


def test_those_that_ended_since_a_time_are_listed_by_their_ends(own: Shell) -> None:
    ended: list[Any] = sorted(m.ENDED)
    request = m.ListTasks(1, mine=True, states=ended, since=4998.0)

    assert [info.id for info in own.ask(request, USER).tasks] == [5000, 4999, 4998]
