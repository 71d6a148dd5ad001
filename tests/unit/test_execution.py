"""Execution: strips, checkpoints, pre-emption, pipelining, and apps that break the rules."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from libtask.checkpoint import StripSizer
from libtask.errors import DeviceError, TaskFailedError
from libtask.messages import CheckpointRecord, DeviceSpec
from libtask.worker.execution import (
    Abandoned,
    AbandonedError,
    Completed,
    Course,
    Demand,
    Execution,
    Stopped,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from libtask.task import Implementation
    from libtask.worker.execution import Watch


class RecordingDevice:
    """A device that writes down what is asked of it, in order."""

    copies_out = None

    def __init__(self, *, pipelined: bool = False) -> None:
        self.spec = DeviceSpec("recorder", "cpu")
        self.pipelined = pipelined
        self.transfer_in = 0.0
        self.transfer_out = 0.0
        self.story: list[str] = []
        self.fails_at_mark: int | None = None
        self._marks = 0

    @contextmanager
    def resident(self, *arrays: Any) -> Iterator[tuple[Any, ...]]:
        self.story.append("in")
        self.transfer_in += 0.25
        try:
            yield arrays
        except GeneratorExit:
            self._copy_out()
            raise
        except BaseException as error:
            self.story.append(f"dropped by {type(error).__name__}")
            raise
        self._copy_out()

    inputs = resident
    scratch = resident

    def _copy_out(self) -> None:
        self.story.append("out")
        self.transfer_out += 0.5

    def mark(self) -> Callable[[], None]:
        self._marks += 1
        number = self._marks
        self.story.append(f"mark {number}")

        def wait() -> None:
            self.story.append(f"wait {number}")
            if number == self.fails_at_mark:
                raise DeviceError("recorder: lost")

        return wait

    def refresh(self) -> None:
        self.story.append("refresh")

    def close(self) -> None:
        self.story.append("close")


def go_on(_now: int) -> Demand | None:
    return None


def demand_at(checkpoint: int, demand: Demand) -> Watch:
    """Return a watch that demands at the n-th checkpoint it is asked at, from 1."""
    asked = 0

    def watch(_now: int) -> Demand | None:
        nonlocal asked
        asked += 1
        return demand if asked == checkpoint else None

    return watch


def strips_of_one(
    total: int | None, done: int = 0, extra: dict[str, Any] | None = None
) -> Course:
    record = CheckpointRecord(done, total, extra or {})
    return Course(record, StripSizer(50_000_000, fixed=1))


def counting(task: list[int], device: Any, checkpoint: Any) -> Iterator[None]:
    with device.resident(task):
        for strip in checkpoint.strips():
            task.extend(strip)
            yield


def execution(
    implementation: Implementation,
    course: Course,
    *,
    device: RecordingDevice | None = None,
    watch: Watch = go_on,
    task: Any = None,
) -> Execution:
    task = [] if task is None else task
    return Execution(implementation, task, device or RecordingDevice(), course, watch)


def test_runs_to_the_end() -> None:
    device, task = RecordingDevice(), list[int]()
    run = execution(counting, strips_of_one(3), device=device, task=task)

    outcome = run.run()

    assert outcome == Completed()
    assert task == [0, 1, 2]
    assert run.course.done == 3
    assert device.story == [
        "in",
        *("mark 1", "wait 1"),
        *("mark 2", "wait 2"),
        *("mark 3", "wait 3"),
        "out",
    ]


def test_stops_at_a_checkpoint_and_copies_out() -> None:
    device, task = RecordingDevice(), list[int]()
    course = strips_of_one(9, extra={"residual": 0.5})
    watch = demand_at(2, Demand.PREEMPT)

    outcome = execution(counting, course, device=device, watch=watch, task=task).run()

    assert outcome == Stopped(CheckpointRecord(2, 9, {"residual": 0.5}))
    assert task == [0, 1]
    assert device.story[-1] == "out"


def test_goes_on_where_it_stopped() -> None:
    task = [0, 1]
    course = strips_of_one(4, done=2)

    assert execution(counting, course, task=task).run() == Completed()
    assert task == [0, 1, 2, 3]


def test_abandons_without_copying_out() -> None:
    device = RecordingDevice()
    watch = demand_at(1, Demand.ABANDON)

    outcome = execution(counting, strips_of_one(9), device=device, watch=watch).run()

    assert outcome == Abandoned()
    assert device.story[-1] == f"dropped by {AbandonedError.__name__}"


def test_is_not_asked_when_no_strip_is_left() -> None:
    watch = demand_at(1, Demand.PREEMPT)

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
    watch = demand_at(2, Demand.PREEMPT)

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
    assert run.course.done == 2
    assert device.story == ["mark 1", "wait 1", "mark 2", "wait 2"]


@pytest.mark.parametrize("pipelined", [False, True])
def test_returning_without_the_last_yield_counts_the_last_strip(
    *, pipelined: bool
) -> None:
    def hasty(_task: Any, _device: Any, checkpoint: Any) -> Iterator[None]:
        for strip in checkpoint.strips():
            if strip.stop == 3:
                return
            yield

    device = RecordingDevice(pipelined=pipelined)
    run = execution(hasty, strips_of_one(9), device=device)

    assert run.run() == Completed()
    assert run.course.done == 3
    assert (run.measures.strips, run.measures.iterations) == (3, 3)


def test_drawing_twice_without_a_yield_is_the_apps_error() -> None:
    def greedy(_task: Any, device: Any, checkpoint: Any) -> Iterator[None]:
        with device.resident():
            for strip in checkpoint.strips():
                if strip.start % 2:
                    yield

    device = RecordingDevice()

    with pytest.raises(TaskFailedError, match="before the first one's `yield`"):
        execution(greedy, strips_of_one(None), device=device).run()
    assert device.story == ["in", "dropped by TaskFailedError"]


def test_yielding_without_a_strip_is_the_apps_error() -> None:
    def idle(_task: Any, device: Any, _checkpoint: Any) -> Iterator[None]:
        with device.resident():
            while True:
                yield

    device = RecordingDevice()

    with pytest.raises(TaskFailedError, match="idle yielded without a strip"):
        execution(idle, strips_of_one(3), device=device).run()
    assert device.story == ["in", "dropped by AbandonedError"]


def test_a_plain_function_is_refused() -> None:
    def plain(_task: Any, _device: Any, _checkpoint: Any) -> Any:
        return None

    with pytest.raises(TaskFailedError, match="plain is not a generator"):
        execution(plain, strips_of_one(3)).run()


def test_errors_of_the_app_pass_through() -> None:
    def broken(_task: Any, device: Any, checkpoint: Any) -> Iterator[None]:
        with device.resident():
            for _strip in checkpoint.strips():
                yield
                raise ZeroDivisionError("no luck")

    device = RecordingDevice()

    with pytest.raises(ZeroDivisionError, match="no luck"):
        execution(broken, strips_of_one(3), device=device).run()
    assert device.story[-1] == "dropped by ZeroDivisionError"


@pytest.mark.parametrize("pipelined", [False, True])
def test_a_device_lost_in_a_strip_copies_nothing_out(*, pipelined: bool) -> None:
    device = RecordingDevice(pipelined=pipelined)
    device.fails_at_mark = 2
    course = strips_of_one(9)

    with pytest.raises(DeviceError):
        execution(counting, course, device=device).run()
    assert course.done == 1
    assert "out" not in device.story


def test_an_interrupt_in_the_watch_copies_nothing_out() -> None:
    def interrupted(_now: int) -> Demand | None:
        raise KeyboardInterrupt

    device = RecordingDevice()

    with pytest.raises(KeyboardInterrupt):
        execution(counting, strips_of_one(9), device=device, watch=interrupted).run()
    assert device.story[-1] == "dropped by AbandonedError"


def test_an_app_that_ignores_the_stop_fails() -> None:
    def stubborn(_task: Any, _device: Any, checkpoint: Any) -> Iterator[None]:
        for _strip in checkpoint.strips():
            try:
                yield
            except GeneratorExit:
                yield

    watch = demand_at(1, Demand.PREEMPT)

    with pytest.raises(RuntimeError, match="ignored GeneratorExit"):
        execution(stubborn, strips_of_one(9), watch=watch).run()


@pytest.mark.parametrize("pipelined", [False, True])
def test_measures(*, pipelined: bool) -> None:
    def working(_task: Any, device: Any, checkpoint: Any) -> Iterator[None]:
        with device.resident():
            for strip in checkpoint.strips():
                sum(range(1000 * len(strip)))
                yield

    before = time.time_ns()
    course = Course(CheckpointRecord(0, 6), StripSizer(1, fixed=2))
    run = execution(working, course, device=RecordingDevice(pipelined=pipelined))

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

    course = Course(CheckpointRecord(0, 100), StripSizer(10**15))
    execution(noting, course).run()

    assert sizes == [1, 8, 64, 27]


# ---------------------------------------------------------------- in the middle


@pytest.mark.parametrize("pipelined", [False, True])
def test_a_task_settles_in_the_middle_and_goes_on(*, pipelined: bool) -> None:
    device, task = RecordingDevice(pipelined=pipelined), list[int]()
    records = []

    def watch(_now: int) -> Demand | None:
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
    def watch(_now: int) -> Demand | None:
        driven.settle()
        time.sleep(0.02)
        return None

    driven = execution(counting, strips_of_one(5), watch=watch)
    began = time.perf_counter_ns()
    driven.run()
    elapsed = time.perf_counter_ns() - began

    assert driven.measures.computing_ns <= elapsed - 4 * 20_000_000
