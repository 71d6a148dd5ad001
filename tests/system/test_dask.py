"""Dask's graphs as tasks; with Dask itself where it is installed."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import pytest

from libtask.dask import get
from libtask.errors import InputError, TaskFailedError

if TYPE_CHECKING:
    from system.private_daemon import PrivateDaemon

GRAPH: dict[Any, Any] = {
    "one": 1,
    "same": "one",
    ("block", 0): (operator.add, "one", "same"),
    "nested": (operator.mul, ("block", 0), (operator.add, ("block", 0), 1)),
    "all": (sum, ["one", ("block", 0), "nested", (abs, -100)]),
    "not needed": (operator.truediv, 1, 0),
}


def test_a_graph_is_computed(daemon: PrivateDaemon) -> None:
    found = get(GRAPH, ["all", ["nested", ("block", 0)], "one"], client=daemon.client)

    assert found == (109, (6, 2), 1)
    assert get(GRAPH, "same", client=daemon.client) == 1


def test_nodes_that_are_objects_are_called(daemon: PrivateDaemon) -> None:
    class Node:
        """As Dask's nodes of the newer form: called with the values of its dependencies."""

        def __init__(self, function: Any, *dependencies: str) -> None:
            self.function = function
            self.dependencies = frozenset(dependencies)

        def __call__(self, values: dict[str, Any]) -> Any:
            return self.function(*(values[key] for key in sorted(self.dependencies)))

    graph = {"a": Node(int), "b": Node(lambda a: a + 5, "a")}

    assert get(graph, ["b"], client=daemon.client) == (5,)


def test_a_node_that_fails_ends_the_computation(daemon: PrivateDaemon) -> None:
    graph = {"a": (operator.truediv, 1, 0), "b": (abs, "a")}

    with pytest.raises(TaskFailedError, match="ZeroDivisionError"):
        get(graph, ["a", "b"], client=daemon.client)
    # the error is that of the node that failed, not of the one that was cancelled for it
    with pytest.raises(TaskFailedError, match="ZeroDivisionError"):
        get(graph, ["b"], client=daemon.client)


@pytest.mark.parametrize(
    ("graph", "text"),
    [
        ({"a": (abs, "b"), "b": (abs, "a")}, "a cycle through 'a'"),
        ({"b": 1}, "no key 'a'"),
    ],
)
def test_graphs_that_cannot_be_computed_are_refused(
    daemon: PrivateDaemon, graph: dict[str, Any], text: str
) -> None:
    with pytest.raises(InputError, match=text):
        get(graph, ["a"], client=daemon.client)


def test_dask_computes_with_it(
    daemon: PrivateDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    dask = pytest.importorskip("dask")
    monkeypatch.setenv("HETD_SOCKET", str(daemon.socket))
    numbers = [dask.delayed(operator.mul)(number, number) for number in range(5)]

    assert dask.compute(dask.delayed(sum)(numbers), scheduler=get) == (30,)


def test_dask_computes_arrays_with_it(
    daemon: PrivateDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = pytest.importorskip("dask.array")
    monkeypatch.setenv("HETD_SOCKET", str(daemon.socket))
    numbers = arrays.arange(40, chunks=10).reshape(4, 10)

    product = (numbers @ numbers.T).sum().compute(scheduler=get)

    assert product == (numbers @ numbers.T).sum().compute(scheduler="sync")
