"""Execution: strips, checkpoints, pre-emption, pipelining, and snapshots in the middle."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from libtask.checkpoint import StripSizer
from libtask.errors import DeviceError
from libtask.messages import CheckpointRecord
from libtask.worker.execution import (
    Abandoned,
    AbandonedError,
    Completed,
    RunCheckpoint,
    Stopped,
    StopRequest,
)
from unit.recorded_execution import (
    RecordingDevice,
    counting,
    demand_at,
    execution,
    strips_of_one,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def test_runs_to_the_end() -> None:
    device, task = RecordingDevice(), list[int]()
    run = execution(counting, strips_of_one(3), device=device, task=task)

    outcome = run.run()

    assert outcome == Completed()
    assert task == [0, 1, 2]
    assert run.checkpoint.done == 3
    assert device.story == [
        "in",
        *("mark 1", "wait 1"),
        *("mark 2", "wait 2"),
        *("mark 3", "wait 3"),
        "out",
    ]


def test_stops_at_a_checkpoint_and_copies_out() -> None:
    device, task = RecordingDevice(), list[int]()
    checkpoint = strips_of_one(9, extra={"residual": 0.5})
    watch = demand_at(2, StopRequest.PREEMPT)

    outcome = execution(
        counting, checkpoint, device=device, watch=watch, task=task
    ).run()

    assert outcome == Stopped(CheckpointRecord(2, 9, {"residual": 0.5}))
    assert task == [0, 1]
    assert device.story[-1] == "out"


def test_goes_on_where_it_stopped() -> None:
    task = [0, 1]
    checkpoint = strips_of_one(4, done=2)

    assert execution(counting, checkpoint, task=task).run() == Completed()
    assert task == [0, 1, 2, 3]


def test_abandons_without_copying_out() -> None:
    device = RecordingDevice()
    watch = demand_at(1, StopRequest.ABANDON)

    outcome = execution(counting, strips_of_one(9), device=device, watch=watch).run()

    assert outcome == Abandoned()
    assert device.story[-1] == f"dropped by {AbandonedError.__name__}"


def test_is_not_asked_when_no_strip_is_left() -> None:
    watch = demand_at(1, StopRequest.PREEMPT)

    assert execution(counting, strips_of_one(1), watch=watch).run() == Completed()


def test_no_iterations_is_a_complete_task() -> None:
    run = execution(counting, strips_of_one(0))

    assert run.run() == Completed()
    assert run.measures.strips == 0


def test_pipelined_device_has_one_strip_in_flight() -> None:
    device = RecordingDevice(pipelined=True)

    execution(counting, strips_of_one(3), device=device).run()

    assert device.story == [
        "in",
        "mark 1",
        *("mark 2", "wait 1"),
        *("mark 3", "wait 2", "wait 3"),
        "out",
    ]


def test_pipelined_stop_waits_for_the_strip_in_flight() -> None:
    device, task = RecordingDevice(pipelined=True), list[int]()
    watch = demand_at(2, StopRequest.PREEMPT)

    outcome = execution(
        counting, strips_of_one(9), device=device, watch=watch, task=task
    ).run()

    assert outcome == Stopped(CheckpointRecord(2, 9))
    assert task == [0, 1]
    assert device.story[-3:] == ["wait 1", "wait 2", "out"]


def test_an_app_that_ends_by_itself_is_not_pipelined() -> None:
    def converging(_task: Any, _device: Any, checkpoint: Any) -> Iterator[None]:
        for strip in checkpoint.strips():
            yield
            if strip.stop == 2:
                return

    device = RecordingDevice(pipelined=True)
    run = execution(converging, strips_of_one(None), device=device)

    assert run.run() == Completed()
    assert run.checkpoint.done == 2
    assert device.story == ["mark 1", "wait 1", "mark 2", "wait 2"]


@pytest.mark.parametrize("pipelined", [False, True])
def test_a_device_lost_in_a_strip_copies_nothing_out(*, pipelined: bool) -> None:
    device = RecordingDevice(pipelined=pipelined)
    device.fails_at_mark = 2
    checkpoint = strips_of_one(9)

    with pytest.raises(DeviceError):
        execution(counting, checkpoint, device=device).run()
    assert checkpoint.done == 1
    assert "out" not in device.story


def test_an_interrupt_in_the_watch_copies_nothing_out() -> None:
    def interrupted(_now: int) -> StopRequest | None:
        raise KeyboardInterrupt

    device = RecordingDevice()

    with pytest.raises(KeyboardInterrupt):
        execution(counting, strips_of_one(9), device=device, watch=interrupted).run()
    assert device.story[-1] == "dropped by AbandonedError"


@pytest.mark.parametrize("pipelined", [False, True])
def test_measures(*, pipelined: bool) -> None:
    def working(_task: Any, device: Any, checkpoint: Any) -> Iterator[None]:
        with device.resident():
            for strip in checkpoint.strips():
                sum(range(1000 * len(strip)))
                yield

    before = time.time_ns()
    checkpoint = RunCheckpoint(CheckpointRecord(0, 6), StripSizer(1, fixed=2))
    run = execution(working, checkpoint, device=RecordingDevice(pipelined=pipelined))

    run.run()

    measures = run.measures
    assert (measures.strips, measures.iterations) == (3, 6)
    assert (measures.transfer_in, measures.transfer_out) == (0.25, 0.5)
    assert before <= measures.first_strip_at_ns < measures.last_strip_at_ns
    span = measures.last_strip_at_ns - measures.first_strip_at_ns
    assert measures.computing_ns == span


def test_strips_grow_to_the_target_interval() -> None:
    """The sizer sees the strips' times: with endless time, each is 8 times longer."""
    sizes: list[int] = []

    def noting(_task: Any, _device: Any, checkpoint: Any) -> Iterator[None]:
        for strip in checkpoint.strips():
            sizes.append(len(strip))
            yield

    checkpoint = RunCheckpoint(CheckpointRecord(0, 100), StripSizer(10**15))
    execution(noting, checkpoint).run()

    assert sizes == [1, 8, 64, 27]


