"""Markov chains: read from NPY and NPZ files, checked, or generated.

Called by the `markov` application. Heavy imports wait until a file is read.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from libtask.errors import InputError
from libtask.wording import cause

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from hetkernels.markov.layout import Chain

ROW_SUM_TOLERANCE = 1e-5
"""Tolerance of a row's sum around 1: files hold rounded values. Rows are then scaled."""

SPARSE_BELOW = 0.25
"""Density below which a generated chain is held sparse: an entry costs twice the bytes
of a dense one, and a scattered access."""

MOST_ENTRIES = (1 << 32) - (1 << 16)
"""Kernels count the entries of a sparse chain in 32 bits."""

BAND_ENTRIES = 1 << 22
"""Entries of a dense matrix that are checked at a time (32 MiB in float64)."""


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a file: shape, number of stored entries, sparse or dense."""

    shape: tuple[int, ...]
    entries: int
    sparse: bool


def read_header(path: Path) -> Header:
    """Read the shape of the matrix in a file, without its data.

    Raises:
        InputError: unreadable, or not a square matrix.

    """
    try:
        header = _npz_header(path) if path.suffix == ".npz" else _npy_header(path)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{path}: not a readable NPY or NPZ matrix: {cause(error)}"
        ) from error
    if header.shape != header.shape[:1] * 2 or not header.entries:
        shape = " x ".join(map(str, header.shape))
        raise InputError(f"{path}: the matrix is {shape}; a chain's is square")
    return header


def read_chain(path: Path, real: np.dtype[Any]) -> Chain:
    """Read a chain, check it, and bring it into the form that kernels use.

    Raises:
        InputError: unreadable, or not row-stochastic; names the first bad row.

    """
    header = read_header(path)
    try:
        if header.sparse:
            import scipy.sparse

            return sparse_chain(scipy.sparse.load_npz(path), real)
        return dense_chain(_read_dense(path), real)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{path}: not a readable NPY or NPZ matrix: {cause(error)}"
        ) from error


def dense_chain(matrix: NDArray[Any], real: np.dtype[Any]) -> Chain:
    """Check a dense matrix and scale its rows to a sum of 1."""
    from hetkernels.markov.layout import Chain, aligned

    if matrix.dtype.kind not in "fiu":
        raise InputError(f"the matrix holds {matrix.dtype}; give real numbers")
    n = len(matrix)
    scaled = aligned((n, n), real)
    for band in _bands(n):
        exact = np.asarray(matrix[band], np.float64)
        sums = _row_sums(exact, band.start)
        np.divide(exact, sums[:, None], out=scaled[band], casting="same_kind")
    return Chain("dense", n, (scaled,))


def sparse_chain(matrix: Any, real: np.dtype[Any]) -> Chain:
    """Check a scipy.sparse matrix, scale its rows, and store it by columns."""
    from hetkernels.markov.layout import Chain

    by_rows = matrix.tocsr().astype(np.float64)
    by_rows.sum_duplicates()
    if by_rows.nnz > MOST_ENTRIES:
        raise InputError(
            f"{by_rows.nnz} entries; at most {MOST_ENTRIES} can be indexed"
        )
    _check_entries(by_rows)
    sums = np.asarray(by_rows.sum(axis=1)).ravel()
    _check_sums(sums, 0)
    by_rows.data /= np.repeat(sums, np.diff(by_rows.indptr))
    columns = by_rows.tocsc()
    arrays = (
        columns.indptr.astype(np.uint32),
        columns.indices.astype(np.uint32),
        columns.data.astype(real),
    )
    return Chain("sparse", by_rows.shape[0], arrays)


def generate_chain(
    n: int, density: float, stay: float, seed: int, real: np.dtype[Any]
) -> Chain:
    """Generate a chain of random transitions in which every state is reached.

    Args:
        n: states.
        density: part of the transitions that exist.
        stay: probability to stay put, whatever the state: slows the mixing down.
        seed: of the random generator.
        real: precision.

    """
    random = np.random.default_rng(seed)
    if density < SPARSE_BELOW:
        return sparse_chain(_sparse_random(n, density, stay, random), real)
    matrix = np.empty((n, n), real)
    for band in _bands(n):
        matrix[band] = _random_rows(n, band, density, random)
    matrix *= 1.0 - stay
    matrix[np.arange(n), np.arange(n)] += stay
    return dense_chain(matrix, real)


def entries_generated(n: int, density: float) -> tuple[int, bool]:
    """Return the entries that a generated chain stores, and whether it is sparse."""
    if density < SPARSE_BELOW:
        return n * (_per_row(n, density) + 2), True
    return n * n, False


def _npy_header(path: Path) -> Header:
    with path.open("rb") as file:
        return _dense_header(file)


def _npz_header(path: Path) -> Header:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        if "indptr.npy" not in names and "format.npy" not in names:
            with archive.open(_only(names)) as file:
                return _dense_header(file)
        with archive.open("shape.npy") as file:
            shape = np.lib.format.read_array(file, allow_pickle=False)
        with archive.open("data.npy") as file:
            (entries,) = _array_shape(file)
    return Header(tuple(int(extent) for extent in shape), entries, sparse=True)


def _only(names: list[str]) -> str:
    if len(names) != 1:
        listed = ", ".join(names)
        raise ValueError(f"it holds {len(names)} arrays ({listed}); give one")
    return names[0]


def _dense_header(file: BinaryIO | Any) -> Header:
    shape = _array_shape(file)
    return Header(shape, int(np.prod(shape)), sparse=False)


def _array_shape(file: Any) -> tuple[int, ...]:
    version = np.lib.format.read_magic(file)
    first = np.lib.format.read_array_header_1_0
    later = np.lib.format.read_array_header_2_0
    shape, _, dtype = (first if version == (1, 0) else later)(file)
    if dtype.hasobject:
        raise ValueError("it holds Python objects; give numbers")
    return tuple(shape)


def _read_dense(path: Path) -> NDArray[Any]:
    if path.suffix != ".npz":
        mapped: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        return mapped
    with np.load(path, allow_pickle=False) as archive:
        matrix: NDArray[Any] = archive[archive.files[0]]
    return matrix


def _bands(n: int) -> Iterator[slice]:
    """Cut n rows into bands that fit in a cache-friendly piece of memory."""
    height = max(1, BAND_ENTRIES // n)
    for first in range(0, n, height):
        yield slice(first, min(n, first + height))


def _row_sums(band: NDArray[np.float64], first: int) -> NDArray[np.float64]:
    """Sum the rows of a band whose first row is row `first`; refuse bad ones."""
    bad = ~((band >= 0) & (band < np.inf))
    if bad.any():
        row, column = np.argwhere(bad)[0]
        _refuse_entry(first + row, column, band[row, column])
    sums: NDArray[np.float64] = band.sum(axis=1)
    _check_sums(sums, first)
    return sums


def _check_entries(by_rows: Any) -> None:
    bad = np.flatnonzero(~((by_rows.data >= 0) & (by_rows.data < np.inf)))
    if bad.size:
        row = np.searchsorted(by_rows.indptr, bad[0], side="right") - 1
        _refuse_entry(row, by_rows.indices[bad[0]], by_rows.data[bad[0]])


def _refuse_entry(row: int, column: int, value: float) -> None:
    raise InputError(
        f"row {row} is not stochastic: column {column} holds {value:g}; "
        "probabilities are finite and not negative"
    )


def _check_sums(sums: NDArray[np.float64], first: int) -> None:
    bad = np.flatnonzero(~(np.abs(sums - 1.0) <= ROW_SUM_TOLERANCE))
    if bad.size:
        row, total = first + bad[0], sums[bad[0]]
        raise InputError(
            f"row {row} is not stochastic: it sums to {total:.9g}; each row must sum to 1"
        )


def _per_row(n: int, density: float) -> int:
    return max(1, round(density * n))


def _random_rows(
    n: int, band: slice, density: float, random: np.random.Generator
) -> NDArray[np.float64]:
    """Draw rows of a dense chain; each state leads to the next, so all are reached."""
    height = band.stop - band.start
    rows = random.random((height, n))
    if density < 1.0:
        rows *= random.random((height, n)) < density
    here = np.arange(height)
    rows[here, (here + band.start + 1) % n] += 1e-3
    scaled: NDArray[np.float64] = rows / rows.sum(axis=1, keepdims=True)
    return scaled


def _sparse_random(
    n: int, density: float, stay: float, random: np.random.Generator
) -> Any:
    """Draw a sparse chain as COO; each state leads to the next, so all are reached."""
    import scipy.sparse

    states = np.arange(n)
    drawn = _per_row(n, density)
    targets = np.column_stack([random.integers(0, n, (n, drawn)), (states + 1) % n])
    weights = random.random((n, drawn + 1))
    weights[:, -1] += 1e-3
    weights *= (1.0 - stay) / weights.sum(axis=1, keepdims=True)
    rows = np.concatenate([np.repeat(states, drawn + 1), states])
    columns = np.concatenate([targets.ravel(), states])
    values = np.concatenate([weights.ravel(), np.full(n, stay)])
    return scipy.sparse.coo_array((values, (rows, columns)), shape=(n, n))
