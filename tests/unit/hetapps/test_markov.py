"""The markov application: parameters, inputs, refusals, result."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse

from hetapps.chains import generate_chain
from hetapps.markov import Markov
from libtask.checkpoint import Checkpoint, StripSizer
from libtask.devices import open_device
from libtask.errors import InputError
from libtask.messages import CheckpointRecord, DeviceSpec

if TYPE_CHECKING:
    from pathlib import Path

WEATHER = np.array([[0.9, 0.1, 0.0], [0.4, 0.4, 0.2], [0.1, 0.4, 0.5]])
STEADY = np.array([22, 5, 2]) / 29


def run(task: Markov, strip: int = 5) -> tuple[dict[str, Any], Checkpoint]:
    task.load()
    device = open_device(DeviceSpec(name="cpu", kind="cpu"))
    sizer = StripSizer(1, fixed=strip)
    checkpoint = Checkpoint(CheckpointRecord(total=task.total()), sizer)
    for _ in Markov.implementations["cpu"](task, device, checkpoint):
        checkpoint.done = checkpoint.drawn
    return task.save(checkpoint), checkpoint


def saved(folder: Path, matrix: Any) -> str:
    path = folder / "chain.npy"
    np.save(path, matrix)
    return str(path)


def test_reads_npy_and_writes_probabilities(tmp_path: Path) -> None:
    output = tmp_path / "steady.npy"
    task = Markov(
        saved(tmp_path, WEATHER), str(output), dtype="float64", tolerance=1e-13
    )

    result, checkpoint = run(task)

    np.testing.assert_allclose(np.load(output), STEADY, atol=1e-12)
    assert result["converged"]
    assert result["output"] == str(output)
    assert result["residual"] == checkpoint.extra["residual"] <= 1e-13
    assert [state for state, _ in result["top"]] == [0, 1, 2]
    assert result["iterations"] <= checkpoint.done < result["iterations"] + 5


@pytest.mark.parametrize("sparse_format", ["csr", "csc", "coo"])
def test_reads_sparse_npz(tmp_path: Path, sparse_format: str) -> None:
    path = tmp_path / "chain.npz"
    matrix = scipy.sparse.coo_array(WEATHER).asformat(sparse_format)
    scipy.sparse.save_npz(path, matrix)
    task = Markov(str(path), tolerance=1e-7)

    result, _ = run(task)

    assert task.chain.form == "sparse"
    assert task.size().signature == "3/8/float32"
    assert result["top"][0] == [0, pytest.approx(STEADY[0], abs=1e-5)]


def test_reads_dense_npz(tmp_path: Path) -> None:
    path = tmp_path / "chain.npz"
    np.savez_compressed(path, weather=WEATHER)

    result, _ = run(Markov(str(path)))

    assert result["top"][0][1] == pytest.approx(STEADY[0], abs=1e-5)


def test_ends_at_the_iterations_without_convergence() -> None:
    result, checkpoint = run(Markov(n=40, stay=0.99, iterations=12))

    assert not result["converged"]
    assert (result["iterations"], checkpoint.done) == (12, 12)
    assert result["residual"] > 1e-6


def test_generated_chains_depend_on_the_seed_alone() -> None:
    first, same, other = (
        generate_chain(30, 0.1, 0.5, seed, np.dtype(np.float32)) for seed in (1, 1, 2)
    )

    np.testing.assert_array_equal(first.arrays[-1], same.arrays[-1])
    assert first.arrays[-1].tolist() != other.arrays[-1].tolist()


@pytest.mark.parametrize("density", [0.01, 0.4, 1.0])
def test_size_knows_what_load_allocates(density: float) -> None:
    task = Markov(n=500, density=density)
    size = task.size()
    task.load()

    held = sum(array.nbytes for array in task.chain.arrays)
    assert size.input_bytes == pytest.approx(held, rel=0.02)
    assert size.state_bytes == task.walk.pair.nbytes
    assert size.memory_bytes > held


def negative(matrix: Any) -> None:
    matrix[1, 2] = -0.25


def infinite(matrix: Any) -> None:
    matrix[1, 2] = np.inf


def heavy(matrix: Any) -> None:
    matrix[2, 0] += 0.5


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (negative, r"row 1 .*column 2 holds -0.25"),
        (infinite, r"row 1 .*column 2 holds inf"),
        (heavy, r"row 2 is not stochastic: it sums to 1.5;"),
    ],
)
def test_names_the_row_that_is_not_stochastic(
    tmp_path: Path, spoil: Any, message: str, *, sparse: bool
) -> None:
    matrix = WEATHER.copy()
    spoil(matrix)
    path = saved(tmp_path, matrix)
    if sparse:
        path = str(tmp_path / "chain.npz")
        scipy.sparse.save_npz(path, scipy.sparse.csr_array(matrix))

    with pytest.raises(InputError, match=f"{path}: {message}"):
        Markov(path).load()


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (WEATHER[:2], "is 2 x 3; a chain's is square"),
        (WEATHER[0], "is 3; a chain's is square"),
        (np.zeros((0, 0)), "is 0 x 0; a chain's is square"),
        (np.array([[1j]]), "holds complex128"),
        (np.array([["a"]]), "holds <U1"),
    ],
)
def test_refuses_other_arrays(tmp_path: Path, matrix: Any, message: str) -> None:
    task = Markov(saved(tmp_path, matrix))

    with pytest.raises(InputError, match=message):
        task.load()


def test_refuses_objects_and_other_files(tmp_path: Path) -> None:
    objects = tmp_path / "objects.npy"
    np.save(objects, np.array([[object()]]), allow_pickle=True)
    text = tmp_path / "text.npz"
    text.write_text("not a matrix")
    two = tmp_path / "two.npz"
    np.savez(two, a=WEATHER, b=WEATHER)

    for path in (objects, text, two, tmp_path / "missing.npy"):
        with pytest.raises(InputError, match=f"{path}: not a readable NPY or NPZ"):
            Markov(str(path)).size()


def test_refuses_an_output_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        Markov(output=str(tmp_path / "missing" / "out.npy")).size()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"dtype": "float16"}, "dtype is 'float16'"),
        ({"tolerance": 1e-9}, "float32 takes 1e-07 up to 1"),
        ({"tolerance": float("nan")}, "tolerance is nan"),
        ({"iterations": 0}, "iterations is 0"),
        ({"output": "out.csv"}, "must end in .npy"),
        ({"n": 0}, "n is 0"),
        ({"density": 0.0}, "density is 0"),
        ({"stay": 1.0}, "stay is 1"),
    ],
)
def test_refuses_bad_parameters(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Markov(**parameters)


def test_import_stays_light() -> None:
    code = (
        "import sys, hetapps.markov, hetapps.synthetic;"
        "print({'numba', 'scipy', 'pyopencl', 'cv2'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert done.stdout == "set()\n"
