"""Cyclic garbage: looked for among new objects only, so that a look takes no time.

What hetd keeps of tasks holds no cycles, and is freed as its last user lets it go. A
collection of the interpreter's own would come at any moment, and look through all of it:
some 0.1 s with 100,000 tasks, in which nobody is served. So the loop looks itself, after
some milliseconds of work, and leaves out what it has looked through once; until there are
few tasks, and time for a full look.
"""

from __future__ import annotations

import gc

LOOK_NS = 10_000_000
"""Between two looks: what is made in so much time is looked through in a millisecond."""
FEW = 1000
"""Tasks with which a full look takes no longer than some turns of the loop."""
REST_NS = 60_000_000_000
"""Between two full looks."""


class Collector:
    """Collects cyclic garbage in place of the interpreter.

    Args:
        now: nanoseconds.

    """

    def __init__(self, now: int) -> None:
        self._next = now + LOOK_NS
        self._next_full = now + REST_NS
        gc.disable()
        gc.freeze()

    def look(self, now: int, tasks: int) -> None:
        """Look, if it is time to. Called after each turn of the loop.

        Args:
            now: nanoseconds.
            tasks: those that are kept in memory.

        """
        if now < self._next:
            return
        self._next = now + LOOK_NS
        if now >= self._next_full and tasks <= FEW:
            self._next_full = now + REST_NS
            gc.unfreeze()
            gc.collect()
        else:
            gc.collect(0)
        gc.freeze()

    def end(self) -> None:
        """Let the interpreter collect again."""
        gc.unfreeze()
        gc.enable()
