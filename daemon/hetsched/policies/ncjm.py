"""`ncjm`: transmission and computation at once, zhao-2018-tpds (section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hetsched.planning.batch.live import BatchPolicy


@dataclass(frozen=True, slots=True)
class JointBatches(BatchPolicy):
    """Batches by NCJM (zhao-2018): computing balanced, each transfer beside other computations.

    Attributes:
        window_s, most_tasks, correct: see `BatchPolicy`.

    """

    planner: ClassVar[str] = "ncjm"
