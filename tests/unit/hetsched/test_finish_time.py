"""`finish-time` on the scheduler itself: how often a task moves when estimates change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from builders import Harness, a_resource, a_task
from hetsched import build
from hetsched import events as e
from hetsched.actions import Preempt, Run
from hetsched.ids import TaskId
from hetsched.planning.lookahead import MOST_MOVES, View
from hetsched.planning.outlook import Outlook
from hetsched.system import Resource

if TYPE_CHECKING:
    from collections.abc import Callable

    from builders import Start

TASK = TaskId(1)
NODE = [a_resource("cpu"), a_resource("gpu")]


def moves_under_changing_estimates(a_scheduler: Start, ratio: float) -> list[float]:
    """Let the resource where a task runs become slower each time it has run a while.

    Returns the shares of the task done at which it was moved.
    """
    node = a_scheduler(NODE, {"t": {"cpu": 100.0, "gpu0": 101.0}}, "finish-time")
    node.handle(a_task(1, "t"))
    epoch, where, moved = 1, "cpu", []
    for strip in range(1, 200):
        share, at = strip / 200, float(strip)
        other = "gpu0" if where == "cpu" else "cpu"
        table = node.scheduler.system.estimates
        table.learn("t", where, 100.0 * ratio, 1.0)  # type: ignore[attr-defined]  # the table of the builders
        table.learn("t", other, 100.0, 1.0)  # type: ignore[attr-defined]
        actions = node.handle(e.StripsDone(TASK, epoch, share), at=at)
        if Preempt(TASK, epoch) in actions:
            moved.append(share)
            run = next(
                action
                for action in node.handle(
                    e.TaskYielded(TASK, epoch, share), at=at + 0.1
                )
                if isinstance(action, Run)
            )
            epoch, where = run.epoch, run.resource
    return moved


def test_estimates_that_change_all_the_time_move_a_task_few_times(
    a_scheduler: Start,
) -> None:
    moved = moves_under_changing_estimates(a_scheduler, ratio=2.0)

    # it saves 1.8 standard deviations each time; a third move would have to save 2.5
    assert moved == [0.005, 0.01]


def test_no_task_moves_more_often_than_the_most(a_scheduler: Start) -> None:
    moved = moves_under_changing_estimates(a_scheduler, ratio=50.0)

    assert 1 < len(moved) <= MOST_MOVES


def test_progress_on_a_shared_processor_counts_the_time_it_was_given(
    a_scheduler: Start,
) -> None:
    # half of 40 s beside another task, and 20 s alone
    node = a_scheduler(
        [Resource("cpu", "cpu", slots=2, shared=True)], {"t": {"cpu": 100.0}}
    )
    node.handle_all(a_task(1, "t"), a_task(2, "t"))
    node.handle(e.TaskFinished(TaskId(2), 2), at=40.0)
    node.handle(e.TimerFired(), at=60.0)

    (item,) = View(node.scheduler.system).node.items

    assert item.times == [60.0]


def test_a_departing_task_whose_destination_is_now_avoided_has_no_destination() -> None:
    slots = [a_resource("cpu", slots=2), a_resource("gpu"), a_resource("fpga")]
    times = {"a": {"cpu": 50.0, "gpu0": 40.0, "fpga0": 60.0}}
    node = Harness(slots, times, "finish-time")
    node.handle_all(*(a_task(number, "a") for number in range(1, 9)))
    states = node.scheduler.system.states
    (leaving,) = states["gpu0"].running.values()
    crashed = next(iter(states["cpu"].running.values()))
    node.handle(e.StripsDone(leaving.id, leaving.epoch, 0.1), 4.0)
    node.scheduler.state.preempt(leaving.id, "cpu")

    node.handle(e.WorkerLost(crashed.id, crashed.epoch, "SIGABRT", cause="crash"), 5.0)
    for second in range(6, 12):
        node.handle(e.TimerFired(), second)

    assert len(states["gpu0"].running) == 1


def test_a_started_task_that_goes_next_where_it_waits_is_no_move() -> None:
    # as a move it was doubted again and again, without end
    times = {
        "first": {"cpu": 10.0, "gpu0": 1000.0},
        "long": {"cpu": 35.6, "gpu0": 1000.0},
        "short": {"cpu": 0.5, "gpu0": 17.1},
        "other": {"cpu": 1000.0, "gpu0": 4.7},
    }
    node = Harness(NODE, times, "finish-time")
    node.handle_all(a_task(1, "first"), a_task(2, "other"))
    node.handle_all(a_task(3, "long"), a_task(4, "long"), a_task(5, "short"))
    on_cpu = node.scheduler.system.states["cpu"]
    *_, short = on_cpu.queue.entries
    short.last_resource = "gpu0"

    (first,) = on_cpu.running.values()
    node.handle(e.TaskFinished(first.id, first.epoch), at=10.0)

    assert list(on_cpu.running) == [short.id] == [TaskId(5)]


@pytest.mark.skipif(build.NAME == "compiled", reason="it replaces a method")
def test_a_queue_is_summed_up_once_for_each_resource_that_idles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # once for each row it was: a user with tasks of 9,500 sizes had the daemon decide
    # for a minute
    rows = 200
    times = {f"t{n}": {"cpu": 1.0 + n, "gpu0": 2.0 + n} for n in range(rows)}
    node = Harness(NODE, {**times, "short": {"cpu": 9.0, "gpu0": 1.0}}, "finish-time")
    node.handle_all(a_task(1, "short", kinds=["gpu"]))
    node.handle_all(*(a_task(2 + n, f"t{n}") for n in range(rows)))
    on_gpu = node.scheduler.system.states["gpu0"]
    (short,) = on_gpu.running.values()
    sums: list[str] = []
    monkeypatch.setattr(Outlook, "dry", _counting(sums))

    node.handle(e.TaskFinished(short.id, short.epoch), at=1.0)

    assert on_gpu.running
    assert 0 < len(sums) <= 4 * len(NODE)


def _counting(sums: list[str]) -> Callable[[Outlook, str], float]:
    dry = Outlook.dry

    def counted(self: Outlook, resource: str) -> float:
        sums.append(resource)
        return dry(self, resource)

    return counted
