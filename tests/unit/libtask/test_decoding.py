"""Large messages of hetd are decoded without collections of garbage in the midst of it."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from libtask.errors import InputError
from libtask.messages import TaskList, decode_from_daemon, encode
from unit.fake_daemon import a_task

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = encode(TaskList(1, [a_task(number) for number in range(1000)]))


@contextmanager
def counted() -> Iterator[list[str]]:
    """Note the collections in a block."""
    seen: list[str] = []

    def note(phase: str, _info: object) -> None:
        seen.append(phase)

    gc.callbacks.append(note)
    try:
        yield seen
    finally:
        gc.callbacks.remove(note)


def test_no_garbage_is_collected_within_a_page_of_tasks() -> None:
    gc.collect()
    with counted() as seen:
        found = decode_from_daemon(PAGE)

    assert isinstance(found, TaskList)
    assert len(found.tasks) == 1000
    assert len(seen) <= 2  # one, at the first object after it
    assert gc.isenabled()


def test_who_collects_by_themselves_still_do() -> None:
    gc.disable()
    try:
        decode_from_daemon(PAGE)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_malformed_page_leaves_the_collector_on() -> None:
    with pytest.raises(InputError):
        decode_from_daemon(PAGE[:-5])

    assert gc.isenabled()
