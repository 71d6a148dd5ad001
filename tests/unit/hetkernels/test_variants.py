"""The choice among a kernel's variants: by measuring, kept, and never needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hetkernels import variants
from hetkernels.variants import ROUNDS, Chosen, Kernel, Selection, size_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SIZE = size_of(1000, 2, "float32")


class Clock:
    """A clock that `spend` turns on."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Clock:
    """A clock of the test's own, and an empty cache."""
    clock = Clock()
    monkeypatch.setattr(variants, "time", clock)
    monkeypatch.setattr(variants, "cache_folder", lambda: tmp_path)
    return clock


def selected(seconds: Sequence[Sequence[float]]) -> Selection[str]:
    """Measure variants a, b, … round by round."""
    selection = Selection(tuple("abcdef"[: len(seconds[0])]))
    for one_round in seconds:
        for taken in one_round:
            selection.measured(selection.turn(), taken)
    return selection


def test_variants_take_turns_until_each_was_measured_often_enough() -> None:
    selection = Selection(("a", "b"))
    turns = []
    while selection.chosen is None:
        turns.append(selection.turn())
        selection.measured(turns[-1], 1.0)

    assert turns == [0, 1] * ROUNDS


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [
        ([[2.0, 1.0]] * ROUNDS, "b"),
        ([[1.0, 2.0]] * ROUNDS, "a"),
        ([[1.0, 0.98]] * ROUNDS, "a"),  # not worth a change
        ([[2.0, 9.0]] * (ROUNDS - 1) + [[2.0, 1.0]], "b"),  # the best time counts
        ([[3.0, 2.0, 1.0]] * ROUNDS, "c"),
    ],
)
def test_the_fastest_is_chosen(seconds: list[list[float]], chosen: str) -> None:
    assert selected(seconds).chosen == chosen


def test_what_is_chosen_is_kept_with_its_times() -> None:
    selection = selected([[2.0, 1.0]] * ROUNDS)

    assert selection.outcome == Chosen(1, [2.0, 1.0])


def test_nothing_is_chosen_before_all_were_measured() -> None:
    selection = selected([[2.0, 1.0]] * (ROUNDS - 1))

    assert selection.chosen is None
    assert selection.outcome is None


def test_one_variant_alone_is_not_measured() -> None:
    assert Selection(("a",)).chosen == "a"
    assert Selection(("a",)).outcome is None


@pytest.mark.parametrize(("known", "chosen"), [(1, "b"), (7, None), (-1, None)])
def test_a_known_choice_is_taken_if_there_is_such(
    known: int, chosen: str | None
) -> None:
    assert Selection(("a", "b"), known).chosen == chosen


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [(513, 1024, True), (512, 513, False), (1024, 1025, False)],
)
def test_sizes_are_alike_up_to_a_factor_of_two(
    one: int,
    other: int,
    alike: bool,  # noqa: FBT001  parametrized
) -> None:
    assert (size_of(one, 2, "") == size_of(other, 2, "")) is alike


COST = {"slow": 2.0, "fast": 1.0}


def a_kernel() -> Kernel[str]:
    return Kernel("test", lambda _size: ("slow", "fast"))


def run(kernel: Kernel[str], clock: Clock, pieces: int, ends: int = 1 << 30) -> str:
    """Run pieces; return the first letters of the variants that did each."""
    done: list[str] = []

    def do(variant: str, first: int, last: int) -> bool:
        assert first == len(done)
        done.extend([variant[0]] * (last - first))
        clock.now += COST[variant] * (last - first)
        return last < ends

    kernel.run(SIZE, pieces, do)
    return "".join(done)


def test_every_piece_is_done_once_whoever_does_it(clock: Clock) -> None:
    assert run(a_kernel(), clock, 2 * ROUNDS + 3) == "sf" * ROUNDS + "fff"


def test_a_turn_has_several_pieces_where_there_are_as_many(clock: Clock) -> None:
    kernel = Kernel("test", lambda _size: ("slow", "fast"), turn=3 * SIZE.work)

    strips = [run(kernel, clock, pieces) for pieces in (5, 6 * ROUNDS)]

    # the time of a piece counts, so that the shorter turn at a strip's end is like others
    assert strips[0] == "sssff"
    assert strips[1] == "sssfff" * (ROUNDS - 1) + "f" * 6


def test_measuring_goes_on_where_the_last_strip_ended(clock: Clock) -> None:
    kernel = a_kernel()

    strips = [run(kernel, clock, pieces) for pieces in (1, 2, 2 * ROUNDS)]

    assert "".join(strips) == "sf" * ROUNDS + "fff"


def test_other_processes_find_the_choice(clock: Clock) -> None:
    run(a_kernel(), clock, 2 * ROUNDS)

    assert run(a_kernel(), clock, 3) == "fff"


def test_what_did_not_do_all_its_work_is_not_measured(clock: Clock) -> None:
    kernel = a_kernel()

    assert run(kernel, clock, 2 * ROUNDS, ends=3) == "sfs"
    assert run(kernel, clock, 2 * ROUNDS) == "sf" * (ROUNDS - 1) + "ff"


@pytest.mark.parametrize("content", [b"", b"{", b'{"variant": 9, "seconds": []}'])
def test_a_damaged_cache_costs_measuring_again(
    clock: Clock, tmp_path: Path, content: bytes
) -> None:
    run(a_kernel(), clock, 2 * ROUNDS)
    (entry,) = (tmp_path / "variants").iterdir()
    entry.write_bytes(content)

    assert run(a_kernel(), clock, 2 * ROUNDS) == "sf" * ROUNDS


@pytest.mark.parametrize("changed", ["cpu_identity", "COMPILERS"])
def test_another_cpu_or_library_is_measured_by_itself(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    run(a_kernel(), clock, 2 * ROUNDS)
    values = {"cpu_identity": lambda: "another", "COMPILERS": ("numpy",)}
    monkeypatch.setattr(variants, changed, values[changed])
    variants._machine.cache_clear()

    measured = run(a_kernel(), clock, 2 * ROUNDS)

    variants._machine.cache_clear()
    assert measured == "sf" * ROUNDS


def test_a_full_disk_costs_the_cache_only(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(variants, "cache_folder", lambda: tmp_path / "file")

    assert run(a_kernel(), clock, 2 * ROUNDS + 1) == "sf" * ROUNDS + "f"
