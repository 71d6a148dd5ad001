"""The table of expected execution times: task type x resource -> seconds.

Filled by characterisation and corrected by live strips. Where a type was never
measured, its time is scaled by work from another size of the same application, and
where the application was never measured on that resource, a guess serves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from libtask.errors import InputError

if TYPE_CHECKING:
    from hetd.core.system import Resource
    from hetd.core.tasks import Row

GUESS_S = 1.0
"""Expected time of a task nobody has ever measured. All resources being equal then, such
a task has affinity 1 to every one that can run it."""

LIVE_WEIGHT = 0.2
"""Weight of a live measurement against what was known before."""

LIVE_STEP = 2.0
"""Factor by which one live measurement can change an entry at most: a paging machine or a
first compilation must not poison the table."""


CACHED = 20_000
"""Answers kept at hand; rows come and go for years."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of a task type on a resource. `work` is in the app's own units."""

    seconds: float
    work: float


class EstimateTable:
    """Expected execution times (EET); an `Estimates` for the scheduler."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], Entry] = {}
        self._by_app: dict[tuple[str, str], dict[str, Entry]] = {}
        self._cache: dict[tuple[Row, str], float] = {}
        self.version = 0

    def seconds(self, row: Row, resource: Resource) -> float:
        """Return the expected seconds of a whole task of `row` alone on `resource`."""
        key = (row, resource.name)
        found = self._cache.get(key)
        if found is None:
            if len(self._cache) >= CACHED:
                self._cache.clear()
            found = self._cache[key] = self._look_up(row, resource.name)
        return found

    def knows(self, row: Row, resource: Resource) -> bool:
        """Whether the type of `row` was measured on `resource`."""
        return (row.type, resource.name) in self._entries

    def learn(self, task_type: str, resource: str, seconds: float, work: float) -> None:
        """Enter a characterisation measurement; replaces an earlier one.

        Raises:
            InputError: `seconds` is not a time.

        """
        if not 0 < seconds < math.inf:
            raise InputError(
                f"{task_type} on {resource}: a time must be positive and finite, "
                f"got {seconds}"
            )
        entry = Entry(seconds, work)
        self._entries[task_type, resource] = entry
        app = application(task_type)
        self._by_app.setdefault((app, resource), {})[task_type] = entry
        self._cache.clear()
        self.version += 1

    def correct(self, row: Row, resource: Resource, seconds: float) -> float:
        """Move an entry towards a live measurement; return what it is now.

        Args:
            row: the task's row.
            resource: where the strips ran.
            seconds: time of a whole task, extrapolated from live strips; anything
                that is not a time is ignored.

        """
        known = self.seconds(row, resource)
        if not 0 < seconds < math.inf:
            return known
        if (row.type, resource.name) in self._entries:
            seconds = min(max(seconds, known / LIVE_STEP), known * LIVE_STEP)
            seconds = (1 - LIVE_WEIGHT) * known + LIVE_WEIGHT * seconds
        self.learn(row.type, resource.name, seconds, row.work)
        return seconds

    def entries(self) -> dict[tuple[str, str], Entry]:
        return dict(self._entries)

    def _look_up(self, row: Row, resource: str) -> float:
        entry = self._entries.get((row.type, resource))
        if entry is None:
            entry = self._nearest(row, resource)
        if entry is None:
            return GUESS_S
        return entry.seconds * (row.work / entry.work if entry.work > 0 else 1.0)

    def _nearest(self, row: Row, resource: str) -> Entry | None:
        """Find the measured size of the same app with the closest amount of work."""
        app = application(row.type)
        sizes = self._by_app.get((app, resource), {})

        def distance(entry: Entry) -> float:
            return abs(math.log(max(entry.work, 1e-9) / max(row.work, 1e-9)))

        return min(sizes.values(), key=distance, default=None)


def application(task_type: str) -> str:
    """Return the application of a task type; paths and size signatures may hold slashes."""
    path, mark, rest = task_type.rpartition(".py:")
    return path + mark + rest.partition("/")[0]
