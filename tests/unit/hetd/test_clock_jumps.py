"""The time of day jumps; what is to happen after so many seconds does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hetd.clock import Clock
from hetsched.system import SECOND
from libtask import messages as m
from unit.daemon_shell import Shell, a_peer, a_spec

if TYPE_CHECKING:
    from pathlib import Path

HOUR = 3600.0


class Hands:
    """Two clocks that a test turns."""

    def __init__(self) -> None:
        self.monotonic = 0
        self.wall = 1_700_000_000.0

    def clock(self) -> Clock:
        return Clock(lambda: self.monotonic, lambda: self.wall)

    def pass_time(self, seconds: float) -> None:
        self.monotonic += int(seconds * SECOND)
        self.wall += seconds


@pytest.mark.parametrize(
    "jump", [2 * HOUR, -24 * HOUR, -1_700_000_000.0], ids=["ahead", "back", "to 1970"]
)
def test_a_deadline_holds_through_jumps_of_the_time_of_day(
    tmp_path: Path, jump: float
) -> None:
    hands = Hands()
    shell = Shell(tmp_path, hands.clock())
    (task,) = shell.submit(a_spec(deadline_s=50.0, overrun="stop"))

    hands.wall += jump
    shell.runtime.tick()
    hands.pass_time(49.0)
    shell.runtime.tick()
    before = shell.state(task)
    hands.pass_time(2.0)
    shell.runtime.tick()

    assert (before, shell.state(task)) == ("running", "cancelled")
    shell.close()


def test_tasks_keep_their_order_when_time_goes_back(tmp_path: Path) -> None:
    hands = Hands()
    shell = Shell(tmp_path, hands.clock())
    first = shell.submit(a_spec(kinds=["gpu"]), a_spec(kinds=["gpu"]))
    hands.wall -= 24 * HOUR
    second = shell.submit(a_spec(kinds=["gpu"]))
    shell.commit()
    shell.close()

    again = Shell(tmp_path, hands.clock())
    again.runtime.restore()
    queue = again.runtime.scheduler.system.queue("gpu0")

    assert [task.id for task in queue] == [*first, *second][1:]
    again.close()


def test_no_time_is_negative_when_the_time_of_day_is_put_back(tmp_path: Path) -> None:
    hands = Hands()
    shell = Shell(tmp_path, hands.clock())
    (task,) = shell.submit(a_spec())
    hands.wall -= HOUR
    shell.worker("w")
    run = shell.run_of("w")
    page = shell.journal.live[task]
    record = m.CheckpointRecord(1, 2)
    began = hands.wall
    report = m.Progress(task, run.epoch, record, 0.1, 1, started=began)
    shell.reports.report(a_peer("w"), report)
    hands.wall -= HOUR
    shell.finish("w", run, ended=hands.wall)

    (segment,) = page.segments
    assert page.started is not None
    assert segment.computing is not None
    assert segment.finish is not None
    assert page.finished is not None
    assert page.submitted <= page.started <= segment.computing
    assert segment.start <= segment.finish <= page.finished
    shell.close()
