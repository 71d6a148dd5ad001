"""Tables of numbers: read from NPY, CSV and Parquet files, or generated.

Called by the `correlation` application. pyarrow is imported only for Parquet.
"""

from __future__ import annotations

import csv
import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from libtask.errors import InputError
from libtask.extras import how_to_install
from libtask.wording import cause

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

MISSING = {"", "na", "n/a", "nan", "null", "none"}
"""Fields of a CSV file, in lower case, that stand for a missing value."""

SAMPLE_BYTES = 1 << 16
"""Head of a CSV file from which its number of rows is estimated."""

FACTORS = 4
"""Hidden causes that the columns of a generated table share."""


@dataclass(frozen=True, slots=True)
class Table:
    """Named columns of numbers.

    Attributes:
        names: one for each column.
        values: rows x columns, float32 or float64; missing values are NaN.

    """

    names: list[str]
    values: NDArray[Any]


@dataclass(frozen=True, slots=True)
class Format:
    """How one file format is read: its (rows, columns), and all of it."""

    shape: Callable[[Path], tuple[int, int]]
    table: Callable[[Path], Table]


def read_shape(path: Path) -> tuple[int, int]:
    """Read rows and columns from the head of a file; rows of CSV are estimated.

    Raises:
        InputError: unreadable, or no table.

    """
    shape: tuple[int, int] = _read(path, lambda form: form.shape(path))
    return shape


def read_table(path: Path) -> Table:
    """Read a table.

    Raises:
        InputError: unreadable, no table, or a column that is not numeric.

    """
    table: Table = _read(path, lambda form: form.table(path))
    if 0 in table.values.shape:
        raise InputError(f"{path}: the table has no rows or no columns")
    return table


def generate_table(rows: int, columns: int, seed: int) -> Table:
    """Generate columns that share hidden causes, so that they correlate."""
    random = np.random.default_rng(seed)
    shares = random.standard_normal((FACTORS, columns))
    values = random.standard_normal((rows, FACTORS)) @ shares
    values += random.standard_normal((rows, columns))
    return Table([str(column) for column in range(columns)], values)


def _read(path: Path, reader: Callable[[Format], Any]) -> Any:
    form = FORMATS.get(path.suffix.lower())
    if form is None:
        known = ", ".join(FORMATS)
        raise InputError(f"{path}: format {path.suffix!r} is unknown; give {known}")
    try:
        return reader(form)
    except (OSError, ValueError, EOFError, csv.Error) as error:
        raise InputError(f"{path}: not a readable table: {cause(error)}") from error


# ---------------------------------------------------------------- NPY


def _npy_shape(path: Path) -> tuple[int, int]:
    values = np.load(path, mmap_mode="r", allow_pickle=False)
    _check_array(path, values)
    rows, columns = values.shape
    return rows, columns


def _npy_table(path: Path) -> Table:
    values = np.load(path, allow_pickle=False)
    _check_array(path, values)
    names = [str(column) for column in range(values.shape[1])]
    return Table(names, _as_real(values))


def _check_array(path: Path, values: NDArray[Any]) -> None:
    if len(values.shape) != len(("rows", "columns")) or values.dtype.kind not in "fiub":
        shape = " x ".join(map(str, values.shape))
        text = f"holds {values.dtype} of shape {shape}; give rows x columns of numbers"
        raise InputError(f"{path}: {text}")


def _as_real(values: NDArray[Any]) -> NDArray[Any]:
    kept = values.dtype in (np.float32, np.float64) and values.dtype.isnative
    return np.ascontiguousarray(values, values.dtype if kept else np.float64)


# ---------------------------------------------------------------- CSV


def _csv_shape(path: Path) -> tuple[int, int]:
    names = _csv_names(path)
    with path.open("rb") as file:
        header = len(file.readline())
        sample = file.read(SAMPLE_BYTES)
    lines = max(1, sample.count(b"\n"))
    rows = (path.stat().st_size - header) * lines // max(1, len(sample))
    return max(1, rows), len(names)


def _csv_names(path: Path) -> list[str]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        return next(csv.reader(file), [])


def _csv_table(path: Path) -> Table:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            names = next(csv.reader(file), [])
            values = _fast_values(file)
    except ValueError:
        # Missing values, text, ragged rows: the slower reader tells which.
        names = _csv_names(path)
        return Table(names, _csv_values(path, names))
    if values.size and values.shape[1] != len(names):
        count = values.shape[1]
        raise InputError(f"{path}: {len(names)} names head {count} columns")
    return Table(names, values)


def _fast_values(file: TextIO) -> NDArray[np.float64]:
    with warnings.catch_warnings():
        # A table without rows is refused later, and by name.
        warnings.filterwarnings("ignore", "loadtxt: input contained no data")
        return np.loadtxt(file, delimiter=",", ndmin=2, quotechar='"', comments=None)


def _csv_values(path: Path, names: list[str]) -> NDArray[np.float64]:
    rows = []
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        next(reader)
        for fields in reader:
            if not fields:
                continue
            where = f"{path}: line {reader.line_num}"
            if len(fields) != len(names):
                text = f"has {len(fields)} fields, the header {len(names)}"
                raise InputError(f"{where} {text}")
            rows.append(
                [_number(*pair, where) for pair in zip(fields, names, strict=True)]
            )
    return np.array(rows, np.float64).reshape(len(rows), len(names))


def _number(field: str, name: str, where: str) -> float:
    text = field.strip()
    if text.lower() in MISSING:
        return math.nan
    try:
        return float(text)
    except ValueError as error:
        told = f"column {name!r} is not numeric: it holds {text[:40]!r}"
        raise InputError(f"{where}: {told}; leave that column out") from error


# ---------------------------------------------------------------- Parquet


def _parquet(path: Path) -> Any:
    try:
        from pyarrow import parquet
    except ImportError as error:
        text = f"Parquet needs pyarrow: {how_to_install('parquet')}"
        raise InputError(f"{path}: {text}") from error
    return parquet.ParquetFile(path)


def _parquet_shape(path: Path) -> tuple[int, int]:
    with _parquet(path) as file:
        return file.metadata.num_rows, len(file.schema_arrow)


def _parquet_table(path: Path) -> Table:
    with _parquet(path) as file:
        for field in file.schema_arrow:
            if not np.issubdtype(_numpy_type(field.type), np.number):
                text = f"column {field.name!r} is not numeric but {field.type}"
                raise InputError(f"{path}: {text}; leave that column out")
        content = file.read()
    columns = [column.to_numpy() for column in content.columns]
    values = np.column_stack(columns) if columns else np.empty((0, 0))
    return Table(list(content.column_names), _as_real(values))


def _numpy_type(arrow_type: Any) -> np.dtype[Any]:
    try:
        found: np.dtype[Any] = np.dtype(arrow_type.to_pandas_dtype())
    except NotImplementedError:
        return np.dtype(object)
    return found


FORMATS = {
    ".npy": Format(_npy_shape, _npy_table),
    ".csv": Format(_csv_shape, _csv_table),
    ".parquet": Format(_parquet_shape, _parquet_table),
}
