"""What hetd keeps of each user is counted, bounded, and shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hetd.config import LimitsTable, UserTable
from hetd.store.retention import STEP
from libtask import messages as m
from unit.daemon_shell import OTHER, USER, Shell, a_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MIB = 1 << 20
ADMIN = 0


@pytest.fixture
def restart(tmp_path: Path) -> Iterator[Callable[..., Shell]]:
    opened: list[Shell] = []

    def start(**limits: Any) -> Shell:
        if opened:
            opened[-1].close()
        opened.append(Shell(tmp_path, limits=LimitsTable(**limits)))
        opened[-1].runtime.restore()
        return opened[-1]

    yield start
    opened[-1].close()


def commit(shell: Shell) -> None:
    """Commit as the loop does, with what is to leave."""
    batch = shell.journal.take_batch()
    shell.service.storage_quota.cut(
        {row[3] for row in batch.tasks} | {k[0] for k in batch.keys}
    )
    shell.store.submit(batch)
    shell.store.flush()
    shell.service.storage_quota.apply_removals()


def a_large_spec(size: int = 100_000, **fields: Any) -> m.TaskSpec:
    return a_spec(params={"data": "x" * size}, **fields)


def submit_and_cancel(shell: Shell, count: int, uid: int = USER) -> list[int]:
    ids = []
    for _ in range(count):
        ids += shell.submit(a_large_spec(hold=True), uid=uid)
        shell.ask(m.Control(1, "cancel", ids[-1:]), uid)
        commit(shell)
    return ids


def usage(shell: Shell, uid: int = USER) -> m.UsageInfo:
    found = shell.ask(m.Usage(1), uid)
    assert isinstance(found, m.UsageInfo)
    return found


def stored(shell: Shell) -> dict[int, int]:
    """Count bytes as they lie in the store, by owner."""
    rows = shell.store.connection.execute(
        "SELECT owner, sum(length(entry)) FROM tasks GROUP BY owner"
    )
    return dict(rows.fetchall())


# ---------------------------------------------------------------- counted


def test_bytes_are_counted_as_they_lie_in_the_store(
    restart: Callable[..., Shell],
) -> None:
    shell = restart()
    (first, second) = shell.submit(a_large_spec(hold=True), a_spec(hold=True))
    shell.submit(a_spec(hold=True), uid=OTHER)
    commit(shell)
    shell.ask(m.Control(1, "cancel", [first]))
    shell.ask(m.Amend(1, [second], priority=7, key="k"))
    commit(shell)

    _demand_counted(shell)
    _demand_counted(restart())


def _demand_counted(shell: Shell) -> None:
    found = usage(shell)
    assert found.unended_bytes + found.history_bytes == stored(shell)[USER]
    assert found.history_bytes > 100_000 > found.unended_bytes > 0
    assert usage(shell, OTHER).unended_bytes == stored(shell)[OTHER]
    assert found.answer_bytes > 0
    assert shell.store.usage()[USER][0] == stored(shell)[USER]


def test_an_administrator_asks_for_others_and_no_one_else(
    restart: Callable[..., Shell],
) -> None:
    shell = restart(stored_mb=3, user={str(USER): UserTable(priority=5)})
    shell.submit(a_spec(hold=True))

    found = shell.ask(m.Usage(1, user=USER), ADMIN)

    assert (found.user, found.unended_tasks, found.stored_limit) == (USER, 1, 3 * MIB)
    assert (found.priority_limit, usage(shell, OTHER).priority_limit) == (5, 1000)
    assert shell.error(m.Usage(1, user=USER), OTHER).code == "not-allowed"


# ---------------------------------------------------------------- bounded


def test_unended_tasks_are_refused_beyond_their_bytes(
    restart: Callable[..., Shell],
) -> None:
    shell = restart(unended_mb=1)
    for _ in range(10):
        shell.submit(a_large_spec(hold=True))
        commit(shell)

    error = shell.error(m.Submit(1, [a_large_spec()]))
    shell.submit(a_large_spec(hold=True), uid=OTHER)

    assert error.code == "not-allowed"
    assert error.text.startswith(
        "your unfinished tasks may take 1 MiB and take 1.0: no "
    )
    assert len(shell.journal.live_of[USER]) == 10


def test_the_oldest_ended_tasks_leave_beyond_a_users_bytes(
    restart: Callable[..., Shell],
) -> None:
    shell = restart(stored_mb=1)
    (kept,) = submit_and_cancel(shell, 1, OTHER)
    (waiting,) = shell.submit(a_spec(hold=True))

    ids = submit_and_cancel(shell, 30)
    commit(shell)

    left = [task for task in ids if shell.store.task(task) is not None]
    assert left == ids[-len(left) :]
    assert 0 < len(left) <= 10
    assert all(shell.journal.find(task) is None for task in ids if task not in left)
    assert shell.state(waiting) == "held"
    assert shell.state(kept) == "cancelled"
    found = usage(shell)
    assert found.unended_bytes + found.history_bytes + found.answer_bytes <= MIB
    assert found.unended_bytes + found.history_bytes == stored(shell)[USER]


def test_answers_to_requests_have_their_part_of_a_users_bytes(
    restart: Callable[..., Shell],
) -> None:
    shell = restart(stored_mb=1)
    ids = shell.submit(*[a_spec(hold=True)] * 500)
    for number in range(600):
        shell.ask(m.Amend(1, ids, priority=number % 9, key=f"{number}"))
        shell.journal._unsaved.clear()  # it is about the answers
        commit(shell)

    found = usage(shell)
    assert found.answer_bytes <= MIB // 8
    keys = shell.store.connection.execute("SELECT key FROM keys").fetchall()
    assert ("599",) in keys
    assert ("0",) not in keys


def test_a_user_ahead_of_the_cutting_is_put_off(restart: Callable[..., Shell]) -> None:
    shell = restart(stored_mb=1)
    shell.journal.usage.pages[USER] = 3 * MIB

    assert shell.error(m.Submit(1, [a_spec()])).code == "busy"
    shell.submit(a_spec(), uid=OTHER)


def test_small_tasks_leave_step_by_step(restart: Callable[..., Shell]) -> None:
    shell = restart(stored_mb=1)
    ids: list[int] = []
    for _ in range(10):
        ids = shell.submit(*[a_large_spec(1000, hold=True)] * 300)
        shell.ask(m.Control(1, "cancel", ids))
        commit(shell)
    for _ in range(3 * 3000 // STEP):
        commit(shell)

    found = usage(shell)
    assert found.history_bytes + found.answer_bytes <= MIB
    assert shell.store.task(ids[-1]) is not None


def test_sizes_of_snapshots_that_workers_invent_fit_into_the_answer(
    restart: Callable[..., Shell],
) -> None:
    shell = restart()
    for task in shell.submit(*[a_spec(hold=True)] * 2):
        page = shell.journal.live[task]
        page.snapshot = m.SnapshotInfo(1, 2, bytes=(1 << 63) - 1)

    found = usage(shell)

    assert found.snapshot_bytes == (1 << 63) - 1
    assert m.decode_from_daemon(m.encode(found)) == found
