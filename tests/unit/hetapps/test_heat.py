"""The heat application: parameters, inputs, outputs."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest

from hetapps.heat import AMBIENT, HOT, Heat, generate
from hetkernels.heat.reference import heat_reference
from libtask.checkpoint import Checkpoint, StripSizer
from libtask.devices import open_device
from libtask.errors import InputError
from libtask.messages import CheckpointRecord, DeviceSpec

if TYPE_CHECKING:
    from pathlib import Path


def run(task: Heat) -> dict[str, Any]:
    """Load, compute on the CPU and save; return the result."""
    task.load()
    record = CheckpointRecord(total=task.total())
    checkpoint = Checkpoint(record, StripSizer(50_000_000, fixed=16))
    device = open_device(DeviceSpec("cpu", "cpu"))
    for _ in Heat.implementations["cpu"](task, device, checkpoint):
        checkpoint.done = checkpoint.drawn
    result: dict[str, Any] = task.save(checkpoint)
    return result


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ({"alpha": 0.3}, "alpha is 0.3.*unstable"),
        ({"alpha": 0.0}, "alpha is 0"),
        ({"alpha": float("nan")}, "alpha is nan"),
        ({"edges": "open"}, "edges is 'open'; give 'fixed' or 'insulated'"),
        ({"steps": 0}, "steps is 0"),
        ({"n": 0}, "n is 0"),
        ({"hotspots": -1}, "hotspots"),
        ({"output": "plate.png"}, r"output is 'plate.png'; .*\.npy"),
        ({"picture": "plate.npy"}, r"picture is 'plate.npy'; .*\.png"),
    ],
)
def test_refuses_bad_parameters(parameters: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Heat(**parameters)


def test_computes_a_grid_from_a_file_and_writes_it(tmp_path: Path) -> None:
    grid = np.random.default_rng(1).random((30, 50))
    np.save(tmp_path / "grid.npy", grid)
    task = Heat(
        input=str(tmp_path / "grid.npy"),
        output=str(tmp_path / "after.npy"),
        picture=str(tmp_path / "after.png"),
        steps=40,
        edges="insulated",
    )

    result = run(task)

    after = np.load(tmp_path / "after.npy")
    expected = heat_reference(grid, 0.2, insulated=True, steps=40)
    assert after.dtype == np.float32
    np.testing.assert_allclose(after, expected, atol=1e-6)
    picture = cv2.imread(str(tmp_path / "after.png"))
    assert picture is not None
    assert picture.shape == (30, 50, 3)
    assert result["mean"] == pytest.approx(grid.mean())
    assert result["output"] == str(tmp_path / "after.npy")


def test_generates_the_same_hot_discs_for_the_same_seed() -> None:
    grid = generate(100, 3, seed=5)

    np.testing.assert_array_equal(grid, generate(100, 3, seed=5))
    assert not np.array_equal(grid, generate(100, 3, seed=6))
    assert set(np.unique(grid)) == {np.float32(AMBIENT), np.float32(HOT)}


def test_size_tells_the_shape_without_reading_the_data(tmp_path: Path) -> None:
    np.save(tmp_path / "grid.npy", np.zeros((30, 50), np.float32))

    size = Heat(input=str(tmp_path / "grid.npy"), steps=7).size()

    assert (size.signature, size.work) == ("30x50", 30 * 50 * 7)
    assert size.state_bytes == 30 * 50 * 4
    assert Heat(n=64).size().signature == "64"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (np.zeros(5), "the array is 5; give a 2-D grid"),
        (np.zeros((0, 3)), "0 x 3"),
        (np.zeros((2, 2), complex), "complex128; give real numbers"),
    ],
)
def test_refuses_what_is_no_grid(
    tmp_path: Path, content: np.ndarray[Any, Any], complaint: str
) -> None:
    np.save(tmp_path / "grid.npy", content)

    with pytest.raises(InputError, match=complaint):
        Heat(input=str(tmp_path / "grid.npy")).size()


def test_refuses_an_unreadable_file(tmp_path: Path) -> None:
    (tmp_path / "grid.npy").write_bytes(b"no array")
    np.savez(tmp_path / "several.npz", a=np.zeros((2, 2)))

    with pytest.raises(InputError, match=r"grid\.npy: not a readable NPY grid"):
        Heat(input=str(tmp_path / "grid.npy")).size()
    with pytest.raises(InputError, match=r"none\.npy: not a readable NPY grid"):
        Heat(input=str(tmp_path / "none.npy")).size()
    with pytest.raises(InputError, match="holds several arrays"):
        Heat(input=str(tmp_path / "several.npz")).size()
    with pytest.raises(InputError, match="no such folder to write into"):
        Heat(output=str(tmp_path / "none" / "after.npy")).size()


def test_names_the_cell_that_is_not_finite(tmp_path: Path) -> None:
    grid = np.zeros((4, 5))
    grid[2, 3] = 1e300
    np.save(tmp_path / "grid.npy", grid)

    with pytest.raises(InputError, match="row 2, column 3 is not a finite float32"):
        Heat(input=str(tmp_path / "grid.npy")).load()


def test_importing_the_application_loads_nothing_heavy() -> None:
    script = (
        "import sys, hetapps.heat\n"
        "print(sorted({'numba', 'scipy', 'pyopencl', 'cv2'} & set(sys.modules)))"
    )

    output = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert output.stdout.strip() == "[]"
