"""A training on disk: the weights, and beside them what is needed to go on (`NAME.state`).

Files are replaced in one step, so that an interrupted writing leaves the old one.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from hetsched.planning.learned.weights import SHAPES
from hetsim.learning.training import TestResult, TrainingState
from libtask.errors import HetError, InputError
from libtask.whole_files import LARGEST_DATA, read_whole

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from hetsim.learning.training import TrainingRecipe

FORMAT = "hetsim/training-1"
PARTS = ("arrays", "first", "second", "best")
MOST_BYTES = 4_000_000


class SavedTraining(msgspec.Struct, frozen=True):
    """The header of a state file.

    Attributes:
        recipe: of the training, as text; another recipe cannot go on from it.
        family: digest of the family.

    """

    format: str
    recipe: str
    family: str
    updates: int
    episodes: int
    decisions: int
    tests: list[TestResult]


def digest_of(data: bytes) -> str:
    """Return a short digest of a family's text."""
    return hashlib.sha256(data).hexdigest()[:16]


def state_path(output: Path) -> Path:
    """Return the path of the state that belongs to weights."""
    return output.with_name(f"{output.name}.state")


def write_file(path: Path, data: bytes) -> None:
    """Write a file in one step.

    Raises:
        HetError: it cannot be written.

    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    except OSError as error:
        raise HetError(f"{path}: {error.strerror or error}") from error


def encode_state(state: TrainingState, recipe: TrainingRecipe, family: str) -> bytes:
    """Return the bytes of a state file."""
    header = SavedTraining(
        FORMAT,
        _told(recipe),
        family,
        state.updates,
        state.episodes,
        state.decisions,
        state.tests,
    )
    arrays: dict[str, Any] = {
        f"{part}.{name}": array
        for part in PARTS
        for name, array in getattr(state, part).items()
    }
    out = io.BytesIO()
    text = np.frombuffer(msgspec.json.encode(header), np.uint8)
    np.savez(out, header=text, **arrays)
    return out.getvalue()


def read_state(path: Path, recipe: TrainingRecipe, family: str) -> TrainingState:
    """Read a state file.

    Raises:
        InputError: it is damaged, or that of another training.

    """
    try:
        data = read_whole(path, LARGEST_DATA)
        return _decoded(data, recipe, family)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _decoded(data: bytes, recipe: TrainingRecipe, family: str) -> TrainingState:
    found = _unpacked(data)
    try:
        header = msgspec.json.decode(found["header"].tobytes(), type=SavedTraining)
        parts = {
            part: {name: found[f"{part}.{name}"] for name in SHAPES}
            for part in PARTS
            if f"{part}.T0" in found
        }
    except (KeyError, msgspec.DecodeError) as error:
        raise InputError(f"no state of a training, or damaged: {error}") from error
    if header.format != FORMAT:
        raise InputError(f'format: expected "{FORMAT}"')
    if header.family != family:
        raise InputError("it is the state of a training with another family")
    if header.recipe != _told(recipe):
        raise InputError("it is the state of a training with other options")
    for arrays in parts.values():
        for name, shape in SHAPES.items():
            wrong = arrays[name].shape != shape or arrays[name].dtype != np.float64
            if wrong or not np.all(np.isfinite(arrays[name])):
                raise InputError(f"{name}: damaged")
    return TrainingState(
        parts["arrays"],
        parts["first"],
        parts["second"],
        header.updates,
        header.episodes,
        header.decisions,
        parts.get("best", {}),
        header.tests,
    )


def _unpacked(data: bytes) -> dict[str, NDArray[Any]]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if max(size, len(data)) <= MOST_BYTES:
            with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
    # whatever a damaged archive raises: zlib, zipfile and NumPy have no common error
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"no state of a training, or damaged: {reason}") from error
    raise InputError(f"more than {MOST_BYTES:,} bytes: no state of a training")


def _told(recipe: TrainingRecipe) -> str:
    return json.dumps(asdict(recipe), sort_keys=True)
