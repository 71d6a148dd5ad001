"""Pictures: a node as it stands, in numbers, for a rollout to play.

Made by `lookahead` of the system; items and resources are numbers, times are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

NEXT = "next"
"""Rule of a step that lets an item go next where it waits."""


@dataclass(slots=True)
class Item:
    """A task.

    Attributes:
        times: seconds that the rest of it takes alone on each resource; infinite: cannot.
        affinities: as in loesch-2016; `best`: the resource with the highest.
        strips: strips in the rest of it, on each resource.
        copies: seconds to copy its state to or from each resource.
        moving: seconds that a move takes besides.
        home: where its state lies; -1: it has not started.
        came_from: where it was before; -1: nowhere. `settled`: when it may go back there.
        moves: how often it may still go elsewhere. `fixed`: it may not.
    """

    times: list[float]
    affinities: list[float]
    best: int
    strips: list[float]
    copies: list[float]
    moving: float = 0.0
    home: int = -1
    came_from: int = -1
    settled: float = 0.0
    priority: int = 0
    moves: int = 0
    fixed: bool = False


@dataclass(slots=True)
class Started:
    """A running task, as the node stands.

    Attributes:
        arriving: seconds until it computes.
        destination: where it was asked to go; -1: nowhere, None: it was not asked.
    """

    item: int
    resource: int
    arriving: float = 0.0
    destination: int | None = None
    makes_way: bool = False


@dataclass(slots=True)
class Picture:
    """A node as it stands: what runs, and what waits in which order."""

    slots: list[int]
    shared: list[bool]
    items: list[Item]
    running: list[Started]
    queues: list[list[int]]
    fronts: list[list[int]] = field(default_factory=list)
    """Those that go before the queue: they yielded, and were sent there."""


@dataclass(frozen=True, slots=True)
class Step:
    """A decision: `item` goes to `resource`; from a slot if it runs, else from a queue."""

    item: int
    resource: int
    preempts: bool = False
    makes_way: bool = False
    rule: str = ""
