"""A full disk: new tasks are refused, also those that were already scheduled."""

from __future__ import annotations

import select
from contextlib import closing
from typing import TYPE_CHECKING

import msgspec
import pytest

from hetd.requests.out_of_space import REASON, OutOfSpace
from libtask import messages as m
from unit.daemon_shell import USER, Shell, a_spec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with closing(Shell(tmp_path)) as shell:
        yield shell


def _fill(shell: Shell) -> None:
    count = shell.store._writer.execute("PRAGMA page_count").fetchone()[0]
    shell.store._writer.execute(f"PRAGMA max_page_count = {count}")


def _submit(shell: Shell, key: str, hold: bool = True) -> m.Message:  # noqa: FBT001, FBT002  one word in three calls
    """Submit as the loop does: the answer waits for the commit."""
    bulk = {"bulk": b"x" * 9000}
    submit = m.Submit(1, [a_spec(hold=hold, params=bulk)], key=key)
    reply: m.Message = shell.ask(submit)
    shell.journal.batch.replies.append((b"client", reply))
    return reply


def _commit(shell: Shell) -> list[tuple[bytes, m.Message]]:
    shell.store.submit(shell.journal.take_batch())
    told: list[tuple[bytes, m.Message]] = []
    while not told and shell.store.stuck is None:
        # it may still tell of an earlier commit
        assert select.select([shell.store.wake_fd], [], [], 30)[0]
        told = shell.store.committed() or []
    return told


def test_tasks_that_do_not_fit_are_refused_and_the_rest_is_written(
    shell: Shell,
) -> None:
    (old,) = shell.submit(a_spec(hold=True))
    shell.commit()
    _fill(shell)

    accepted = _submit(shell, "k")
    shell.ask(m.Control(2, "cancel", [old]))
    told = _commit(shell)
    OutOfSpace(shell.runtime, shell.store, shell.service).turn()
    replies = shell.store.flush()

    assert isinstance(accepted, m.Submitted)
    assert told == []
    (refused,) = [each for _, each in replies if isinstance(each, m.Error)]
    assert (refused.request, refused.code) == (1, "store-full")
    assert f"{REASON}; nothing was submitted" in refused.text
    assert not [each for _, each in replies if isinstance(each, m.Submitted)]
    assert shell.state(old) == "cancelled"
    assert shell.journal.find(accepted.ids[0]) is None
    assert shell.store.task(accepted.ids[0]) is None


def test_a_list_that_waits_names_no_refused_task(shell: Shell) -> None:
    (old,) = shell.submit(a_spec(hold=True))
    shell.commit()
    _fill(shell)
    _submit(shell, "k")
    shell.journal.batch.replies.append((b"client", shell.ask(m.ListTasks(2))))

    _commit(shell)
    OutOfSpace(shell.runtime, shell.store, shell.service).turn()
    replies = shell.store.flush()

    (listed,) = [each for _, each in replies if isinstance(each, m.TaskList)]
    assert [task.id for task in listed.tasks] == [old]


def test_a_refused_submit_may_be_tried_again_with_its_key(shell: Shell) -> None:
    _fill(shell)
    first = _submit(shell, "k")
    _commit(shell)
    OutOfSpace(shell.runtime, shell.store, shell.service).turn()
    shell.store.flush()
    shell.store._writer.execute("PRAGMA max_page_count = 1000000")
    shell.store.shortage = None  # as the next look finds

    second = _submit(shell, "k")
    ((_, told),) = _commit(shell)

    assert isinstance(first, m.Submitted)
    assert isinstance(second, m.Submitted)
    assert told == second
    assert first.ids != second.ids
    assert [page.id for page in shell.journal.live.values()] == second.ids


def test_new_tasks_are_refused_at_the_door_and_the_rest_is_not(shell: Shell) -> None:
    (old,) = shell.submit(a_spec(hold=True))
    shell.commit()
    shell.store.shortage = "No space left on device"

    error = shell.error(m.Submit(1, [a_spec()]))

    assert error.code == "store-full"
    assert "store (No space left on device); nothing was submitted" in error.text
    assert isinstance(shell.ask(m.ListTasks(2)), m.TaskList)
    assert shell.ask(m.Control(3, "cancel", [old])).ids == [old]


def test_a_submit_that_was_taken_is_answered_again_also_without_room(
    shell: Shell,
) -> None:
    submit = m.Submit(1, [a_spec(hold=True)], key="k")
    taken = shell.ask(submit, USER)
    shell.commit()
    shell.store.shortage = "No space left on device"

    assert shell.ask(submit, USER) == msgspec.structs.replace(taken, known=True)


def test_watchers_of_a_long_shortage_are_not_told_of_progress(shell: Shell) -> None:
    (task,) = shell.submit(a_spec(hold=True))
    page = shell.journal.live[task]
    shell.journal.changes.clear()
    for _ in range(1001):
        shell.journal.publish(page, "progress", 0.0)
    shell.journal.publish(page, "held", 0.0)

    OutOfSpace(shell.runtime, shell.store, shell.service).turn()

    assert [change.what for _, change in shell.journal.changes] == ["held"]
