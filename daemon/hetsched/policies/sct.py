"""`sct`: smallest completion time, a baseline of zhao-2018-icc (section V)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hetsched.planning.batch.live import BatchPolicy


@dataclass(frozen=True, slots=True)
class SmallestCompletionTime(BatchPolicy):
    """Batches by SCT (zhao-2018): each task where it is executed quickest, whatever else waits.

    Attributes:
        window_s, most_tasks, correct: see `BatchPolicy`.

    """

    planner: ClassVar[str] = "sct"
