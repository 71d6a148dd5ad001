"""Weights of the learned policy: named arrays and a header, as bytes of an `.npz` file.

Read and written in memory: files belong to the shells. What is read may come from anybody:
nothing is unpickled, and sizes are checked before anything is unpacked.
"""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from libtask.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]

FORMAT = "hetsim/weights-1"
FEATURES = "1"
"""Version of what the network sees (`decision`)."""

TASK, PROCESSOR, PAIR, WORLD = 10, 14, 14, 6
"""Numbers of features: of a task, a processor, a task on a processor, and of all."""
HIDDEN = 16
SCORES = 32
POOLED = 2 * HIDDEN + WORLD

SHAPES: dict[str, tuple[int, ...]] = {
    # tasks: first layer, and two rounds of messages from children to parents
    "T0": (TASK, HIDDEN),
    "T1": (HIDDEN, HIDDEN),
    "T2": (HIDDEN, HIDDEN),
    "Tb": (HIDDEN,),
    # processors
    "P0": (PROCESSOR, HIDDEN),
    "Pb": (HIDDEN,),
    # score of a task on a processor: pair, task, processor, memory; last layer; linear part
    "X0": (PAIR, SCORES),
    "XT": (HIDDEN, SCORES),
    "XP": (HIDDEN, SCORES),
    "XH": (HIDDEN, SCORES),
    "Xb": (SCORES,),
    "X1": (SCORES, 1),
    "X2": (PAIR, 1),
    # score of waiting
    "N0": (POOLED, HIDDEN),
    "Nb": (HIDDEN,),
    "N1": (HIDDEN, 1),
    "Nc": (1,),
    # value
    "V0": (POOLED, SCORES),
    "Vb": (SCORES,),
    "V1": (SCORES, 1),
    "Vc": (1,),
    # long short-term memory: gates from input, from its last output; biases
    "L": (POOLED, 4 * HIDDEN),
    "LH": (HIDDEN, 4 * HIDDEN),
    "Lb": (4 * HIDDEN,),
}
"""Name and shape of each array."""

HEADER = "header"
MOST_BYTES = 1_000_000
"""Of a file, packed or unpacked; the arrays take 35 kB."""
MOST_ENTRIES = 100
LARGEST = 1e6
"""No weight that was trained is larger."""


@dataclass(frozen=True, slots=True)
class NetworkVariant:
    """Parts of the model that are used; those left out serve comparisons.

    Attributes:
        graph: embeddings of tasks and processors; `recurrent`: the memory.
        belief: the expected slowdown; otherwise counters as they were read.

    """

    graph: bool = True
    recurrent: bool = True
    belief: bool = True


@dataclass(frozen=True, slots=True)
class Weights:
    """The arrays of a network, and how they were made.

    Attributes:
        arrays: by name, as in `SHAPES`.
        trained: how they were trained, for people.

    """

    arrays: dict[str, Floats]
    variant: NetworkVariant = NetworkVariant()
    trained: dict[str, Any] = field(default_factory=dict)


def draw_weights(generator: np.random.Generator, variant: NetworkVariant) -> Weights:
    """Draw the weights that a training starts from."""
    arrays = {}
    for name, shape in SHAPES.items():
        bound = 0.0 if len(shape) == 1 else 1.0 / np.sqrt(shape[0])
        arrays[name] = generator.uniform(-bound, bound, shape)
    arrays["X1"] *= 0.1  # at the start all choices are about equally likely
    arrays["X2"] *= 0.1
    arrays["N1"] *= 0.1
    return Weights(arrays, variant)


def encode_weights(weights: Weights) -> bytes:
    """Return the bytes of a file: the same weights give the same bytes."""
    variant = weights.variant
    header = {
        "format": FORMAT,
        "features": FEATURES,
        "hidden": HIDDEN,
        "graph": variant.graph,
        "recurrent": variant.recurrent,
        "belief": variant.belief,
        "trained": weights.trained,
    }
    text = np.frombuffer(json.dumps(header, sort_keys=True).encode(), np.uint8)
    arrays = {name: weights.arrays[name].astype(np.float32) for name in SHAPES}
    out = io.BytesIO()
    named: dict[str, Any] = {HEADER: text, **arrays}
    np.savez(out, **named)
    return out.getvalue()


def decode_weights(data: bytes) -> Weights:
    """Read the bytes of a file.

    Raises:
        InputError: they are not weights of this version.

    """
    found = _unpacked(data)
    header = _header_of(found)
    arrays = {name: _checked(name, shape, found) for name, shape in SHAPES.items()}
    flags = [header.get(name, True) for name in ("graph", "recurrent", "belief")]
    if not all(isinstance(flag, bool) for flag in flags):
        raise InputError("header: graph, recurrent and belief are true or false")
    trained = header.get("trained")
    return Weights(
        arrays, NetworkVariant(*flags), trained if isinstance(trained, dict) else {}
    )


def _unpacked(data: bytes) -> dict[str, NDArray[Any]]:
    """Unpack the arrays, if they are small."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
        size = sum(entry.file_size for entry in entries)
        if max(size, len(data)) <= MOST_BYTES and len(entries) <= MOST_ENTRIES:
            with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
    # whatever a damaged archive raises: zlib, zipfile and NumPy have no common error
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"no weights, or damaged: {reason}") from error
    raise InputError(f"more than {MOST_BYTES:,} bytes: no weights")


def _header_of(found: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    if HEADER not in found:
        raise InputError(f"no {HEADER}: these are not weights of hetsim train")
    try:
        header = json.loads(found[HEADER].astype(np.uint8).tobytes())
    except (ValueError, TypeError) as error:
        raise InputError(f"header: {error}") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise InputError(f'header: expected format "{FORMAT}"')
    for key, expected in (("features", FEATURES), ("hidden", HIDDEN)):
        if header.get(key) != expected:
            raise InputError(
                f"header: {key} {header.get(key)!r}, and this version has "
                f"{expected!r}: train them again"
            )
    return header


def _checked(
    name: str, shape: tuple[int, ...], found: Mapping[str, NDArray[Any]]
) -> Floats:
    array = found.get(name)
    if array is None:
        raise InputError(f"{name}: it is missing")
    if array.shape != shape or array.dtype != np.float32:
        raise InputError(
            f"{name}: expected float32 {list(shape)}, got {array.dtype} {list(array.shape)}"
        )
    # a NaN fails the comparison too
    if not bool(np.all(np.abs(array) <= LARGEST)):
        raise InputError(f"{name}: a number is infinite, too large or NaN")
    return array.astype(np.float64)
