"""However a task is cut, stopped and moved: each iteration runs exactly once."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from libtask.checkpoint import StripSizer
from libtask.devices.residents import ResultsOnHost
from libtask.messages import CheckpointRecord, DeviceSpec
from libtask.worker.execution import (
    Abandoned,
    Completed,
    Execution,
    RunCheckpoint,
    Stopped,
    StopRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

INTERVALS_NS = st.sampled_from([1, 1_000, 1_000_000, 10**15])


class LazyDevice(ResultsOnHost):
    """Computes on copies, and a strip only when it is waited for; as bad as it gets."""

    copies_out = None

    def __init__(self, *, pipelined: bool) -> None:
        super().__init__()
        self.spec = DeviceSpec("lazy", "gpu")
        self.pipelined = pipelined
        self.transfer_in = 0.0
        self.transfer_out = 0.0
        self._enqueued: list[Callable[[], None]] = []
        self._residents: list[tuple[list[int], list[int]]] = []

    @contextmanager
    def resident(self, *arrays: Any) -> Iterator[tuple[Any, ...]]:
        (counts,) = arrays
        copy = list(counts)
        self._residents.append((counts, copy))
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

    def refresh(self) -> None:
        assert not self._enqueued, "a strip is in flight"
        for counts, copy in self._residents:
            counts[:] = copy

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
    snapshot_at: int
    """Checkpoint of a snapshot; 0: there is none."""
    crashes: bool
    """Whether it ends with the death of the worker, in place of a preemption."""
    interval_ns: int
    fixed: int | None
    granule: int


STRETCHES = st.lists(
    st.builds(
        Stretch,
        pipelined=st.booleans(),
        checkpoints=st.integers(1, 6),
        snapshot_at=st.integers(0, 6),
        crashes=st.booleans(),
        interval_ns=INTERVALS_NS,
        fixed=st.none() | st.integers(1, 9),
        granule=st.integers(1, 5),
    ),
    max_size=8,
)
LAST = Stretch(
    pipelined=True,
    checkpoints=1 << 60,
    snapshot_at=0,
    crashes=False,
    interval_ns=10**15,
    fixed=None,
    granule=1,
)


@dataclass
class Disk:
    """The snapshot of a task: its state and where it stands."""

    counts: list[int]
    record: CheckpointRecord


def stay(
    stretch: Stretch, counts: list[int], record: CheckpointRecord, disk: Disk
) -> Completed | Stopped | Abandoned:
    passed = 0

    def watch(_now: int) -> StopRequest | None:
        nonlocal passed
        passed += 1
        if passed == stretch.snapshot_at:
            disk.record = execution.settle()
            disk.counts = list(counts)
        if passed < stretch.checkpoints:
            return None
        return StopRequest.ABANDON if stretch.crashes else StopRequest.PREEMPT

    device = LazyDevice(pipelined=stretch.pipelined)
    sizer = StripSizer(stretch.interval_ns, fixed=stretch.fixed)
    checkpoint = RunCheckpoint(record, sizer)
    execution = Execution(counter(stretch.granule), counts, device, checkpoint, watch)
    outcome = execution.run()
    if not stretch.crashes:
        device.close()
    assert checkpoint.done == checkpoint.drawn
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
    """However it is moved; and after a crash, as if nothing were done since the snapshot."""
    counts = [0] * total
    record = CheckpointRecord(0, total)
    disk = Disk(list(counts), record)

    for stretch in [*stretches, LAST]:
        outcome = stay(stretch, counts, record, disk)
        if isinstance(outcome, Completed):
            break
        if isinstance(outcome, Abandoned):
            counts, record = list(disk.counts), disk.record
        else:
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
    checkpoint = RunCheckpoint(CheckpointRecord(0, total), sizer)
    strips: list[range] = []

    for strip in checkpoint.strips(granule):
        checkpoint.drawn_iterations = 0
        strips.append(strip)
        sizer.measured(len(strip), times[len(strips) % len(times)])

    assert [i for strip in strips for i in strip] == list(range(total))
    assert all(len(strip) % granule == 0 for strip in strips[:-1])
