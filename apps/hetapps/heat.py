"""Heat transfer in a plate: an explicit five-point stencil on a 2-D grid.

The outer loop is time: a strip is a range of time steps. All kinds compute in float32
in the same order (hetkernels.heat.plate), so a run gives the same bits on any kind,
after any moves. The grid is the whole state.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from libtask.errors import InputError
from libtask.parameters import Input, Output
from libtask.task import Size, Task
from libtask.wording import cause

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from hetkernels.heat.plate import Plate
    from libtask.checkpoint import Checkpoint
    from libtask.devices import Device

AMBIENT, HOT = 20.0, 100.0
"""Temperatures of a generated plate. Not 0: heat spreading into exact zeros runs
through denormal numbers, which processors compute a hundred times slower."""

DIMENSIONS = 2

LARGEST_ALPHA = 0.25
"""Above it the explicit scheme amplifies the shortest waves in each step."""

PICTURE_SIDE = 2048
"""Pixels of a picture's longer side at most; larger grids are averaged down."""

CPU_GRANULE = 8
"""Steps of a CPU strip at least. Steps done together share one pass over memory: on a
grid so large that 8 steps exceed the target interval, they are still 2 times faster."""


@dataclass
class Heat(Task):
    """Heat transfer on a 2-D grid, explicit five-point stencil.

    Attributes:
        input: NPY file with the temperatures, rows x columns; empty: generate them.
        output: NPY file for the result (float32); empty: none is written.
        picture: PNG file for a picture of the result; empty: none is written.
        n: rows and columns of a generated grid.
        hotspots: hot discs on a generated grid.
        seed: of the random generator that places them.
        alpha: diffusivity x time step / cell size squared; up to 0.25.
        edges: "fixed" keeps the outermost cells as they are; "insulated" lets no heat
            through the edges.
        steps: time steps.

    """

    state_names = ("grid",)

    input: Annotated[str, Input] = ""
    output: Annotated[str, Output] = ""
    picture: Annotated[str, Output] = ""
    n: int = 1024
    hotspots: int = 8
    seed: int = 0
    alpha: float = 0.2
    edges: str = "fixed"
    steps: int = 1000

    def __post_init__(self) -> None:
        """Check the parameters."""
        if not 0 < self.alpha <= LARGEST_ALPHA:
            raise ValueError(
                f"alpha is {self.alpha:g}; give above 0, up to {LARGEST_ALPHA}: "
                "beyond it the explicit scheme is unstable"
            )
        if self.edges not in ("fixed", "insulated"):
            raise ValueError(f"edges is {self.edges!r}; give 'fixed' or 'insulated'")
        if self.steps < 1:
            raise ValueError(f"steps is {self.steps}; give at least 1")
        if not 1 <= self.n < 2**31:
            raise ValueError(f"n is {self.n}; give 1 to 2147483647")
        if self.hotspots < 0 or self.seed < 0:
            raise ValueError("hotspots and seed must not be negative")
        _check_suffix("output", self.output, ".npy")
        _check_suffix("picture", self.picture, ".png")

    @classmethod
    def samples(cls, folder: Path) -> Sequence[Task]:
        """Measure a grid that fits a cache and one that does not, briefly and longer."""
        wanted = ((256, 64), (1024, 16), (512, 1024), (1024, 1024))
        return [cls(n=n, steps=steps) for n, steps in wanted]

    def size(self) -> Size:
        """Size the grid by its cells: a step updates each of them once."""
        for file in (self.output, self.picture):
            if file and not Path(file).absolute().parent.is_dir():
                raise InputError(f"{file}: no such folder to write into")
        rows, columns = _open(self.input).shape if self.input else (self.n, self.n)
        state = 4 * rows * columns
        return Size(
            signature=f"{rows}" if rows == columns else f"{rows}x{columns}",
            work=float(rows * columns) * self.steps,
            state_bytes=state,
            memory_bytes=2 * state,  # emulated devices hold their buffers here, too
        )

    def load(self) -> None:
        """Read or generate the grid."""
        from hetkernels.heat.plate import Plate

        self.grid: NDArray[np.float32] = (
            _read(self.input)
            if self.input
            else generate(self.n, self.hotspots, self.seed)
        )
        rows, columns = self.grid.shape
        self.plate: Plate = Plate(rows, columns, self.alpha, self.edges == "insulated")

    def total(self) -> int:
        return self.steps

    def save(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """Write the grid and the picture; describe the result."""
        try:
            if self.output:
                np.save(self.output, self.grid)
            if self.picture:
                Path(self.picture).write_bytes(_draw(self.grid))
        except OSError as error:
            raise InputError(f"{error.filename}: {error.strerror}") from error
        return {
            "shape": list(self.grid.shape),
            "steps": self.steps,
            "minimum": float(self.grid.min()),
            "mean": float(self.grid.mean(dtype=np.float64)),
            "maximum": float(self.grid.max()),
            "crc32": zlib.crc32(self.grid.data),
            "output": str(Path(self.output).absolute()) if self.output else None,
            "picture": str(Path(self.picture).absolute()) if self.picture else None,
        }


def generate(n: int, hotspots: int, seed: int) -> NDArray[np.float32]:
    """Make a plate of n x n cells at ambient temperature with hot discs."""
    random = np.random.default_rng(seed)
    grid = np.full((n, n), AMBIENT, np.float32)
    for _ in range(hotspots):
        row, column = random.integers(0, n, 2)
        radius = int(random.integers(n // 64, n // 16 + 2))
        top, left = max(0, row - radius), max(0, column - radius)
        window = grid[top : row + radius + 1, left : column + radius + 1]
        down, across = np.ogrid[: window.shape[0], : window.shape[1]]
        distance = (down + top - row) ** 2 + (across + left - column) ** 2
        window[distance <= radius**2] = HOT
    return grid


def _check_suffix(parameter: str, file: str, suffix: str) -> None:
    if file and Path(file).suffix != suffix:
        raise ValueError(f"{parameter} is {file!r}; its name must end in {suffix}")


def _open(file: str) -> NDArray[Any]:
    """Map a grid's file: its header is read and checked, its data is not.

    Raises:
        InputError: unreadable, or not a 2-D grid of real numbers.

    """
    try:
        grid = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{file}: not a readable NPY grid: {cause(error)}") from error
    if not isinstance(grid, np.ndarray):
        grid.close()
        raise InputError(f"{file}: holds several arrays; give an NPY file of one grid")
    if grid.ndim != DIMENSIONS or grid.size == 0:
        shape = " x ".join(map(str, grid.shape))
        raise InputError(f"{file}: the array is {shape or 'a number'}; give a 2-D grid")
    if grid.dtype.kind not in "iuf":
        raise InputError(f"{file}: holds {grid.dtype}; give real numbers")
    return grid


def _read(file: str) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # what overflows is found below, with its place
        grid = np.array(_open(file), dtype=np.float32, order="C")
    finite = np.isfinite(grid)
    if not finite.all():
        row, column = np.unravel_index(int(finite.argmin()), grid.shape)
        place = f"row {row}, column {column}"
        raise InputError(f"{file}: {place} is not a finite float32 number")
    return grid


def _draw(grid: NDArray[np.float32]) -> bytes:
    """Draw the temperatures as a PNG picture, coldest dark, hottest bright."""
    import cv2

    shrink = max(1.0, max(grid.shape) / PICTURE_SIDE)
    rows, columns = (max(1, round(side / shrink)) for side in grid.shape)
    small = cv2.resize(grid, (columns, rows), interpolation=cv2.INTER_AREA)
    span = float(small.max() - small.min()) or 1.0
    grey = ((small - small.min()) * (255.0 / span)).astype(np.uint8)
    _, png = cv2.imencode(".png", cv2.applyColorMap(grey, cv2.COLORMAP_INFERNO))
    return bytes(png)


@Heat.on("cpu")
def heat_cpu(task: Heat, device: Device, checkpoint: Checkpoint) -> Iterator[None]:
    """Step with Numba, several steps blocked in cache."""
    from hetkernels.heat.cpu import heat_steps

    with device.resident(task.grid) as (grid,):
        for strip in checkpoint.strips(CPU_GRANULE):
            heat_steps(grid, task.plate, len(strip), device.spec.threads)
            yield


@Heat.on("gpu")
def heat_gpu(task: Heat, device: Device, checkpoint: Checkpoint) -> Iterator[None]:
    """Step in tiles, several steps a launch."""
    from hetkernels.heat.opencl import gpu_depth, gpu_steps

    depth = gpu_depth(device, task.plate)
    with device.resident(task.grid) as (grid,), device.scratch(task.grid) as (other,):
        for strip in checkpoint.strips(2 * depth):
            gpu_steps(device, (grid, other), task.plate, len(strip), depth)
            yield


@Heat.on("fpga")
def heat_fpga(task: Heat, device: Device, checkpoint: Checkpoint) -> Iterator[None]:
    """Step in a stream through chained stages."""
    from hetkernels.heat.opencl import FPGA_STEPS, fpga_steps

    with device.resident(task.grid) as (grid,), device.scratch(task.grid) as (other,):
        for strip in checkpoint.strips(2 * FPGA_STEPS):
            fpga_steps(device, grid, other, task.plate, len(strip))
            yield
