"""Checkpoints: the progress of an implementation and the size of its next strip.

The runtime owns a `Checkpoint` for each execution and hands it to the
implementation, which only draws strips from it. A strip is a plain `range` of
iterations of the outer loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from libtask.messages import CheckpointRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

GROWTH = 8
"""Largest ratio of a strip's size to the previous one: the first, cold strip of a
kernel predicts the following ones badly, and an overlong strip delays preemption."""
LARGEST = 1 << 40
"""Maximum iterations of a strip: strips that take no measurable time would grow forever."""


class StripSizer:
    """Sizes strips so that checkpoints come at a target interval.

    Args:
        interval_ns: target time between checkpoints, nanoseconds.
        fixed: iterations of each strip; disables the sizing.
        first: iterations of the first strip, from an estimate.

    """

    def __init__(
        self, interval_ns: int, *, fixed: int | None = None, first: int | None = None
    ) -> None:
        self._interval_ns = interval_ns
        self._fixed = fixed
        self.size = fixed or first or 1

    def measured(self, iterations: int, elapsed_ns: int) -> None:
        """Update the size from the time of a finished strip."""
        if self._fixed or iterations <= 0:
            return
        ideal = iterations * self._interval_ns // max(elapsed_ns, 1)
        self.size = max(1, min(ideal, GROWTH * iterations, LARGEST))


class Checkpoint:
    """Progress of one execution through its outer loop.

    Attributes:
        done: iterations finished; the next strip starts here.
        total: all iterations; None: the app ends by itself (convergence).
        limit: iterations after which this execution ends, as others do the rest; None:
            `total`.
        extra: small plain values that the app keeps here (residuals, flags); they
            travel with the task when it moves.
        ends_early: whether the app said that it ends before `total`.

    """

    def __init__(self, record: CheckpointRecord, sizer: StripSizer) -> None:
        self.done = record.done
        self.total = record.total
        self.limit: int | None = None
        self.extra: dict[str, Any] = dict(record.extra)
        self.ends_early = False
        self._sizer = sizer
        self._drawn = record.done

    def strips(self, granule: int = 1) -> Iterator[range]:
        """Yield strips until the loop is done; the caller yields once after each.

        Args:
            granule: sizes are multiples of this number of iterations (a tile, a block
                of time steps), except for the last strip.

        Raises:
            ValueError: the granule is less than 1.

        """
        if granule < 1:
            raise ValueError(f"granule: expected a whole number from 1, got {granule}")
        while (end := self.end) is None or self._drawn < end:
            size = max(granule, self._sizer.size // granule * granule)
            stop = self._drawn + size
            if end is not None and stop > end:
                stop = end
            strip = range(self._drawn, stop)
            self._drawn = stop
            yield strip

    def end_early(self) -> None:
        """Say that the implementation returns before `total`, as there is nothing left to do.

        One that returns early and does not call this has failed.
        """
        self.ends_early = True

    @property
    def drawn(self) -> int:
        """Iterations drawn so far: finished ones and those in flight."""
        return self._drawn

    @property
    def complete(self) -> bool:
        """Whether all strips have been drawn."""
        end = self.end
        return end is not None and self._drawn >= end

    @property
    def end(self) -> int | None:
        """Iterations after which this execution ends; None: the app ends by itself."""
        return self.total if self.limit is None else self.limit

    def give_up(self, first: int, granule: int) -> range:
        """Lower the limit; return the iterations that others do now, empty: none are left.

        Args:
            first: the first iteration to give up, if it is not drawn yet.
            granule: they begin at a multiple of this.

        """
        end = self.end
        if end is None:
            return range(0)
        first = -(-max(first, self._drawn) // granule) * granule
        given = range(min(first, end), end)
        if given:
            self.limit = given.start
        return given

    def take_back(self) -> None:
        """Count all iterations as done: what others did has been merged."""
        if self.total is not None:
            self.done = self._drawn = self.total
            self.limit = None

    def record(self) -> CheckpointRecord:
        """Return a record of the progress."""
        return CheckpointRecord(self.done, self.total, dict(self.extra))
