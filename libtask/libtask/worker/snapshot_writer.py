"""The snapshot writer: writes the progress of a worker's task to disk when it is due.

The checkpoint hook asks at checkpoints whether a snapshot is due, the worker while its
task waits. A snapshot that cannot be written does not harm the task: older ones stay,
the task continues, and its log and hetd receive the error.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from libtask.apps import machine_memory
from libtask.errors import HetError, TaskFailedError
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
    Refused,
    Snapshot,
    SnapshotError,
    SnapshotFolder,
    SnapshotInterval,
    other_with,
    pack,
    put_back,
)
from libtask.worker.execution import NANOSECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from libtask.messages import PartResult, Stage
    from libtask.worker.execution import Measures, RunCheckpoint
    from libtask.worker.link import Link
    from libtask.worker.loaded_task import LoadedTask

NEVER_NS = 1 << 62
PARK_AGAIN_S = 60.0
"""Seconds before the next attempt to write a waiting task to disk after a failure."""
REFUSED_TOLD = 64
"""Maximum number of rejected snapshots in a report to hetd, the last ones."""
LOOK_AGAIN = 0.25
"""Fraction of an interval before the next check of a task that was about to end."""


class TaskSnapshots:
    """The snapshots of one loaded task.

    Most tasks are too short for a snapshot, so the constructor does almost nothing.

    Args:
        held: the task.
        shelf: folder of its user's snapshots.
        name: of the task's own folder there.
        terms: what hetd's configuration says of them.

    Attributes:
        wanted: whether a user requested a snapshot.
        last: the report of the latest snapshot.
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
        """Computing time of ended segments that no snapshot contains."""
        self._safe_ns = 0
        """Computing time of this segment that a snapshot contains."""
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
        """Return the computing time that a crash would lose now, nanoseconds."""
        return self._earlier_ns + computing_ns - self._safe_ns

    def end_segment(self, computing_ns: int) -> None:
        """Record that the task yielded after `computing_ns` of computing."""
        self._earlier_ns = self.at_risk_ns(computing_ns)
        self._safe_ns = 0

    # ------------------------------------------------------------ writing

    def is_due(self, measures: Measures, checkpoint: RunCheckpoint) -> bool:
        """Return whether to write a snapshot at this checkpoint."""
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
        """Write a snapshot; return the report to hetd.

        Args:
            settle: updates the host's arrays and returns their checkpoint.
            measures: measures of the running segment; None: the task waits.

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
            loaded.task,
            loaded.epoch,
            stands,
            at,
            size,
            round(seconds, 6),
            error,
            "" if error else str(self._folder.latest),
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
        """Restore the loaded task from its newest valid snapshot, if it has one.

        A task that continues an ended one, and has none itself, uses that one's.
        """
        found, refused = self._folder.newest(self._owner, self._use)
        if found is None and self._loaded.spec.resumes:
            found, others = self._newest_of(self._loaded.spec.resumes, self._use)
            refused += others
        texts = [cut(str(each)) for each in refused[-REFUSED_TOLD:]]
        for text in texts:
            sys.stderr.write(f"libtask: snapshot rejected: {text}\n")
        loaded = self._loaded
        stands = CheckpointRecord(loaded.record.done, loaded.record.total)
        if found is not None:
            sys.stderr.write(
                f"libtask: continues after iteration {stands.done} from a snapshot\n"
            )
        return Resumed(loaded.task, loaded.epoch, stands, texts)

    def _newest_of(
        self, name: str, use: Callable[[Snapshot], None]
    ) -> tuple[Snapshot | None, list[Refused]]:
        """Return the newest valid snapshot of another task, by the name of its folder."""
        task = int(name.partition("-")[0])
        owner = dataclasses.replace(self._owner, name=name, task=task)
        folder = SnapshotFolder(Path(self._root, name), machine_memory())
        return folder.newest(owner, use)

    def merge(self, piece: PartResult) -> None:
        """Let the task take in what a part of it has done.

        Raises:
            TaskFailedError: there is no valid snapshot of the end of the part.

        """
        loaded = self._loaded

        def use(snapshot: Snapshot) -> None:
            done = (snapshot.checkpoint.done, snapshot.checkpoint.total)
            if done != (piece.stop, loaded.record.total):
                raise SnapshotError(f"it holds {done[0]} of {done[1]} iterations")
            other = other_with(loaded.app, snapshot.packed)
            loaded.app.merge(other, range(piece.start, piece.stop))

        found, refused = self._newest_of(piece.snapshots, use)
        if found is None:
            why = "; ".join(str(each) for each in refused) or "there is none"
            raise TaskFailedError(f"the result of a part cannot be read: {cut(why)}")

    def _use(self, snapshot: Snapshot) -> None:
        """Restore the task's state from a snapshot.

        Raises:
            SnapshotError: it does not fit; the task is unchanged.

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
        """Return whether memory is low, so that a waiting task should wait on disk."""
        if self._settings.low_memory <= 0 or time.monotonic() < self._park_at:
            return False
        import psutil

        memory = psutil.virtual_memory()
        return bool(memory.available < self._settings.low_memory * memory.total)