# ---------------------------------------------------------------- in the middle


@pytest.mark.parametrize("pipelined", [False, True])
def test_a_task_settles_in_the_middle_and_goes_on(*, pipelined: bool) -> None:
    device, task = RecordingDevice(pipelined=pipelined), list[int]()
    records = []

    def watch(_now: int) -> StopRequest | None:
        if len(task) == 2:
            records.append(driven.settle())
        return None

    driven = execution(
        counting, strips_of_one(4), device=device, watch=watch, task=task
    )
    outcome = driven.run()

    assert outcome == Completed()
    assert [record.done for record in records] == [2], "no strip is in flight"
    assert task == [0, 1, 2, 3]
    assert driven.measures.strips == 4
    before = device.story[: device.story.index("refresh")]
    assert before[-1] == "wait 2"


def test_the_time_of_a_snapshot_counts_for_no_strip() -> None:
    def watch(_now: int) -> StopRequest | None:
        driven.settle()
        time.sleep(0.02)
        return None

    driven = execution(counting, strips_of_one(5), watch=watch)
    began = time.perf_counter_ns()
    driven.run()
    elapsed = time.perf_counter_ns() - began

    assert driven.measures.computing_ns <= elapsed - 4 * 20_000_000


# ---------------------------------------------------------------- sizes of strips


class ClockedDevice(RecordingDevice):
    """A pipelined device on a clock of its own, which computes what was enqueued in order.

    Args:
        enqueueing: nanoseconds in which the host enqueues an iteration.
        computing: nanoseconds in which the device computes one.

    """

    def __init__(self, enqueueing: int, computing: int) -> None:
        super().__init__(pipelined=True)
        self.now = 0
        self._enqueueing, self._computing = enqueueing, computing
        self._free_at = 0

    def clock(self) -> int:
        return self.now

    def enqueue(self, iterations: int) -> None:
        began = self.now
        self.now += self._enqueueing * iterations
        # it begins with the first iteration, while the host enqueues the others
        begin = max(self._free_at, began + self._enqueueing)
        self._free_at = max(begin + self._computing * iterations, self.now)

    def mark(self) -> Callable[[], None]:
        done = self._free_at

        def wait() -> None:
            self.now = max(self.now, done)

        return wait


@pytest.mark.parametrize(
    ("enqueueing", "computing"),
    [(10, 10_000), (10_000, 10), (10_000, 9_000), (9_000, 10_000)],
    ids=["slow device", "slow host", "host a little slower", "device a little slower"],
)
def test_strips_settle_at_the_target_interval(
    monkeypatch: pytest.MonkeyPatch, enqueueing: int, computing: int
) -> None:
    """A real GPU may compute sooner than the host enqueues, or hold few commands."""
    device = ClockedDevice(enqueueing, computing)
    monkeypatch.setattr("libtask.worker.execution.time.perf_counter_ns", device.clock)
    sizes: list[int] = []

    def enqueueing_strips(task: Any, device: Any, checkpoint: Any) -> Iterator[None]:
        for strip in checkpoint.strips():
            sizes.append(len(strip))
            device.enqueue(len(strip))
            yield

    interval = 50_000_000
    total = 40 * interval // max(enqueueing, computing)
    record = CheckpointRecord(0, total, {})
    checkpoint = RunCheckpoint(record, StripSizer(interval))
    driven = execution(enqueueing_strips, checkpoint, device=device)

    assert driven.run() == Completed()

    ideal = interval / max(enqueueing, computing)
    settled = sizes[len(sizes) // 2 : -1]
    assert len(settled) > 10
    assert all(0.5 < size / ideal < 2 for size in settled), sizes


# ---------------------------------------------------------------- wrong numbers


class Doubtful(list[int]):
    """Numbers of which a task says from some point on that they are wrong."""

    def __init__(self, wrong_from: int) -> None:
        super().__init__()
        self.wrong_from = wrong_from
        self.checked: list[int] = []

    def check(self, checkpoint: RunCheckpoint) -> str:
        self.checked.append(checkpoint.done)
        return "the sum is off" if checkpoint.done >= self.wrong_from else ""


@pytest.mark.parametrize("pipelined", [False, True])
@pytest.mark.parametrize(
    ("wrong_from", "checked"), [(2, [2]), (4, [2, 4]), (99, [2, 4])]
)
def test_numbers_are_checked_where_the_host_has_them(
    *, pipelined: bool, wrong_from: int, checked: list[int]
) -> None:
    device, task = RecordingDevice(pipelined=pipelined), Doubtful(wrong_from)

    def watch(_now: int) -> StopRequest | None:
        if len(task) == 2:
            driven.settle()
        return None

    driven = execution(
        counting, strips_of_one(4), device=device, watch=watch, task=task
    )
    if wrong_from > 4:
        assert driven.run() == Completed()
    else:
        with pytest.raises(DeviceError, match="wrong numbers: the sum is off"):
            driven.run()

    assert task.checked == checked


def test_wrong_numbers_are_carried_to_no_other_device() -> None:
    task = Doubtful(1)
    watch = demand_at(2, StopRequest.PREEMPT)

    with pytest.raises(DeviceError, match="wrong numbers"):
        execution(counting, strips_of_one(9), watch=watch, task=task).run()
