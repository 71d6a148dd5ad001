"""Tasks that begin at a time of day, as the daemon keeps and shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hetd.clock import Clock
from hetsched.ids import TaskId
from hetsched.system import SECOND
from libtask import messages as m
from libtask.documents import MAX_TIME
from libtask.messages.codec import MalformedError, decode_to_daemon, encode
from unit.daemon_shell import Shell, a_spec

if TYPE_CHECKING:
    from pathlib import Path

NOON = 1_700_000_000.0
HOUR = 3600.0


class Hands:
    """Two clocks that a test turns."""

    def __init__(self) -> None:
        self.monotonic = 50 * SECOND
        self.wall = NOON

    def clock(self) -> Clock:
        return Clock(lambda: self.monotonic, lambda: self.wall)

    def pass_time(self, seconds: float) -> None:
        self.monotonic += int(seconds * SECOND)
        self.wall += seconds


def test_a_task_begins_at_its_time(tmp_path: Path) -> None:
    hands = Hands()
    shell = Shell(tmp_path, hands.clock())

    (task,) = shell.submit(a_spec(begin=NOON + 40))

    waiting = shell.journal.live[task].info(detail=True)
    assert (waiting.state, waiting.begins) == ("waiting", NOON + 40)
    hands.pass_time(39.0)
    shell.runtime.tick()
    assert shell.state(task) == "waiting"
    hands.pass_time(2.0)
    shell.runtime.tick()
    running = shell.journal.live[task].info(detail=True)
    assert (running.state, running.begins) == ("running", None)
    shell.close()


def test_a_time_in_the_past_means_now(tmp_path: Path) -> None:
    hands = Hands()
    shell = Shell(tmp_path, hands.clock())

    (task,) = shell.submit(a_spec(begin=NOON - 7 * 24 * HOUR))

    assert shell.state(task) == "running"
    shell.close()


def test_the_time_is_kept_over_restarts(tmp_path: Path) -> None:
    hands = Hands()
    shell = Shell(tmp_path, hands.clock())
    (task,) = shell.submit(a_spec(begin=NOON + HOUR))
    (held,) = shell.submit(a_spec(begin=NOON + HOUR, hold=True))
    shell.commit()
    shell.close()

    hands.monotonic = 0  # the machine started again
    hands.pass_time(HOUR / 2)
    again = Shell(tmp_path, hands.clock())
    again.runtime.restore()
    restored = again.journal.live[task].info(detail=True)
    hands.pass_time(HOUR / 2 + 1)
    again.runtime.tick()

    assert (restored.state, restored.begins) == ("waiting", NOON + HOUR)
    assert (again.state(task), again.state(held)) == ("running", "held")
    again.close()


def test_a_task_whose_time_comes_while_the_daemon_is_down_begins_at_its_start(
    tmp_path: Path,
) -> None:
    hands = Hands()
    shell = Shell(tmp_path, hands.clock())
    (task,) = shell.submit(a_spec(begin=NOON + HOUR))
    shell.commit()
    shell.close()

    hands.pass_time(2 * HOUR)
    again = Shell(tmp_path, hands.clock())
    again.runtime.restore()

    assert again.state(task) == "running"
    again.close()


def _let_pass(shell: Shell, hands: Hands, seconds: float) -> None:
    """Let time pass as the daemon's loop does, which sleeps until its next timer."""
    end = hands.monotonic + int(seconds * SECOND)
    while (due := shell.runtime.next_deadline()) is not None and due <= end:
        hands.pass_time(max(due - hands.monotonic, 0) / SECOND + 1e-6)
        shell.runtime.tick()
    hands.pass_time(max(end - hands.monotonic, 0) / SECOND)


@pytest.mark.parametrize(
    ("jump", "wait"), [(2 * HOUR, 30.5), (-24 * HOUR, 25 * HOUR)], ids=["ahead", "back"]
)
def test_a_task_follows_jumps_of_the_time_of_day(
    tmp_path: Path, jump: float, wait: float
) -> None:
    hands = Hands()
    shell = Shell(tmp_path, hands.clock())
    (task,) = shell.submit(a_spec(begin=NOON + HOUR))

    hands.wall += jump
    states = []
    for seconds in (1.0, wait - 2.0, 2.0):
        _let_pass(shell, hands, seconds)
        states.append(shell.state(task))

    assert states == ["waiting", "waiting", "running"]
    shell.close()


def test_a_task_submitted_after_a_jump_is_not_moved_by_it(tmp_path: Path) -> None:
    hands = Hands()
    shell = Shell(tmp_path, hands.clock())
    (first,) = shell.submit(a_spec(begin=NOON + HOUR))

    hands.wall += 600.0
    (second,) = shell.submit(a_spec(kinds=["gpu"], begin=NOON + HOUR))
    tasks = shell.runtime.scheduler.system.tasks

    assert tasks[TaskId(first)].not_before == tasks[TaskId(second)].not_before
    shell.close()


def test_a_task_that_has_begun_does_not_wait_again_after_a_restart(
    tmp_path: Path,
) -> None:
    hands = Hands()
    shell = Shell(tmp_path, hands.clock())
    shell.worker("w")
    (task,) = shell.submit(a_spec(begin=NOON + 10))
    hands.pass_time(11.0)
    shell.runtime.tick()
    assert shell.journal.live[task].started is not None
    shell.commit()
    shell.close()

    hands.wall -= 24 * HOUR
    again = Shell(tmp_path, hands.clock())
    again.runtime.restore()

    assert again.runtime.scheduler.next_beginning() is None
    again.close()


@pytest.mark.parametrize("begin", [-1.0, float("nan"), float("inf"), 2 * MAX_TIME])
def test_times_are_bounded(begin: float) -> None:
    request = m.Submit(1, [a_spec(begin=begin)])

    with pytest.raises(MalformedError, match="begin"):
        decode_to_daemon(encode(request))
