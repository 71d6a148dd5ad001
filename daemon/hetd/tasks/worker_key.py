"""Which workers can serve a task: those of its origin that import modules from its folder.

The pool gives a task only to a worker with its key, and the scheduler puts only tasks with
one key into a train.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from libtask.messages import TaskSpec


class WorkerKey(NamedTuple):
    """The tasks that a worker can serve: those with the same key.

    Attributes:
        origin: their origin; empty: that of the launcher.
        folder: folder of their application's file, from which it imports modules; empty:
            it is not in a file; None: unknown. The worker leaves if it is another one.

    """

    origin: str = ""
    folder: str | None = ""

    def serves(self, key: WorkerKey) -> bool:
        """Return whether a worker with this key may be given a task with that one."""
        return self.origin == key.origin and self.folder in (None, key.folder)


ANY_LAUNCHERS = WorkerKey()
"""Key of tasks without an origin and a file."""


def key_of(spec: TaskSpec) -> WorkerKey:
    """Return the key of the workers that can serve a task."""
    return _key(spec.origin, spec.app)


@lru_cache(1024)
def _key(origin: str, app: str) -> WorkerKey:
    path, _, class_name = app.rpartition(":")
    folder = os.path.dirname(path) if class_name else ""  # noqa: PTH120  for speed
    return WorkerKey(origin, folder)
