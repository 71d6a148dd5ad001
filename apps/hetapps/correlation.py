"""Pearson correlation of the columns of a table.

Means and lengths of the columns are taken while loading; then the outer loop computes the
upper triangle of Z^T Z of the standardised table Z (hetkernels.correlation.plan). A move
carries the matrix only. Means
and lengths are float64 always. In float32, the default for its speed on every kind,
correlations differ from float64 by less than 1e-5; in float64 by less than 1e-12. On one
device any cut into strips gives the same bits; kinds differ within these tolerances.
"""

from __future__ import annotations

import csv
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import numpy as np

from hetapps import tables
from libtask.errors import InputError
from libtask.parameters import Input, Output
from libtask.task import Size, Task

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from hetkernels.correlation.plan import Plan
    from libtask.checkpoint import Checkpoint
    from libtask.devices import Device

NAMED = 10
"""Constant columns that a warning names."""

SUFFIXES = (".npy", ".csv")


class Multiply(Protocol):
    """The part that the kernels of all kinds share."""

    def __call__(
        self, device: Any, plan: Plan, buffers: tuple[Any, Any], strip: range
    ) -> None:
        """Enqueue or do a strip; `buffers` hold the table and the matrix."""
        ...


@dataclass
class Correlation(Task):
    """Pearson correlation matrix of the columns of a table.

    Attributes:
        input: NPY (rows x columns), CSV (with a header) or Parquet; empty: generated.
        output: NPY or CSV file for the matrix, by its suffix; empty: none is written.
        rows: rows of a generated table.
        columns: its columns.
        seed: of its random generator.
        missing: "refuse" missing values, or "drop-rows" that hold one.
        dtype: precision of the products, float32 or float64.

    """

    state_names = ("matrix",)
    parallel = True

    input: Annotated[str, Input] = ""
    output: Annotated[str, Output] = ""
    rows: int = 10_000
    columns: int = 1_000
    seed: int = 0
    missing: str = "refuse"
    dtype: str = "float32"

    def __post_init__(self) -> None:
        """Check the parameters."""
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f"dtype is {self.dtype!r}; give 'float32' or 'float64'")
        if self.missing not in ("refuse", "drop-rows"):
            text = "give 'refuse' or 'drop-rows'"
            raise ValueError(f"missing is {self.missing!r}; {text}")
        if self.output and not self.output.endswith(SUFFIXES):
            text = "its name must end in .npy or .csv"
            raise ValueError(f"output is {self.output!r}; {text}")
        for name in ("rows", "columns"):
            if not 1 <= getattr(self, name) < 2**31:
                raise ValueError(
                    f"{name} is {getattr(self, name)}; give 1 to 2147483647"
                )

    @classmethod
    def samples(cls, folder: Path) -> Sequence[Task]:
        """Measure tables from small ones to some that keep a fast GPU busy."""
        wanted = ((1000, 256), (2000, 1000), (4000, 2000))
        return [cls(rows=rows, columns=columns) for rows, columns in wanted]

    def size(self) -> Size:
        """Size the task by the multiplications of the upper triangle."""
        if self.output and not Path(self.output).absolute().parent.is_dir():
            raise InputError(f"{self.output}: no such folder to write into")
        rows, columns = self.rows, self.columns
        if self.input:
            rows, columns = tables.read_shape(Path(self.input))
        real = np.dtype(self.dtype).itemsize
        table, matrix = rows * columns * real, columns * columns * real
        return Size(
            signature=f"{rows}x{columns}/{self.dtype}",
            work=rows * columns * (columns + 1) / 2,
            input_bytes=table,
            state_bytes=matrix,
            # beside them: what is read, and a copy without the rows dropped
            memory_bytes=table + matrix + 16 * rows * columns,
        )

    def load(self) -> None:
        """Read or generate the table, and standardise it."""
        from hetkernels.correlation.plan import Plan
        from hetkernels.correlation.standardise import Standardised

        table = self._table()
        real = np.dtype(self.dtype)
        self.names = table.names
        self.table = Standardised(table.values, real)
        self._refuse_values(table, self.table.squares)
        self.constant: NDArray[np.bool_] = self.table.squares == 0
        rows, columns = self.table.shape
        self.plan = Plan(rows, columns, real)
        self.matrix: NDArray[Any] = np.zeros((self.plan.columns,) * 2, real)

    def _table(self) -> tables.Table:
        """Return the table, without the rows to drop."""
        if not self.input:
            return tables.generate_table(self.rows, self.columns, self.seed)
        table = tables.read_table(Path(self.input))
        if self.missing == "refuse":
            return table
        whole = ~np.isnan(table.values).any(axis=1)
        if not whole.any():
            raise InputError(f"{self.input}: every row has a missing value")
        return tables.Table(table.names, table.values[whole])

    def _refuse_values(self, table: tables.Table, squares: NDArray[Any]) -> None:
        """Refuse values that are missing, infinite, or too large to square."""
        bad = np.flatnonzero(~np.isfinite(squares))
        if not bad.size:
            return
        values = table.values[:, bad[0]]
        row = int(np.argmax(~np.isfinite(values)))
        where = f"{self.input}: column {table.names[bad[0]]!r}"
        if np.isfinite(values[row]):
            raise InputError(f"{where} holds values too large to square")
        if np.isinf(values[row]):
            raise InputError(f"{where} is infinite in row {row} (counted from 0)")
        advice = "correct it, or give missing='drop-rows'"
        raise InputError(f"{where} misses row {row} (counted from 0); {advice}")

    def total(self) -> int:
        return self.plan.total

    def part_granule(self) -> int:
        """Keep the chunks of a pair of blocks together: they are added up in order."""
        return self.plan.chunks

    def merge(self, other: Correlation, strips: range) -> None:
        """Take over pairs of blocks of the matrix."""
        for index in range(strips.start, strips.stop, self.plan.chunks):
            for block in self.plan.pair(index // self.plan.chunks):
                rows = slice(block * self.plan.block, (block + 1) * self.plan.block)
                self.matrix[rows] = other.matrix[rows]

    def save(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """Complete the matrix and write it; tell the strongest correlation."""
        from hetkernels.correlation.finish import finish, strongest

        finish(self.matrix, self.constant)
        if self.output:
            self._write(Path(self.output))
        warning = self._warning()
        if warning:
            sys.stderr.write(f"warning: {warning}\n")
        return {
            "rows": self.plan.rows,
            "columns": self.plan.columns,
            "output": str(Path(self.output).absolute()) if self.output else None,
            "strongest": self._named(strongest(self.matrix)),
            "warnings": [warning] if warning else [],
        }

    def _named(self, pair: tuple[int, int] | None) -> list[Any] | None:
        if pair is None:
            return None
        return [*(self.names[column] for column in pair), float(self.matrix[pair])]

    def _warning(self) -> str:
        constant = np.flatnonzero(self.constant)
        if not constant.size:
            return ""
        named = ", ".join(repr(self.names[column]) for column in constant[:NAMED])
        more = f" and {constant.size - NAMED} more" if constant.size > NAMED else ""
        return f"constant columns correlate with nothing (NaN): {named}{more}"

    def _write(self, path: Path) -> None:
        try:
            if path.suffix == ".npy":
                np.save(path, self.matrix)
                return
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow(["", *self.names])
                for name, row in zip(self.names, self.matrix, strict=True):
                    writer.writerow([name, *row.tolist()])
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from error


def _advance(
    task: Correlation, device: Device, checkpoint: Checkpoint, multiply: Multiply
) -> Iterator[None]:
    """Multiply strip by strip on a device that takes the whole table."""
    with (
        device.inputs(task.table.table) as (table,),
        device.resident(task.matrix) as (matrix,),
    ):
        for strip in checkpoint.strips():
            multiply(device, task.plan, (table, matrix), strip)
            yield


@Correlation.on("cpu")
def correlation_cpu(
    task: Correlation, device: Device, checkpoint: Checkpoint
) -> Iterator[None]:
    """Multiply with BLAS."""
    from hetkernels.correlation.cpu import multiply

    with device.resident(task.matrix) as (matrix,):
        for strip in checkpoint.strips():
            multiply(device, task.plan, (task.table, matrix), strip)
            yield


@Correlation.on("gpu")
def correlation_gpu(
    task: Correlation, device: Device, checkpoint: Checkpoint
) -> Iterator[None]:
    """Multiply with tiles in local memory."""
    from hetkernels.correlation.opencl import multiply_gpu

    return _advance(task, device, checkpoint, multiply_gpu)


@Correlation.on("fpga")
def correlation_fpga(
    task: Correlation, device: Device, checkpoint: Checkpoint
) -> Iterator[None]:
    """Multiply with an array of multipliers."""
    from hetkernels.correlation.opencl import multiply_fpga

    return _advance(task, device, checkpoint, multiply_fpga)
