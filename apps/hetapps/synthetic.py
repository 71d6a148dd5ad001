"""Synthetic tasks: they wait for given times and compute nothing.

With them the schedules of machines that one does not own can be replayed on the
real daemon: every resource takes exactly as long as the parameters say.
"""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args

from libtask.errors import InputError
from libtask.messages import Kind
from libtask.task import Size, Task

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from libtask.checkpoint import Checkpoint
    from libtask.devices import Device
    from libtask.messages import DeviceSpec

KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass
class Synthetic(Task):
    """Waits instead of computing.

    Attributes:
        seconds: time of the whole task, in seconds, for each kind ("gpu") or resource
            ("gpu1"; wins over its kind). There is no implementation for other kinds.
        strips: iterations of the outer loop; each takes an equal part of the time.
        state_bytes: bytes that a migration moves.
        move_seconds: time of a move, without copying; `links`: bytes a second
            to and from a resource; none named: copying there takes no time. Copying
            away is waited out at the checkpoint where the task stops, the rest before
            the first strip after.
        fail_at: the iteration that raises an error, counted from 0; None: none does.
        label: size signature; tasks with the same label share their estimates.

    """

    state_names = ("state",)

    seconds: dict[str, float]
    strips: int = 20
    state_bytes: int = 0
    move_seconds: float = 0.0
    links: dict[str, float] = field(default_factory=dict)
    fail_at: int | None = None
    label: str = ""

    def __post_init__(self) -> None:
        """Check the parameters."""
        for name, seconds in self.seconds.items():
            if not (seconds >= 0 and math.isfinite(seconds)):
                raise ValueError(f"seconds of {name!r} is {seconds}; give a time >= 0")
        if not self.kinds():
            raise ValueError("seconds names no kind of device (cpu, gpu, fpga)")
        if self.strips < 1:
            raise ValueError(f"strips is {self.strips}; give at least 1")
        if self.state_bytes < 0:
            raise ValueError(f"state_bytes is {self.state_bytes}; give 0 or more")
        self._check_moves()
        if self.fail_at is not None and not 0 <= self.fail_at < self.strips:
            raise ValueError(f"fail_at is {self.fail_at}; give 0 to {self.strips - 1}")

    def _check_moves(self) -> None:
        if not (self.move_seconds >= 0 and math.isfinite(self.move_seconds)):
            raise ValueError(f"move_seconds is {self.move_seconds}; give a time >= 0")
        if not all(rate > 0 for rate in self.links.values()):
            raise ValueError(f"links is {self.links}; give bytes a second, above 0")

    def kinds(self) -> list[Kind]:
        """List the kinds with a time, be it through one resource only ("gpu1")."""
        named = {name.rstrip("0123456789") for name in self.seconds}
        return [kind for kind in KINDS if kind in named]

    def size(self) -> Size:
        """Tasks without a label are alike if their times are."""
        times = ",".join(f"{name}={s:g}" for name, s in sorted(self.seconds.items()))
        return Size(
            signature=self.label or times,
            state_bytes=self.state_bytes,
            memory_bytes=self.state_bytes,
            iterations=self.strips,
        )

    def load(self) -> None:
        """Allocate the state, which only migrations look at."""
        import numpy as np

        self.state: NDArray[Any] = np.zeros(self.state_bytes, np.uint8)

    def total(self) -> int:
        return self.strips

    def seconds_on(self, resource: DeviceSpec) -> float:
        """Return the seconds that the whole task takes on a resource."""
        for name in (resource.name, resource.kind):
            if name in self.seconds:
                return self.seconds[name]
        raise InputError(
            f"seconds names neither {resource.name!r} nor its kind {resource.kind!r}"
        )

    def seconds_to_copy(self, resource: str) -> float:
        """Return the seconds that copying the state to or from a resource takes."""
        return self.state_bytes / self.links.get(resource, math.inf)

    def seconds_to_go_on(self, source: str | None, here: str) -> float:
        """Return the seconds before the first strip; `source`: where it yielded, if so."""
        if source is None:
            return 0.0
        moved = self.move_seconds if source != here else 0.0
        return moved + self.seconds_to_copy(here)

    def save(self, checkpoint: Checkpoint) -> dict[str, Any]:
        return {"strips": checkpoint.done, "state_bytes": self.state_bytes}


@Synthetic.on("cpu")
@Synthetic.on("gpu")
@Synthetic.on("fpga")
def synthetic(
    task: Synthetic, device: Device, checkpoint: Checkpoint
) -> Iterator[None]:
    """Wait out each strip, and hold the state on the device meanwhile."""
    each = task.seconds_on(device.spec) / task.strips
    # OpenCL has no empty buffers
    held = device.resident(task.state) if task.state_bytes else nullcontext()
    fail_at = task.strips if task.fail_at is None else task.fail_at
    with held:
        here = device.spec.name
        late = wait(task.seconds_to_go_on(checkpoint.extra.get("on"), here))
        checkpoint.extra["on"] = here
        for strip in checkpoint.strips():
            stop = min(strip.stop, fail_at)
            late = wait((stop - strip.start) * each - late)
            if stop < strip.stop:
                raise RuntimeError(f"synthetic failure at strip {fail_at}")
            try:
                yield
            except GeneratorExit:
                wait(task.seconds_to_copy(here))
                raise


def wait(seconds: float) -> float:
    """Sleep to an absolute deadline; return how many seconds too late it woke.

    The caller takes these off the next wait, so that the error of many short strips
    does not add up.
    """
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(left)
    return -left
