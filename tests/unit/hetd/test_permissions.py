"""Who may what: every request there is, asked by another user and by administrators."""

from __future__ import annotations

import grp
import os
import pwd
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

import msgspec
import pytest

from hetd.config import Config, LimitsTable
from hetd.requests.permissions import groups_of
from hetd.requests.subscriptions import Subscriptions
from libtask import messages as m
from unit.daemon_shell import OTHER, USER, Shell, a_peer, a_spec

if TYPE_CHECKING:
    from collections.abc import Callable

ADMIN = 3000
TASK = 1
"""The task of `USER` in every test."""

OF_A_TASK: list[m.Request] = [
    m.ListTasks(1, ids=[TASK]),
    m.Explain(1, TASK),
    m.Control(1, "cancel", [TASK]),
    m.Control(1, "hold", [TASK]),
    m.Control(1, "release", [TASK]),
    m.Control(1, "snapshot", [TASK]),
    m.Control(1, "park", [TASK]),
    m.Amend(1, [TASK], priority=5),
    m.Migrate(1, TASK, "cpu"),
    m.Submit(1, [a_spec(after=[TASK])]),
    m.Submit(1, [a_spec()], part_of=TASK),
    m.Requeue(1, [TASK]),
    m.DeleteTasks(1, [TASK]),
]
"""Requests about one user's task."""
OF_THE_NODE: list[m.Request] = [
    m.Drain(1, "cpu", on=True),
    m.TestDevices(1, []),
    m.Policies(1, set="migration"),
    m.AddSamples(1, [m.Sample("a/1", "cpu", 1.0)]),
    m.DeleteSamples(1),
    m.Usage(1, user=4321),
    m.ListTasks(1, user=4321),
    m.Stop(1),
]
"""Requests that change what is everybody's, or ask of another user."""
HARMLESS = {m.Devices, m.Estimate, m.Models, m.Notes, m.Renew, m.Status, m.ShowConfig}
"""They tell nothing of a task but its number and that it runs, or that there are so many;
a renewal concerns only leases of the sender."""
BY_THE_LOOP = {m.Subscribe}


def name(request: m.Request) -> str:
    verb = f" {request.verb}" if isinstance(request, m.Control) else ""
    of_another = getattr(request, "part_of", 0) or getattr(request, "user", None)
    part = " of another" if of_another else ""
    return type(request).__name__ + verb + part


@pytest.fixture
def shell(restart: Callable[..., Shell]) -> Shell:
    shell = restart()
    shell.service.rights._groups = lambda uid: frozenset(
        {"hetd-admin", "hetd"} if uid == ADMIN else {"hetd"}
    )
    assert shell.submit(a_spec(hold=True)) == [TASK]
    return shell


def test_every_request_is_looked_at_here() -> None:
    asked = {each for each in get_args(m.ToDaemon) if issubclass(each, m.Request)}

    seen = {type(request) for request in OF_A_TASK + OF_THE_NODE}

    assert seen | HARMLESS | BY_THE_LOOP == asked


@pytest.mark.parametrize("request_", OF_A_TASK, ids=name)
def test_nobody_touches_another_users_task(shell: Shell, request_: m.Request) -> None:
    before = shell.journal.encoded_pages(shell.journal.live.values())

    error = shell.error(request_, OTHER)

    assert (error.code, error.text) == ("not-allowed", "task 1 belongs to another user")
    assert shell.journal.encoded_pages(shell.journal.live.values()) == before


@pytest.mark.parametrize("request_", OF_A_TASK + OF_THE_NODE, ids=name)
def test_administrators_may_do_all(shell: Shell, request_: m.Request) -> None:
    if isinstance(request_, (m.Requeue, m.DeleteTasks)):  # they are of ended tasks
        shell.ask(m.Control(1, "cancel", [TASK]))

    assert not isinstance(shell.ask(request_, ADMIN), m.Error)


@pytest.mark.parametrize("request_", OF_THE_NODE, ids=name)
def test_without_a_group_of_administrators_there_are_none(
    shell: Shell, request_: m.Request
) -> None:
    active = shell.parts.config
    active.replace(msgspec.structs.replace(active.value, admin_group=""))

    error = shell.error(request_, ADMIN)

    assert error.text == "only root and the daemon's own user may do that"


