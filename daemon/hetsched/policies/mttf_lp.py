"""`mttf-lp`: Algorithm 1 and Theorem 3 of zhao-2018-icc (section IV)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hetsched.planning.batch.live import BatchPolicy


@dataclass(frozen=True, slots=True)
class MinimumTransmissionFirst(BatchPolicy):
    """Batches by MTTF-LP (zhao-2018): transfer and computation balanced, shortest transfer first.

    Attributes:
        window_s, most_tasks, correct: see `BatchPolicy`.
        solver_seconds: time of one call of the LP solver at most.

    """

    planner: ClassVar[str] = "mttf-lp"

    solver_seconds: float = 1.0
