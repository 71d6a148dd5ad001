"""Results: plain values that stand for what `save` returned, and what becomes of the rest."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libtask.errors import InputError
from libtask.messages import Finished, decode_to_daemon, encode
from libtask.results import (
    ARRAY_VALUES,
    INLINE,
    MARK,
    WARNINGS,
    ResultEncoder,
    has_pickled,
    restored,
    told,
)


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Fit:
    slope: Any
    names: frozenset[str]


def kept(tmp_path: Path, value: Any) -> Any:
    found = ResultEncoder(tmp_path / "7-1").keep(value)
    assert found.warnings == []
    return found.value


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.float32(1.5), 1.5),
        (np.int64(3), 3),
        (np.bool_(1), True),
        (np.float64("nan"), None),
        (np.complex128(1 + 2j), {"real": 1.0, "imag": 2.0}),
        (np.arange(4).reshape(2, 2), [[0, 1], [2, 3]]),
        (np.array(2.0), 2.0),
        (np.datetime64("2026-01-02"), "2026-01-02"),
        (dt.date(2026, 1, 2), "2026-01-02"),
        (dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC), "2026-01-02T03:04:05+00:00"),
        (dt.timedelta(minutes=1), 60.0),
        (Path("/a/b"), "/a/b"),
        (Colour.RED, "red"),
        ({"b", "a"}, ["a", "b"]),
        ({1, "a"}, ["a", 1]),
        ((1, (2, 3)), [1, [2, 3]]),
        (Fit(np.float32(0.5), frozenset({"x"})), {"slope": 0.5, "names": ["x"]}),
        ({1: 2, Colour.RED: 3}, {"1": 2, "red": 3}),
        (decimal.Decimal("1.10"), "1.10"),
        (b"raw", b"raw"),
        (None, None),
    ],
)
def test_what_stands_for_plain_values_becomes_them(
    tmp_path: Path, value: Any, plain: Any
) -> None:
    found = kept(tmp_path, {"it": value})["it"]

    if plain is None and value is not None:
        assert found != found  # not a number  # noqa: PLR0124  that is how one is told
    else:
        assert found == plain
        assert type(found) is type(plain)


@pytest.mark.parametrize(
    "value", [1 << 70, object, Fit, np.zeros(ARRAY_VALUES + 1), "\udc80"]
)
def test_what_does_not_is_pickled_with_a_warning_that_names_its_key(
    tmp_path: Path, value: Any
) -> None:
    found = ResultEncoder(tmp_path / "7-1").keep({"loss": 0.5, "model": [value]})

    assert found.value["loss"] == 0.5
    (warning,) = found.warnings
    assert warning.startswith("result['model'][0]: no plain value (")
    again = restored(found.value)["model"][0]
    assert np.array_equal(again, value)


def test_large_values_go_into_files_of_the_user(tmp_path: Path) -> None:
    array = np.arange(INLINE)

    found = ResultEncoder(tmp_path / "results" / "7-1").keep({"a": array, "b": [array]})

    files = sorted((tmp_path / "results").iterdir())
    assert [each["file"] for each in (found.value["a"], found.value["b"][0])] == [
        str(path) for path in files
    ]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert np.array_equal(restored(found.value)["b"][0], array)
    files[0].unlink()
    with pytest.raises(InputError, match="No such file"):
        restored(found.value)


@pytest.mark.parametrize("size", [INLINE, 3 * INLINE])
def test_a_file_of_another_size_than_it_was_written_with_is_refused(
    tmp_path: Path, size: int
) -> None:
    found = ResultEncoder(tmp_path / "7-1").keep({"raw": Text("x" * size)})
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()

    for content in (whole[:-1], whole + b"x"):
        path.write_bytes(content)
        text = f"{path}: {len(content)} bytes, expected {len(whole)}"
        with pytest.raises(InputError, match=text):
            restored(found.value)
    path.write_bytes(whole)
    assert restored(found.value)["raw"].text == "x" * size


def test_a_result_of_very_many_values_goes_into_a_file_as_a_whole(
    tmp_path: Path,
) -> None:
    result = {"rows": [list(range(100)) for _ in range(1000)]}

    found = ResultEncoder(tmp_path / "7-1").keep(result)

    assert found.value[MARK] == "dict"
    assert found.warnings[0].startswith("result: it is large (dict): kept pickled in /")
    assert restored(found.value) == result


def test_what_cannot_be_pickled_is_told_as_text(tmp_path: Path) -> None:
    found = ResultEncoder(tmp_path / "7-1").keep({"lock": threading.Lock(), "n": 1})

    assert found.value["n"] == 1
    assert found.value["lock"]["text"].startswith("<unlocked _thread.lock")
    assert "nor can it be pickled" in found.warnings[0]
    assert restored(found.value) == found.value


def test_a_result_that_holds_itself_has_an_end(tmp_path: Path) -> None:
    loop: list[Any] = []
    loop.extend([loop, loop])

    assert has_pickled(ResultEncoder(tmp_path / "7-1").keep(loop).value)
    assert has_pickled(ResultEncoder(None).keep(loop).value)


def test_a_result_that_is_only_shown_is_whole_and_pickles_nothing() -> None:
    rows = list(range(30_000))

    found = ResultEncoder(None).keep({"rows": rows, "lock": threading.Lock()})

    assert found.value["rows"] == rows
    assert found.value["lock"]["text"].startswith("<unlocked _thread.lock")
    assert found.warnings == ["result['lock']: no plain value (lock): not kept"]


def test_warnings_are_bounded(tmp_path: Path) -> None:
    found = ResultEncoder(tmp_path / "7-1").keep([object() for _ in range(1000)])

    assert len(found.warnings) == WARNINGS


def test_listings_tell_what_is_pickled_by_its_size(tmp_path: Path) -> None:
    found = ResultEncoder(tmp_path / "7-1").keep({"model": Fit})

    shown = told(found.value)["model"]

    assert shown[MARK] == "type"
    assert shown["data"].endswith(" bytes>")


class Text:
    """Has no plain form."""

    def __init__(self, text: str) -> None:
        self.text = text


class Odd:
    """Cannot be pickled, and tells nothing of itself."""

    def __repr__(self) -> str:
        return "\udc80"

    def __reduce__(self) -> Any:
        raise RecursionError


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(max_size=50),
    st.dates(),
    st.complex_numbers(),
    st.builds(Odd),
    st.sampled_from([Colour.RED, object, np.float16(2), np.arange(3)]),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(st.one_of(st.text(), st.integers()), inner, max_size=5),
        st.tuples(inner, inner),
        st.frozensets(st.integers(), max_size=5),
    ),
    max_leaves=20,
)


@given(VALUES)
def test_every_result_travels(value: Any) -> None:
    found = ResultEncoder(Path("/nonexistent/7-1")).keep(value)

    message = Finished(1, 1, result=found.value, warnings=found.warnings)

    assert isinstance(decode_to_daemon(encode(message)), Finished)
    msgspec.json.encode(told(found.value))
