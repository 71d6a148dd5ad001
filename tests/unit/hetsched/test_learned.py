"""The policy `learned`: its weights, what it refuses, and its decisions."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hetsched.planning.learned.placing import highest
from hetsched.planning.learned.weights import (
    MOST_BYTES,
    SHAPES,
    NetworkVariant,
    Weights,
    decode_weights,
    draw_weights,
    encode_weights,
)
from hetsched.policies import make_policy
from libtask.errors import InputError
from libtask.weights import NAMED, read_weights

if TYPE_CHECKING:
    from pathlib import Path

HEADER = {
    "format": "hetsim/weights-1",
    "features": "1",
    "hidden": 16,
    "graph": True,
    "recurrent": True,
    "belief": True,
    "trained": {},
}


def some_weights(variant: NetworkVariant | None = None) -> Weights:
    return draw_weights(np.random.default_rng(1), variant or NetworkVariant())


def packed(header: Any, changes: dict[str, Any] | None = None) -> bytes:
    """Return a file with this header and with some arrays changed; None: left out."""
    arrays: dict[str, Any] = {
        name: array.astype(np.float32) for name, array in some_weights().arrays.items()
    }
    arrays |= changes or {}
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    out = io.BytesIO()
    kept = {name: array for name, array in arrays.items() if array is not None}
    np.savez(out, header=text, **kept)
    return out.getvalue()


def test_weights_come_back_as_they_were_written() -> None:
    weights = replace(
        some_weights(NetworkVariant(graph=False, belief=False)), trained={"seed": 3}
    )

    found = decode_weights(encode_weights(weights))

    assert found.variant == weights.variant
    assert found.trained == {"seed": 3}
    for name, array in weights.arrays.items():
        assert np.array_equal(found.arrays[name], array.astype(np.float32))


def test_the_network_has_the_parameters_of_its_shapes() -> None:
    assert sum(array.size for array in some_weights().arrays.values()) == 8432
    assert {n: a.shape for n, a in some_weights().arrays.items()} == SHAPES


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "no weights, or damaged"),
        (b"PK\x03\x04 and then nothing", "no weights, or damaged"),
        (packed(HEADER)[:-2000], "no weights, or damaged"),
        (packed([]), 'expected format "hetsim/weights-1"'),
        (packed(HEADER | {"format": "x"}), 'expected format "hetsim/weights-1"'),
        (packed(HEADER | {"features": "2"}), "header: features '2'"),
        (packed(HEADER | {"hidden": 8}), "header: hidden 8"),
        (packed(HEADER | {"graph": "yes"}), "true or false"),
        (packed(HEADER, {"XT": None}), "XT: it is missing"),
        (packed(HEADER, {"XT": np.zeros((2, 2), np.float32)}), "XT: expected float32"),
        (packed(HEADER, {"Xb": np.zeros(32)}), "Xb: expected float32"),
        (packed(HEADER, {"Xb": np.full(32, np.nan, np.float32)}), "Xb: a number is"),
        (packed(HEADER, {"Xb": np.full(32, 1e9, np.float32)}), "Xb: a number is"),
    ],
)
def test_damaged_wrong_and_foreign_weights_are_refused(
    data: bytes, complaint: str
) -> None:
    with pytest.raises(InputError) as refused:
        decode_weights(data)

    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)


def test_pickled_weights_are_refused() -> None:
    """Unpickling would run whatever their author wants."""
    with pytest.raises(InputError, match="damaged"):
        decode_weights(packed(HEADER, {"Xb": np.array([print], dtype=object)}))


def test_weights_that_unpack_to_more_than_they_may_are_refused() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("T0.npy", bytes(50 * MOST_BYTES))

    assert len(out.getvalue()) < MOST_BYTES
    with pytest.raises(InputError, match="no weights"):
        decode_weights(out.getvalue())


@pytest.mark.parametrize("place", range(0, 40_000, 1777))
def test_a_changed_byte_is_refused_or_gives_other_numbers(place: int) -> None:
    data = bytearray(encode_weights(some_weights()))
    data[place % len(data)] ^= 0x55

    try:
        found = decode_weights(bytes(data))
    except InputError:
        return
    assert all(np.isfinite(array).all() for array in found.arrays.values())


def test_a_policy_without_weights_says_so() -> None:
    with pytest.raises(InputError, match="absolute path"):
        make_policy("learned", {"weights": "nothing"})


def test_the_first_of_scores_that_differ_in_their_last_bits_is_chosen() -> None:
    not_read: Any = None
    alike = np.array([0.1, 0.7 - 1e-15, 0.7, 0.7 + 1e-15, 0.3])

    assert highest(not_read, alike, 0) == 1
    assert highest(not_read, np.array([0.1, 0.7, 0.8]), 0) == 2


def test_the_file_is_named_in_a_refusal(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    path.write_bytes(b"no weights")

    with pytest.raises(InputError) as refused:
        make_policy("learned", {"weights": str(path)})

    assert str(refused.value).startswith(f"{path}: no weights")


@pytest.mark.parametrize("kind", ["absent", "folder", "large"])
def test_what_is_no_small_regular_file_is_not_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "w.npz"
    if kind == "folder":
        path.mkdir()
    if kind == "large":
        path.write_bytes(bytes(1_000_001))

    with pytest.raises(InputError, match=f"weights: {path}: "):
        read_weights(str(path))


def test_weights_are_read_by_what_the_shell_gives() -> None:
    asked: list[str] = []

    def read(name: str) -> bytes:
        asked.append(name)
        return encode_weights(some_weights())

    make_policy("learned", {"weights": "/some/where"}, read)

    assert asked == ["/some/where"]


@pytest.mark.parametrize("name", NAMED)
def test_weights_that_come_with_hetd_are_no_worse_than_their_teacher(name: str) -> None:
    """By more than 5 %, on draws that they were not trained with."""
    trained = decode_weights(read_weights(name)).trained
    held_out = trained["held_out"]

    assert held_out["learned"] <= 1.05 * held_out["contention-aware"]
    assert held_out["learned"] < held_out["paragon"]
