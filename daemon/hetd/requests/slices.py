"""Slices: requests about many tasks are carried out bit by bit, others between.

A handler that may take long is a generator: it yields where others may be served, and
returns the reply. What may be refused is refused before the first change, so that an
error never follows a change that was made.
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from libtask import messages as m

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hetd.tasks.journal import Journal

Steps: TypeAlias = Generator[None, None, m.Request]
"""What is left to do of a request; each step takes some milliseconds at most."""

SLICE = 100
"""Tasks that one step changes: some 2 ms, with one look of the policy at all of them."""
LOOKS = 250
"""Tasks that one step looks at: each may have to be read from the disk."""
STEP_BYTES = 512 << 10
"""Bytes of pages that one step reads, or writes anew: some 1 ms."""

Item = TypeVar("Item")


def chunks(items: Iterable[Item], size: int = SLICE) -> Iterator[list[Item]]:
    """Cut into lists of so many."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


def run_to_end(work: Steps) -> m.Request:
    """Do all that is left to do of a request; return its reply."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            reply: m.Request = end.value
            return reply


class ReadBudget:
    """Tells when a step has read enough from the disk.

    Args:
        journal: whose pages are read.

    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._then = journal.bytes_read
        self._looks = 0

    def is_enough(self) -> bool:
        """Count one look; whether others may be served before the next one."""
        self._looks += 1
        read = self._journal.bytes_read
        if self._looks < LOOKS and read - self._then < STEP_BYTES:
            return False
        self._looks, self._then = 0, read
        return True


def page_chunks(journal: Journal, tasks: Iterable[int]) -> Iterator[list[int]]:
    """Cut tasks that are to be changed into slices, by their number and their bytes."""
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
