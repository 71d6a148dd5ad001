"""Split requests about many tasks into steps, so that other messages run between them.

A handler that may take long is a generator: it yields at the end of a step and returns the
reply, or None if that follows later (`parking`). It raises its errors before its first change, so that an error means that nothing was
changed.
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from libtask import messages as m

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hetd.tasks.journal import Journal

Steps: TypeAlias = Generator[None, None, m.Request | None]
"""The remaining steps of a request; each takes a few milliseconds at most."""

SLICE = 100
"""Tasks that one step changes: about 2 ms, with one run of the policy for all of them."""
LOOKS = 250
"""Tasks that one step inspects: each may have to be read from the disk."""
STEP_BYTES = 512 << 10
"""Bytes of pages that one step reads or rewrites: about 1 ms."""

Item = TypeVar("Item")


def chunks(items: Iterable[Item], size: int = SLICE) -> Iterator[list[Item]]:
    """Split items into lists of at most `size`."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


def run_to_end(work: Steps) -> m.Request | None:
    """Run the remaining steps of a request and return its reply; None: it follows later."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            reply: m.Request | None = end.value
            return reply


class ReadBudget:
    """Counts the reads of a step, to end it after `LOOKS` reads or `STEP_BYTES`.

    Args:
        journal: whose pages are read.

    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._then = journal.bytes_read
        self._looks = 0

    def is_enough(self) -> bool:
        """Count one read; return whether the step should end before the next one."""
        self._looks += 1
        read = self._journal.bytes_read
        if self._looks < LOOKS and read - self._then < STEP_BYTES:
            return False
        self._looks, self._then = 0, read
        return True


def page_chunks(journal: Journal, tasks: Iterable[int]) -> Iterator[list[int]]:
    """Split tasks into lists that one step can change, by number and bytes of pages."""
    some: list[int] = []
    size = 0
    for task in tasks:
        some.append(task)
        size += journal.page_bytes(task)
        if len(some) >= SLICE or size >= STEP_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some
