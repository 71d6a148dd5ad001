"""Simulated snapshots: what workers keep of their tasks on a user's disk.

Two generations, written whole or not at all; the newest may be found to be bad, and is
then removed, and the one before it used. When they are taken is drawn, not reckoned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from libtask.messages import (
    CheckpointRecord,
    Resumed,
    SnapshotSettings,
    SnapshotTaken,
    Stage,
)
from libtask.worker.snapshot_writer import SnapshotWriter, TaskSnapshots

if TYPE_CHECKING:
    from collections.abc import Callable

    from libtask.worker.execution import Measures, RunCheckpoint
    from libtask.worker.link import Link
    from libtask.worker.loaded_task import LoadedTask
    from torture.simulation.world import World

GENERATIONS = 2
LIKELY, UNREADABLE, UNWRITTEN, LOW = 0.25, 0.1, 0.1, 0.05
"""Probabilities that a snapshot is due at a checkpoint, is bad, cannot be written, and that
memory is low."""


class FakeSnapshots:
    """One user's snapshots.

    Attributes:
        by_name: name of a task's folder -> (iterations done, state), oldest first.

    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.by_name: dict[str, list[tuple[int, int]]] = {}

    def write(self, name: str, done: int, state: int) -> bool:
        """Keep a snapshot and the one before it; False: it cannot be written."""
        if self.world.happens(UNWRITTEN):
            return False
        kept = self.by_name.setdefault(name, [])
        kept.append((done, state))
        del kept[:-GENERATIONS]
        return True

    def newest(self, name: str) -> tuple[tuple[int, int] | None, list[str]]:
        """Return the newest good snapshot, and what was refused."""
        kept, refused = self.by_name.get(name, []), []
        while kept and self.world.happens(UNREADABLE):
            kept.pop()
            refused.append(f"{name}: its checksum is wrong")
        return (kept[-1] if kept else None), refused


class SimulatedKeeping(TaskSnapshots):
    """The snapshots of one held task, on a simulated disk."""

    def __init__(self, loaded: LoadedTask, snapshots: FakeSnapshots, name: str) -> None:
        super().__init__(loaded, "", name, SnapshotSettings())
        self._simulated = snapshots

    def is_due(self, measures: Measures, checkpoint: RunCheckpoint) -> bool:
        return self.wanted or self._simulated.world.happens(LIKELY)

    def is_memory_low(self) -> bool:
        return self._simulated.world.happens(LOW)

    def take(
        self, settle: Callable[[], CheckpointRecord], measures: Measures | None
    ) -> SnapshotTaken:
        self.wanted = False
        loaded, record = self._loaded, settle()
        app: Any = loaded.app
        written = self._simulated.write(self._name, record.done, app.state)
        error = "" if written else "No space left on device"
        stands = CheckpointRecord(record.done, record.total)
        at = self._simulated.world.wall()
        taken = SnapshotTaken(loaded.task, loaded.epoch, stands, at, 8, 1e-6, error)
        if written:
            self.last, self.stands = taken, record.done
        return taken

    def resume(self) -> Resumed:
        loaded = self._loaded
        app: Any = loaded.app
        found, refused = self._simulated.newest(self._name)
        if found is not None:
            done, app.state = found
            loaded.record = CheckpointRecord(done, loaded.record.total)
            self.stands = done
        stands = CheckpointRecord(loaded.record.done, loaded.record.total)
        return Resumed(loaded.task, loaded.epoch, stands, refused)


class SimulatedKeeper(SnapshotWriter):
    """Sees to the snapshots of whatever task a simulated worker holds."""

    def __init__(self, link: Link, snapshots: FakeSnapshots) -> None:
        super().__init__(link, "")
        self._simulated = snapshots

    def take_in(self, loaded: LoadedTask, order: Stage) -> None:
        if not order.snapshots:
            return
        self.current = SimulatedKeeping(loaded, self._simulated, order.snapshots)
        if order.resume:
            self._link.send(self.current.resume())
