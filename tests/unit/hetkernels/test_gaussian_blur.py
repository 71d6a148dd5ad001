"""The blur on the CPU, against SciPy in float64, and cut into strips."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetkernels.gaussian_blur import cpu
from hetkernels.gaussian_blur.reference import blur_float64, blur_reference
from hetkernels.gaussian_blur.weights import half_weights, radius

if TYPE_CHECKING:
    from numpy.typing import NDArray

TYPES = ["uint8", "uint16", "float32"]


def an_image(planes: int, rows: int, columns: int, dtype: str) -> NDArray[Any]:
    random = np.random.default_rng(rows * 1000 + columns)
    scale = {"uint8": 255.99, "uint16": 65535.99, "float32": 1.0}[dtype]
    return (random.random((planes, rows, columns)) * scale).astype(dtype)


def blurred(
    image: NDArray[Any], sigma: float, cuts: list[int] | None = None
) -> NDArray[Any]:
    result = np.zeros_like(image)
    rows = image.shape[1]
    inner = [cut for cut in cuts or [] if 0 < cut < rows]
    for start, stop in pairwise([0, *sorted(set(inner)), rows]):
        cpu.blur_rows(image, result, half_weights(sigma, 4.0), range(start, stop))
    return result


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("sigma", [0.1, 0.6, 1.0, 2.0, 3.3, 9.0])
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (1, 1, 9), (1, 9, 1), (3, 5, 4), (1, 130, 61), (2, 20, 1100)]
)
def test_agrees_with_the_reference(
    dtype: str, sigma: float, shape: tuple[int, int, int]
) -> None:
    image = an_image(*shape, dtype)

    result = blurred(image, sigma)

    exact = blur_float64(image, sigma, 4.0)
    if dtype == "float32":
        np.testing.assert_allclose(result, exact, atol=1e-6)
        return
    # Rounded to the nearest, but for float32's error where that is near a half.
    assert np.abs(result - exact).max() <= 0.5 + 1e-6 * np.iinfo(dtype).max
    assert (result != blur_reference(image, sigma, 4.0)).mean() < 1e-2


@settings(deadline=None, max_examples=40)
@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 200), st.integers(1, 200)),
    cuts=st.lists(st.integers(1, 199), max_size=6),
    sigma=st.floats(0.1, 20),
    dtype=st.sampled_from(TYPES),
)
def test_any_cut_into_strips_gives_the_same_bits(
    shape: tuple[int, int, int], cuts: list[int], sigma: float, dtype: str
) -> None:
    image = an_image(*shape, dtype)

    np.testing.assert_array_equal(blurred(image, sigma, cuts), blurred(image, sigma))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(7, 33), (20, 41), *cpu.TILES])
@pytest.mark.parametrize("dtype", TYPES)
def test_tiles_of_any_size_give_the_same_bits(
    dtype: str, shape: tuple[int, int], threads: int
) -> None:
    image = an_image(2, 90, 170, dtype)
    tiled = np.zeros_like(image)

    arrays = (image, tiled, half_weights(2.5, 4.0))
    cpu.blur_tiles(arrays, range(90), cpu.Tiling(*shape, threads))

    np.testing.assert_array_equal(tiled, blurred(image, 2.5))


def test_pieces_with_different_tiles_give_the_same_bits() -> None:
    image = an_image(1, 5 * cpu.PIECE + 9, 70, "uint8")
    whole = np.zeros_like(image)
    rows = range(image.shape[1])

    arrays = (image, whole, half_weights(2, 4.0))
    cpu.blur_tiles(arrays, rows, cpu.Tiling(64, 1024, 1))

    for _ in range(4):  # until the fastest is known, and then
        np.testing.assert_array_equal(blurred(image, 2.0), whole)


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_the_brightest_image_stays_so(dtype: str) -> None:
    brightest = np.iinfo(dtype).max
    image = np.full((1, 40, 50), brightest, dtype)

    assert set(np.unique(blurred(image, 30.0))) == {brightest}


def test_infinite_pixels_reach_no_further_than_the_radius() -> None:
    image = np.zeros((1, 41, 41), np.float32)
    image[0, 20, 20] = np.inf

    finite = np.isfinite(blurred(image, 1.5)[0])

    reach = radius(1.5, 4.0)
    expected = np.ones((41, 41), bool)
    expected[20 - reach : 21 + reach, 20 - reach : 21 + reach] = False
    np.testing.assert_array_equal(finite, expected)


@given(sigma=st.floats(0.01, 60), truncate=st.floats(0.5, 6))
def test_weights_add_up_to_one(sigma: float, truncate: float) -> None:
    weights = half_weights(sigma, truncate).astype(np.float64)

    assert len(weights) == radius(sigma, truncate) + 1
    assert weights[0] + 2 * weights[1:].sum() == pytest.approx(1, abs=1e-6)
