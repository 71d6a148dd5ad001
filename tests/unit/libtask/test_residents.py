"""What stays on a device: within the budget, until the memory is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from libtask.devices.residents import FreshResult, FrozenArrays, Residents
from libtask.file_parts import File, ResultPart

FILE = File("a", 1, 2, 3)


class Kept(Residents):
    """A device of 100 bytes, with the copies that it released."""

    def __init__(self) -> None:
        self.released: list[Any] = []
        super().__init__(self.released.append)
        self.begin(100)


@pytest.fixture
def kept() -> Kept:
    return Kept()


def fresh(copy: str, size: int, place: int) -> FreshResult:
    return FreshResult(np.zeros(1), copy, size, (place, size))


def test_a_copy_is_found_until_it_is_taken(kept: Kept) -> None:
    kept.keep("a", "copy", 60)

    assert kept.look("a") == "copy"
    assert kept.take("a") == "copy"
    assert (kept.take("a"), kept.look("a"), kept.found) == (None, None, 120)
    assert kept.released == []  # the task has it


def test_the_least_recently_used_copy_is_dropped_first(kept: Kept) -> None:
    for name in "abc":
        kept.keep(name, name, 30)
    kept.look("a")

    kept.keep("d", "d", 40)

    assert kept.released == ["b"]
    assert kept.bytes == 100


def test_the_budget_is_kept_whatever_comes(kept: Kept) -> None:
    kept.keep("a", "a", 101)
    kept.keep("b", "b", 0)
    kept.add_fresh(fresh("c", 101, 1))
    for number in range(5):
        kept.add_fresh(fresh(f"r{number}", 40, number))

    assert kept.released == ["a", "b", "c", "r0", "r1", "r2"]
    assert kept.bytes == 80


def test_a_smaller_budget_drops_what_does_not_fit(kept: Kept) -> None:
    kept.keep("a", "a", 50)
    kept.keep("b", "b", 50)

    kept.begin(60)
    kept.begin(0)

    assert kept.released == ["a", "b"]


def test_results_stay_that_were_written_to_a_file(kept: Kept) -> None:
    part = ResultPart(FILE, 64, 10)
    kept.add_fresh(fresh("written", 10, 1))
    kept.add_fresh(fresh("other", 10, 2))

    kept.keep_fresh({(1, 10): part, (2, 9): part})

    assert kept.released == ["other"]
    assert kept.look(part) == "written"


def test_a_copy_replaces_an_older_one_of_the_same_part(kept: Kept) -> None:
    kept.keep("a", "old", 10)
    kept.keep("a", "new", 10)

    assert kept.released == ["old"]
    assert kept.bytes == 10


def test_all_is_dropped_when_memory_is_short(kept: Kept) -> None:
    kept.keep("a", "a", 10)
    kept.add_fresh(fresh("b", 20, 1))

    assert (kept.drop(), kept.drop()) == (30, 0)

    assert kept.released == ["a", "b"]
    kept.keep("c", "c", 10)
    assert kept.look("c") == "c"


def test_a_task_beside_another_process_keeps_nothing(kept: Kept) -> None:
    kept.keep("a", "a", 10)
    kept.take("a")

    kept.give_way()
    kept.keep("a", "a", 10)
    kept.add_fresh(fresh("b", 20, 1))

    assert kept.released == ["a", "b"]
    kept.begin(100)
    kept.keep("c", "c", 10)
    assert kept.look("c") == "c"


def test_results_are_read_only_until_the_runtime_has_them() -> None:
    frozen, array = FrozenArrays(), np.zeros(3)

    frozen.freeze(array)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    frozen.thaw()
    array[0] = 1
