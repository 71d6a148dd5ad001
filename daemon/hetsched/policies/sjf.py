"""`sjf`: shortest job first, a baseline of zhao-2018-tpds (section 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hetsched.planning.batch.live import BatchPolicy


@dataclass(frozen=True, slots=True)
class ShortestJobFirstBatches(BatchPolicy):
    """Batches by SJF (zhao-2018): a free resource gets the task that it completes quickest.

    Attributes:
        window_s, most_tasks, correct: see `BatchPolicy`.

    """

    planner: ClassVar[str] = "sjf"
