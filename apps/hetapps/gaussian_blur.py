"""Gaussian blur of an image, edges mirrored, as scipy.ndimage.gaussian_filter.

The outer loop is the rows of the output. All kinds compute in float32 and add in the
same order (hetkernels.gaussian_blur.weights), so a run gives the same bits on any kind,
after any moves. Integer images are rounded to the nearest integer, halves to even,
where SciPy cuts off; float64 images are computed in float32, too.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from hetapps import images
from libtask.parameters import Input, Output
from libtask.task import Size, Task

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from hetkernels.gaussian_blur.opencl import Picture
    from libtask.checkpoint import Checkpoint
    from libtask.devices import Device

LARGEST_RADIUS = 256
"""Line buffers of an FPGA hold this many rows on both sides of a pixel."""

GRANULE = 64
"""Rows of a strip at least: a tile of the CPU, two of the GPU."""


@dataclass
class GaussianBlur(Task):
    """Gaussian blur of an image.

    Attributes:
        input: PNG, TIFF or NPY file (8 or 16 bits, float32 or float64; grey or up to 4
            channels); empty: a random grey image.
        output: file for the result, in the format of its suffix (.png, .tif, .tiff,
            .npy) and the type of the input; empty: none is written.
        sigma: standard deviation of the Gaussian, pixels.
        truncate: standard deviations at which it is cut off.
        n: rows and columns of a random image.
        seed: of its random generator.

    """

    state_names = ("blurred",)
    parallel = True

    input: Annotated[str, Input] = ""
    output: Annotated[str, Output] = ""
    sigma: float = 2.0
    truncate: float = 4.0
    n: int = 2048
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the parameters."""
        if not 0 < self.sigma < LARGEST_RADIUS:
            text = f"give pixels above 0, below {LARGEST_RADIUS}"
            raise ValueError(f"sigma is {self.sigma:g}; {text}")
        if not 0 < self.truncate < LARGEST_RADIUS:
            text = f"give standard deviations above 0, below {LARGEST_RADIUS}"
            raise ValueError(f"truncate is {self.truncate:g}; {text}")
        if self.radius > LARGEST_RADIUS:
            text = "give a smaller sigma, or shrink the image first"
            raise ValueError(
                f"sigma x truncate is {self.radius} pixels, above {LARGEST_RADIUS}; {text}"
            )
        if not 1 <= self.n < 2**31 or self.seed < 0:
            raise ValueError(
                f"n is {self.n}, seed {self.seed}; give n from 1, seed from 0"
            )
        if self.output and Path(self.output).suffix.lower() not in images.SUFFIXES:
            suffixes = ", ".join(images.SUFFIXES)
            raise ValueError(
                f"output is {self.output!r}; its name must end in {suffixes}"
            )

    @property
    def radius(self) -> int:
        """Pixels on each side that count; the rule of scipy.ndimage."""
        return int(self.truncate * self.sigma + 0.5)

    @classmethod
    def samples(cls, folder: Path) -> Sequence[Task]:
        """Measure random images, from a small one to one beyond the caches."""
        wanted = ((256, 2.0), (1024, 2.0), (2048, 8.0))
        return [cls(n=n, sigma=sigma) for n, sigma in wanted]

    def size(self) -> Size:
        """Size the image by its values times the pairs that each adds up, twice."""
        header = self._header()
        if self.output:
            images.check_output(self.output, header.dtype)
        values = header.planes * header.rows * header.columns
        held = min(np.dtype(header.dtype).itemsize, 4) * values
        shape = f"{header.rows}x{header.columns}x{header.planes}"
        return Size(
            signature=f"{shape}/{header.dtype}/{self.radius}",
            work=float(values) * (self.radius + 1),
            input_bytes=held,
            state_bytes=held,
            # a copy each while reading and on an emulated device
            memory_bytes=4 * held + (8 * values if header.dtype == "float64" else 0),
        )

    def _header(self) -> images.Header:
        if self.input:
            return images.read_header(self.input)
        return images.Header(1, self.n, self.n, "uint8")

    def load(self) -> None:
        """Read or generate the image; set out the result."""
        from hetkernels.gaussian_blur.weights import half_weights

        planes = images.read_planes(self.input) if self.input else self._random()
        self.dtype: np.dtype[Any] = planes.dtype
        if self.output:
            images.check_output(self.output, self.dtype.name)
        self.image: NDArray[Any] = (
            planes.astype(np.float32) if self.dtype.kind == "f" else planes
        )
        self.blurred: NDArray[Any] = np.zeros_like(self.image)
        self.weights: NDArray[np.float32] = half_weights(self.sigma, self.truncate)

    def _random(self) -> NDArray[np.uint8]:
        random = np.random.default_rng(self.seed)
        return random.integers(0, 256, (1, self.n, self.n), dtype=np.uint8)

    def total(self) -> int:
        return int(self.image.shape[1])

    def part_granule(self) -> int:
        return GRANULE

    def merge(self, other: GaussianBlur, strips: range) -> None:
        """Take over rows of the output."""
        rows = slice(strips.start, strips.stop)
        self.blurred[:, rows] = other.blurred[:, rows]

    def save(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """Write the image; describe it."""
        if self.output:
            images.write_planes(
                self.output, self.blurred.astype(self.dtype, copy=False)
            )
        planes, rows, columns = self.blurred.shape
        return {
            "shape": [rows, columns, planes],
            "dtype": self.dtype.name,
            "radius": self.radius,
            "minimum": float(self.blurred.min()),
            "mean": float(self.blurred.mean(dtype=np.float64)),
            "maximum": float(self.blurred.max()),
            "crc32": zlib.crc32(self.blurred.data),
            "output": str(Path(self.output).absolute()) if self.output else None,
        }


@GaussianBlur.on("cpu")
def blur_cpu(
    task: GaussianBlur, device: Device, checkpoint: Checkpoint
) -> Iterator[None]:
    """Blur with Numba, both passes in cache."""
    from hetkernels.gaussian_blur.cpu import blur_rows

    with device.inputs(task.image) as (image,), device.resident(task.blurred) as (out,):
        for strip in checkpoint.strips(GRANULE):
            blur_rows(image, out, task.weights, strip)
            yield


@GaussianBlur.on("gpu")
def blur_gpu(
    task: GaussianBlur, device: Device, checkpoint: Checkpoint
) -> Iterator[None]:
    """Blur in tiles, in two launches."""
    from hetkernels.gaussian_blur.opencl import gpu_rows

    picture = _picture(task)
    planes, _, columns = picture.shape
    between = np.empty((planes, picture.block, columns), np.float32)
    with (
        device.inputs(task.image, task.weights) as (image, weights),
        device.resident(task.blurred) as (out,),
        device.scratch(between) as (sums,),
    ):
        for strip in checkpoint.strips(GRANULE):
            gpu_rows(device, (image, out, weights, sums), picture, strip)
            yield


@GaussianBlur.on("fpga")
def blur_fpga(
    task: GaussianBlur, device: Device, checkpoint: Checkpoint
) -> Iterator[None]:
    """Blur in a stream through line buffers."""
    from hetkernels.gaussian_blur.opencl import fpga_rows

    picture = _picture(task)
    # Each strip begins with filling the line buffers.
    granule = max(GRANULE, 2 * picture.reach)
    with (
        device.inputs(task.image, task.weights) as (image, weights),
        device.resident(task.blurred) as (out,),
    ):
        for strip in checkpoint.strips(granule):
            fpga_rows(device, (image, out, weights), picture, strip)
            yield


def _picture(task: GaussianBlur) -> Picture:
    from hetkernels.gaussian_blur.opencl import Picture

    planes, rows, columns = task.image.shape
    reach = len(task.weights) - 1
    return Picture((planes, rows, columns), task.image.dtype.name, reach)
