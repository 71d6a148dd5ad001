"""Keeping: when and how the progress of the task that a worker holds goes to disk.

The lookout asks at checkpoints whether a snapshot is due, the worker when a task waits
in it. A snapshot that cannot be written costs the task nothing: the older ones stay,
the task goes on, its log and hetd are told.
"""

from __future__ import annotations

import sys
import time
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from libtask.apps import machine_memory
from libtask.faultpoints import reach
from libtask.messages import (
    CheckpointRecord,
    Resumed,
    SnapshotSettings,
    SnapshotTaken,
    cut,
)
from libtask.phase import Phase, own_page
from libtask.snapshots import (
    Identity,
    Snapshot,
    SnapshotError,
    SnapshotFolder,
    SnapshotInterval,
    pack,
    put_back,
)
from libtask.worker.execution import NANOSECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from libtask.messages import Stage
    from libtask.worker.execution import Measures, RunCheckpoint
    from libtask.worker.link import Link
    from libtask.worker.loaded_task import LoadedTask

NEVER_NS = 1 << 62
PARK_AGAIN_S = 60.0
"""After a task could not be written to disk that was to wait there."""
REFUSED_TOLD = 64
"""Snapshots of which hetd is told why they were not used: the last ones."""
LOOK_AGAIN = 0.25
"""Part of an interval after which a task that was about to end is looked at again."""


class TaskSnapshots:
    """The snapshots of one held task.

    Most tasks are too short for any: making one of these costs next to nothing.

    Args:
        held: the task.
        shelf: folder of its user's snapshots.
        name: of the task's own folder there.
        terms: what hetd's configuration says of them.

    Attributes:
        wanted: a user asked for a snapshot.
        last: the latest snapshot that was written.
        stands: iterations done in the newest snapshot.

    """

    def __init__(
        self, loaded: LoadedTask, root: str, name: str, settings: SnapshotSettings
    ) -> None:
        self.wanted = False
        self.last: SnapshotTaken | None = None
        self.stands = 0
        self._loaded = loaded
        self._root = root
        self._name = name
        self._settings = settings
        self._park_at = 0.0
        self._earlier_ns = 0
        """Computing of ended stretches that no snapshot holds."""
        self._safe_ns = 0
        """Computing of this stretch that a snapshot holds."""
        self._due_ns = (
            int(settings.minimum_s * NANOSECONDS) if settings.mtbf_s else NEVER_NS
        )

    @cached_property
    def _pace(self) -> SnapshotInterval:
        return SnapshotInterval(self._settings, self._loaded.spec.state_bytes)

    @cached_property
    def _folder(self) -> SnapshotFolder:
        return SnapshotFolder(Path(self._root, self._name), machine_memory())

    @cached_property
    def _owner(self) -> Identity:
        loaded = self._loaded
        return Identity(self._name, loaded.task, loaded.spec.app, loaded.version)

    def at_risk_ns(self, computing_ns: int) -> int:
        """Return the computing that would be lost now, of which this stretch did some."""
        return self._earlier_ns + computing_ns - self._safe_ns

    def end_segment(self, computing_ns: int) -> None:
        """Take note that the task yielded after so much computing."""
        self._earlier_ns = self.at_risk_ns(computing_ns)
        self._safe_ns = 0

    # ------------------------------------------------------------ writing

    def is_due(self, measures: Measures, checkpoint: RunCheckpoint) -> bool:
        """Say, at a checkpoint, whether to write a snapshot now."""
        at_risk_ns = self.at_risk_ns(measures.computing_ns)
        if self.wanted:
            return True
        if at_risk_ns < self._due_ns:
            return False
        self._due_ns = max(self._due_ns, self._interval_ns())
        if at_risk_ns < self._due_ns:
            return False
        if self._pace.worthwhile(_remaining_s(measures, checkpoint)):
            return True
        self._due_ns = at_risk_ns + int(LOOK_AGAIN * self._interval_ns())
        return False

    def take(
        self, settle: Callable[[], CheckpointRecord], measures: Measures | None
    ) -> SnapshotTaken:
        """Write a snapshot; return what hetd is to know of it.

        Args:
            settle: brings the host's arrays up to date, and says where they stand.
            measures: of the running stretch; None: the task waits.

        Raises:
            DeviceError: the device is lost.

        """
        self.wanted = False
        with own_page.during(Phase.SNAPSHOT):
            return self._take(settle, measures)

    def _take(
        self, settle: Callable[[], CheckpointRecord], measures: Measures | None
    ) -> SnapshotTaken:
        began = time.perf_counter()
        record = settle()
        reach("snapshot.settled")
        at = time.time_ns() / NANOSECONDS
        error, size = "", 0
        try:
            size = self._write(record, at)
        except Exception as problem:  # noqa: BLE001  an attribute that cannot be pickled raises anything
            error = cut(_one_line(problem))
        seconds = time.perf_counter() - began
        stands = CheckpointRecord(record.done, record.total)
        loaded = self._loaded
        taken = SnapshotTaken(
            loaded.task, loaded.epoch, stands, at, size, round(seconds, 6), error
        )
        self._note(taken, measures.computing_ns if measures else 0)
        return taken

    def _write(self, record: CheckpointRecord, at: float) -> int:
        packed = pack(self._loaded.app)
        snapshot = Snapshot(self._owner, self._loaded.epoch, at, record, packed)
        return self._folder.write(snapshot)

    def _note(self, taken: SnapshotTaken, computing_ns: int) -> None:
        if taken.error:
            self._pace.failed()
            self._park_at = time.monotonic() + PARK_AGAIN_S
            self._due_ns = self.at_risk_ns(computing_ns) + self._interval_ns()
            sys.stderr.write(f"libtask: no snapshot: {taken.error}\n")
            return
        self.last = taken
        self.stands = taken.checkpoint.done
        self._pace.took(taken.seconds)
        self._earlier_ns = 0
        self._safe_ns = computing_ns
        self._due_ns = self._interval_ns()

    def _interval_ns(self) -> int:
        return int(min(self._pace.interval_s * NANOSECONDS, NEVER_NS))

    # ------------------------------------------------------------ reading

    def resume(self) -> Resumed:
        """Let the task, just loaded, go on from its newest good snapshot, if it has one."""
        found, refused = self._folder.newest(self._owner, self._use)
        texts = [cut(str(each)) for each in refused[-REFUSED_TOLD:]]
        for text in texts:
            sys.stderr.write(f"libtask: a snapshot is not used: {text}\n")
        loaded = self._loaded
        stands = CheckpointRecord(loaded.record.done, loaded.record.total)
        if found is not None:
            sys.stderr.write(
                f"libtask: goes on after iteration {stands.done}, from a snapshot\n"
            )
        return Resumed(loaded.task, loaded.epoch, stands, texts)

    def _use(self, snapshot: Snapshot) -> None:
        """Put a snapshot's state into the task.

        Raises:
            SnapshotError: it does not fit; the task is as it was.

        """
        loaded, record = self._loaded, snapshot.checkpoint
        if record.total != loaded.record.total:
            raise SnapshotError(
                f"it counts to {record.total}, the task to {loaded.record.total}"
            )
        try:
            put_back(loaded.app, snapshot.packed)
        except Exception as error:
            raise SnapshotError(f"its values: {_one_line(error)}") from error
        loaded.record = record
        self.stands = record.done

    # ------------------------------------------------------------ memory

    def is_memory_low(self) -> bool:
        """Say whether a task that waits should rather wait on disk."""
        if self._settings.low_memory <= 0 or time.monotonic() < self._park_at:
            return False
        import psutil

        memory = psutil.virtual_memory()
        return bool(memory.available < self._settings.low_memory * memory.total)


