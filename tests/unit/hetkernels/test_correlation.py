"""Correlation on the CPU: right, and the same bits however it is cut."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import get_num_threads, set_num_threads

from hetkernels.correlation.cpu import multiply
from hetkernels.correlation.finish import finish, strongest
from hetkernels.correlation.narrow import NARROW
from hetkernels.correlation.plan import BLOCK, DEPTH, ONE_BLOCK, Plan
from hetkernels.correlation.reference import correlation
from hetkernels.correlation.standardise import BAND, Standardised, standardise
from libtask.devices import open_device
from libtask.messages import DeviceSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
ACCURACY = {FLOAT32: 1e-5, FLOAT64: 1e-12}


def a_table(rows: int, columns: int, offset: float = 0.0) -> NDArray[np.float64]:
    random = np.random.default_rng(rows + columns)
    common = random.standard_normal((rows, 1))
    table: NDArray[np.float64] = random.standard_normal((rows, columns)) + common
    return table * np.arange(1, columns + 1) + offset


def multiplied(
    table: NDArray[Any], real: np.dtype[Any], cuts: list[int]
) -> NDArray[Any]:
    """Compute the upper triangle in strips that end at `cuts` and at the end."""
    standardised = Standardised(table, real)
    plan = Plan(*standardised.shape, real)
    matrix = np.zeros((plan.columns, plan.columns), real)
    device = open_device(DeviceSpec(name="cpu", kind="cpu"))
    ends = sorted({0, plan.total, *(cut % (plan.total + 1) for cut in cuts)})
    for start, stop in itertools.pairwise(ends):
        multiply(device, plan, (standardised, matrix), range(start, stop))
    return matrix


@pytest.mark.parametrize("real", [FLOAT32, FLOAT64])
@pytest.mark.parametrize(
    ("rows", "columns"),
    [
        (2, 1),
        (3, 2),
        (50, 33),
        (BAND + 1, 300),
        (20, ONE_BLOCK),
        (20, ONE_BLOCK + 9),  # an odd number of blocks
        (20, 7 * BLOCK + 1),  # an even one
        (2 * DEPTH + 5, 7),  # three chunks, without BLAS
        (2 * DEPTH + 5, NARROW),
        (2 * DEPTH + 5, NARROW + 1),  # with BLAS
    ],
)
def test_agrees_with_reference(rows: int, columns: int, real: np.dtype[Any]) -> None:
    table = a_table(rows, columns)

    matrix = multiplied(table, real, [])
    finish(matrix, np.zeros(columns, bool))

    np.testing.assert_allclose(matrix, correlation(table), rtol=0, atol=ACCURACY[real])


def test_large_offsets_cost_no_digits() -> None:
    table = a_table(3 * BAND, 5, offset=1e6)

    matrix = multiplied(table, FLOAT32, [])
    finish(matrix, np.zeros(5, bool))

    expected = np.corrcoef(table, rowvar=False)
    np.testing.assert_allclose(matrix, expected, rtol=0, atol=1e-5)


TABLES = (
    a_table(3 * DEPTH + 100, 7),
    a_table(3 * DEPTH + 100, 300),
    a_table(30, ONE_BLOCK + 28),
)


@given(st.sampled_from(TABLES), st.lists(st.integers(0, 20), max_size=5))
@settings(max_examples=30, deadline=None)
def test_cutting_changes_no_bit(table: NDArray[np.float64], cuts: list[int]) -> None:
    cut = multiplied(table, FLOAT32, cuts)

    np.testing.assert_array_equal(cut, multiplied(table, FLOAT32, []))


@given(st.integers(1, 9000), st.integers(1, 20_000), st.data())
def test_pieces_cover_each_iteration_once(
    columns: int, rows: int, data: st.DataObject
) -> None:
    plan = Plan(rows, columns, FLOAT32)
    stop = data.draw(st.integers(1, plan.total))
    start = data.draw(st.integers(0, stop - 1))

    covered = [
        pair * plan.chunks + chunk
        for piece in plan.pieces(range(start, stop))
        for pair in range(piece.first_pair, piece.first_pair + piece.pairs)
        for chunk in range(piece.first_chunk, piece.first_chunk + piece.chunks)
    ]

    assert covered == list(range(start, stop))


@pytest.mark.parametrize(
    "columns", [1, BLOCK, ONE_BLOCK, ONE_BLOCK + 1, 8 * BLOCK, 9 * BLOCK]
)
def test_pairs_hold_each_block_once(columns: int) -> None:
    plan = Plan(1, columns, FLOAT32)

    blocks = [block for pair in range(plan.pairs) for block in plan.pair(pair)]

    assert sorted(blocks) == list(range(plan.blocks))


def test_rows_are_the_same_bits_by_themselves_and_in_the_table() -> None:
    standardised = Standardised(a_table(700, 9), FLOAT32)

    some = standardised.rows(300, 650, np.empty((400, 9), np.float32))

    np.testing.assert_array_equal(some, standardised.table[300:650])


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_change_no_bit(threads: int) -> None:
    before = get_num_threads()
    set_num_threads(threads)
    try:
        narrow = multiplied(TABLES[0], FLOAT32, [])
    finally:
        set_num_threads(before)

    np.testing.assert_array_equal(narrow, multiplied(TABLES[0], FLOAT32, []))


def test_constant_columns_are_found_exactly() -> None:
    table = a_table(1000, 3)
    table[:, 1] = 0.1  # its computed mean is not 0.1

    scaled, squares = standardise(table, FLOAT32)

    assert (squares == 0).tolist() == [False, True, False]
    assert not scaled[:, 1].any()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_squares_show_values_that_are_not_finite(value: float) -> None:
    table = a_table(600, 3)
    table[500, 2] = value

    _, squares = standardise(table, FLOAT64)

    assert np.isfinite(squares).tolist() == [True, True, False]


@pytest.mark.parametrize("n", [3, 300, 700])  # the last one with threads
def test_finish_mirrors_limits_and_marks_constants(n: int) -> None:
    matrix = np.triu(np.random.default_rng(0).uniform(-1, 1, (n, n)))
    matrix[0, 2] = -1.0000001
    constant = np.zeros(n, bool)
    constant[1] = True
    upper = matrix.copy()

    finish(matrix, constant)

    kept = np.delete(np.delete(matrix, 1, 0), 1, 1)
    expected = np.clip(np.triu(upper, 1) + np.triu(upper, 1).T, -1, 1) + np.eye(n)
    np.testing.assert_array_equal(kept, np.delete(np.delete(expected, 1, 0), 1, 1))
    assert np.isnan(matrix[1]).all()
    assert np.isnan(matrix[:, 1]).all()


def test_strongest_ignores_constants_and_the_diagonal() -> None:
    matrix = np.array([[1, 0.1, -0.7], [0.1, 1, np.nan], [-0.7, np.nan, 1]])

    assert strongest(matrix) == (0, 2)
    assert strongest(np.ones((1, 1))) is None
    assert strongest(np.full((3, 3), np.nan)) is None
