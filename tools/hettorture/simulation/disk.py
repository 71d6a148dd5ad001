"""The disk: what is durable, what is being committed, and what of it a crash leaves.

`Disk` outlives daemons and power cuts. `SimulatedStore` answers as `hetd.store.Store`
does, which `tests/simulated/test_disk.py` holds it to; commits take time, and fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hetd.store import Batch, Store, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetd.estimates.point import Figures, Key
    from hettorture.simulation.world import World


class Disk:
    """What is durable.

    Attributes:
        tasks: id -> (ended, entry).
        full: writes fail until there is space again.
        failing: the next commit fails with an error of the device.
        latency: longest time of a commit, seconds.

    """

    def __init__(self) -> None:
        self.tasks: dict[int, tuple[int, bytes]] = {}
        self.keys: dict[tuple[int, str], tuple[bytes, bytes]] = {}
        self.samples: dict[Key, Figures] = {}
        self.incarnation = 0
        self.full = False
        self.failing = False
        self.latency = 0.002

    def apply(self, batch: Batch) -> None:
        """Make a batch durable, all of it or, where it is refused, nothing.

        Raises:
            StoreError: a key is there already.

        """
        for owner, key, *_ in batch.keys:
            if (owner, key) in self.keys:
                raise StoreError(f"disk: UNIQUE constraint failed: {owner}, {key}")
        for task, ended, entry in batch.tasks:
            self.tasks[task] = (ended, entry)
        for owner, key, digest, answer, _ in batch.keys:
            self.keys[owner, key] = (digest, answer)
        for place, known in batch.samples.items():
            self.samples.pop(place, None)
            if known is not None:
                self.samples[place] = known


class SimulatedStore(Store):
    """The daemon's store, over a simulated disk.

    Args:
        wake: called when a commit has ended.
        burn: called at each step; the daemon may crash there.

    Raises:
        StoreError: the disk is full.

    """

    def __init__(
        self,
        disk: Disk,
        world: World,
        wake: Callable[[], None],
        burn: Callable[[str], None],
    ) -> None:
        # not as a database: what `Store` opens is not there
        if disk.full:
            raise StoreError("disk: database or disk is full")
        disk.incarnation += 1
        self.incarnation = disk.incarnation
        self._disk = disk
        self._world = world
        self._wake = wake
        self._burn = burn
        self._committing = None
        self._outcome: StoreError | None = None
        self._ended = False
        self._gone = False

    # ------------------------------------------------------------ writing

    def submit(self, batch: Batch) -> None:
        self._burn("write")
        self._committing = batch
        if self._disk.full:
            raise StoreError("disk: database or disk is full")
        delay = self._world.some(50e-6, self._disk.latency)
        self._world.after(delay, self._sync, batch)
        self._burn("written")

    def committed(self) -> list[Any]:
        if not self._ended:
            return []
        self._burn("committed")
        return self.flush()

    def flush(self) -> list[Any]:
        if self._committing is None:
            return []
        self._sync(self._committing)
        if self._outcome is not None:
            raise self._outcome
        batch, self._committing = self._committing, None
        self._ended = False
        return batch.replies

    def close(self) -> None:
        self._gone = True

    def crash(self) -> None:
        """Lose what is not durable."""
        self._gone = True

    def _sync(self, batch: Batch) -> None:
        """Commit, unless that has happened, or the daemon has gone before it could."""
        if self._gone or self._ended or batch is not self._committing:
            return
        self._ended = True
        if self._disk.failing:
            self._disk.failing = False
            self._fail(batch)
        else:
            self._disk.apply(batch)
            self._world.note(
                "disk", "durable", *sorted(task[0] for task in batch.tasks)
            )
        self._wake()

    def _fail(self, batch: Batch) -> None:
        """Fail; nobody knows whether what was written came to the disk."""
        if self._world.happens(0.5):
            self._disk.apply(batch)
        self._outcome = StoreError("disk: disk I/O error")
        self._world.note("disk", "fails")

    # ------------------------------------------------------------ reading

    def unended(self) -> list[bytes]:
        tasks = self._disk.tasks
        return [tasks[task][1] for task in sorted(tasks) if not tasks[task][0]]

    def ended(self, before: int, limit: int) -> list[tuple[int, bytes]]:
        tasks = self._disk.tasks
        found = sorted((t for t in tasks if tasks[t][0] and t < before), reverse=True)
        return [(task, tasks[task][1]) for task in found[:limit]]

    def task(self, task_id: int) -> bytes | None:
        found = self._disk.tasks.get(task_id)
        return found[1] if found is not None else None

    def last_id(self) -> int:
        return max(self._disk.tasks, default=0)

    def key(self, owner: int, key: str) -> tuple[bytes, bytes] | None:
        return self._disk.keys.get((owner, key))

    def samples(self) -> list[Figures]:
        return [self._disk.samples[place] for place in sorted(self._disk.samples)]
