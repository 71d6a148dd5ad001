"""Dask over hetd: `dask.compute(…, scheduler=libtask.dask.get)` runs each node as a task.

    import dask, libtask.dask
    dask.compute(array.mean(), scheduler=libtask.dask.get)

Also without Dask installed, for graphs as its specification defines them: a map from keys to
literals, to other keys, and to tuples of a function and its arguments, nested at will
(https://docs.dask.org/en/stable/spec.html). Nodes of Dask's newer form are objects with
`dependencies` that are called with a map of their values. Values pass from task to task; only
the requested ones come back.
"""

from __future__ import annotations

from concurrent.futures import CancelledError
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from libtask.apps import Options, describe
from libtask.client.call import alone
from libtask.client.client import Client
from libtask.errors import InputError
from libtask.inputs import TaskReference
from libtask.messages import CALL

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
    from typing import TypeAlias

    from libtask.client.handles import TaskHandle

    Graph: TypeAlias = Mapping[Any, Any]
    """Key -> computation."""


class EarlierNode(TaskReference):
    """Stands for the value of an earlier node of the same submission."""

    __slots__ = ("_back",)

    def __init__(self, back: int) -> None:
        self._back = back

    @property
    def input_id(self) -> int:
        return -self._back


@dataclass(frozen=True, slots=True)
class _Expression:
    """A call within a node; `arguments` are values, lists of them, and calls."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Value:
    """A value that is not searched for calls."""

    value: Any


def get(
    dsk: Graph, keys: Any, *, client: Client | None = None, **_options: object
) -> Any:
    """Compute keys of a graph, each node as a task.

    Args:
        dsk: the graph, or a collection or expression of Dask that makes one.
        keys: a key, or nested lists of keys, which give nested tuples of values.
        client: the connection to hetd; None: one for this call.
        _options: those of Dask for its own schedulers, which have no meaning here.

    Raises:
        InputError: the graph has a cycle, or lacks a key.
        TaskFailedError: a node raised an error; the others are cancelled.
        CancelledError: a node was cancelled by somebody.

    """
    with ExitStack() as stack:
        if client is None:
            client = stack.enter_context(Client())
        handles = submit(client, _mapping(dsk), list(_flat(keys)))
        try:
            return _collected(keys, handles)
        except CancelledError:
            _raise_first_failure(handles.values())
            raise
        finally:
            left = [each.id for each in set(handles.values()) if not each.done()]
            if left:
                client.cancel(*left)


def submit(client: Client, dsk: Graph, keys: list[Any]) -> dict[Any, TaskHandle]:
    """Submit the nodes that keys need; return the tasks of all of them by key.

    Raises:
        InputError: as for `get`.

    """
    order = _ordered(dsk, keys)
    position = {key: index for index, key in enumerate(order)}
    options = Options()
    specs = []
    for index, key in enumerate(order):
        function, arguments = _call_of(dsk[key], dsk, position, index)
        call = alone(client.path, function, arguments)
        specs.append(describe(call, CALL, options))
    return dict(zip(order, client.submit_specs(specs), strict=True))


def _mapping(dsk: Any) -> dict[Any, Any]:
    """Return a graph as a map; Dask's newer releases pass an expression that makes it."""
    make = getattr(dsk, "__dask_graph__", None)
    return dict(make() if make is not None else dsk)


def _flat(keys: Any) -> Iterator[Any]:
    if isinstance(keys, list):
        for each in keys:
            yield from _flat(each)
    else:
        yield keys


def _collected(keys: Any, handles: Mapping[Any, TaskHandle]) -> Any:
    if isinstance(keys, list):
        return tuple(_collected(each, handles) for each in keys)
    return handles[keys].result()


def _raise_first_failure(handles: Iterable[TaskHandle]) -> None:
    """Raise the error of the node that failed: those that need it were cancelled for it."""
    for handle in handles:
        if handle.done() and handle.state == "failed":
            handle.result()


# ---------------------------------------------------------------- order


def _ordered(dsk: Graph, keys: list[Any]) -> list[Hashable]:
    """Return the needed keys, each after those that it needs."""
    order: list[Hashable] = []
    done: set[Hashable] = set()
    begun: set[Hashable] = set()
    stack = [(key, False) for key in reversed(keys)]
    while stack:
        key, complete = stack.pop()
        if complete:
            done.add(key)
            order.append(key)
        elif key not in done:
            if key not in dsk:
                raise InputError(f"the graph has no key {key!r}")
            if key in begun:
                raise InputError(f"the graph has a cycle through {key!r}")
            begun.add(key)
            stack.append((key, True))
            needed = _needed(dsk[key], dsk)
            stack += [(each, False) for each in needed if each not in done]
    return order


def _needed(node: Any, dsk: Graph) -> list[Any]:
    """List the keys that a node needs, each once."""
    if _is_object(node):
        return list(node.dependencies)
    found: dict[Any, None] = {}
    stack = [node]
    while stack:
        part = stack.pop()
        if _is_call(part):
            stack += part[1:]
        elif isinstance(part, list):
            stack += part
        elif _is_key(part, dsk):
            found[part] = None
    return list(found)


def _is_object(node: Any) -> bool:
    """Whether a node has Dask's newer form."""
    return hasattr(node, "dependencies") and callable(node)


def _is_call(part: Any) -> bool:
    return type(part) is tuple and bool(part) and callable(part[0])


def _is_key(part: Any, dsk: Graph) -> bool:
    try:
        return part in dsk
    except TypeError:  # it is not hashable
        return False


# ---------------------------------------------------------------- calls


def _call_of(
    node: Any, dsk: Graph, position: Mapping[Any, int], index: int
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return a function and arguments that compute a node, with references."""

    def reference(key: Any) -> EarlierNode:
        return EarlierNode(index - position[key])

    if _is_object(node):
        return _called, (node, {key: reference(key) for key in node.dependencies})
    return _evaluated, (_expression(node, dsk, reference),)


def _expression(part: Any, dsk: Graph, reference: Callable[[Any], EarlierNode]) -> Any:
    if _is_call(part):
        inner = tuple(_expression(each, dsk, reference) for each in part[1:])
        return _Expression(part[0], inner)
    if isinstance(part, list):
        return [_expression(each, dsk, reference) for each in part]
    return _Value(reference(part)) if _is_key(part, dsk) else _Value(part)


def _called(node: Any, values: dict[Any, Any]) -> Any:
    return node(values)


def _evaluated(part: Any) -> Any:
    """Compute an expression, in the worker."""
    if isinstance(part, _Expression):
        return part.function(*(_evaluated(each) for each in part.arguments))
    if isinstance(part, list):
        return [_evaluated(each) for each in part]
    return part.value
