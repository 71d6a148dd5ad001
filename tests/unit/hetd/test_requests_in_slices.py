"""Requests about many tasks are carried out bit by bit, others between."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from hetd.requests.slices import SLICE, run_to_end
from hetd.requests.turns import MOST_WAITING, SMALL
from hetsched.events import TaskCancelled
from libtask import messages as m
from system.private_daemon import eventually
from torture.bodies import ADMIN, USERS, Desk
from unit.daemon_shell import USER, Shell, a_peer, a_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from hetd.requests.slices import Steps

MANY = 3 * SLICE + 20
ANN, BEN = USERS


def held(shell: Shell, count: int = MANY, **fields: Any) -> list[int]:
    return shell.submit(*[a_spec(hold=True, **fields)] * count)


def begun(shell: Shell, request: m.Request) -> Steps:
    made = shell.service.begin(a_peer("client", USER), request)
    assert isinstance(made, Generator)
    return made


# ---------------------------------------------------------------- slices


@pytest.mark.parametrize(
    "request_",
    [
        m.Control(1, "cancel", [], key="k"),
        m.Control(1, "release", [], key="k"),
        m.Amend(1, [], priority=7, key="k"),
    ],
    ids=lambda each: getattr(each, "verb", "amend"),
)
def test_a_request_that_a_crash_interrupts_is_carried_out_when_it_is_repeated(
    restart: Callable[..., Shell], request_: Any
) -> None:
    shell = restart()
    ids = held(shell)
    shell.commit()
    request_.ids.extend(ids)
    work = begun(shell, request_)
    next(work)
    next(work)
    shell.commit()

    again = restart()
    again.runtime.restore()
    some = {task for task in ids if _is_done(again, task, request_)}
    answer = again.ask(request_)
    request_.ids.clear()

    assert len(some) in (SLICE, 2 * SLICE)
    assert isinstance(answer, m.Done)
    assert all(
        _is_done(
            again, task, m.Amend(1, [], 7) if type(request_) is m.Amend else request_
        )
        for task in ids
    )


def _is_done(shell: Shell, task: int, request: Any) -> bool:
    page = shell.journal.find(task)
    assert page is not None
    if isinstance(request, m.Amend):
        return page.spec.priority == 7
    if request.verb == "cancel":
        return page.state == "cancelled"
    return page.state != "held"


def test_one_look_of_the_policy_for_each_slice(shell: Shell) -> None:
    ids = held(shell)
    before = shell.runtime.counters.decided
    policy: Any = shell.runtime.scheduler.policy
    looks: list[object] = []

    class Counting:
        objective = policy.objective

        def react(self, *given: Any) -> Any:
            looks.append(given[0])
            return policy.react(*given)

    shell.runtime.scheduler.policy = Counting()

    shell.ask(m.Control(1, "cancel", ids))

    assert len(looks) == -(-MANY // SLICE)
    assert shell.runtime.counters.decided - before == MANY


def test_a_refused_request_has_changed_nothing(shell: Shell) -> None:
    ids = held(shell)

    error = shell.error(m.Control(1, "cancel", [*ids, 999]))

    assert error.text == "no task 999"
    assert {shell.state(task) for task in ids} == {"held"}


def test_a_task_that_is_named_twice_is_done_once(shell: Shell) -> None:
    (task,) = held(shell, 1)

    assert shell.ask(m.Control(1, "cancel", [task] * 300)) == m.Done(1, [task])


def test_a_submit_is_made_whole_though_it_is_checked_bit_by_bit(
    restart: Callable[..., Shell],
) -> None:
    shell = restart()
    ids = held(shell)
    work = begun(shell, m.Submit(1, [a_spec(after=ids)] * 3, key="k"))
    next(work)
    shell.commit()
    assert len(shell.journal.live) == MANY

    shell.ask(m.Control(1, "cancel", ids[-1:]))  # one that it comes after
    answer = run_to_end(work)

    assert isinstance(answer, m.Error)
    why = "ended as cancelled: cancelled by its owner"
    assert answer.text == f"task {ids[-1]}, which it comes after, {why}"
    assert len(shell.journal.live) == MANY - 1


def test_dependents_that_a_crash_left_are_ended_by_the_next_start(
    restart: Callable[..., Shell],
) -> None:
    shell = restart()
    (head,) = held(shell, 1)
    ids = shell.submit(*[a_spec(after=[head])] * 450)
    shell.ask(m.Control(1, "cancel", [head]))
    shell.commit()
    left = [task for task in ids if shell.state(task) == "waiting"]
    assert left

    again = restart()
    again.runtime.restore()

    why = "ended as cancelled: cancelled by its owner"
    reason = f"task {head}, which it comes after, {why}"
    for task in left:
        page = again.journal.find(task)
        assert page is not None
        assert (page.state, page.reason) == ("cancelled", reason)


# ---------------------------------------------------------------- in the loop


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """Return a loop whose users have time without end, however slow the machine."""
    made = Desk(tmp_path)
    made.loop.requests.budget.is_exhausted = lambda *_: False  # type: ignore[method-assign]  # as said
    yield made
    made.close()


def live(desk: Desk, uid: int) -> list[int]:
    return list(desk.runtime.journal.live_of.get(uid, ()))


def put_off(desk: Desk) -> int:
    return desk.inlet.answers["Error busy"]


def turn_until_done(desk: Desk) -> None:
    def is_done() -> bool:
        desk.loop.turn([])
        return not desk.loop.busy and desk.store.idle and not desk.runtime.journal.dirty

    eventually(is_done, "the end of all requests")


def test_others_are_served_between_slices(desk: Desk) -> None:
    for uid in (ANN, BEN):
        desk.say(uid, m.Submit(1, [m.TaskSpec("app", hold=True)] * 500))
        desk.say(uid, m.Submit(1, [m.TaskSpec("app", hold=True)] * 500))

    desk.put(ANN, "client", m.encode(m.Control(2, "cancel", live(desk, ANN))))
    desk.loop.turn([])
    left = len(live(desk, ANN))
    assert 0 < left < 1000
    desk.say(BEN, m.Control(2, "cancel", live(desk, BEN)[:1]))

    assert len(live(desk, BEN)) == 999
    assert live(desk, ANN)
    turn_until_done(desk)
    assert not live(desk, ANN)


def test_what_a_user_asks_next_waits_for_the_request_under_way(desk: Desk) -> None:
    desk.say(ANN, m.Submit(1, [m.TaskSpec("app", hold=True)] * 500))
    ids = live(desk, ANN)

    desk.put(ANN, "client", m.encode(m.Control(2, "cancel", ids)))
    desk.put(ANN, "other", m.encode(m.Control(3, "release", ids[-1:])))
    turn_until_done(desk)

    page = desk.runtime.journal.find(ids[-1])
    assert page is not None
    assert page.state == "cancelled"
    assert desk.inlet.answers["Done"] == 2


def test_no_more_than_so_many_requests_wait(desk: Desk) -> None:
    desk.say(ANN, m.Submit(1, [m.TaskSpec("app", hold=True)] * 500))
    desk.put(ANN, "client", m.encode(m.Control(2, "cancel", live(desk, ANN))))
    for number in range(MOST_WAITING + 7):
        desk.put(ANN, "client", m.encode(m.Devices(number)))
    long = m.Submit(4, [m.TaskSpec("app", {"data": "x" * SMALL})])
    desk.put(ANN, "client", m.encode(long))

    desk.loop.turn([])
    assert put_off(desk) == 8
    turn_until_done(desk)

    assert desk.inlet.answers["DeviceList"] == MOST_WAITING


def test_a_share_binds_within_a_request(desk: Desk) -> None:
    used_up: set[int] = set()
    desk.loop.requests.budget.is_exhausted = lambda uid, now: uid in used_up  # type: ignore[method-assign]  # as the test says
    desk.say(ANN, m.Submit(1, [m.TaskSpec("app", hold=True)] * 500))
    desk.put(ANN, "client", m.encode(m.Control(2, "cancel", live(desk, ANN))))
    desk.loop.turn([])

    used_up.add(ANN)
    for _ in range(20):
        desk.loop.turn([])
    stands = len(live(desk, ANN))
    assert 0 < desk.loop.timeout_ms() <= 101
    used_up.clear()
    turn_until_done(desk)

    assert stands > 0
    assert not live(desk, ANN)


def test_a_request_fails_by_a_bug_and_the_others_do_not(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.say(ANN, m.Submit(1, [m.TaskSpec("app", hold=True)] * 500))
    desk.put(ANN, "client", m.encode(m.Control(2, "cancel", live(desk, ANN))))
    desk.loop.turn([])

    dispatch = desk.runtime.dispatch

    def fail(*events: Any) -> None:
        if any(isinstance(event, TaskCancelled) for event in events):
            raise KeyError("a bug")
        dispatch(*events)  # a timer may be due, too

    with monkeypatch.context() as patch:
        patch.setattr(desk.runtime, "dispatch", fail)
        turn_until_done(desk)
    desk.say(ADMIN, m.Devices(1))
    turn_until_done(desk)

    assert desk.inlet.answers["Error bug"] == 1
    assert desk.inlet.answers["DeviceList"] == 1
    assert not desk.loop.busy