def test_a_listing_holds_nothing_of_others(shell: Shell) -> None:
    def seen(uid: int) -> list[int]:
        return [info.id for info in shell.ask(m.ListTasks(1), uid).tasks]

    assert (seen(USER), seen(OTHER), seen(ADMIN)) == ([TASK], [], [TASK])


def test_watchers_hear_nothing_of_others(shell: Shell) -> None:
    watchers = Subscriptions()
    for uid in (USER, OTHER, ADMIN):
        watchers.add(a_peer(str(uid), uid), m.Subscribe(1))

    told = list(watchers.address(shell.journal.changes, shell.service.rights.is_admin))

    assert {route for route, _ in told} >= {b"1000", b"3000"}
    assert b"2000" not in {route for route, _ in told}


def test_groups_are_asked_for_once_a_minute(shell: Shell) -> None:
    asked: list[int] = []
    now = [0]
    shell.service.rights._clock = replace(shell.runtime.clock, now=lambda: now[0])

    def groups(uid: int) -> frozenset[str]:
        asked.append(uid)
        return frozenset({"hetd-admin"} if len(asked) == 1 else ())

    shell.service.rights._groups = groups
    answers = []
    for now[0] in (0, 59 * 10**9, 61 * 10**9):
        answers.append(shell.service.rights.is_admin(OTHER))

    assert asked == [OTHER, OTHER]
    assert answers == [True, True, False]


def test_all_groups_of_a_user_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    user = pwd.getpwuid(os.getuid())
    first, second, *_ = grp.getgrall()
    unknown = 2**31 - 2
    monkeypatch.setattr(
        os,
        "getgrouplist",
        lambda name, gid: {
            (user.pw_name, user.pw_gid): [first.gr_gid, second.gr_gid, unknown]
        }[name, gid],
    )

    assert groups_of(os.getuid()) == {first.gr_name, second.gr_name}
    assert groups_of(2**31 - 3) == frozenset()


# ---------------------------------------------------------------- limits


@pytest.fixture
def limited(restart: Callable[..., Shell]) -> Callable[..., Shell]:
    """Start a shell with a table of limits."""
    return lambda **fields: restart(limits=msgspec.convert(fields, LimitsTable))


def test_tasks_beyond_the_limit_are_refused_all_or_none(
    limited: Callable[..., Shell],
) -> None:
    shell = limited(tasks=2)
    shell.submit(a_spec(hold=True))

    error = shell.error(m.Submit(1, [a_spec(), a_spec()]))

    assert error.code == "not-allowed"
    assert error.text == (
        "you may have 2 unfinished tasks and have 1: no room for 2 more; wait until "
        "some end, or ask for a higher limit"
    )
    assert shell.submit(a_spec(hold=True)) == [2]
    assert shell.submit(a_spec(), uid=OTHER) == [3]
    shell.ask(m.Control(1, "cancel", [1]))
    assert shell.submit(a_spec(hold=True)) == [4]


def test_limits_of_single_users_go_before(limited: Callable[..., Shell]) -> None:
    shell = limited(
        tasks=1, user={str(USER): {"tasks": "unlimited"}, str(OTHER): {"tasks": 0}}
    )

    assert len(shell.submit(*[a_spec()] * 5)) == 5
    assert "you may have 0" in shell.error(m.Submit(1, [a_spec()]), OTHER).text


def test_tasks_count_after_a_restart(limited: Callable[..., Shell]) -> None:
    shell = limited(tasks=1)
    shell.submit(a_spec(hold=True))
    shell.commit()
    again = limited(tasks=1)
    again.runtime.restore()

    assert again.error(m.Submit(1, [a_spec()])).code == "not-allowed"


def test_a_limit_of_running_tasks_is_taken_up(limited: Callable[..., Shell]) -> None:
    shell = limited(running=1)
    first, second = shell.submit(a_spec(), a_spec())
    waits = shell.ask(m.Explain(1, second))

    shell.runtime.configure(Config())

    assert shell.state(first) == "running"
    assert waits.why.startswith("waits until other tasks of its owner end")
    assert shell.state(second) == "running"
