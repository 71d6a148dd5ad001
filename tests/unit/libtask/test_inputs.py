"""References to results in parameters: taken out by clients, put in by workers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libtask.errors import InputError
from libtask.inputs import TaskReference, put_in, taken_out
from libtask.messages import MAX_INPUTS, MAX_PLACE, MAX_PLACES, InputValue, ResultInput
from libtask.result_files import YOUNG_S, ResultFiles
from libtask.results import Exact, ResultEncoder, restored

if TYPE_CHECKING:
    from pathlib import Path


class Reference(TaskReference):
    def __init__(self, task: int) -> None:
        self.task = task

    @property
    def input_id(self) -> int:
        return self.task


def test_references_become_places() -> None:
    cleared, inputs = taken_out(
        {"a": Reference(3), "b": [1, {"c": (Reference(4), Reference(3))}], "d": [2]}
    )

    assert cleared == {"a": None, "b": [1, {"c": [None, None]}], "d": [2]}
    assert inputs == [
        ResultInput(3, places=[["a"], ["b", 1, "c", 1]]),
        ResultInput(4, places=[["b", 1, "c", 0]]),
    ]


def test_parameters_without_references_are_the_same_objects() -> None:
    values = [[1, 2], {"x": (3,)}]

    cleared, inputs = taken_out({"values": values})

    assert cleared["values"] is values
    assert inputs == []


TREES = st.recursive(
    st.none() | st.integers(0, 9) | st.builds(Reference, st.integers(1, 5)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


def with_results(value: Any) -> Any:
    if isinstance(value, Reference):
        return {"of": value.task}
    if isinstance(value, dict):
        return {key: with_results(each) for key, each in value.items()}
    return [with_results(each) for each in value] if isinstance(value, list) else value


@given(st.dictionaries(st.text(max_size=3), TREES, max_size=4))
def test_results_come_to_the_places_of_their_references(params: dict[str, Any]) -> None:
    cleared, inputs = taken_out(params)
    before = msgspec.msgpack.encode(cleared)
    values = [InputValue(each.task, {"of": each.task}) for each in inputs]

    filled = put_in(cleared, inputs, values, folder=None)  # type: ignore[arg-type]  # all are inline

    assert filled == with_results(params)
    assert msgspec.msgpack.encode(cleared) == before


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        (ResultInput(2, places=[["a"]]), "the result of task 2 is no longer known"),
        (ResultInput(1, places=[["z"]]), "no place 'z' in the parameters"),
        (ResultInput(1, places=[["a", 5]]), "no place 5 in the parameters"),
        (ResultInput(1, places=[["a", "b"]]), "no place 'b' in the parameters"),
        (ResultInput(1, places=[["n", 0]]), "no place 0 in the parameters"),
    ],
)
def test_what_does_not_fit_is_one_line(
    tmp_path: Path, inputs: ResultInput, text: str
) -> None:
    with pytest.raises(InputError, match=text):
        put_in({"a": [1], "n": 4}, [inputs], [InputValue(1, 7)], tmp_path)


def test_references_are_bounded() -> None:
    deep: Any = Reference(1)
    for _ in range(MAX_PLACE):
        deep = [deep]

    _, inputs = taken_out({"deep": deep})
    assert inputs == []  # left for `plain` to refuse
    with pytest.raises(InputError, match=f"at {MAX_PLACES} places"):
        taken_out({"a": [Reference(1)] * (MAX_PLACES + 1)})
    with pytest.raises(InputError, match="use text"):
        taken_out({"a": {None: Reference(1)}})
    assert MAX_INPUTS <= MAX_PLACES


def test_a_large_result_is_read_from_its_owners_file(tmp_path: Path) -> None:
    packed = msgspec.msgpack.encode(["x" * 5000])
    ResultFiles(tmp_path).write("7-ab", packed)
    inputs = [ResultInput(7, places=[["a"]])]

    def read(size: int, name: str = "7-ab") -> dict[str, Any]:
        value = InputValue(7, name=name, bytes=size)
        return put_in({"a": None}, inputs, [value], tmp_path)

    assert read(len(packed)) == {"a": ["x" * 5000]}
    with pytest.raises(InputError, match="bytes, expected 4"):
        read(4)
    with pytest.raises(InputError, match="No such file"):
        read(len(packed), "8-ab")
    (tmp_path / "9-ab.result").symlink_to(tmp_path / "7-ab.result")
    with pytest.raises(InputError, match="symbolic links"):
        read(len(packed), "9-ab")


def test_old_results_are_asked_for_and_dropped(tmp_path: Path) -> None:
    files = ResultFiles(tmp_path)
    for name in ("7-ab", "8-ab", "9-ab"):
        files.write(name, b"\x01")
    (tmp_path / "7-ab-1.pickle").write_bytes(b"")
    (tmp_path / "mine.result").write_bytes(b"")
    old = (tmp_path / "7-ab.result").stat().st_mtime - YOUNG_S - 1
    for name in ("7-ab.result", "7-ab-1.pickle", "8-ab.result", "mine.result"):
        os.utime(tmp_path / name, (old, old))

    assert files.to_ask_for() == [7, 8]
    assert files.to_ask_for() == []  # asked a moment ago
    files.drop([7])

    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["8-ab.result", "9-ab.result", "mine.result"]


@pytest.mark.parametrize("value", [(1, 2), 7, "text", "ü", 2**80, None, {1: {2}}])
def test_exact_results_come_back_as_they_were(tmp_path: Path, value: object) -> None:
    kept = ResultEncoder(tmp_path / "7-1").keep(Exact(value))

    assert restored(msgspec.msgpack.decode(kept.packed)) == value
    assert type(restored(kept.value)) is type(value)
    assert kept.warnings == []
