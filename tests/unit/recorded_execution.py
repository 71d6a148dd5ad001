"""Executions on a device that writes down what is asked of it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from libtask.checkpoint import StripSizer
from libtask.devices.residents import ResultsOnHost
from libtask.errors import DeviceError
from libtask.messages import CheckpointRecord, DeviceSpec
from libtask.worker.execution import Execution, RunCheckpoint, StopRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from libtask.task import Implementation
    from libtask.worker.execution import CheckpointCallback


class RecordingDevice(ResultsOnHost):
    """A device that writes down what is asked of it, in order."""

    copies_out = None

    def __init__(self, *, pipelined: bool = False) -> None:
        super().__init__()
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


def go_on(_now: int) -> StopRequest | None:
    return None


def demand_at(checkpoint: int, demand: StopRequest) -> CheckpointCallback:
    """Return a watch that demands at the n-th checkpoint it is asked at, from 1."""
    asked = 0

    def watch(_now: int) -> StopRequest | None:
        nonlocal asked
        asked += 1
        return demand if asked == checkpoint else None

    return watch


def strips_of_one(
    total: int | None, done: int = 0, extra: dict[str, Any] | None = None
) -> RunCheckpoint:
    record = CheckpointRecord(done, total, extra or {})
    return RunCheckpoint(record, StripSizer(50_000_000, fixed=1))


def counting(task: list[int], device: Any, checkpoint: Any) -> Iterator[None]:
    with device.resident(task):
        for strip in checkpoint.strips():
            task.extend(strip)
            yield


def execution(
    implementation: Implementation,
    checkpoint: RunCheckpoint,
    *,
    device: RecordingDevice | None = None,
    watch: CheckpointCallback = go_on,
    task: Any = None,
) -> Execution:
    task = [] if task is None else task
    return Execution(
        implementation, task, device or RecordingDevice(), checkpoint, watch
    )
