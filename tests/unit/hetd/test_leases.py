"""Leases: a submitter that falls silent has its tasks held, and gets them back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hetd.tasks.leases import MOST_LEASES, SLICE
from libtask import messages as m
from libtask.messages.codec import MalformedError, decode_to_daemon, encode
from unit.daemon_shell import OTHER, USER, Shell, a_peer, a_spec
from unit.turned_clock import Hands

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PERIOD = 8.0


class Node:
    """A daemon with a clock that tests turn; it can be started again."""

    def __init__(self, folder: Path) -> None:
        self.hands = Hands()
        self._folder = folder
        self.shell = Shell(folder, self.hands.clock())

    def restart(self, after: float = 0.0) -> Shell:
        self.shell.commit()
        self.shell.close()
        self.hands.seconds += after
        self.shell = Shell(self._folder, self.hands.clock())
        self.shell.runtime.restore()
        self.shell.runtime.tick()
        return self.shell

    def wait(self, seconds: float) -> None:
        """Let time pass, and the daemon do what is due."""
        self.hands.seconds += seconds
        for _ in range(20):
            self.shell.runtime.tick()

    def submit(self, count: int = 1, uid: int = USER, **fields: Any) -> list[int]:
        spec = a_spec(**{"lease": "pool", "lease_s": PERIOD, **fields})
        return self.shell.submit(*[spec] * count, uid=uid)

    def renew(self, lease: str = "pool", uid: int = USER) -> tuple[int, int]:
        reply = self.shell.ask(m.Renew(1, lease), uid)
        assert isinstance(reply, m.Renewed)
        for _ in range(20):
            self.shell.runtime.tick()
        return reply.tasks, reply.released

    def states(self, *tasks: int) -> list[str]:
        return [self.shell.state(task) for task in tasks]

    def info(self, task: int) -> m.TaskInfo:
        (info,) = self.shell.ask(m.ListTasks(1, ids=[task], detail=True)).tasks
        assert isinstance(info, m.TaskInfo)
        return info


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.shell.close()


def test_waiting_tasks_of_a_silent_submitter_are_held_until_it_is_back(
    node: Node,
) -> None:
    tasks = node.submit(3, resources=["gpu0"])[1:]
    (apart,) = node.shell.submit(a_spec(resources=["gpu0"]))

    node.wait(7.9)
    assert node.states(*tasks) == ["queued", "queued"]
    node.wait(0.2)
    assert node.states(*tasks, apart) == ["held", "held", "queued"]
    assert node.info(tasks[0]).fenced
    assert node.info(tasks[0]).reason == "held: its submitter was silent for 8 s"

    assert node.renew() == (3, 3)
    assert node.states(*tasks) == ["queued", "queued"]
    assert not node.info(tasks[0]).fenced
    assert node.info(tasks[0]).reason is None


def test_a_running_task_is_stopped_and_goes_on(node: Node) -> None:
    node.shell.worker("w")
    (task,) = node.submit()
    run = node.shell.run_of("w")

    node.wait(8.1)
    (order,) = node.shell.sent.to("w", m.Preempt)
    assert (order.task, order.epoch) == (task, run.epoch)
    yielded = m.Yielded(task, run.epoch, m.CheckpointRecord(4, 10))
    node.shell.reports.report(a_peer("w"), yielded)
    assert node.states(task) == ["held"]

    node.renew()
    assert node.states(task) == ["running"]
    assert len(node.shell.sent.to("w", m.Run)) == 2


def test_a_renewal_before_the_task_has_stopped_lets_it_run(node: Node) -> None:
    node.shell.worker("w")
    (task,) = node.submit()
    run = node.shell.run_of("w")
    node.wait(8.1)

    node.renew()
    yielded = m.Yielded(task, run.epoch, m.CheckpointRecord(4, 10))
    node.shell.reports.report(a_peer("w"), yielded)

    assert node.states(task) == ["running"]


def test_renewals_and_submits_begin_the_period_again(node: Node) -> None:
    tasks = node.submit(2, resources=["gpu0"])
    for _ in range(5):
        node.wait(6.0)
        assert node.renew()[1] == 0
    node.wait(6.0)
    node.submit(resources=["gpu0"])
    node.wait(6.0)

    assert node.states(tasks[1]) == ["queued"]
    left = node.info(tasks[1]).lease_left_s
    assert left == pytest.approx(2.0)


def test_leases_belong_to_users_and_names(node: Node) -> None:
    node.shell.submit(*[a_spec(resources=["gpu0"])])
    (mine,) = node.submit(resources=["gpu0"])
    (other,) = node.submit(resources=["gpu0"], lease="")
    (theirs,) = node.submit(resources=["gpu0"], uid=OTHER)
    node.wait(5.0)
    assert node.renew() == (1, 0)
    assert node.renew("unknown") == (0, 0)
    node.wait(5.0)

    assert node.states(mine, other, theirs) == ["queued", "held", "held"]
    assert node.renew("", OTHER) == (0, 0)
    assert node.renew("") == (1, 1)
    assert node.states(other, theirs) == ["queued", "held"]


def test_a_hold_of_the_user_outlives_the_renewal(node: Node) -> None:
    held, fenced, both = node.submit(4, resources=["gpu0"])[1:]
    node.shell.ask(m.Control(1, "hold", [held]))
    node.wait(9.0)
    assert not node.info(held).fenced
    node.shell.ask(m.Control(1, "hold", [both]))

    assert node.renew() == (4, 2)

    assert node.states(held, fenced, both) == ["held", "queued", "held"]


def test_a_release_of_the_user_takes_a_task_out_of_the_lease(node: Node) -> None:
    first, second = node.submit(3, resources=["gpu0"])[1:]
    node.wait(9.0)
    node.shell.ask(m.Control(1, "release", [first]))
    node.wait(9.0)
    shell = node.restart()

    assert node.states(first) != ["held"]
    assert node.states(second) == ["held"]
    assert node.info(first).lease_s == 0
    assert shell.journal.leased.keys() == {(USER, "pool")}


def test_a_restart_does_not_begin_the_period_again(node: Node) -> None:
    (_, task) = node.submit(2, resources=["gpu0"])
    node.wait(5.0)
    node.renew()
    node.wait(4.0)
    node.restart(after=2.0)
    assert node.states(task) == ["queued"]
    node.wait(2.1)

    assert node.states(task) == ["held"]


def test_silence_while_hetd_was_away_counts(node: Node) -> None:
    (_, task) = node.submit(2, resources=["gpu0"])
    node.restart(after=60.0)

    assert node.states(task) == ["held"]
    node.restart(after=60.0)
    assert node.states(task) == ["held"]
    assert node.info(task).fenced
    assert node.renew() == (2, 2)
    assert node.states(task) == ["queued"]


def test_ended_tasks_leave_nothing_behind(node: Node) -> None:
    tasks = node.submit(2, resources=["gpu0"])
    node.shell.ask(m.Control(1, "cancel", list(tasks)))
    assert node.renew() == (0, 0)
    node.wait(9.0)
    node.shell.commit()

    assert not node.shell.journal.leased
    assert not node.shell.journal.settings()
    assert not node.shell.runtime.leases._leases


def test_many_tasks_are_held_and_released_in_slices(node: Node) -> None:
    tasks = node.submit(3 * SLICE, resources=["gpu0"])[1:]
    node.hands.seconds += 9.0
    node.shell.runtime.tick()
    assert node.states(*tasks).count("held") < 2 * SLICE
    node.wait(0.0)
    assert {*node.states(*tasks)} == {"held"}

    assert node.renew() == (3 * SLICE, 3 * SLICE)
    assert {*node.states(*tasks)} == {"queued"}


def test_a_crash_between_two_slices_loses_no_hold(node: Node) -> None:
    tasks = node.submit(3 * SLICE, resources=["gpu0"])[1:]
    node.hands.seconds += 9.0
    node.shell.runtime.tick()
    node.restart()
    node.wait(0.0)

    assert all(node.info(task).fenced for task in tasks)
    assert node.states(*tasks).count("held") >= len(tasks) - 1  # one may have begun
    assert node.renew() == (3 * SLICE, 3 * SLICE)
    assert "held" not in node.states(*tasks)


def test_renewals_are_stored_now_and_then(node: Node) -> None:
    node.submit(resources=["gpu0"])
    node.shell.commit()
    for _ in range(3):
        node.wait(0.5)
        node.renew()
    assert not node.shell.journal.batch.settings
    node.wait(1.0)
    node.renew()

    assert len(node.shell.journal.batch.settings) == 1


def test_a_requeued_task_has_no_lease(node: Node) -> None:
    (task,) = node.submit()
    node.shell.ask(m.Control(1, "cancel", [task]))

    assert node.shell.ask(m.Requeue(1, [task])).ids
    assert not node.shell.journal.leased


def test_the_explanation_names_the_lease(node: Node) -> None:
    (_, task) = node.submit(2, resources=["gpu0"])
    node.wait(9.0)

    assert node.shell.ask(m.Explain(1, task)).why == (
        "is held: its submitter was silent for 8 s; a renewal of its lease 'pool' "
        "releases it"
    )


@pytest.mark.parametrize("seconds", [0.5, 86_401.0, -1.0, float("nan"), float("inf")])
def test_absurd_periods_are_refused(node: Node, seconds: float) -> None:
    request = m.Submit(1, [a_spec(lease_s=seconds)])
    try:
        arrived = decode_to_daemon(encode(request))
    except MalformedError:
        return
    assert isinstance(arrived, m.Submit)
    error = node.shell.error(arrived)
    assert error.text == f"lease: expected 1 to 86400 seconds, got {seconds:g}"


def test_a_user_has_a_bounded_number_of_leases(node: Node) -> None:
    for number in range(MOST_LEASES):
        node.submit(lease=f"lease {number}", resources=["gpu0"])

    many = m.Submit(1, [a_spec(lease="one more", lease_s=PERIOD)])
    assert node.shell.error(many).code == "not-allowed"
    node.submit(lease="lease 5", resources=["gpu0"])
    node.submit(lease="one more", uid=OTHER, resources=["gpu0"])
    node.shell.ask(m.Control(1, "cancel", [1]))
    assert node.submit(lease="one more")
