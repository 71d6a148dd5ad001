"""Power iteration on the CPU: Numba, in our order of additions, each thread some columns or rows.

BLAS leaves its order of additions open, so that results would differ between kinds and
between numbers of threads; memory, not arithmetic, is the limit in both cases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numba import njit

from hetkernels.barrier import arrive, counters, release
from hetkernels.markov.layout import BLOCK, CHUNK
from hetkernels.parts import share, threads
from hetkernels.prefetch import prefetch
from hetkernels.variants import Kernel, Size, size_of
from hetkernels.wide_vectors import wide_vectors

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from hetkernels.markov.layout import Chain, Scratch, Walk

WORTH_THREADS = 1 << 16
"""Entries up to which one thread is done before a second one has woken up."""
WORTH_ALL_THREADS = 1 << 24
"""Number of entries above which all threads are used."""

TURN = 1 << 25
"""Entries of a turn: its threads have to wake up once, as those of a strip do."""

SPAN = 16
"""Columns that one turn of the loop adds: a cache line of float32, two of float64."""
AHEAD = 256
"""Columns ahead that are asked for; measured best of 64 to 1024."""

Array = Any
"""A NumPy array as Numba sees it."""
Share: TypeAlias = tuple[int, int, int]
"""(which part, of how many, ahead)"""


class Loop(NamedTuple):
    """A variant of the loop; all give the same bits.

    Attributes:
        threads: that share a step.
        ahead: columns ahead of which a dense matrix is asked for; 0: the processor
            alone guesses what comes.
        by_rows: whether threads multiply whole rows of a dense matrix, each some chunks,
            and meet before they add them up; else each has some columns of all rows.

    """

    threads: int
    ahead: int
    by_rows: bool = False


def _loops(size: Size) -> tuple[Loop, ...]:
    counts = {1, size.threads}
    if size.work <= WORTH_THREADS:
        counts = {1}
    elif size.work >= WORTH_ALL_THREADS:
        counts = {size.threads}
    aheads = (0,) if size.form.startswith("sparse") else (0, AHEAD)
    loops = [
        Loop(threads, ahead) for threads in sorted(counts)[::-1] for ahead in aheads
    ]
    if size.form.startswith("dense") and max(counts) > 1:
        loops.append(Loop(max(counts), 0, by_rows=True))
    return tuple(loops)


WALK = Kernel("markov", _loops, TURN)


class CpuWalk:
    """Advances a walk that lies in host memory.

    Args:
        chain: the matrix.
        walk: the state, changed in place.
        scratch: memory of one step.
        tolerance: L1 change at which the iteration has converged.

    """

    def __init__(
        self, chain: Chain, walk: Walk, scratch: Scratch, tolerance: float
    ) -> None:
        self._steps = STEPS[chain.form]
        self._chain = chain
        self._walk = walk
        self._scratch = scratch
        self._tolerance = chain.real.type(tolerance)

    def steps(self, count: int) -> None:
        """Do `count` steps, or fewer where it converges before."""
        chain = self._chain
        form = f"{chain.form} {chain.real}"
        size = size_of(chain.arrays[-1].size, threads(), form)
        WALK.run(size, count, lambda loop, first, last: self.do(loop, last - first))

    def do(self, loop: Loop, count: int) -> bool:
        """Do `count` steps with a variant; tell whether there are more to do."""
        arrays, walk = self._chain.arrays, tuple(self._walk)
        scratch, ahead = tuple(self._scratch), loop.ahead
        if loop.threads == 1:
            self._steps(arrays, walk, scratch, (count, ahead), self._tolerance)
            return not self._walk.status[1]
        together, tolerance = TOGETHER[self._chain.form], self._tolerance
        parts, barrier = min(loop.threads, len(self._scratch.sums)), counters()

        def do_part(part: int) -> None:
            """Do a part of each step."""
            how = (count, part, parts, ahead, loop.by_rows)
            together(arrays, walk, scratch, how, tolerance, barrier)

        share(do_part, parts)
        return not self._walk.status[1]

    def latest(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return (status, residual) as of the last steps."""
        return self._walk.status, self._walk.residual


