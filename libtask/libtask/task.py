"""Tasks: the base class of applications.

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
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypeVar

import libtask.app_modules  # noqa: F401  compiled code may name modules as workers do
from libtask.arrays import installed, on_arrays
from libtask.messages import KINDS, Kind

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from libtask.checkpoint import Checkpoint
    from libtask.parameters import TaskFile

Implementation: TypeAlias = Callable[[Any, Any, "Checkpoint"], Iterator[None]]
"""(task, device, checkpoint) -> generator that yields after each strip."""

Written = TypeVar("Written", bound=Implementation)


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a task, known before it is submitted.

    Attributes:
        signature: with the app, names the row of the characterisation tables; e.g. "4096".
        work: amount of work in units that the app chooses; twice the work takes about
            twice the time on any one device.
        input_bytes: read-only data that a device needs.
        state_bytes: data that a migration moves.
        memory_bytes: host memory that the whole task needs; 0: input plus state.
        iterations: iterations of the outer loop, if known before `load`: the scheduler
            then knows where checkpoints lie with strips of a fixed size.

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
    """Attributes that strips change and a snapshot holds; empty: all of them. `load()`
    must restore the others."""
    result_names: ClassVar[tuple[str, ...]] = ()
    """With `device.xp`: attributes with arrays that change no more after the last strip.
    They are read-only in `save`, and stay on the device for the next task."""

    needs_device: ClassVar[bool] = True
    """Whether the implementations compute on the device that they receive."""
    needs_cores: ClassVar[int | Literal["all"]] = 0
    """Processor cores that a task needs of the host; 0: none are counted for it."""
    retries_failures: ClassVar[int] = 0
    """Maximum number of times that a failed task is run again, with growing pauses."""
    keeps_snapshots: ClassVar[bool] = True
    """Whether a worker can write the progress to disk."""
    parallel: ClassVar[bool] = False
    """Whether its strips are independent of each other, so that several resources may do
    them at once: `merge` then takes in what another worker has done. Needs snapshots, and
    a `total`."""
    sized_by_inputs: ClassVar[bool] = True
    """Whether `size` and `kinds` need parameters that may be results of other tasks: they
    are not called if such results are still missing."""

    array_kinds: ClassVar[frozenset[Kind]] = frozenset()
    """Kinds whose implementation computes with `device.xp`; `on` sets it."""
    array_libraries: ClassVar[tuple[str, ...]] = ("cupy", "torch")
    """Array libraries for `device.xp` on accelerators: the first is used that the
    environment has and that finds the device."""

    def __init_subclass__(cls) -> None:
        cls.implementations = dict(cls.implementations)

    @classmethod
    def on(cls, *kinds: Kind) -> Callable[[Written], Written]:
        """Declare the implementation for a kind of device, or one for several kinds.

        One for several kinds computes with `device.xp`, an array namespace, on arrays
        that are attributes of the task.

        Raises:
            ValueError: no kind, an unknown one, or several with one that has no array
                library.

        """
        for kind in kinds:
            if kind not in KINDS:
                names = ", ".join(map(repr, KINDS))
                raise ValueError(
                    f"{cls.__name__}.on: {kind!r}: expected one of {names}"
                )
        several = len(kinds) > 1
        if not kinds or (several and "fpga" in kinds):
            raise ValueError("one kind of device, or cpu and gpu for device.xp")

        def declare(implementation: Written) -> Written:
            declared = on_arrays(implementation) if several else implementation
            cls.implementations.update(dict.fromkeys(kinds, declared))
            others = cls.array_kinds.difference(kinds)
            cls.array_kinds = others.union(kinds) if several else others
            return implementation

        return declare

    @classmethod
    def samples(cls, folder: Path) -> Sequence[Task]:
        """Return the small tasks that characterisation measures; empty: it measures none.

        Execution times of other sizes are derived from these by `Size.work`: return two
        or three sizes of at most about a second each, far enough apart that caches
        behave differently.

        Args:
            folder: an empty folder for input files of the samples; removed afterwards.

        """
        return ()

    def size(self) -> Size:
        """Return the task's size. Called before submission: read headers, not data."""
        return Size()

    def kinds(self) -> list[Kind]:
        """List the kinds that can run the task; parameters may exclude implemented ones.

        Kinds for which this environment lacks an array library are left out.
        """
        return [
            kind
            for kind in self.implementations
            if kind not in self.array_kinds or installed(kind, self.array_libraries)
        ]

    @classmethod
    def libraries_on(cls, kind: Kind) -> tuple[str, ...] | None:
        """Return the array libraries for a kind; None: it is not used through `device.xp`."""
        return cls.array_libraries if kind in cls.array_kinds else None

    def described(self) -> dict[str, Any]:
        """Return further fields of the `TaskSpec`; for applications of libtask itself."""
        return {}

    def files(self) -> list[TaskFile]:
        """List the files that the task reads and writes, to bring them to another machine.

        These are the values of the parameters that are declared as `Annotated[str, Input]`
        or `Annotated[str, Output]`.
        """
        from libtask.parameters import files_of, values_of

        return files_of(type(self), values_of(self))

    def load(self) -> None:
        """Read the inputs and allocate the state arrays. Called once, in the worker."""

    def total(self) -> int | None:
        """Return the iterations of the outer loop, after `load`; None: it ends by itself.

        A task of 0 iterations ends at once; a negative number fails it.
        """
        return 1

    def part_granule(self) -> int:
        """Return how many iterations belong together, after `load`; for `parallel` tasks.

        Parts of the task begin at multiples of this number of iterations.
        """
        return 1

    def merge(self, other: Self, strips: range) -> None:
        """Take in the iterations `strips` that another worker has done; for `parallel` tasks.

        Args:
            other: this task with the state of that worker at the end of these strips.
            strips: what to take over from it; the rest of its state is undefined.

        """
        raise NotImplementedError(f"{type(self).__name__}: merge")

    def check(self, checkpoint: Checkpoint) -> str:
        """Describe an error in the results so far; empty: none found.

        Called when the host holds the data: before a snapshot, when the task leaves a
        device and after the last strip. An error counts as the device's fault, and the
        task continues on another device from its last snapshot. Checking an invariant
        sum or recomputing one element suffices; the time counts as the task's.
        """
        return ""

    def save(self, checkpoint: Checkpoint) -> Any:
        """Write the outputs and return the result; see `libtask.results`."""
        return None