def _remaining_s(measures: Measures, checkpoint: RunCheckpoint) -> float | None:
    """Estimate the remaining computing time from this segment; None: unknown."""
    if checkpoint.end is None or not measures.iterations:
        return None
    each_ns = measures.computing_ns / measures.iterations
    return (checkpoint.end - checkpoint.done) * each_ns / NANOSECONDS


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())[:500]
    if isinstance(error, HetError | SnapshotError) and text:
        return text
    return f"{type(error).__name__}: {text}"


class SnapshotWriter:
    """Writes and reads the snapshots of the worker's current task.

    Args:
        link: the link to hetd.
        shelf: folder of the user's snapshots; empty: none are kept.

    Attributes:
        keeping: the snapshots of the task that is held; None: it has none.

    """

    def __init__(self, link: Link, root: str) -> None:
        self.current: TaskSnapshots | None = None
        self._link = link
        self._root = root

    def take_in(self, loaded: LoadedTask, order: Stage) -> None:
        """Attach to a task that was just loaded; restore it if the command says so."""
        welcome = self._link.welcome
        if not order.snapshots or not self._root or not loaded.app.keeps_snapshots:
            return
        settings = welcome.snapshots if welcome else SnapshotSettings()
        self.current = TaskSnapshots(loaded, self._root, order.snapshots, settings)
        if order.resume:
            resumed = self.current.resume()
            self._link.send(resumed)

    def let_go(self) -> None:
        """Drop the reference to the task."""
        self.current = None

    def end_segment(self, measures: Measures) -> float:
        """Record that the task yielded; return its computing time at risk, seconds."""
        if self.current is None:
            return 0.0
        self.current.end_segment(measures.computing_ns)
        return self.current.at_risk_ns(0) / NANOSECONDS

    def snapshot(self, loaded: LoadedTask) -> bool:
        """Write a snapshot of the waiting task; return whether that succeeded."""
        if self.current is None:
            self._link.send(no_snapshot(loaded.task, loaded.epoch))
            return False
        taken = self.current.take(lambda: loaded.record, None)
        self._link.send(taken)
        reach("snapshot.reported")
        return not taken.error

    def save_before_failure(self, loaded: LoadedTask) -> None:
        """Write a snapshot of the state that a task had before its device failed.

        Without it, the task would restart from an older snapshot or from its start.
        """
        current = self.current
        if current is not None and loaded.record.done > current.stands:
            self.snapshot(loaded)

    def should_park(self) -> bool:
        """Return whether memory is low, so that a waiting task should wait on disk."""
        return self.current is not None and self.current.is_memory_low()


def no_snapshot(task: int, epoch: int) -> SnapshotTaken:
    """Return the report of a worker that writes no snapshots of a task."""
    why = "its worker keeps none"
    return SnapshotTaken(task, epoch, CheckpointRecord(), error=why)
