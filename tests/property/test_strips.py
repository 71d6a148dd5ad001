"""However a task is cut, stopped and moved: each iteration runs exactly once."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from libtask.checkpoint import StripSizer
from libtask.messages import CheckpointRecord, DeviceSpec
from libtask.worker.execution import Completed, Course, Demand, Execution, Stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

INTERVALS_NS = st.sampled_from([1, 1_000, 1_000_000, 10**15])


class LazyDevice:
    """Computes on copies, and a strip only when it is waited for; as bad as it gets."""

    def __init__(self, *, pipelined: bool) -> None:
        self.spec = DeviceSpec("lazy", "gpu")
        self.pipelined = pipelined
        self.transfer_in = 0.0
        self.transfer_out = 0.0
        self._enqueued: list[Callable[[], None]] = []

    @contextmanager
    def resident(self, *arrays: Any) -> Iterator[tuple[Any, ...]]:
        (counts,) = arrays
        copy = list(counts)
        try:
            yield (copy,)
        except GeneratorExit:
            self._flush()
            counts[:] = copy
            raise
        self._flush()
        counts[:] = copy

    inputs = resident
    scratch = resident

    def enqueue(self, work: Callable[[], None]) -> None:
        self._enqueued.append(work)

    def mark(self) -> Callable[[], None]:
        batch = len(self._enqueued)

        def wait() -> None:
            self._flush(batch)

        return wait

    def _flush(self, count: int | None = None) -> None:
        batch = self._enqueued[:count]
        for work in batch:
            work()
        self._enqueued = [work for work in self._enqueued if work not in batch]

    def close(self) -> None:
        assert not self._enqueued


@dataclass(frozen=True)
class Stretch:
    """One stay on a device: how it is sized, and after how many checkpoints it ends."""

    pipelined: bool
    checkpoints: int
    interval_ns: int
    fixed: int | None
    granule: int


STRETCHES = st.lists(
    st.builds(
        Stretch,
        pipelined=st.booleans(),
        checkpoints=st.integers(1, 6),
        interval_ns=INTERVALS_NS,
        fixed=st.none() | st.integers(1, 9),
        granule=st.integers(1, 5),
    ),
    max_size=8,
)
LAST = Stretch(
    pipelined=True, checkpoints=1 << 60, interval_ns=10**15, fixed=None, granule=1
)


def stay(
    stretch: Stretch, counts: list[int], record: CheckpointRecord
) -> Completed | Stopped:
    left = stretch.checkpoints

    def watch(_now: int) -> Demand | None:
        nonlocal left
        left -= 1
        return None if left else Demand.PREEMPT

    device = LazyDevice(pipelined=stretch.pipelined)
    sizer = StripSizer(stretch.interval_ns, fixed=stretch.fixed)
    course = Course(record, sizer)
    outcome = Execution(counter(stretch.granule), counts, device, course, watch).run()
    device.close()
    assert isinstance(outcome, Completed | Stopped)
    assert course.done == course.drawn
    return outcome


def counter(granule: int) -> Any:
    def count(task: Any, device: Any, checkpoint: Any) -> Iterator[None]:
        with device.resident(task) as (counts,):
            for strip in checkpoint.strips(granule):
                device.enqueue(lambda strip=strip: add(counts, strip))
                yield

    return count


def add(counts: list[int], strip: range) -> None:
    for iteration in strip:
        counts[iteration] += 1


@given(total=st.integers(0, 200), stretches=STRETCHES)
def test_each_iteration_runs_once(total: int, stretches: list[Stretch]) -> None:
    counts = [0] * total
    record = CheckpointRecord(0, total)

    for stretch in [*stretches, LAST]:
        outcome = stay(stretch, counts, record)
        if isinstance(outcome, Completed):
            break
        assert record.done < outcome.checkpoint.done < total
        record = outcome.checkpoint
        assert counts == [1] * record.done + [0] * (total - record.done)

    assert counts == [1] * total


@given(
    total=st.integers(1, 300),
    granule=st.integers(1, 20),
    times=st.lists(st.integers(0, 10**9), min_size=1, max_size=20),
)
def test_strips_are_whole_granules_whatever_was_measured(
    total: int, granule: int, times: list[int]
) -> None:
    sizer = StripSizer(50_000_000)
    course = Course(CheckpointRecord(0, total), sizer)
    strips: list[range] = []

    for strip in course.strips(granule):
        course.in_hand = 0
        strips.append(strip)
        sizer.measured(len(strip), times[len(strips) % len(times)])

    assert [i for strip in strips for i in strip] == list(range(total))
    assert all(len(strip) % granule == 0 for strip in strips[:-1])
