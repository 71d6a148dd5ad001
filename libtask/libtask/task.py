"""Tasks: what an application derives from.

An application is a dataclass of parameters that derives from `Task`, plus one
implementation for each kind of device: a generator that yields at checkpoints.

    @dataclass
    class Heat(Task):
        n: int = 1024

    @Heat.on("gpu")
    def heat_gpu(task, device, checkpoint):
        with device.resident(task.grid, task.scratch) as (grid, scratch):
            for strip in checkpoint.strips():
                kernels.steps(device, grid, scratch, strip)
                yield  # a checkpoint
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

from libtask.messages import Kind

if TYPE_CHECKING:
    from pathlib import Path

    from libtask.checkpoint import Checkpoint

Implementation: TypeAlias = Callable[[Any, Any, "Checkpoint"], Iterator[None]]
"""(task, device, checkpoint) -> generator that yields after each strip."""

Written = TypeVar("Written", bound=Implementation)


@dataclass(frozen=True, slots=True)
class Size:
    """How big a task is; known before it is submitted.

    Attributes:
        signature: names the row of the characterisation tables with the app, e.g. "4096".
        work: amount of work in units that the app chooses; twice the work takes about
            twice the time on any one device.
        input_bytes: read-only data that a device needs.
        state_bytes: data that a migration moves.
        memory_bytes: host memory that the task needs in all; 0: input plus state.
        iterations: of the outer loop, where they are known before `load`: then the
            scheduler knows where checkpoints lie in strips of a fixed size.

    """

    signature: str = "any"
    work: float = 1.0
    input_bytes: int = 0
    state_bytes: int = 0
    memory_bytes: int = 0
    iterations: int | None = None


class Task:
    """Base of applications. Parameters are dataclass fields of the subclass.

    A bad parameter raises `ValueError` in `__post_init__`, in one line; a bad input
    file raises `libtask.errors.InputError` in `size` or `load`.
    """

    implementations: ClassVar[dict[Kind, Implementation]] = {}
    state_names: ClassVar[tuple[str, ...]] = ()
    """Attributes that strips change: what a snapshot holds; empty: all of them. The
    others must be what `load()` makes them."""

    needs_device: ClassVar[bool] = True
    """Whether its implementations compute on the device that they are given."""
    keeps_snapshots: ClassVar[bool] = True
    """Whether its progress can be written to disk."""

    def __init_subclass__(cls) -> None:
        cls.implementations = dict(cls.implementations)

    @classmethod
    def on(cls, kind: Kind) -> Callable[[Written], Written]:
        """Declare the implementation for a kind of device."""

        def declare(implementation: Written) -> Written:
            cls.implementations[kind] = implementation
            return implementation

        return declare

    @classmethod
    def samples(cls, folder: Path) -> Sequence[Task]:
        """Return the small tasks that characterisation measures; none: it is not measured.

        Times of other sizes follow from these by `Size.work`: give two or three sizes,
        far enough apart to fit caches differently, of at most about a second each.

        Args:
            folder: an empty folder for input files that they need; removed afterwards.

        """
        return ()

    def size(self) -> Size:
        """Say how big the task is. Called before submission: read headers, not data."""
        return Size()

    def kinds(self) -> list[Kind]:
        """List the kinds that can run it; fewer than implemented where parameters say."""
        return list(self.implementations)

    def described(self) -> dict[str, Any]:
        """Return further fields of its `TaskSpec`; for applications of libtask itself."""
        return {}

    def load(self) -> None:
        """Read the inputs and allocate the state arrays. Called once, in the worker."""

    def total(self) -> int | None:
        """Count the iterations of the outer loop; None: ends by itself. After `load`."""
        return 1

    def check(self, checkpoint: Checkpoint) -> str:
        """Say what is wrong with the numbers so far; empty: nothing that is noticed.

        Called where the host has them: before a snapshot, when the task leaves a device,
        after the last strip. What it finds counts as an error of the device, and the
        task goes on elsewhere, from the last snapshot. A sum that must stay, or one
        element computed anew, is enough; the time it takes is the task's.
        """
        return ""

    def save(self, checkpoint: Checkpoint) -> Any:
        """Write the outputs; return the result; see `libtask.results`."""
        return None
