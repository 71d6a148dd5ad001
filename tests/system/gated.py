"""The real applications, with gates before some strips: tests move them in the middle.

Kernels, devices, transfers and results are the applications' own; only drawing a
strip that holds one of `gates` waits until the test has made a file.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetapps.correlation import Correlation
from hetapps.gaussian_blur import GaussianBlur
from hetapps.heat import Heat
from hetapps.markov import Markov
from libtask.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from libtask.checkpoint import Checkpoint
    from libtask.devices import Device
    from libtask.task import Implementation, Task


@dataclass
class Gate:
    """What is added to an application.

    Attributes:
        gate: folder; a file in it named after an iteration of the outer loop, with `.at`,
            gets the process that waits there; one without `.at` lets it pass. `strips`
            gets a line for each strip that was drawn.
        gates: the iterations.
        pause_s: seconds that each iteration takes longer, on any device.

    """

    gate: str = ""
    gates: list[int] = field(default_factory=list)
    pause_s: float = 0.0

    def passed(self, strip: range) -> None:
        time.sleep(self.pause_s * len(strip))
        if self.gate:
            with Path(self.gate, "strips").open("a", encoding="ascii") as file:
                file.write(f"{strip.start} {strip.stop}\n")
        for iteration in self.gates:
            if iteration in strip:
                here = Path(self.gate, str(iteration))
                here.with_suffix(".at").write_text(str(os.getpid()))
                while not here.exists():
                    time.sleep(0.001)


def gated(implementation: Implementation) -> Implementation:
    """Put a gate before the strips that an implementation draws."""

    def start(task: Any, device: Device, checkpoint: Checkpoint) -> Iterator[None]:
        draw = checkpoint.strips

        def strips(granule: int = 1) -> Iterator[range]:
            for strip in draw(granule):
                task.passed(strip)
                yield strip

        checkpoint.strips = strips  # type: ignore[method-assign]  # this execution's alone
        return implementation(task, device, checkpoint)

    return start


@dataclass
class GatedHeat(Gate, Heat):
    """Heat, with a gate."""


@dataclass
class GatedBlur(Gate, GaussianBlur):
    """Gaussian blur, with a gate."""


@dataclass
class GatedMarkov(Gate, Markov):
    """Markov, with a gate."""


@dataclass
class GatedCorrelation(Gate, Correlation):
    """Correlation, with a gate."""


@dataclass
class LostHeat(GatedHeat):
    """Heat, whose GPU is lost on the way.

    Attributes:
        lost_at: time step.

    """

    lost_at: int = 0

    def load(self) -> None:
        super().load()
        self.on_gpu = False

    def passed(self, strip: range) -> None:
        super().passed(strip)
        if self.on_gpu and self.lost_at in strip:
            raise DeviceError("it fell off the bus")


_all: list[type[Task]] = [GatedHeat, GatedBlur, GatedMarkov, GatedCorrelation]
for _app in _all:
    for _kind, _implementation in list(_app.implementations.items()):
        _app.implementations[_kind] = gated(_implementation)


def lost(task: Any, device: Device, checkpoint: Checkpoint) -> Iterator[None]:
    task.on_gpu = True
    return GatedHeat.implementations["gpu"](task, device, checkpoint)


LostHeat.implementations |= GatedHeat.implementations | {"gpu": lost}
