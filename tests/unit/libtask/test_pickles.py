"""Pickles with arrays beside them: what is read is what was written, and nobody else's."""

from __future__ import annotations

import pickle
import stat
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from libtask.errors import InputError
from libtask.pickles import ALIGNMENT, LEAST, MAGIC, pickled, write_pickled
from libtask.results import MARK, ResultEncoder, restored

if TYPE_CHECKING:
    from pathlib import Path

LARGE = LEAST // 8


def written(path: Path, value: Any) -> Any:
    """Write a value as a worker does; return what stands for it in the result."""
    size = write_pickled(path, pickled(value))
    assert size == path.stat().st_size
    return {MARK: type(value).__name__, "file": str(path), "bytes": size}


@pytest.mark.parametrize(
    "value",
    [
        np.arange(LARGE),
        np.arange(LARGE, dtype=">f8").reshape(4, -1),
        np.asfortranarray(np.arange(2 * LARGE).reshape(2, -1)),
        np.arange(4 * LARGE)[::2],  # not contiguous
        np.arange(LARGE - 1),  # within the pickle
        np.empty((0, 3)),
        np.arange(LARGE) > 7,
        bytearray(LEAST),
    ],
    ids=(
        "whole",
        "other order",
        "columns",
        "strided",
        "small",
        "empty",
        "bool",
        "bytes",
    ),
)
def test_a_value_comes_back_as_it_was(tmp_path: Path, value: Any) -> None:
    back = restored(written(tmp_path / "a.pickle", value))

    assert type(back) is type(value)
    np.testing.assert_array_equal(back, value)
    if isinstance(value, np.ndarray):
        assert (back.dtype, back.flags.writeable) == (value.dtype, True)


def test_several_arrays_come_back_aligned_and_shared_as_they_were(
    tmp_path: Path,
) -> None:
    first, second = np.arange(LARGE + 3), np.ones(LARGE + 1)
    value = {"a": first, "again": first, "b": [second, np.arange(3)], "c": "text"}

    back = restored(written(tmp_path / "a.pickle", value))

    assert back["a"] is back["again"]
    np.testing.assert_array_equal(back["a"], first)
    np.testing.assert_array_equal(back["b"][0], second)
    assert back["b"][0].ctypes.data % ALIGNMENT == 0
    assert (back["b"][1].tolist(), back["c"]) == ([0, 1, 2], "text")


def test_readers_change_their_own_array_only(tmp_path: Path) -> None:
    stored = written(tmp_path / "a.pickle", np.zeros(LARGE))
    one, other = restored(stored), restored(stored)

    one += 1.0

    assert (one.sum(), other.sum(), restored(stored).sum()) == (LARGE, 0.0, 0.0)


def test_what_was_read_stays_when_the_file_is_replaced_or_removed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.pickle"
    before = restored(written(path, np.zeros(LARGE)))

    after = restored(written(path, np.ones(LARGE)))
    path.unlink()

    assert (before.sum(), after.sum()) == (0.0, LARGE)


def test_files_are_private(tmp_path: Path) -> None:
    path = tmp_path / "results" / "a.pickle"
    written(path, np.zeros(LARGE))

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_plain_pickles_of_earlier_versions_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.pickle"
    path.write_bytes(pickle.dumps(np.arange(5)))

    assert restored({MARK: "ndarray", "file": str(path)}).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("length", [8, 12, 16, 24, 100, LEAST])
def test_an_incomplete_file_is_refused(tmp_path: Path, length: int) -> None:
    path = tmp_path / "a.pickle"
    stored = written(path, np.zeros(LARGE))
    whole = path.read_bytes()
    assert whole.startswith(MAGIC)
    path.write_bytes(whole[:length])

    size = f"{path}: {length} bytes, expected {len(whole)}$"
    with pytest.raises(InputError, match=size):
        restored(stored)
    del stored["bytes"]  # of earlier versions
    with pytest.raises(InputError, match=r"^a ndarray of the result: \S+: "):
        restored(stored)


def test_numbers_of_parts_that_cannot_be_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.pickle"
    for count in (0, 1 << 40, (1 << 64) - 1):
        path.write_bytes(MAGIC + count.to_bytes(8, "little") + b"x" * 100)

        with pytest.raises(InputError, match=r"incomplete"):
            restored({MARK: "ndarray", "file": str(path)})


def test_a_result_with_large_arrays_is_kept_with_its_bytes(tmp_path: Path) -> None:
    kept = ResultEncoder(tmp_path / "7-1").keep({"grid": np.ones(LARGE), "n": 3})

    assert kept.value["n"] == 3
    assert kept.value["grid"]["bytes"] == (tmp_path / "7-1-1.pickle").stat().st_size
    assert restored(kept.value)["grid"].sum() == LARGE
