"""The measurements of one task type, at one amount of work, on one resource."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TypeAlias

from hetsched.estimates.regression import Known
from hetsched.estimates.sampling import Sampling
from hetsched.estimates.series import Series
from libtask.errors import InputError

LEAST_S = 1e-9
"""Shorter times are this long: logarithms must stay finite."""


@dataclass(frozen=True, slots=True)
class Figures:
    """A measurement as users enter it and as the store keeps it. Seconds of a whole task.

    Attributes:
        type: task type.
        resource: name.
        seconds: everything; `setup`: the part before the first strip, and transfers.
        work: amount, in the application's own units.
        spread: relative standard deviation of `seconds`; `count`: measurements.
        joules: measured energy of a whole task; None: never measured.

    """

    type: str
    resource: str
    seconds: float
    work: float
    spread: float = 0.0
    count: int = 1
    setup: float = 0.0
    joules: float | None = None


Key: TypeAlias = tuple[str, str, int]
"""Type, resource, grain of the work."""

OWN = re.compile(r"uid:([0-9]+):(.*)", re.DOTALL)
"""Name of a type of which only one user's measurements are kept."""
LONGEST_TYPE = 1000
"""Bytes of a type within such a name: with the uid it fits into a message."""


def own_type(owner: int, task_type: str) -> str:
    """Return the name under which a user's own measurements of a type are kept."""
    if len(task_type.encode()) > LONGEST_TYPE:
        task_type = task_type[-LONGEST_TYPE // 4 :]
    return f"uid:{owner}:{task_type}"


def owner_of(name: str) -> int | None:
    """Return the user whose measurements are kept under a name; None: those of all."""
    found = OWN.fullmatch(name)
    return int(found[1]) if found else None


def shared_type(name: str) -> str:
    """Return the type as it is named for all users."""
    found = OWN.fullmatch(name)
    return found[2] if found else name


GRAIN = 5.0
"""Amounts of work within a factor of e^(1/5) of each other are one point."""


def grain_of(work: float) -> int:
    """Return the step of a logarithmic scale that an amount of work falls on."""
    return round(GRAIN * math.log(work)) if 0 < work < math.inf else 0


def key_of(known: Figures | Point) -> Key:
    """Return the key of a measurement; a later one with the same key replaces it."""
    return known.type, known.resource, grain_of(known.work)


@dataclass(slots=True)
class Point:
    """Live measurements; `answer` is the last published value, kept until it is far off.

    Attributes:
        computing: whole tasks' seconds in strips, at `work`.
        setup: seconds before the first strip and in transfers; None: never measured.
        joules: measured energy of whole tasks; None: never measured.
        sampling: chooses the segments that count.

    """

    type: str
    resource: str
    work: float
    computing: Series
    setup: Series | None = None
    joules: float | None = None
    answer: float = 0.0
    sampling: Sampling = field(default_factory=Sampling)

    @classmethod
    def of(cls, known: Figures) -> Point:
        """Make a point of a stored or entered measurement."""
        computing = max(known.seconds - known.setup, LEAST_S)
        point = cls(
            known.type,
            known.resource,
            known.work,
            Series.from_summary(computing, known.spread, known.count),
            Series.from_summary(known.setup, 0.0, known.count)
            if known.setup > 0
            else None,
            known.joules,
        )
        point.answer = point.seconds
        return point

    @property
    def setup_seconds(self) -> float:
        return self.setup.center if self.setup is not None else 0.0

    @property
    def seconds(self) -> float:
        """Seconds of a whole task at `work`, as known now."""
        return self.computing.center + self.setup_seconds

    def seconds_at(self, work: float) -> float:
        """Return the seconds of a similar amount of work; set-up does not grow with it."""
        share = self.computing.center / self.seconds
        return self.answer * (1.0 + share * (work / self.work - 1.0))

    def figures(self) -> Figures:
        """Return the measurement as it is stored."""
        return Figures(
            self.type,
            self.resource,
            self.seconds,
            self.work,
            self.computing.deviation,
            self.computing.count,
            self.setup_seconds,
            self.joules,
        )

    def known_computing(self, task_type: str) -> Known:
        """Return the time in strips, for the regression."""
        noise = self.computing.spread / math.sqrt(min(self.computing.count, 10))
        return Known(self.work, self.computing.center, noise, self.type == task_type)

    def known_setup(self, task_type: str) -> Known | None:
        """Return the set-up time, for the regression; None: never measured."""
        if self.setup is None:
            return None
        noise = self.setup.spread
        return Known(self.work, self.setup.center, noise, self.type == task_type)


def refuse_nonsense(known: Figures) -> None:
    """Refuse figures that cannot be measurements.

    Raises:
        InputError: a figure is negative, zero or infinite where it must not be.

    """
    where = f"{known.type} on {known.resource}"
    if not 0 < known.seconds < math.inf:
        raise InputError(
            f"{where}: a time must be positive and finite, got {known.seconds}"
        )
    if not 0 < known.work < math.inf:
        raise InputError(f"{where}: work must be positive and finite, got {known.work}")
    if not 0 <= known.spread < math.inf or known.count < 1:
        raise InputError(
            f"{where}: spread must not be negative and count not below 1, "
            f"got {known.spread} and {known.count}"
        )
    if not 0 <= known.setup <= known.seconds:
        raise InputError(
            f"{where}: set-up must be a part of the time, got {known.setup} "
            f"of {known.seconds}"
        )
