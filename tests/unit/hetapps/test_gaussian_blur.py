"""The blur application: parameters, image formats, bad inputs."""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest
import tifffile

from hetapps import images
from hetapps.gaussian_blur import GaussianBlur
from hetkernels.gaussian_blur.reference import blur_reference
from libtask.checkpoint import Checkpoint, StripSizer
from libtask.devices import open_device
from libtask.errors import InputError
from libtask.messages import CheckpointRecord, DeviceSpec

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


def an_image(dtype: str, *shape: int) -> NDArray[Any]:
    scale = {"uint8": 255, "uint16": 65535}.get(dtype, 1)
    return (np.random.default_rng(3).random(shape) * scale).astype(dtype)


def run(task: GaussianBlur) -> dict[str, Any]:
    """Load, compute on the CPU and save; return the result."""
    task.load()
    record = CheckpointRecord(total=task.total())
    checkpoint = Checkpoint(record, StripSizer(50_000_000, fixed=16))
    device = open_device(DeviceSpec("cpu", "cpu"))
    for _ in GaussianBlur.implementations["cpu"](task, device, checkpoint):
        checkpoint.done = checkpoint.drawn
    result: dict[str, Any] = task.save(checkpoint)
    return result


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ({"sigma": 0.0}, "sigma is 0"),
        ({"sigma": -1.0}, "sigma is -1"),
        ({"sigma": float("nan")}, "sigma is nan"),
        ({"truncate": 0.0}, "truncate is 0"),
        ({"sigma": 65.0}, "260 pixels, above 256"),
        ({"n": 0}, "n is 0"),
        ({"output": "a.jpg"}, "output is 'a.jpg'; its name must end in .png"),
    ],
)
def test_refuses_bad_parameters(parameters: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        GaussianBlur(**parameters)


@pytest.mark.parametrize(
    ("suffix", "dtype"),
    [
        *product([".png", ".tif", ".npy"], ["uint8", "uint16"]),
        *product([".tif", ".npy"], ["float32", "float64"]),
    ],
)
@pytest.mark.parametrize("shape", [(31, 45), (31, 45, 3), (31, 45, 4)])
def test_images_come_back_as_they_were_written(
    tmp_path: Path, suffix: str, dtype: str, shape: tuple[int, ...]
) -> None:
    image = an_image(dtype, *shape)
    planes = image[None] if image.ndim == 2 else np.moveaxis(image, -1, 0)
    file = str(tmp_path / f"image{suffix}")

    images.write_planes(file, planes)
    back = images.read_planes(file)
    header = images.read_header(file)

    assert back.dtype == planes.dtype
    np.testing.assert_array_equal(back, planes)
    assert header == images.Header(len(planes), 31, 45, dtype)


def test_other_programs_see_the_same_colours(tmp_path: Path) -> None:
    planes = np.zeros((3, 4, 5), np.uint8)
    planes[0] = 200  # red

    images.write_planes(str(tmp_path / "red.png"), planes)
    images.write_planes(str(tmp_path / "red.tif"), planes)

    png = cv2.imread(str(tmp_path / "red.png"))
    assert png is not None
    assert png[0, 0].tolist() == [0, 0, 200]  # blue, green, red
    tiff = tifffile.imread(tmp_path / "red.tif")
    assert tiff[0, 0].tolist() == [200, 0, 0]


def test_reads_planes_that_a_file_keeps_apart(tmp_path: Path) -> None:
    planes = an_image("uint16", 3, 8, 9)
    file = str(tmp_path / "apart.tif")
    tifffile.imwrite(file, planes, photometric="rgb", planarconfig="separate")

    np.testing.assert_array_equal(images.read_planes(file), planes)


def test_blurs_a_photograph_and_keeps_its_type(tmp_path: Path) -> None:
    image = an_image("uint8", 40, 53, 3)
    cv2.imwrite(str(tmp_path / "in.png"), image[:, :, ::-1])
    task = GaussianBlur(
        input=str(tmp_path / "in.png"), output=str(tmp_path / "out.tif"), sigma=1.4
    )

    result = run(task)

    expected = blur_reference(np.moveaxis(image, -1, 0), 1.4, 4.0)
    out = tifffile.imread(tmp_path / "out.tif")
    assert out.dtype == np.uint8
    np.testing.assert_array_equal(np.moveaxis(out, -1, 0), expected)
    assert result["shape"] == [40, 53, 3]
    assert result["radius"] == 6


def test_float64_images_stay_float64(tmp_path: Path) -> None:
    image = an_image("float64", 30, 20)
    np.save(tmp_path / "in.npy", image)
    task = GaussianBlur(
        input=str(tmp_path / "in.npy"), output=str(tmp_path / "out.npy"), sigma=3.0
    )

    run(task)

    out = np.load(tmp_path / "out.npy")
    assert out.dtype == np.float64
    np.testing.assert_allclose(out, blur_reference(image[None], 3.0, 4.0)[0], atol=1e-6)


def test_a_random_image_depends_on_the_seed_alone() -> None:
    first = run(GaussianBlur(n=50, seed=1))

    assert run(GaussianBlur(n=50, seed=1)) == first
    assert run(GaussianBlur(n=50, seed=2))["crc32"] != first["crc32"]


def test_size_counts_values_and_bytes(tmp_path: Path) -> None:
    file = str(tmp_path / "image.tif")
    images.write_planes(file, an_image("uint16", 3, 10, 20))

    size = GaussianBlur(input=file, sigma=1.0).size()

    assert size.signature == "10x20x3/uint16/4"
    assert (size.input_bytes, size.state_bytes) == (1200, 1200)


def damaged(path: Path) -> None:
    images.write_planes(str(path), an_image("uint8", 1, 60, 60))
    path.write_bytes(path.read_bytes()[:200])


def test_refuses_files_that_are_no_images(tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("no image")
    (tmp_path / "empty.tif").write_bytes(b"")
    damaged(tmp_path / "damaged.npy")
    damaged(tmp_path / "damaged.tif")

    with pytest.raises(InputError, match="it is neither PNG, TIFF nor NPY"):
        GaussianBlur(input=str(tmp_path / "text.png")).size()
    with pytest.raises(InputError, match=r"image: No such file or directory$"):
        GaussianBlur(input=str(tmp_path / "none.png")).size()
    for name in ("text.png", "empty.tif", "none.png", "damaged.npy"):
        with pytest.raises(InputError, match=f"{name}: not a readable image"):
            GaussianBlur(input=str(tmp_path / name)).size()
    with pytest.raises(InputError, match=r"damaged\.tif: not a readable image"):
        GaussianBlur(input=str(tmp_path / "damaged.tif")).load()


@pytest.mark.parametrize(
    ("array", "complaint"),
    [
        (np.zeros((2, 3), np.int64), "pixels are int64; give uint8"),
        (np.zeros((2, 3, 5), np.uint8), "1 to 4 channels"),
        (np.zeros((0, 3), np.uint8), "the image is 0 x 3"),
        (np.zeros((1, 2, 3, 3), np.uint8), "it has 4 axes"),
    ],
)
def test_refuses_other_arrays(
    tmp_path: Path, array: NDArray[Any], complaint: str
) -> None:
    np.save(tmp_path / "array.npy", array)

    with pytest.raises(InputError, match=complaint):
        GaussianBlur(input=str(tmp_path / "array.npy")).size()


def test_refuses_outputs_that_cannot_be(tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", an_image("float32", 5, 5))
    source = str(tmp_path / "in.npy")

    with pytest.raises(InputError, match="PNG cannot hold float32"):
        GaussianBlur(input=source, output=str(tmp_path / "out.png")).size()
    with pytest.raises(InputError, match="no such folder to write into"):
        GaussianBlur(input=source, output=str(tmp_path / "none" / "out.tif")).size()


def test_importing_the_application_loads_nothing_heavy() -> None:
    heavy = "{'numba', 'scipy', 'pyopencl', 'cv2', 'tifffile'}"
    script = (
        f"import sys, hetapps.gaussian_blur\nprint(sorted({heavy} & set(sys.modules)))"
    )

    output = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert output.stdout.strip() == "[]"