@njit(cache=True, nogil=True)
def dense_steps(
    arrays: Any, walk: Any, scratch: Any, loop: tuple[int, int], tolerance: float
) -> None:
    """Do steps with a dense matrix in one thread; `loop` is (steps, ahead)."""
    for _ in range(loop[0]):
        if walk[1][1]:
            break
        n = walk[0].shape[1]
        dense_products(arrays, walk, scratch, (0, -(-n // CHUNK), 0, n), loop[1])
        add_up(walk, scratch, 0, 1)
        conclude(walk, scratch, tolerance)


@njit(cache=True, nogil=True)
def sparse_steps(
    arrays: Any, walk: Any, scratch: Any, loop: tuple[int, int], tolerance: float
) -> None:
    """Do steps with a sparse matrix in one thread; `loop` is (steps, 0)."""
    for _ in range(loop[0]):
        if walk[1][1]:
            break
        sparse_columns(arrays, walk, scratch, (0, 1, 0))
        conclude(walk, scratch, tolerance)


@njit(cache=True, nogil=True)
def dense_together(  # noqa: PLR0913, PLR0917  Numba takes no keywords of tuples
    arrays: Any,
    walk: Any,
    scratch: Any,
    how: tuple[int, int, int, int, bool],
    tolerance: float,
    barrier: Any,
) -> None:
    """Do a part of each step with a dense matrix; `how` is (steps, part, parts, ahead, by rows).

    Threads that go through the same rows side by side read memory in one stream; on some
    processors they are as slow as one thread with separate rows.
    """
    steps, part, parts, ahead, by_rows = how
    n, chunks = walk[0].shape[1], -(-walk[0].shape[1] // CHUNK)
    first, last = _columns(n, len(scratch[1]), part, parts)
    where = (0, chunks, first, last)
    if by_rows:
        where = (part * chunks // parts, (part + 1) * chunks // parts, 0, n)
    for _ in range(steps):
        if walk[1][1]:
            break
        dense_products(arrays, walk, scratch, where, ahead)
        if by_rows and arrive(barrier, parts):
            release(barrier)
        add_up(walk, scratch, part, parts)
        if arrive(barrier, parts):
            conclude(walk, scratch, tolerance)
            release(barrier)


@njit(cache=True, nogil=True)
def sparse_together(  # noqa: PLR0913, PLR0917  as above
    arrays: Any,
    walk: Any,
    scratch: Any,
    how: tuple[int, int, int, int, bool],
    tolerance: float,
    barrier: Any,
) -> None:
    """Do a part of each step with a sparse matrix; `how` is (steps, part, parts, 0, False)."""
    steps, part, parts, _, _ = how
    for _ in range(steps):
        if walk[1][1]:
            break
        sparse_columns(arrays, walk, scratch, (part, parts, 0))
        if arrive(barrier, parts):
            conclude(walk, scratch, tolerance)
            release(barrier)


@njit(cache=True, nogil=True)
def dense_products(
    arrays: Any, walk: Any, scratch: Any, where: tuple[int, int, int, int], ahead: int
) -> None:
    """Sum the products of some chunks of rows and some columns, each chunk by itself.

    Every second step goes backwards: it begins with the rows that the step before left in the
    caches. The products of all chunks are added in order afterwards, so the direction does
    not change a bit.

    Args:
        where: the first chunk and the one after the last, and columns likewise.
        ahead: as in `Loop`.

    """
    (matrix,) = arrays
    pair, status, _ = walk
    partial = scratch[0]
    first, last, left, right = where
    x = pair[status[0] % 2]
    for turn in range(last - first):
        chunk = last - 1 - turn if status[0] % 2 else first + turn
        rows = (chunk * CHUNK, min((chunk + 1) * CHUNK, len(x)))
        _chunk_products(matrix, x, partial[chunk, left:right], rows, (left, ahead))


@njit(cache=True, nogil=True)
def add_up(walk: Any, scratch: Any, part: int, parts: int) -> None:
    """Add the products of all chunks in order, and sum the changes, for a part of the columns."""
    pair, status, _ = walk
    partial, sums = scratch
    x, y = pair[status[0] % 2], pair[1 - status[0] % 2]
    first, last = _columns(len(x), len(sums), part, parts)
    y[first:last] = 0
    for chunk in range(-(-len(x) // CHUNK)):
        for i in range(first, last):
            y[i] += partial[chunk, i]
    for block in range(part * len(sums) // parts, (part + 1) * len(sums) // parts):
        begin, end = block * BLOCK, min((block + 1) * BLOCK, len(x))
        sums[block] = _change(x[begin:end], y[begin:end])


@njit(cache=True)
def _columns(n: int, blocks: int, part: int, parts: int) -> tuple[int, int]:
    """Return the first column of a part, and the one after the last: whole blocks."""
    first, last = part * blocks // parts, (part + 1) * blocks // parts
    return first * BLOCK, min(last * BLOCK, n)


@njit(cache=True, nogil=True)
def sparse_columns(arrays: Any, walk: Any, scratch: Any, share: Share) -> None:
    """Compute the columns of a thread's share, every second step backwards."""
    offsets, rows, values = arrays
    pair, status, _ = walk
    sums = scratch[1]
    part, parts, _ = share
    first, last = part * len(sums) // parts, (part + 1) * len(sums) // parts
    backwards = status[0] % 2
    for block in range(first, last):
        here = first + last - 1 - block if backwards else block
        x, y = pair[backwards], pair[1 - backwards]
        _block_columns((offsets, rows, values), x, y, sums, here)


@njit(cache=True, nogil=True)
def conclude(walk: Any, scratch: Any, tolerance: float) -> None:
    """Sum the changes of all blocks; count the step; note convergence."""
    _, status, residual = walk
    _conclude(scratch[1], status, residual, tolerance)


STEPS: dict[str, Callable[..., None]] = {"dense": dense_steps, "sparse": sparse_steps}
TOGETHER: dict[str, Callable[..., None]] = {
    "dense": dense_together,
    "sparse": sparse_together,
}


@njit(cache=True)
def _chunk_products(
    matrix: Array, x: Array, total: Array, rows: tuple[int, int], how: tuple[int, int]
) -> None:
    """Sum x[i] * matrix[i] over the rows of a chunk; `how` is (first column, ahead)."""
    first, ahead = how
    total[:] = 0
    grouped = rows[0] + (rows[1] - rows[0]) // 8 * 8
    flat = matrix.reshape(matrix.size)
    for row in range(rows[0], grouped, 8):
        if ahead:
            _add_eight_rows_ahead(flat, x, total, (row, first), ahead)
        else:
            _add_eight_rows(flat, x, total, row, first)
    for row in range(grouped, rows[1]):
        _add_row(matrix, x, total, row, first)


@njit(cache=True)
def _add_eight_rows(flat: Array, x: Array, total: Array, row: int, first: int) -> None:
    """Add eight rows in order: one load and store of `total` for all of them.

    Indices are unsigned, without a check for negative ones. Slices of the rows would be
    slower by up to a fifth, and more rows at once, too: rows that begin at the same place of
    a page, as those of 1024 columns do, push each other out of the first cache.
    """
    wide_vectors()
    n = np.uint64(len(x))
    x0, x1, x2, x3 = x[row], x[row + 1], x[row + 2], x[row + 3]
    x4, x5, x6, x7 = x[row + 4], x[row + 5], x[row + 6], x[row + 7]
    r0 = np.uint64(row) * n + np.uint64(first)
    r1, r2, r3 = r0 + n, r0 + n + n, r0 + n + n + n
    r4, r5 = r3 + n, r3 + n + n
    r6, r7 = r5 + n, r5 + n + n
    for i in range(len(total)):
        c = np.uint64(i)
        s = total[i] + x0 * flat[r0 + c]
        s += x1 * flat[r1 + c]
        s += x2 * flat[r2 + c]
        s += x3 * flat[r3 + c]
        s += x4 * flat[r4 + c]
        s += x5 * flat[r5 + c]
        s += x6 * flat[r6 + c]
        total[i] = s + x7 * flat[r7 + c]


@njit(cache=True)
def _add_eight_rows_ahead(
    flat: Array, x: Array, total: Array, place: tuple[int, int], ahead: int
) -> None:
    """Add eight rows in order, and ask for what comes `ahead` columns later.

    Indices are unsigned, as there.
    """
    wide_vectors()
    row, column = place
    n, width = np.uint64(len(x)), np.uint64(len(total))
    x0, x1, x2, x3 = x[row], x[row + 1], x[row + 2], x[row + 3]
    x4, x5, x6, x7 = x[row + 4], x[row + 5], x[row + 6], x[row + 7]
    r0 = np.uint64(row) * n + np.uint64(column)
    r1, r2, r3 = r0 + n, r0 + n + n, r0 + n + n + n
    r4, r5 = r3 + n, r3 + n + n
    r6, r7 = r5 + n, r5 + n + n
    left = np.uint64(0)
    while left < width // np.uint64(SPAN) * np.uint64(SPAN):
        later = left + np.uint64(ahead)
        for other in range(8):
            prefetch(flat, r0 + np.uint64(other) * n + later)
        for i in range(SPAN):
            c = left + np.uint64(i)
            s = total[c] + x0 * flat[r0 + c]
            s += x1 * flat[r1 + c]
            s += x2 * flat[r2 + c]
            s += x3 * flat[r3 + c]
            s += x4 * flat[r4 + c]
            s += x5 * flat[r5 + c]
            s += x6 * flat[r6 + c]
            total[c] = s + x7 * flat[r7 + c]
        left += np.uint64(SPAN)
    while left < width:
        s = total[left]
        for other in range(8):
            s += x[row + other] * flat[r0 + np.uint64(other) * n + left]
        total[left] = s
        left += np.uint64(1)


@njit(cache=True)
def _add_row(matrix: Array, x: Array, total: Array, row: int, first: int) -> None:
    weight = x[row]
    for i in range(len(total)):
        total[i] += weight * matrix[row, first + i]


@njit(cache=True)
def _block_columns(arrays: Any, x: Array, y: Array, sums: Array, block: int) -> None:
    """Compute y = x P, and sum the changes, for the states of a block."""
    offsets, rows, values = arrays
    first = block * BLOCK
    last = min(first + BLOCK, len(x))
    k = np.uint64(offsets[first])  # unsigned: no check for negative indices
    for column in range(first, last):
        total = values.dtype.type(0)
        while k < offsets[column + 1]:
            total += values[k] * x[rows[k]]
            k += np.uint64(1)
        y[column] = total
    sums[block] = _change(x[first:last], y[first:last])


@njit(cache=True)
def _change(x: Array, y: Array) -> Any:
    """Sum |y - x| over one block."""
    change = np.zeros(BLOCK, x.dtype)
    for i in range(len(x)):
        change[i] = abs(y[i] - x[i])
    return _fold(change)


@njit(cache=True)
def _fold(lanes: Array) -> Any:
    """Add the upper half to the lower, until one is left."""
    half = BLOCK // 2
    while half:
        for i in range(half):
            lanes[i] += lanes[i + half]
        half //= 2
    return lanes[0]


@njit(cache=True)
def _conclude(sums: Array, status: Array, residual: Array, tolerance: float) -> None:
    """Sum the changes of all blocks; count the step; note convergence."""
    lanes = np.zeros(BLOCK, sums.dtype)
    for block in range(len(sums)):
        lanes[block % BLOCK] += sums[block]
    residual[0] = _fold(lanes)
    status[0] += 1
    status[1] = residual[0] <= tolerance
