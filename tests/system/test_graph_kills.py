"""A graph of tasks that pass values on, while the daemon is killed again and again."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any

import pytest

from libtask.dask import submit
from system.private_daemon import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from system.private_daemon import PrivateDaemon

KILLS = int(os.environ.get("HETD_GRAPH_KILLS", "5"))
TASKS = 1000
WIDTH = 50
"""Tasks that can run at the same time."""


def mixing() -> Callable[..., Any]:
    """Return the function of all tasks; workers cannot import this module."""

    def mixed(number: int, *values: Any) -> Any:
        """Compute a number from those of other tasks; some carry ballast."""
        found = number
        for value in values:
            plain = value[0] if isinstance(value, tuple) else value
            found = (found * 31 + plain) % 1_000_003
        return (found, b"x" * 4096) if number % 10 == 0 else found

    return mixed


def a_graph(draw: random.Random) -> dict[str, Any]:
    """Draw a graph in which each task takes the values of two of the row before."""
    mixed = mixing()
    graph: dict[str, Any] = {}
    for number in range(TASKS):
        row = number // WIDTH
        first = (row - 1) * WIDTH
        before = [draw.randrange(WIDTH) + first for _ in range(2)] if row else []
        graph[f"n{number}"] = (mixed, number, *(f"n{each}" for each in before))
    return graph


def expected(graph: dict[Any, Any]) -> dict[Any, Any]:
    values: dict[Any, Any] = {}
    for key, (mixed, number, *before) in graph.items():
        values[key] = mixed(number, *(values[each] for each in before))
    return values


@pytest.mark.timeout(600)
def test_a_graph_survives_kills_of_the_daemon(
    private_daemon: Callable[..., PrivateDaemon],
) -> None:
    daemon, draw = private_daemon(), random.Random(7)
    graph = a_graph(draw)

    handles = submit(daemon.client, graph, list(graph))
    every = list(handles.values())
    for kill in range(KILLS):
        # at a time by progress, so that the kills are spread over the graph
        share = (kill + draw.random()) / KILLS * 0.9
        eventually(
            lambda share=share: sum(map(_done, every)) >= share * TASKS,  # type: ignore[misc]  # a lambda with a default
            "tasks that ended",
        )
        daemon.restart()
    values = {key: handle.result(60) for key, handle in handles.items()}

    assert values == expected(graph)
    assert {info.state for info in daemon.client.tasks()} == {"completed"}


def _done(handle: Any) -> bool:
    done: bool = handle.done()
    return done
