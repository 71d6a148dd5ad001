"""Which arrays equal a part of a result's file: only those that certainly do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from libtask import file_parts
from libtask.file_parts import ResultPart, part_of, place_of, recorded
from libtask.pickles import LEAST, pickled, unpickled, write_pickled

if TYPE_CHECKING:
    from pathlib import Path


def written(path: Path, array: Any) -> ResultPart:
    with recorded() as parts:
        write_pickled(path, pickled({"before": b"x" * LEAST, "array": array}))
    return parts[place_of(array)]


def mapped(path: Path) -> Any:
    with path.open("rb") as file:
        return unpickled(file, path)["array"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.pickle"


def test_a_mapped_array_is_the_part_that_was_written(path: Path) -> None:
    part = written(path, np.arange(LEAST).reshape(2, -1))

    array = mapped(path)

    assert part_of(array) == part
    array.sum()  # reading changes nothing
    assert part_of(array) == part
    assert part_of(array.reshape(-1).view(np.uint8)) == part
    (half,) = {part_of(array[1])}
    assert half == ResultPart(part.file, part.begin + part.bytes // 2, part.bytes // 2)


def test_an_array_that_its_task_wrote_to_is_none(path: Path) -> None:
    written(path, np.arange(LEAST))
    array, other = mapped(path), mapped(path)

    array[LEAST // 2] += 1

    assert part_of(array) is None
    assert part_of(array[: LEAST // 4]) is not None  # these pages are as they were
    assert part_of(other) is not None


def test_arrays_of_the_task_itself_are_none(path: Path) -> None:
    written(path, np.arange(LEAST))

    assert part_of(np.arange(LEAST)) is None
    assert part_of(mapped(path)[::2]) is None
    assert part_of(mapped(path)[:0]) is None
    assert part_of(np.array(mapped(path))) is None


def test_a_file_that_replaced_another_one_is_another_part(path: Path) -> None:
    first = written(path, np.arange(LEAST))

    second = written(path, np.arange(LEAST))

    assert first != second
    assert part_of(mapped(path)) == second


def test_nothing_is_known_where_the_system_tells_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(path, np.arange(LEAST))

    monkeypatch.setattr(file_parts, "_pagemap", lambda _first, _count: None)

    assert part_of(mapped(path)) is None


def test_nothing_is_recorded_outside_the_block(path: Path) -> None:
    with recorded() as parts:
        pass
    write_pickled(path, pickled(np.arange(LEAST)))

    assert parts == {}
