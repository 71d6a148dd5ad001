"""`cim`: the computation-intensive case of zhao-2018-tpds (section 3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hetsched.planning.batch.live import BatchPolicy


@dataclass(frozen=True, slots=True)
class ComputationIntensiveBatches(BatchPolicy):
    """Batches by CIM (zhao-2018): computing balanced within a percent of the lower bound.

    Attributes:
        window_s, most_tasks, correct: see `BatchPolicy`.

    """

    planner: ClassVar[str] = "cim"
