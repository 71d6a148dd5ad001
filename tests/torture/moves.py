"""Moves: tasks that run are sent from resource to resource, at random moments.

    python -m torture moves --count 1000

Beside the load of the other runs, a mover has a few tasks of its own that run for as
long as it likes, and never lets one stay: it is moved again as soon as it runs, or held
and released. The result of each shows whether every iteration ran once and in order.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from libtask import messages as m
from libtask.client.session import Session
from libtask.errors import HetError
from torture import counting
from torture.deployment import PATIENCE, RESOURCES, NotInTimeError
from torture.history import name_of
from torture.kills import rows_of
from torture.load import DEAF, TIMEOUT_S, described

if TYPE_CHECKING:
    import argparse

    from torture.kills import LoadTest

TASKS = 3
"""As many as there are resources: each of them has somewhere to go."""
ITERATIONS = 1500
PAUSE_S = 0.001
"""An iteration; a task runs for seconds, and is moved hundreds of times."""
HOLDS = 0.1
"""Share of the orders that hold a task, and release it at once."""
LOOK_S = 0.002


class Mover:
    """One user's program that moves its own tasks.

    Args:
        test: where it does so.

    Attributes:
        moved: moves of its tasks so far.

    """

    def __init__(self, test: LoadTest) -> None:
        self._test = test
        self._draw = test.draw
        self._session = Session(
            test.deployment.socket, DEAF, timeout=TIMEOUT_S, patience=PATIENCE
        )
        self._batches = 0
        self._live: list[int] = []
        self._moves: dict[int, int] = {}

    @property
    def moved(self) -> int:
        return sum(self._moves.values())

    def close(self) -> None:
        self._session.close()

    def look(self) -> None:
        """Record where tasks are; move those that run."""
        while len(self._live) < TASKS:
            self._live += self._submit()
        found = self._ask(m.ListTasks(request=0, ids=self._live)).tasks
        for info in found:
            self._moves[info.id] = info.migrations
            if info.state == "running":
                with contextlib.suppress(HetError):  # it may have ended meanwhile
                    self._send_away(info)
        self._live = [info.id for info in found if info.state not in m.ENDED]

    def _submit(self) -> list[int]:
        key = f"mover-{self._batches}"
        self._batches += 1
        seed = self._draw.randrange(1 << 32)
        params = {"seed": seed, "iterations": ITERATIONS, "pause_s": PAUSE_S}
        self._test.history.ask(key, [counting.reference(seed, ITERATIONS)])
        spec = described(name_of(key, 0), params, priority=1)
        ids: list[int] = self._ask(m.Submit(request=0, tasks=[spec], key=key)).ids
        self._test.history.acknowledge(key, ids)
        return ids

    def _send_away(self, info: m.TaskInfo) -> None:
        if self._draw.random() < HOLDS:
            for verb in ("hold", "release"):
                self._ask(m.Control(request=0, verb=verb, ids=[info.id]))
            return
        others = [name for name in RESOURCES if name != info.resource]
        place = self._draw.choice(others)
        self._ask(m.Migrate(request=0, id=info.id, resource=place))

    def _ask(self, request: m.Request) -> Any:
        return self._session.request(request)


def run(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """Move tasks, in one run for each seed."""
    return rows_of(chosen, move_tasks)


def move_tasks(test: LoadTest, count: int) -> None:
    """Move running tasks this number of times.

    Raises:
        NotInTimeError: no task has moved for long.

    """
    mover, seen, since = Mover(test), 0, time.monotonic()
    try:
        while mover.moved < count:
            mover.look()
            if mover.moved > seen:
                seen, since = mover.moved, time.monotonic()
            elif time.monotonic() - since > PATIENCE:
                raise NotInTimeError(f"no move in {PATIENCE:g} s, after {seen}")
            time.sleep(LOOK_S)
        test.run.moves = mover.moved
    finally:
        mover.close()
