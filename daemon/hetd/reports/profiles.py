"""Learn cost profiles from whole runs.

`Calibration` calls this. Runs count that began and ended on one resource.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetd.tasks.stored_profiles import store_profile
from hetsched.estimates.profile import RunRecorder

if TYPE_CHECKING:
    from hetd.tasks.journal import Journal
    from hetsched.estimates.profile import CostProfiles
    from libtask import messages as m

LEAST_S = 1.0
"""Shorter runs measure the machine's noise more than the task."""
LATEST_FIRST = 0.1
"""A run whose first report comes after this share of it shows too little."""
MOST_RUNS = 1024
"""Runs recorded at once."""


class ProfileLearner:
    """Records runs of tasks, and turns whole ones into profiles of their types."""

    def __init__(self, profiles: CostProfiles, journal: Journal) -> None:
        self._profiles = profiles
        self._journal = journal
        self._runs: dict[tuple[int, int], RunRecorder] = {}
        """By task and epoch."""

    def progressed(self, message: m.Progress, seconds: float) -> None:
        """Take in strips; `seconds` is what they would have taken alone."""
        done, total = message.checkpoint.done, message.checkpoint.total
        if not total:
            return
        key = message.task, message.epoch
        run = self._runs.get(key)
        if run is None:
            begins = done == message.iterations <= LATEST_FIRST * total
            if message.started is None or not begins:
                return
            run = self._runs[key] = RunRecorder()
            if len(self._runs) > MOST_RUNS:
                del self._runs[next(iter(self._runs))]
        run.report(min(done / total, 1.0), seconds, message.seconds)

    def finished(
        self, message: m.Finished, task_type: str, slowdown: float, *, whole: bool
    ) -> bool:
        """Take in the last strips of a task.

        Args:
            message: the last report.
            task_type: type of the task.
            slowdown: factor by which others prolong its strips at present.
            whole: whether it ran on one resource from beginning to end.

        Returns:
            Whether the profile changed much, so that earlier measurements say little.

        """
        run = self._runs.pop((message.task, message.epoch), None)
        if run is None or not whole or message.seconds < LEAST_S:
            return False
        rest = max(message.seconds - run.measured, 0.0)
        run.report(1.0, rest / slowdown, rest)
        if not sum(run.seconds) > 0:
            return False
        profile, changed = self._profiles.take(task_type, run.seconds)
        store_profile(self._journal, task_type, profile)
        for gone in self._profiles.surplus():
            store_profile(self._journal, gone, None)
        return changed
