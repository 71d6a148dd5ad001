"""What implementations may do and must not: yields, draws, returns and errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from libtask.errors import TaskFailedError
from libtask.worker.execution import Completed, StopRequest
from unit.recorded_execution import RecordingDevice, demand_at, execution, strips_of_one

if TYPE_CHECKING:
    from collections.abc import Iterator


def stops_at_three(*, says_so: bool) -> Any:
    def stops(_task: Any, _device: Any, checkpoint: Any) -> Iterator[None]:
        for strip in checkpoint.strips():
            if strip.stop == 3:
                if says_so:
                    checkpoint.end_early()
                return
            yield

    return stops


@pytest.mark.parametrize("pipelined", [False, True])
def test_returning_without_the_last_yield_counts_the_last_strip(
    *, pipelined: bool
) -> None:
    device = RecordingDevice(pipelined=pipelined)
    run = execution(stops_at_three(says_so=True), strips_of_one(9), device=device)

    assert run.run() == Completed()
    assert run.checkpoint.done == 3
    assert (run.measures.strips, run.measures.iterations) == (3, 3)


@pytest.mark.parametrize("pipelined", [False, True])
def test_returning_before_the_total_is_the_apps_error_unless_it_says_so(
    *, pipelined: bool
) -> None:
    device = RecordingDevice(pipelined=pipelined)
    run = execution(stops_at_three(says_so=False), strips_of_one(9), device=device)

    with pytest.raises(TaskFailedError, match="stops returned after 3 of 9 iterations"):
        run.run()


def test_an_app_without_a_total_returns_when_it_likes() -> None:
    run = execution(stops_at_three(says_so=False), strips_of_one(None))

    assert run.run() == Completed()
    assert run.checkpoint.done == 3


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


def test_an_app_that_ignores_the_stop_fails() -> None:
    def stubborn(_task: Any, _device: Any, checkpoint: Any) -> Iterator[None]:
        for _strip in checkpoint.strips():
            try:
                yield
            except GeneratorExit:
                yield

    watch = demand_at(1, StopRequest.PREEMPT)

    with pytest.raises(RuntimeError, match="ignored GeneratorExit"):
        execution(stubborn, strips_of_one(9), watch=watch).run()
