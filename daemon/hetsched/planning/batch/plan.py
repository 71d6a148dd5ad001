"""A plan: where each job is computed, when, and at which rates its data gets there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hetsched.planning.batch.arrays import Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The place and times of each job, in seconds from the start of the batch.

    Attributes:
        accelerators: of each job, (jobs,).
        orders: place of each job among those of its accelerator, from 0.
        starts: when computing starts.
        finishes: when it ends.
        transfers: for each job the pieces (start, finish, rate) of its transfer, in
            order, shape (pieces, 3); none where nothing need be transferred.
        bound: no plan is shorter than this, seconds.
        notes: remarks on how it was found, for users.

    """

    accelerators: Ints
    orders: Ints
    starts: Floats
    finishes: Floats
    transfers: list[Floats]
    bound: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def makespan(self) -> float:
        """Return when the last job is done."""
        return float(self.finishes.max(initial=0.0))

    @property
    def mean_completion(self) -> float:
        """Average job completion time, seconds."""
        return float(self.finishes.mean()) if len(self.finishes) else 0.0
