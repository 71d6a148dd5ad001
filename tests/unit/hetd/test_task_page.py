"""A task's page stays small, however often the task moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetd.tasks.page import MOST_SEGMENTS
from hetsched.actions import Record
from hetsched.ids import TaskId
from hetsched.tasks import State
from libtask import messages as m
from unit.daemon_shell import a_spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from unit.daemon_shell import Shell


def test_energy_of_failed_attempts_is_neither_counted_nor_called_measured(
    shell: Shell,
) -> None:
    (task,) = shell.submit(a_spec(hold=True))
    entry = shell.journal.live[task]
    begun = Record(TaskId(task), State.RUNNING, "dispatched", "cpu")
    shell.journal.record(begun, entry.submitted)
    shell.journal.close_segment(entry, entry.submitted + 1, error="killed", joules=9.0)

    info = entry.info(detail=False)
    assert (info.joules, info.measured) == (None, False)

    shell.journal.record(begun, entry.submitted + 2)
    shell.journal.open_segment(entry, joules=2.0, measured=True, strips=1)
    info = entry.info(detail=False)
    assert (info.joules, info.measured) == (2.0, True)


def test_a_waiting_task_has_no_container_of_its_own(shell: Shell) -> None:
    """A million of them wait: an empty list takes 64 bytes."""
    (task,) = shell.submit(a_spec(hold=True))
    page = shell.journal.live[task]

    values = [getattr(page, name) for name in page.__struct_fields__]
    assert not any(isinstance(each, list | dict | set) for each in values)


def test_the_oldest_stretches_of_a_task_that_moves_very_often_become_one(
    shell: Shell,
) -> None:
    (task,) = shell.submit(a_spec(hold=True))
    entry = shell.journal.live[task]
    submitted = entry.submitted

    for moment in range(MOST_SEGMENTS + 20):
        where = ("cpu", "gpu0")[moment % 2]
        moved = Record(TaskId(task), State.RUNNING, "dispatched", where)
        shell.journal.record(moved, submitted + moment)
        shell.journal.open_segment(entry, seconds=0.5, joules=2.0, strips=1)

    segments = entry.segments
    assert len(segments) == MOST_SEGMENTS
    assert segments[0].start == submitted
    assert segments[0].finish == submitted + 21
    assert sum(each.seconds for each in segments) == 0.5 * (MOST_SEGMENTS + 20)
    assert entry.info(detail=False).joules == 2.0 * (MOST_SEGMENTS + 20)
    assert entry.migrations == MOST_SEGMENTS + 19


def test_a_task_fits_into_an_answer_whatever_its_workers_report(shell: Shell) -> None:
    """Else it could not be shown, nor could any list with its details."""
    longest = "\N{SNOWMAN}" * (m.TEXT_BYTES // 3)
    params = {"a": "x" * (900 << 10)}
    (task,) = shell.submit(a_spec(params=params))
    entry = shell.journal.live[task]

    for moment in range(MOST_SEGMENTS):
        begun = Record(TaskId(task), State.RUNNING, "dispatched", "cpu")
        shell.journal.record(begun, entry.submitted + moment)
        shell.journal.close_segment(
            entry, entry.submitted + moment + 0.5, error=longest, log=longest
        )
        lost = Record(TaskId(task), State.QUEUED, longest)
        shell.journal.record(lost, entry.submitted + moment + 0.5)
    entry.result = {"b": "x" * (900 << 10)}

    (info,) = shell.ask(m.ListTasks(1, ids=[task], detail=True)).tasks
    assert len(m.encode(m.TaskList(1, [info]))) < m.MAX_ANSWER
    assert info.segments[-1].log == longest
    assert info.segments[0].failed_attempt, "its texts are cut, not left out"


# ------------------------------------------------------------ where it ran


def _where(shell: Shell, task: int) -> tuple[str, str | None]:
    (info,) = shell.ask(m.ListTasks(1, ids=[task])).tasks
    explained = shell.ask(m.Explain(1, task))
    assert explained.resource == info.resource
    return info.state, info.resource


def test_a_task_that_is_cancelled_in_a_queue_was_on_no_resource(
    restart: Callable[..., Shell],
) -> None:
    shell = restart()
    shell.launcher()
    *_, last = shell.submit(*[a_spec(kinds=["cpu"])] * 5)
    assert _where(shell, last) == ("queued", "cpu")

    shell.ask(m.Control(1, "cancel", [last]))

    assert _where(shell, last) == ("cancelled", None)
    told = [change for page, change in shell.journal.changes if page.id == last]
    assert [(each.state, each.resource) for each in told][-1] == ("cancelled", None)
    shell.commit()
    assert _where(restart(), last) == ("cancelled", None)


def test_a_task_that_is_cancelled_in_another_queue_ran_where_it_ran(
    shell: Shell,
) -> None:
    (task,) = shell.submit(a_spec(hold=True))
    entry = shell.journal.live[task]
    begun = Record(TaskId(task), State.RUNNING, "dispatched", "gpu0")
    shell.journal.record(begun, entry.submitted)
    entry.runtime.resource = "cpu"  # it has yielded, and waits there

    shell.ask(m.Control(1, "cancel", [task]))

    assert _where(shell, task) == ("cancelled", "gpu0")
