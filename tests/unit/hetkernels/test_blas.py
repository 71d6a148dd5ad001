"""BLAS on parts of matrices: NumPy's library and SciPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hetkernels import blas
from hetkernels.blas import Blas, add_product, add_square, blas_of_numpy


@pytest.fixture(params=["numpy", "scipy"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    numpys = blas_of_numpy() if request.param == "numpy" else None
    if request.param == "numpy" and numpys is None:
        pytest.skip("this NumPy is not from a wheel")
    monkeypatch.setattr(blas, "BLAS", Blas(numpys))


def numbers(rows: int, columns: int, real: Any) -> Any:
    """Draw whole numbers, whose products are exact."""
    return np.random.default_rng(rows).integers(-9, 9, (rows, columns)).astype(real)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("real", [np.float32, np.float64])
@pytest.mark.parametrize("onto", [False, True])
def test_a_square_is_written_on_and_right_of_the_diagonal(
    real: Any, *, onto: bool
) -> None:
    whole = numbers(30, 20, real)
    rows = whole[:, 4:17]  # a part of wider rows
    target = np.full((13, 13), 7, real)
    expected = np.where(
        np.triu(np.ones((13, 13))), rows.T @ rows + 7 * onto, target
    ).astype(real)

    add_square(rows, target, onto=onto)

    assert np.array_equal(target, expected)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("real", [np.float32, np.float64])
@pytest.mark.parametrize("onto", [False, True])
def test_a_product_is_written_to_a_part_of_a_matrix(real: Any, *, onto: bool) -> None:
    left, right = numbers(40, 8, real)[:, 1:6], numbers(40, 12, real)[:, 3:]
    whole = np.full((9, 15), 2, real)
    target = whole[2:7, 4:13]

    add_product(left, right, target, onto=onto)

    assert np.array_equal(target, left.T @ right + 2 * onto)
    whole[2:7, 4:13] = 2
    assert (whole == 2).all()


@pytest.mark.parametrize("module", ["no_such_module", "json", "_ctypes"])
def test_a_numpy_that_is_not_from_a_wheel_is_noticed(module: str) -> None:
    assert blas_of_numpy(module) is None
