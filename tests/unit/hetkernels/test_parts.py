"""Sharing a kernel's work among threads: every part once, and what goes wrong is told."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetkernels.parts import share, span
from libtask.kept_threads import stray_threads


def test_every_part_is_done_once_by_a_thread_of_its_own() -> None:
    done: list[tuple[int, int]] = []
    all_there = threading.Barrier(3, timeout=60)

    def do(part: int) -> None:
        all_there.wait()  # passes only if all parts run at the same time
        done.append((part, threading.get_ident()))

    share(do, 3)

    assert sorted(part for part, _ in done) == [0, 1, 2]
    assert len({thread for _, thread in done}) == 3
    assert (0, threading.get_ident()) in done


def test_the_helpers_are_kept_from_one_task_to_the_next() -> None:
    before = set(stray_threads())
    share(lambda _part: None, 3)

    assert set(stray_threads()) <= before


def test_one_part_needs_no_other_thread() -> None:
    done: list[int] = []
    share(lambda part: done.append(part or threading.get_ident()), 1)

    assert done == [threading.get_ident()]


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_failure_is_raised_after_all_have_ended(failing: int) -> None:
    ended: list[int] = []

    def do(part: int) -> None:
        if part == failing:
            raise ValueError(part)
        ended.append(part)

    with pytest.raises(ValueError, match=str(failing)):
        share(do, 3)
    assert sorted(ended) == sorted({0, 1, 2} - {failing})

    share(ended.append, 3)  # the helpers go on
    assert len(ended) == 5


FORKING = """
import os
from hetkernels.parts import share
share(lambda part: None, 2)
if os.fork() == 0:
    share(lambda part: None, 2)
    os._exit(0)
raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_a_child_of_fork_has_helpers_of_its_own() -> None:
    # by itself: interpreters warn of forks beside threads
    command = [sys.executable, "-W", "ignore", "-c", FORKING]

    subprocess.run(command, check=True, timeout=60)


@given(st.integers(1, 40), st.integers(0, 200))
def test_spans_cover_everything_once(parts: int, count: int) -> None:
    spans = [span(part, parts, count) for part in range(parts)]

    assert [i for first, last in spans for i in range(first, last)] == [*range(count)]
    assert max(b - a for a, b in spans) - min(b - a for a, b in spans) <= 1
