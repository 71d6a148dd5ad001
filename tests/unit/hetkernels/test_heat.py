"""The heat kernel on the CPU, against float64, and against itself cut differently."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetkernels.heat import cpu
from hetkernels.heat.opencl import gpu_depth
from hetkernels.heat.plate import Plate, passes
from hetkernels.heat.reference import heat_reference

if TYPE_CHECKING:
    from numpy.typing import NDArray


def a_grid(rows: int, columns: int) -> NDArray[np.float32]:
    random = np.random.default_rng(rows * 1000 + columns)
    return random.random((rows, columns), dtype=np.float32)


def after(
    grid: NDArray[np.float32], strips: list[int], *, insulated: bool, threads: int = 2
) -> NDArray[np.float32]:
    """Return the grid after these strips, with alpha 0.2."""
    result = grid.copy()
    rows, columns = grid.shape
    for steps in strips:
        cpu.heat_steps(result, Plate(rows, columns, 0.2, insulated), steps, threads)
    return result


@pytest.mark.parametrize("insulated", [False, True])
@pytest.mark.parametrize(
    "shape", [(1, 1), (1, 9), (9, 1), (2, 2), (3, 4), (65, 130), (301, 40), (20, 2100)]
)
def test_agrees_with_the_reference(shape: tuple[int, int], *, insulated: bool) -> None:
    grid = a_grid(*shape)

    result = after(grid, [45], insulated=insulated)

    expected = heat_reference(grid, 0.2, insulated=insulated, steps=45)
    np.testing.assert_allclose(result, expected, atol=2e-6)


@settings(deadline=None, max_examples=40)
@given(
    shape=st.tuples(st.integers(1, 400), st.integers(1, 300)),
    strips=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    insulated=st.booleans(),
    threads=st.integers(1, 5),
)
def test_any_cut_into_strips_and_tiles_gives_the_same_bits(
    shape: tuple[int, int], strips: list[int], *, insulated: bool, threads: int
) -> None:
    grid = a_grid(*shape)

    cut = after(grid, strips, insulated=insulated, threads=threads)

    one_by_one = after(grid, [1] * sum(strips), insulated=insulated, threads=1)
    np.testing.assert_array_equal(cut, one_by_one)


def test_tiles_side_by_side_and_below_each_other_give_the_same_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grid = a_grid(310, 290)
    whole = after(grid, [50], insulated=True)

    monkeypatch.setattr(cpu, "WIDTH", 40)
    monkeypatch.setattr(cpu, "HEIGHT", 30)
    tiled = after(grid, [50], insulated=True)

    np.testing.assert_array_equal(tiled, whole)


def test_insulated_edges_keep_the_heat() -> None:
    grid = a_grid(50, 70)

    result = after(grid, [500], insulated=True)

    assert result.sum(dtype=np.float64) == pytest.approx(grid.sum(dtype=np.float64))
    assert result.std() < grid.std() / 10


def test_fixed_edges_keep_their_values() -> None:
    grid = a_grid(33, 44)

    result = after(grid, [70], insulated=False)

    for edge in (np.s_[0], np.s_[-1], np.s_[:, 0], np.s_[:, -1]):
        np.testing.assert_array_equal(result[edge], grid[edge])


@given(steps=st.integers(1, 500), deepest=st.integers(2, 32))
def test_passes_are_even_in_number_and_add_up(steps: int, deepest: int) -> None:
    depths = passes(steps, deepest)

    assert sum(depths) == steps
    assert all(1 <= depth <= deepest for depth in depths)
    assert len(depths) % 2 == 0 or steps == 1


@pytest.mark.parametrize(
    ("side", "emulated", "depth"),
    [
        (256, False, 16),
        (1024, False, 8),
        (2048, False, 4),
        (4096, False, 4),
        (8192, False, 4),
        (256, True, 4),
    ],
)
def test_a_launch_has_more_steps_where_a_grid_is_small_for_a_gpu(
    side: int, depth: int, *, emulated: bool
) -> None:
    card = SimpleNamespace(max_compute_units=132)
    device = SimpleNamespace(
        spec=SimpleNamespace(emulated=emulated),
        context=SimpleNamespace(devices=[card]),
    )

    assert gpu_depth(device, Plate(side, side, 0.2, insulated=True)) == depth
