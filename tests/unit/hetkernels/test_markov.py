"""Power iteration on the CPU: right, and the same bits however it is cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from hetapps.chains import dense_chain, generate_chain, sparse_chain
from hetkernels.markov import cpu, layout
from hetkernels.markov.reference import power_iteration, steady_state

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from hetkernels.markov.layout import Chain, Walk

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
ACCURACY = {FLOAT32: 1e-5, FLOAT64: 1e-12}
"""L1 distance from float64 NumPy at the same step."""


def walked(chain: Chain, strips: Iterable[int], tolerance: float = -1.0) -> Walk:
    walk = layout.start(chain)
    walker = cpu.CpuWalk(chain, walk, layout.scratch(chain), tolerance)
    for count in strips:
        walker.steps(count)
    return walk


def a_matrix(n: int, density: float = 1.0) -> NDArray[np.float64]:
    random = np.random.default_rng(n)
    matrix = random.random((n, n)) * (random.random((n, n)) < density)
    matrix[np.arange(n), (np.arange(n) + 1) % n] += 0.1
    scaled: NDArray[np.float64] = matrix / matrix.sum(axis=1, keepdims=True)
    return scaled


@pytest.mark.parametrize("real", [FLOAT32, FLOAT64])
# 600 states are worth threads; the others are edges of groups, chunks and blocks
@pytest.mark.parametrize("n", [1, 2, 7, 8, 127, 128, 129, 256, 257, 600])
def test_dense_agrees_with_reference(n: int, real: np.dtype[Any]) -> None:
    matrix = a_matrix(n)

    walk = walked(dense_chain(matrix, real), [9])

    distance = np.abs(layout.distribution(walk) - power_iteration(matrix, 9)).sum()
    assert distance < ACCURACY[real]


@pytest.mark.parametrize("real", [FLOAT32, FLOAT64])
@pytest.mark.parametrize(
    ("n", "density"), [(1, 1.0), (5, 0.4), (257, 0.05), (900, 0.4)]
)
def test_sparse_agrees_with_reference(
    n: int, density: float, real: np.dtype[Any]
) -> None:
    matrix = a_matrix(n, density)

    walk = walked(sparse_chain(scipy.sparse.csr_array(matrix), real), [9])

    distance = np.abs(layout.distribution(walk) - power_iteration(matrix, 9)).sum()
    assert distance < ACCURACY[real]


@pytest.mark.parametrize("density", [1.0, 0.05])
def test_finds_the_steady_state(density: float) -> None:
    chain = generate_chain(200, density, 0.3, 1, FLOAT64)
    matrix = (
        scipy.sparse.csc_array(
            (chain.arrays[-1], chain.arrays[1], chain.arrays[0]), shape=(200, 200)
        ).toarray()
        if chain.form == "sparse"
        else chain.arrays[0]
    )

    walk = walked(chain, [5000], tolerance=1e-14)

    assert walk.status[1]
    np.testing.assert_allclose(
        layout.distribution(walk), steady_state(matrix), rtol=0, atol=1e-12
    )


@given(st.integers(0, 2), st.lists(st.integers(1, 40), min_size=1, max_size=12))
@settings(max_examples=30, deadline=None)
def test_cutting_changes_no_bit_and_no_stop(which: int, strips: list[int]) -> None:
    chain = [
        generate_chain(70, 1.0, 0.8, 3, FLOAT32),
        generate_chain(300, 0.02, 0.8, 3, FLOAT32),
        generate_chain(600, 1.0, 0.8, 3, FLOAT64),  # with threads
    ][which]
    strips.append(400)

    cut = walked(chain, strips, tolerance=1e-6)
    uncut = walked(chain, [1000], tolerance=1e-6)

    assert uncut.status[1]
    for ours, theirs in zip(cut, uncut, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    "loop",
    [(1, 0), (1, 16), (2, 0), (2, cpu.AHEAD), (2, 0, True), (3, cpu.AHEAD, True)],
)
@pytest.mark.parametrize("real", [FLOAT32, FLOAT64])
@pytest.mark.parametrize("n", [1, 9, 135, 600])
def test_variants_change_no_bit(
    n: int, real: np.dtype[Any], loop: tuple[Any, ...]
) -> None:
    chain = dense_chain(a_matrix(n), real)
    walk = layout.start(chain)

    walker = cpu.CpuWalk(chain, walk, layout.scratch(chain), -1.0)
    walker.do(cpu.Loop(*loop), 4)
    walker.do(cpu.Loop(1, 0), 1)  # a choice changes in the middle

    for ours, theirs in zip(walk, walked(chain, [5]), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_change_no_bit_of_sparse_chains(threads: int) -> None:
    chain = generate_chain(900, 0.05, 0.3, 1, FLOAT32)
    walk = layout.start(chain)

    walker = cpu.CpuWalk(chain, walk, layout.scratch(chain), -1.0)
    walker.do(cpu.Loop(threads, 0), 5)

    for ours, theirs in zip(walk, walked(chain, [5]), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("real", [FLOAT32, FLOAT64])
def test_arrays_begin_at_a_whole_vector(real: np.dtype[Any]) -> None:
    chain = dense_chain(a_matrix(33), real)
    walk, memory = layout.start(chain), layout.scratch(chain)

    for array in (chain.arrays[0], walk.pair, memory.partial):
        assert array.ctypes.data % layout.VECTOR_BYTES == 0
        assert array.dtype == real
        assert array.flags.c_contiguous
        assert array.flags.writeable
    np.testing.assert_array_equal(walk.pair, [np.full(33, 1 / 33, real), np.zeros(33)])


def test_steps_after_convergence_change_nothing() -> None:
    chain = generate_chain(50, 1.0, 0.0, 0, FLOAT64)
    walk = walked(chain, [100], tolerance=1e-9)
    before = [array.copy() for array in walk]

    cpu.CpuWalk(chain, walk, layout.scratch(chain), 1e-9).steps(10)

    assert 1 < walk.status[0] < 100
    for ours, theirs in zip(walk, before, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_residual_is_the_change_of_the_last_step() -> None:
    chain = generate_chain(700, 1.0, 0.5, 0, FLOAT64)

    walk = walked(chain, [4])

    change = np.abs(walk.pair[0] - walk.pair[1]).sum()
    assert walk.residual[0] == pytest.approx(change, rel=1e-12)
