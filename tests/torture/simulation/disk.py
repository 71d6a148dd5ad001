"""The disk: what is durable, what is being committed, and what of it a crash leaves.

`Disk` outlives daemons and power cuts. `SimulatedStore` answers as `hetd.store.Store`
does, which `tests/simulated/test_disk.py` holds it to; commits take time, and fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from hetd.store import Batch, Store, StoreError, StoreFullError
from torture.simulation.world import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from hetd.store import Removed
    from hetsched.estimates.point import Figures, Key
    from torture.simulation.world import World


Name = TypeVar("Name")
Value = TypeVar("Value")

FULL = "database or disk is full"
RESERVE = 5
"""Batches that fit into the room which the store sets aside."""


class Disk:
    """The durable state.

    Attributes:
        tasks: id -> (ended, entry, owner).
        full: writes fail until there is space again.
        reserve: batches that fit into the reserve when the disk is full.
        failing: the next commit fails with an error of the device.
        latency: longest time of a commit, seconds.

    """

    def __init__(self) -> None:
        self.tasks: dict[int, tuple[int, bytes, int, bool]] = {}
        self.keys: dict[tuple[int, str], tuple[bytes, bytes]] = {}
        self.samples: dict[Key, Figures] = {}
        self.circuits: dict[tuple[int, str, str], bytes] = {}
        self.settings: dict[tuple[str, str], bytes] = {}
        self.incarnation = 0
        self.full = False
        self.reserve = RESERVE
        self.failing = False
        self.latency = 0.002

    def has_room(self) -> bool:
        """Whether a batch can be written; on a full disk that takes of the reserve."""
        if self.full:
            self.reserve -= 1
        return self.reserve >= 0

    def apply(self, batch: Batch) -> None:
        """Make a batch durable, all of it or, where it is refused, nothing.

        Raises:
            StoreError: a key is there already.

        """
        for owner, key, *_ in batch.keys:
            if (owner, key) in self.keys:
                raise StoreError(f"disk: UNIQUE constraint failed: {owner}, {key}")
        for task, ended, entry, owner in batch.tasks:
            self.tasks[task] = (ended, entry, owner, task in batch.marked)
        for owner, key, digest, answer, _ in batch.keys:
            self.keys[owner, key] = (digest, answer)
        _replace(self.samples, batch.samples)
        _replace(self.settings, batch.settings)
        _replace(self.circuits, batch.circuits)


def _replace(kept: dict[Name, Value], news: dict[Name, Value | None]) -> None:
    """Take up what is new, in the place of what was; None: it is gone."""
    for name, value in news.items():
        kept.pop(name, None)
        if value is not None:
            kept[name] = value


class SimulatedStore(Store):
    """The daemon's store, over a simulated disk.

    Args:
        wake: called when a commit has ended.
        burn: called at each step; the daemon may crash there.

    Raises:
        StoreError: the disk is full, and the reserve used up.

    """

    def __init__(
        self,
        disk: Disk,
        world: World,
        wake: Callable[[], None],
        burn: Callable[[str], None],
    ) -> None:
        # not as a database: what `Store` opens is not there
        if not disk.has_room():
            raise StoreError(f"disk: {FULL}")
        disk.incarnation += 1
        self.incarnation = disk.incarnation
        self.shortage = FULL if disk.full else None
        self.stuck = None
        self._disk = disk
        self._world = world
        self._wake = wake
        self._burn = burn
        self._committing = None
        self._outcome: StoreError | StoreFullError | None = None
        self._ended = False
        self._gone = False
        self._look_at = world.now

    # ------------------------------------------------------------ writing

    def submit(self, batch: Batch) -> None:
        self._burn("write")
        self._committing = batch
        delay = self._world.some(50e-6, self._disk.latency)
        self._world.after(delay, self._sync, batch)
        self._burn("written")

    def committed(self) -> list[Any] | None:
        if self._ended:
            self._burn("committed")
            return self._settle()
        if self.shortage is not None and self._world.now >= self._look_at:
            self._look_for_room()
        return None

    def flush(self) -> list[Any]:
        self.retry()
        if self._committing is not None:
            self._sync(self._committing)
        replies = self._settle()
        if self.stuck is not None:
            raise StoreFullError(f"disk: {FULL}")
        return replies or []

    def retry(self) -> None:
        batch, self.stuck = self.stuck, None
        if batch is not None:
            self.submit(batch)

    def close(self) -> None:
        self._gone = True

    def crash(self) -> None:
        """Lose what is not durable."""
        self._gone = True

    # ------------------------------------------------------------ the commit

    def _sync(self, batch: Batch) -> None:
        """Commit, unless that has happened, or the daemon has gone before it could."""
        if self._gone or self._ended or batch is not self._committing:
            return
        self._ended = True
        if self._disk.failing:
            self._disk.failing = False
            self._fail(batch)
        elif not self._disk.has_room():
            self._outcome = StoreFullError(f"disk: {FULL}")
        else:
            self._apply(batch)
        self._wake()

    def _apply(self, batch: Batch) -> None:
        try:
            self._disk.apply(batch)
        except StoreError as error:
            self._outcome = error
            return
        self._world.note("disk", "durable", *sorted(row[0] for row in batch.tasks))

    def _fail(self, batch: Batch) -> None:
        """Fail; nobody knows whether what was written came to the disk."""
        if self._world.happens(0.5):
            self._disk.apply(batch)
        self._outcome = StoreError("disk: disk I/O error")
        self._world.note("disk", "fails")

    def _settle(self) -> list[Any] | None:
        """Take the outcome of the commit; what there is no room for is stuck."""
        batch, outcome = self._committing, self._outcome
        if batch is None:
            return None
        self._outcome, self._ended = None, False
        if isinstance(outcome, StoreFullError):
            self.shortage, self.stuck = FULL, batch
            self._look_at = self._world.now + SECOND
            return None
        if outcome is not None:
            raise outcome
        self._committing = None
        return batch.replies

    def _look_for_room(self) -> None:
        self._look_at = self._world.now + SECOND
        if self.stuck is not None:
            self.retry()
        elif self.idle and not self._disk.full:
            self._disk.reserve = RESERVE
            self.shortage = None

    # ------------------------------------------------------------ reading

    def unfinished(self) -> list[bytes]:
        tasks = self._disk.tasks
        return [tasks[task][1] for task in sorted(tasks) if not tasks[task][0]]

    def usage(self) -> dict[int, tuple[int, int]]:
        return {}

    def measurers(self) -> dict[str, set[int]]:
        return {}

    def trim(self, owner: int, tasks: int, keys: int) -> None:
        """No simulated task takes this much room."""

    def freed(self) -> list[Removed]:
        return []

    def ended(
        self,
        before: int,
        limit: int,
        owner: int | None = None,
        *,
        after: int = 0,
        marked: bool = False,
    ) -> Generator[tuple[int, bytes], None, None]:
        tasks = self._disk.tasks
        if marked:
            tasks = {task: page for task, page in tasks.items() if page[3]}
        if owner is not None:
            tasks = {t: page for t, page in tasks.items() if page[2] == owner}
        ended = [t for t in tasks if tasks[t][0] and after < t < before]
        found = sorted(ended, reverse=True)
        yield from [(task, tasks[task][1]) for task in found[:limit]]

    def task(self, task_id: int) -> bytes | None:
        found = self._disk.tasks.get(task_id)
        return found[1] if found is not None else None

    def owner(self, task_id: int) -> int | None:
        found = self._disk.tasks.get(task_id)
        return found[2] if found is not None else None

    def page_bytes(self, task_id: int) -> int:
        return len(self.task(task_id) or b"")

    def last_id(self) -> int:
        return max(self._disk.tasks, default=0)

    def key(self, owner: int, key: str) -> tuple[bytes, bytes] | None:
        return self._disk.keys.get((owner, key))

    def samples(self) -> list[Figures]:
        return [self._disk.samples[place] for place in sorted(self._disk.samples)]

    def settings(self) -> dict[tuple[str, str], bytes]:
        return dict(self._disk.settings)

    def circuits(self) -> dict[tuple[int, str, str], bytes]:
        return dict(self._disk.circuits)
