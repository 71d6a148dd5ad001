"""Tasks that have ended are submitted again, forgotten, listed by time, and counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hetd.clock import SYSTEM_CLOCK, Clock
from hetd.requests.listing import COUNTED
from libtask import messages as m
from unit.daemon_shell import OTHER, USER, Shell, a_spec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def shell(restart: Callable[..., Shell]) -> Shell:
    return restart()


def ended(shell: Shell, *specs: m.TaskSpec, uid: int = USER) -> list[int]:
    """Submit tasks, and cancel them."""
    ids = shell.submit(*specs, uid=uid)
    shell.ask(m.Control(1, "cancel", ids), uid)
    return ids


def listed(shell: Shell, uid: int = USER, **fields: object) -> list[int]:
    answer = shell.ask(m.ListTasks(1, **fields), uid)  # type: ignore[arg-type]  # as given
    return [info.id for info in answer.tasks]


# ------------------------------------------------------------ again


def test_a_task_is_submitted_again_with_all_that_was_said_of_it(shell: Shell) -> None:
    spec = a_spec(params={"n": 3}, priority=2, resources=["gpu0"], name="mine")
    (old,) = ended(shell, spec)

    reply = shell.ask(m.Requeue(1, [old]))

    assert reply == m.Submitted(1, [2], launcher=False)
    page = shell.journal.live[2]
    assert (page.spec, page.requeued, page.submission) == (spec, old, 2)
    assert [(order.what, order.text) for order in page.orders] == [
        ("requeue", "of task 1")
    ]
    assert shell.state(old) == "cancelled"


def test_tasks_after_each_other_stay_so(shell: Shell) -> None:
    ended(shell, a_spec(hold=True), a_spec(after=[-1]), a_spec(after=[-1, -2]))

    assert shell.ask(m.Requeue(1, [3, 1, 2])).ids == [4, 5, 6]

    live = shell.journal.live
    assert [live[task].spec.after for task in (4, 5, 6)] == [[], [4], [5, 4]]
    assert not live[4].spec.hold


def test_what_was_submitted_again_before_is_come_after(shell: Shell) -> None:
    ended(shell, a_spec(hold=True), a_spec(after=[-1]))
    first = shell.ask(m.Requeue(1, [1])).ids

    text = shell.error(m.Requeue(1, [2])).text
    assert text == (
        "task 2 comes after task 1, which ended as cancelled: submit that again, too"
    )
    again = m.Requeue(1, [2], done=[m.RequeuedTask(1, first[0])])
    assert shell.ask(again).ids == [4]
    assert shell.journal.live[4].spec.after == [3]


def test_only_what_has_ended_is_submitted_again(shell: Shell) -> None:
    (old,) = ended(shell, a_spec())
    (live,) = shell.submit(a_spec(hold=True))

    text = shell.error(m.Requeue(1, [old, live])).text

    assert text == (
        "task 2 is held: only ended tasks can be requeued; `hetctl cancel 2` first"
    )
    assert list(shell.journal.live) == [live]


def test_no_more_than_fills_a_message_at_once(shell: Shell) -> None:
    big = a_spec(params={"x": b"x" * 400_000})
    ids = ended(shell, big, big, big)

    assert shell.ask(m.Requeue(1, ids)).ids == [4, 5]
    many = shell.error(m.Requeue(1, list(range(1, m.MAX_TASKS + 2))))
    assert many.text == "ids: 501 tasks, at most 500 at once"


def test_limits_of_the_owner_hold(restart: Callable[..., Shell]) -> None:
    from hetd.config import LimitsTable

    shell = restart(limits=LimitsTable(tasks=1))
    (old,) = ended(shell, a_spec())
    shell.submit(a_spec(hold=True))

    assert "you may have 1 unfinished tasks" in shell.error(m.Requeue(1, [old])).text
    assert shell.error(m.Requeue(1, [old]), 0).code == "not-allowed"


def test_a_rulers_requeue_is_the_owners_task(shell: Shell) -> None:
    (old,) = ended(shell, a_spec())

    (new,) = shell.ask(m.Requeue(1, [old]), 0).ids

    assert shell.journal.live[new].owner == USER


# ------------------------------------------------------------ forgotten


def test_what_is_forgotten_is_gone(shell: Shell, restart: Callable[..., Shell]) -> None:
    ids = ended(shell, a_spec(), a_spec(name="kept"), a_spec())
    shell.commit()
    kept = shell.journal.usage.pages[USER]

    assert shell.ask(m.DeleteTasks(1, [1, 3, 1])) == m.Done(1, [1, 3])

    assert listed(shell) == [2]
    assert shell.error(m.ListTasks(1, ids=[3])).text == "no task 3"
    shell.commit()
    shell.service.storage_quota.apply_removals()
    assert listed(shell) == [2]
    assert 0 < shell.journal.usage.pages[USER] < kept
    again = restart()
    again.runtime.restore()
    assert listed(again) == [2]
    assert again.journal.usage.pages[USER] == shell.journal.usage.pages[USER]
    assert again.submit(a_spec()) == [max(ids) + 1]


def test_what_ended_this_moment_is_forgotten_too(shell: Shell) -> None:
    ids = ended(shell, a_spec())

    shell.ask(m.DeleteTasks(1, ids))

    assert listed(shell) == []
    shell.commit()
    shell.service.storage_quota.apply_removals()
    assert listed(shell) == []
    assert shell.journal.usage.pages[USER] == 0


def test_what_has_not_ended_is_not_forgotten(shell: Shell) -> None:
    (old,) = ended(shell, a_spec())
    (live,) = shell.submit(a_spec(hold=True))

    text = shell.error(m.DeleteTasks(1, [old, live])).text

    assert text == "task 2 is held: only ended tasks can be deleted"
    assert listed(shell) == [live, old]


# ------------------------------------------------------------ listed and counted


@pytest.fixture
def aged(restart: Callable[..., Shell]) -> Shell:
    """Tasks 1 to 3 ended at 1000, 2000, 3000 s; 4 waits, 5 is another user's."""
    now = [0.0]
    shell = restart(clock=Clock(SYSTEM_CLOCK.now, lambda: now[0]))
    shell.submit(*[a_spec(hold=True)] * 4)
    shell.submit(a_spec(hold=True), uid=OTHER)
    for task in (1, 2, 3):
        now[0] = 1000.0 * task
        shell.ask(m.Control(1, "cancel", [task]))
    shell.commit()
    return shell


