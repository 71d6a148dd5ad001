"""Inputs of the demo: real photographs and tables that scikit-learn ships, and chains.

Everything is written to files, as a user would have it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

SIXTEEN_BITS = 65535 / 255
NUDGES = ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0))
"""Pixels down and right by which handwritten digits are moved for a larger table."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Files that the demo's tasks read.

    Attributes:
        china: photograph as it comes, 640 x 427, 8-bit RGB, PNG.
        china_large: enlarged to 16-bit RGB, TIFF.
        flower: photograph as it comes, 8-bit RGB, PNG.
        flower_large: enlarged to 16-bit grey, PNG.
        cancer: breast cancer measurements, 569 x 30, CSV with a header.
        digits: pixels of handwritten digits, 1797 x 64, CSV; some columns are constant.
        digit_pairs: products of pixels of the nudged digits, 8985 x 2145, NPY.
        dense_chain: a Markov chain on 2000 states, NPY.
        sparse_chain: one on 40,000 states, NPZ.

    """

    china: Path
    china_large: Path
    flower: Path
    flower_large: Path
    cancer: Path
    digits: Path
    digit_pairs: Path
    dense_chain: Path
    sparse_chain: Path


def make_inputs(folder: Path) -> Inputs:
    """Write all input files into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    inputs = Inputs(
        china=folder / "china.png",
        china_large=folder / "china-6x-16bit.tiff",
        flower=folder / "flower.png",
        flower_large=folder / "flower-10x-16bit-grey.png",
        cancer=folder / "breast-cancer.csv",
        digits=folder / "digits.csv",
        digit_pairs=folder / "digit-pairs.npy",
        dense_chain=folder / "chain-dense.npy",
        sparse_chain=folder / "chain-sparse.npz",
    )
    write_photographs(inputs)
    write_tables(inputs)
    write_chains(inputs)
    return inputs


def write_photographs(inputs: Inputs) -> None:
    """Write both photographs, as they come and enlarged."""
    import cv2
    import tifffile
    from sklearn.datasets import load_sample_images

    china, flower = load_sample_images().images
    cv2.imwrite(str(inputs.china), china[:, :, ::-1])
    cv2.imwrite(str(inputs.flower), flower[:, :, ::-1])
    tifffile.imwrite(inputs.china_large, enlarged(china, 6), photometric="rgb")
    grey = cv2.cvtColor(flower, cv2.COLOR_RGB2GRAY)
    cv2.imwrite(str(inputs.flower_large), enlarged(grey, 10))


def write_flower(folder: Path) -> Path:
    """Write one photograph in grey, enlarged, into a folder; return the file."""
    import cv2
    from sklearn.datasets import load_sample_image

    grey = cv2.cvtColor(load_sample_image("flower.jpg"), cv2.COLOR_RGB2GRAY)
    file = folder / "flower-4x-16bit-grey.png"
    cv2.imwrite(str(file), enlarged(grey, 4))
    return file


def enlarged(image: NDArray[np.uint8], factor: int) -> NDArray[np.uint16]:
    """Enlarge an 8-bit image; the pixels in between make use of 16 bits."""
    import cv2

    floats = image.astype(np.float32) * np.float32(SIXTEEN_BITS)
    height, width = image.shape[:2]
    large = cv2.resize(
        floats, (width * factor, height * factor), interpolation=cv2.INTER_CUBIC
    )
    return np.clip(np.rint(large), 0, 65535).astype(np.uint16)


def write_tables(inputs: Inputs) -> None:
    """Write two tables as they come, and one that is made of the second."""
    from sklearn.datasets import load_breast_cancer, load_digits

    cancer = load_breast_cancer()
    write_csv(inputs.cancer, cancer.feature_names, cancer.data)
    digits = load_digits()
    write_csv(inputs.digits, digits.feature_names, digits.data)
    np.save(inputs.digit_pairs, pixel_pairs(nudged(digits.images)))


def write_csv(path: Path, names: Sequence[str], table: NDArray[Any]) -> None:
    """Write a table with a header; `%.17g` keeps every bit of a float64."""
    np.savetxt(
        path, table, fmt="%.17g", delimiter=",", header=",".join(names), comments=""
    )


def nudged(images: NDArray[np.float64]) -> NDArray[np.float32]:
    """Repeat images (count x rows x columns), each time moved by a pixel at most."""
    moved = [np.roll(images, shift, axis=(1, 2)) for shift in NUDGES]
    return np.concatenate(moved).astype(np.float32)


def pixel_pairs(images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a row for each image: its pixels, and all products of two of them."""
    pixels = images.reshape(len(images), -1)
    first, second = np.triu_indices(pixels.shape[1])
    return np.hstack([pixels, pixels[:, first] * pixels[:, second]])


def write_chains(inputs: Inputs) -> None:
    """Write a dense and a sparse chain; both reach every state, and mix slowly."""
    import scipy.sparse

    random = np.random.default_rng(2016)
    np.save(inputs.dense_chain, lazy_chain(random.random((2000, 2000))))
    n, degree = 40_000, 40
    rows = np.repeat(np.arange(n), degree)
    columns = random.integers(0, n, n * degree)
    columns[::degree] = (np.arange(n) + 1) % n  # a ring, so that all are reached
    weights = random.random(n * degree) + 0.01
    jumps = scipy.sparse.coo_array((weights, (rows, columns)), shape=(n, n)).tocsr()
    scale = scipy.sparse.diags_array(0.02 / jumps.sum(axis=1))
    lazy = scale @ jumps + 0.98 * scipy.sparse.eye_array(n)
    scipy.sparse.save_npz(inputs.sparse_chain, lazy.tocsr(), compressed=False)


def lazy_chain(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale rows to probabilities; stay put with 0.98, which slows the mixing down."""
    chain: NDArray[np.float64] = weights * (0.02 / weights.sum(axis=1, keepdims=True))
    chain[np.diag_indices(len(chain))] += 0.98
    return chain
