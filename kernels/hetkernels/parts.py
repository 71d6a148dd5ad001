"""Shares a kernel's work between this thread and helpers, part by part.

Numba's own threads (`workqueue`) do all of a parallel loop while the calling thread sleeps. Where
there are as many of them as processors, Linux often puts two of them on one, as the caller's is
still busy when they wake: loops shorter than a scheduler's tick (4 ms) then take as long as
with one thread. Here the calling thread does the first part itself, and the helpers wake on
processors that are idle. What they call must release the interpreter's lock (`nogil`).
"""

from __future__ import annotations

import os
import queue
import threading
from typing import TYPE_CHECKING

from numba import get_num_threads

from libtask.kept_threads import keep

if TYPE_CHECKING:
    from collections.abc import Callable

    Do = Callable[[int], None]


def threads() -> int:
    """Return the threads that the task may use: those that Numba is limited to."""
    count: int = get_num_threads()
    return count


def share(do: Do, parts: int) -> None:
    """Call `do` with 0 up to `parts` - 1, each in a thread of its own, the first in this one.

    What one of them raises is raised here, after all have ended.
    """
    helpers = _helpers(parts - 1)
    for index, helper in enumerate(helpers, 1):
        helper.begin(do, index)
    try:
        do(0)
    finally:
        errors = [helper.end() for helper in helpers]
    for error in errors:
        if error is not None:
            raise error


def span(part: int, parts: int, count: int) -> tuple[int, int]:
    """Return the first of `count` things that belong to a part, and the one after the last."""
    return part * count // parts, (part + 1) * count // parts


class _Helper:
    """A thread that sleeps until there is a part for it."""

    def __init__(self) -> None:
        self._given: queue.SimpleQueue[tuple[Do, int]] = queue.SimpleQueue()
        self._ended: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        thread = threading.Thread(target=self._serve, name="kernel part", daemon=True)
        keep(thread)
        thread.start()

    def begin(self, do: Do, part: int) -> None:
        self._given.put((do, part))

    def end(self) -> Exception | None:
        """Wait for the end of the part; return what it raised."""
        return self._ended.get()

    def _serve(self) -> None:
        while True:
            do, part = self._given.get()
            try:
                do(part)
            except Exception as error:  # noqa: BLE001  the caller raises it
                self._ended.put(error)
            else:
                self._ended.put(None)
            del do


_started: list[_Helper] = []


def _helpers(count: int) -> list[_Helper]:
    while len(_started) < count:
        _started.append(_Helper())
    return _started[:count]


# a child of fork has none of its parent's threads
os.register_at_fork(after_in_child=_started.clear)
