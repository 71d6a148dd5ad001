"""Improves an assignment by moves and swaps until it is as short as wanted.

Each step takes the machine that is done last and gives one of its jobs away, or swaps
it for a shorter one, such that both machines are done earlier than it was. The makespan
never grows, so whatever ratio was proven for the start holds for the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hetsched.planning.batch.arrays import Floats, Ints

WIDEST = 300_000
"""Swaps examined in a step; where there are more, with the lightest machines only."""

LEAST_GAIN = 1e-9
"""A step must shorten the longest machine by this share."""


class Descent:
    """An assignment under improvement.

    Attributes:
        machines: where each job is, (jobs,).
        ends: when each machine is done, (machines,), seconds.

    """

    def __init__(
        self, seconds: Floats, free_at: Floats, machines: Ints, prices: Floats
    ) -> None:
        self.machines = machines.copy()
        self._seconds = seconds
        own = seconds[np.arange(len(machines)), machines]
        self.ends = free_at + np.bincount(machines, own, len(free_at))
        self._busy = np.bincount(machines, minlength=len(free_at)) > 0
        self._own = own
        self._prices = prices

    def run(self, target: float, steps: int) -> None:
        """Improve until all is done by `target` seconds, no step helps, or steps are up."""
        for _ in range(steps):
            ends = np.where(self._busy, self.ends, -np.inf)
            worst = int(ends.argmax())
            if ends[worst] <= target or not self._improve(worst, target):
                break

    def _improve(self, worst: int, target: float) -> bool:
        members = np.flatnonzero(self.machines == worst)
        limit = self.ends[worst] * (1 - LEAST_GAIN)
        end, job, machine = self._best_move(members, worst)
        if end <= target:
            self._put(job, machine)
            return True
        swapped, first, second = self._best_swap(members, worst, target)
        if min(end, swapped) >= limit:
            return False
        if end <= swapped:
            self._put(job, machine)
        else:
            self._swap(first, second)
        return True

    def _best_move(self, members: Ints, worst: int) -> tuple[float, int, int]:
        """Find the move after which the later of both machines is done earliest."""
        there = self.ends + self._seconds[members]
        there[:, worst] = np.inf
        machines = there.argmin(axis=1)
        gained = there[np.arange(len(members)), machines]
        ends = np.maximum(gained, self.ends[worst] - self._own[members])
        best = int(ends.argmin())
        return float(ends[best]), int(members[best]), int(machines[best])

    def _best_swap(
        self, members: Ints, worst: int, target: float
    ) -> tuple[float, int, int]:
        """Find the swap after which the later of both machines is done earliest.

        Of swaps that reach the target, the one that costs least at the machines' prices.
        """
        others = self._partners(members, worst)
        if not len(others):
            return np.inf, -1, -1
        homes = self.machines[others]
        here = self._seconds[others, worst] - self._own[members][:, None]
        there = self._seconds[members[:, None], homes] - self._own[others]
        ends = np.maximum(here + self.ends[worst], there + self.ends[homes])
        best = int(ends.argmin())
        if ends.flat[best] <= target:
            cost = here * self._prices[worst] + there * self._prices[homes]
            best = int(np.where(ends <= target, cost, np.inf).argmin())
        row, column = divmod(best, len(others))
        return float(ends.flat[best]), int(members[row]), int(others[column])

    def _partners(self, members: Ints, worst: int) -> Ints:
        """List the jobs to swap with: all, or those of the machines done first."""
        many = WIDEST // max(1, len(members))
        if len(self.machines) <= many:
            return np.flatnonzero(self.machines != worst)
        share = max(1, int(len(self.ends) * many / len(self.machines)))
        chosen = np.zeros(len(self.ends), dtype=bool)
        chosen[np.argpartition(self.ends, share - 1)[:share]] = True
        chosen[worst] = False
        return np.flatnonzero(chosen[self.machines])

    def _swap(self, first: int, second: int) -> None:
        here, there = int(self.machines[first]), int(self.machines[second])
        self._put(first, there)
        self._put(second, here)

    def _put(self, job: int, machine: int) -> None:
        old = int(self.machines[job])
        self.ends[old] -= self._own[job]
        self._own[job] = self._seconds[job, machine]
        self.ends[machine] += self._own[job]
        self.machines[job] = machine
        self._busy[machine] = True
        self._busy[old] = bool((self.machines == old).any())
