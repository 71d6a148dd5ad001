"""`mmi`: minimum makespan increase, a baseline of zhao-2018-icc (section V)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hetsched.planning.batch.live import BatchPolicy


@dataclass(frozen=True, slots=True)
class MinimumMakespanIncrease(BatchPolicy):
    """Batches by MMI (zhao-2018): next the task and place that lengthen the makespan least.

    Attributes:
        window_s, most_tasks, correct: see `BatchPolicy`.

    """

    planner: ClassVar[str] = "mmi"
