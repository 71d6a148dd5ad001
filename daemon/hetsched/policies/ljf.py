"""`ljf`: largest job first, a baseline of zhao-2018-tpds (section 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hetsched.planning.batch.live import BatchPolicy


@dataclass(frozen=True, slots=True)
class LargestJobFirstBatches(BatchPolicy):
    """Batches by LJF (zhao-2018): a free resource gets the task that takes longest on average.

    Attributes:
        window_s, most_tasks, correct: see `BatchPolicy`.

    """

    planner: ClassVar[str] = "ljf"
