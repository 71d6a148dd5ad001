"""`nim`: the network-intensive case of zhao-2018-tpds (section 3.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hetsched.planning.batch.live import BatchPolicy


@dataclass(frozen=True, slots=True)
class NetworkIntensiveBatches(BatchPolicy):
    """Batches by NIM (zhao-2018): transfers balanced over the devices' links.

    Attributes:
        window_s, most_tasks, correct: see `BatchPolicy`.

    """

    planner: ClassVar[str] = "nim"