@pytest.mark.parametrize("many", [False, True])
def test_what_ended_lately_is_listed_with_what_has_not(
    aged: Shell, monkeypatch: pytest.MonkeyPatch, *, many: bool
) -> None:
    """Few are looked up, many are found on the way through all."""
    monkeypatch.setattr("hetd.requests.listing.COUNTED", 1 if many else COUNTED)

    assert listed(aged, since=1500.0) == [4, 3, 2]
    assert listed(aged, since=1500.0, limit=2) == [4, 3]
    assert listed(aged, since=1500.0, before=3) == [2]
    assert listed(aged, 0, since=2500.0) == [5, 4, 3]
    assert aged.ask(m.ListTasks(1, since=1500.0, count=True)).count == 3


def test_tasks_are_listed_by_state(aged: Shell) -> None:
    assert listed(aged, states=["held"]) == [4]
    assert listed(aged, states=["cancelled"]) == [3, 2, 1]
    assert listed(aged, states=["cancelled", "held"], since=2500.0) == [4, 3]
    assert aged.ask(m.ListTasks(1, states=["cancelled"], count=True)).count == 3


def test_tasks_are_listed_by_user(aged: Shell) -> None:
    assert listed(aged, 0, user=OTHER) == [5]
    assert listed(aged, OTHER, user=OTHER) == [5]
    assert aged.error(m.ListTasks(1, user=USER), OTHER).code == "not-allowed"


def test_all_are_counted(aged: Shell) -> None:
    def counted(uid: int, **fields: int) -> int:
        count: int = aged.ask(m.ListTasks(1, count=True, **fields), uid).count  # type: ignore[arg-type]  # whole numbers
        return count

    assert (counted(USER), counted(OTHER), counted(0)) == (4, 1, 5)
    assert counted(USER, before=3) == 2
    assert counted(0, user=USER) == 4


# ------------------------------------------------------------ orders, submissions


def test_orders_are_kept_with_who_gave_them(
    shell: Shell, restart: Callable[..., Shell]
) -> None:
    (task,) = shell.submit(a_spec(hold=True))
    shell.ask(m.Amend(1, [task], priority=4, deadline_s=60))
    shell.ask(m.Amend(1, [task], no_deadline=True), 0)
    shell.ask(m.Migrate(1, task, "gpu0"))
    shell.ask(m.Control(1, "cancel", [task], reason="a typing error"), 0)

    (info,) = shell.ask(m.ListTasks(1, ids=[task], detail=True)).tasks

    assert [(each.what, each.by, each.text) for each in info.orders] == [
        ("hold", USER, "at its submission"),
        ("set", USER, "priority=4 deadline=60s"),
        ("set", 0, "deadline=none"),
        ("migrate", USER, "to gpu0"),
        ("cancel", 0, "a typing error"),
    ]
    assert info.reason == "cancelled by uid 0: a typing error"
    told = [change for _, change in shell.journal.changes if change.what == "migrate"]
    assert [(each.by, each.reason) for each in told] == [("uid:1000", "to gpu0")]
    shell.commit()
    kept = restart().journal.find(task)
    assert kept is not None
    assert list(kept.orders) == info.orders


def test_a_submission_that_took_several_messages_is_one(
    shell: Shell, tmp_path: Path
) -> None:
    first = shell.submit(a_spec(), a_spec())
    more = shell.submit(a_spec(), part_of=first[0])
    other = shell.submit(a_spec())

    answer = shell.ask(m.ListTasks(1, ids=[*first, *more, *other]))

    assert [info.submission for info in answer.tasks] == [4, 1, 1, 1]