def _remaining_s(measures: Measures, checkpoint: RunCheckpoint) -> float | None:
    """Tell the computing that is left, by what was done in this stretch."""
    if checkpoint.total is None or not measures.iterations:
        return None
    each_ns = measures.computing_ns / measures.iterations
    return (checkpoint.total - checkpoint.done) * each_ns / NANOSECONDS


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())[:500]
    if isinstance(error, SnapshotError):
        return text
    return f"{type(error).__name__}: {text}"


class SnapshotWriter:
    """Sees to the snapshots of whatever task a worker holds.

    Args:
        link: the line to hetd.
        shelf: folder of the user's snapshots; empty: none are kept.

    Attributes:
        keeping: the snapshots of the task that is held; None: it has none.

    """

    def __init__(self, link: Link, root: str) -> None:
        self.current: TaskSnapshots | None = None
        self._link = link
        self._root = root

    def take_in(self, loaded: LoadedTask, order: Stage) -> None:
        """Begin with a task that was just loaded; let it go on where it was, if ordered."""
        welcome = self._link.welcome
        if not order.snapshots or not self._root or not loaded.app.keeps_snapshots:
            return
        settings = welcome.snapshots if welcome else SnapshotSettings()
        self.current = TaskSnapshots(loaded, self._root, order.snapshots, settings)
        if order.resume:
            resumed = self.current.resume()
            self._link.send(resumed)

    def let_go(self) -> None:
        """Refer to no task any more."""
        self.current = None

    def end_segment(self, measures: Measures) -> float:
        """Take note that the task yielded; return its computing at risk, seconds."""
        if self.current is None:
            return 0.0
        self.current.end_segment(measures.computing_ns)
        return self.current.at_risk_ns(0) / NANOSECONDS

    def snapshot(self, loaded: LoadedTask) -> bool:
        """Write a snapshot of the task, which waits; say whether there is one now."""
        if self.current is None:
            self._link.send(no_snapshot(loaded.task, loaded.epoch))
            return False
        taken = self.current.take(lambda: loaded.record, None)
        self._link.send(taken)
        reach("snapshot.reported")
        return not taken.error

    def save_before_failure(self, loaded: LoadedTask) -> None:
        """Write down where a task stood when it came to a device that failed.

        Else it would begin anew, or where it was in its last snapshot.
        """
        current = self.current
        if current is not None and loaded.record.done > current.stands:
            self.snapshot(loaded)

    def should_park(self) -> bool:
        """Say whether a task that waits should rather wait on disk."""
        return self.current is not None and self.current.is_memory_low()


def no_snapshot(task: int, epoch: int) -> SnapshotTaken:
    """Return the answer of a worker that keeps no snapshots of a task."""
    why = "its worker keeps none"
    return SnapshotTaken(task, epoch, CheckpointRecord(), error=why)
