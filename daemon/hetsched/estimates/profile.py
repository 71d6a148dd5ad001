"""Cost profiles: how the work of a task type is spread over its iterations.

Iterations may cost differently: those in the middle of a Mandelbrot picture take a hundred
times as long as those at its edge. Extrapolating from such strips as if all were alike is
wrong by the same factor, and looks as if the resource had become slower. Whole runs show
the spread; progress is then counted in work rather than in iterations.

A profile that differs little from equal costs is taken as equal: most types are, and a
machine whose load varies must not make them look otherwise.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

from hetsched.estimates.point import owner_of, shared_type

if TYPE_CHECKING:
    from collections.abc import Sequence

BINS = 32
"""Parts of a task, of as many iterations each."""
PRIOR_RUNS = 0.1
"""Runs that the assumption of equal costs is worth."""
MOST_RUNS = 8.0
"""Runs that an average remembers: code and inputs change."""
EQUAL = 0.1
"""Share of the work by which a profile must differ from equal costs somewhere."""
LEAST_SHARE = 0.5
"""Strips whose work is less than this part of what equal costs would make it say little
about the whole: fixed costs dominate their time."""
MOST_TYPES = 1000
"""Types with profiles; of the user who has most, those without runs for longest are
forgotten."""


@dataclass(slots=True)
class RunRecorder:
    """Records the time of each part of one run of a task.

    Attributes:
        seconds: by bin, of the strips reported so far.
        reached: progress up to which strips were reported, in iterations.
        measured: seconds reported, as they passed.

    """

    seconds: list[float] = field(default_factory=lambda: [0.0] * BINS)
    reached: float = 0.0
    measured: float = 0.0
    _first: tuple[float, float] | None = None
    """Progress and seconds of the first report, until the next one. It may hold a
    compilation: it counts for no more than the next one's rate."""

    def report(self, progress: float, seconds: float, measured: float) -> None:
        """Take in the strips up to `progress`, a share of the iterations, in order.

        Args:
            progress: reached after them.
            seconds: that they would have taken alone.
            measured: that they took.

        """
        self.measured += measured
        share = progress - self.reached
        if share <= 0:
            return
        if self.reached == 0.0:
            self._first = progress, seconds
        else:
            if self._first is not None:
                end, took = self._first
                self._add(0.0, end, min(took, seconds * end / share))
                self._first = None
            self._add(self.reached, progress, seconds)
        self.reached = progress

    def _add(self, start: float, end: float, seconds: float) -> None:
        """Spread a time evenly over a range of progress."""
        for number in range(int(start * BINS), min(int(end * BINS) + 1, BINS)):
            low, high = number / BINS, (number + 1) / BINS
            overlap = min(end, high) - max(start, low)
            if overlap > 0:
                self.seconds[number] += seconds * overlap / (end - start)


@dataclass(slots=True)
class CostProfile:
    """The average of several runs of a type.

    Attributes:
        shares: of the work in each bin; they sum to 1.
        runs: that they are the average of, `MOST_RUNS` at most.

    """

    shares: list[float] = field(default_factory=lambda: [1.0 / BINS] * BINS)
    runs: float = PRIOR_RUNS
    _ends: list[float] = field(default_factory=list)
    """Share of the work up to the beginning of each bin, and 1; empty: all costs equal."""

    def __post_init__(self) -> None:
        self._sum_up()

    def take(self, seconds: Sequence[float]) -> None:
        """Take in the times of one run by bin; not all of them 0."""
        whole = sum(seconds)
        runs = self.runs
        self.shares = [
            (share * runs + each / whole) / (runs + 1)
            for share, each in zip(self.shares, seconds, strict=True)
        ]
        self.runs = min(runs + 1, MOST_RUNS)
        self._sum_up()

    def _sum_up(self) -> None:
        ends = [0.0, *accumulate(self.shares)]
        ends[-1] = 1.0
        unequal = any(abs(e - n / BINS) > EQUAL for n, e in enumerate(ends))
        self._ends = ends if unequal else []

    def done(self, progress: float) -> float:
        """Return the share of the work in this share of the iterations."""
        if not self._ends:
            return progress
        place = min(max(progress, 0.0), 1.0) * BINS
        number = min(int(place), BINS - 1)
        part = (place - number) * (self._ends[number + 1] - self._ends[number])
        return min(self._ends[number] + part, 1.0)


class CostProfiles:
    """The profiles of all types with whole runs."""

    def __init__(self) -> None:
        self._profiles: dict[str, CostProfile] = {}

    def knows(self, task_type: str) -> bool:
        """Return whether a whole run has shown how the work of a type is spread."""
        return self._of(task_type) is not None

    def done(self, task_type: str, progress: float) -> float:
        """Return the share of a task's work in this share of its iterations."""
        profile = self._of(task_type)
        return progress if profile is None else profile.done(progress)

    def _of(self, task_type: str) -> CostProfile | None:
        """Return the profile of a type: the user's own, or else that of all users."""
        own = self._profiles.get(task_type)
        return self._profiles.get(shared_type(task_type)) if own is None else own

    def part(self, task_type: str, start: float, end: float) -> float:
        """Return the share of the work between two points of progress.

        Returns:
            0 if it is too little to conclude from its time to that of the whole.

        """
        part = self.done(task_type, end) - self.done(task_type, start)
        return part if part >= LEAST_SHARE * (end - start) else 0.0

    def take(
        self, task_type: str, seconds: Sequence[float]
    ) -> tuple[CostProfile, bool]:
        """Take in a whole run; return the profile, and whether it changed much."""
        profile = self._profiles.pop(task_type, None) or CostProfile()
        before = [profile.done(n / BINS) for n in range(BINS)]
        profile.take(seconds)
        self._profiles[task_type] = profile
        changes = [abs(profile.done(n / BINS) - b) for n, b in enumerate(before)]
        return profile, max(changes) > EQUAL

    def put(self, task_type: str, profile: CostProfile) -> None:
        """Enter a stored profile."""
        self._profiles[task_type] = profile

    def drop(self, task_type: str) -> bool:
        """Forget the profile of a type; return whether there was one."""
        return self._profiles.pop(task_type, None) is not None

    def surplus(self) -> list[str]:
        """Forget the profiles beyond `MOST_TYPES`; return their types."""
        gone: list[str] = []
        while len(self._profiles) > MOST_TYPES:
            counts = Counter(map(owner_of, self._profiles))
            ((most, _),) = counts.most_common(1)
            oldest = next(name for name in self._profiles if owner_of(name) == most)
            del self._profiles[oldest]
            gone.append(oldest)
        return gone
