"""Graphene's order of a job: troublesome tasks first (Grandl et al., OSDI 2016).

Long tasks and those with few implementations are placed first in a virtual schedule, with
all tasks between them; the others are placed around them, in four orders of subsets. The
starts in the shortest of these schedules give the order. A job with many tasks is ordered
by upward rank instead: the search would take too long.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Times: TypeAlias = "dict[str, float]"
"""Processor -> seconds of a task."""

SEARCHED = 40
"""Tasks of a job up to which schedules are searched."""
THRESHOLDS = (0.2, 0.4, 0.6, 0.8)
"""Shares of the greatest score from which a task is troublesome."""
ORDERS = ("TOPC", "TPOC", "TOCP", "TCOP")
"""Orders of troublesome, other, parent (ancestors) and child (descendants) subsets."""


@dataclass(frozen=True, slots=True)
class VirtualTask:
    """A task of a job that is ordered; `parents`: places in the job."""

    times: Times
    parents: tuple[int, ...] = ()


@dataclass(slots=True)
class VirtualSchedule:
    """Slots of processors over time, which may begin before 0.

    Attributes:
        slots: (processor, busy intervals in order).
        spans: task -> (start, end).

    """

    slots: list[tuple[str, list[tuple[float, float]]]]
    spans: dict[int, tuple[float, float]] = field(default_factory=dict)

    @property
    def length(self) -> float:
        spans = self.spans.values()
        return max(end for _, end in spans) - min(start for start, _ in spans)

    def put_after(self, task: int, times: Times, ready: float) -> None:
        """Place a task where it ends first, not before `ready`."""
        best: tuple[float, float, int] | None = None
        for number, (name, busy) in enumerate(self.slots):
            seconds = times.get(name)
            # most slots cannot end it sooner, even idle ones
            if seconds is not None and (best is None or ready + seconds <= best[0]):
                start = _first_gap(busy, seconds, ready)
                found = (start + seconds, start, number)
                best = found if best is None else min(best, found)
        self._enter(task, best)

    def put_before(self, task: int, times: Times, limit: float) -> None:
        """Place a task where it starts last, to end by `limit`."""
        best: tuple[float, float, int] | None = None
        for number, (name, busy) in enumerate(self.slots):
            seconds = times.get(name)
            if seconds is not None and (best is None or limit - seconds >= best[1]):
                end = _last_gap(busy, seconds, limit)
                found = (end, end - seconds, number)
                if best is None or (found[1], -number) > (best[1], -best[2]):
                    best = found
        self._enter(task, best)

    def _enter(self, task: int, best: tuple[float, float, int] | None) -> None:
        if best is not None:
            end, start, number = best
            self.spans[task] = (start, end)
            insort(self.slots[number][1], (start, end))


def _first_gap(busy: list[tuple[float, float]], seconds: float, ready: float) -> float:
    """Return the first start from `ready` with `seconds` of idle time."""
    start = ready
    for begin, end in busy:
        if start + seconds <= begin:
            return start
        start = max(start, end)
    return start


def _last_gap(busy: list[tuple[float, float]], seconds: float, limit: float) -> float:
    """Return the last end up to `limit` with `seconds` of idle time before it."""
    finish = limit
    for begin, end in reversed(busy):
        if finish - seconds >= end:
            return finish
        finish = min(finish, begin)
    return finish


def troublesome_order(tasks: Sequence[VirtualTask], slots: Sequence[str]) -> list[int]:
    """Return the tasks of a job in the order in which they should be started.

    Args:
        tasks: parents before their children.
        slots: the processor of each slot.

    """
    if len(tasks) > SEARCHED:
        ranks = _upward_ranks(tasks)
        return sorted(range(len(tasks)), key=lambda task: (-ranks[task], task))
    children = _children_of(tasks)
    best: VirtualSchedule | None = None
    for chosen in _choices(tasks, slots, children):
        subsets = _subsets(tasks, chosen, children)
        for order in ORDERS:
            made = _scheduled(tasks, slots, subsets, (order, children))
            if best is None or made.length < best.length:
                best = made
    spans = {} if best is None else best.spans
    least = [min(task.times.values()) for task in tasks]
    return sorted(
        range(len(tasks)), key=lambda task: (spans[task][0], -least[task], task)
    )


def _scheduled(
    tasks: Sequence[VirtualTask],
    slots: Sequence[str],
    subsets: dict[str, list[int]],
    how: tuple[str, list[list[int]]],
) -> VirtualSchedule:
    """Place subset after subset: ancestors backwards, others forwards.

    Others go backwards too where the descendants are placed already.
    """
    order, children = how
    made = VirtualSchedule([(name, []) for name in slots])
    for subset in order:
        backwards = subset == "P" or (subset == "O" and order == "TCOP")
        members = subsets[subset]
        for task in reversed(members) if backwards else members:
            times = tasks[task].times
            if backwards:
                starts = [made.spans[c][0] for c in children[task] if c in made.spans]
                made.put_before(task, times, min(starts, default=0.0))
            else:
                ends = [
                    made.spans[p][1] for p in tasks[task].parents if p in made.spans
                ]
                made.put_after(task, times, max(ends, default=0.0))
    return made


def _choices(
    tasks: Sequence[VirtualTask], slots: Sequence[str], children: list[list[int]]
) -> list[frozenset[int]]:
    """List the sets of troublesome tasks to try, with what lies between their members."""
    least = [min(task.times.values()) for task in tasks]
    few = [1.0 - len(task.times) / (len(set(slots)) + 1) for task in tasks]
    found: dict[frozenset[int], None] = {}
    for scores in (least, [a * b for a, b in zip(least, few, strict=True)]):
        most = max(scores)
        for threshold in THRESHOLDS:
            chosen = {t for t, s in enumerate(scores) if s >= threshold * most}
            found[_closed(tasks, chosen, children)] = None
    return list(found)


def _closed(
    tasks: Sequence[VirtualTask], chosen: set[int], children: list[list[int]]
) -> frozenset[int]:
    """Add the tasks on paths between members."""
    below = _reached(chosen, lambda task: children[task])
    above = _reached(chosen, lambda task: tasks[task].parents)
    return frozenset(chosen | (below & above))


def _subsets(
    tasks: Sequence[VirtualTask], chosen: frozenset[int], children: list[list[int]]
) -> dict[str, list[int]]:
    """Split a job into troublesome tasks, their ancestors, descendants and others."""
    below = _reached(chosen, lambda task: children[task]) - chosen
    above = _reached(chosen, lambda task: tasks[task].parents) - chosen
    others = set(range(len(tasks))) - chosen - below - above
    parts = {"T": chosen, "P": above, "C": below, "O": others}
    return {name: sorted(members) for name, members in parts.items()}


def _reached(
    start: Iterable[int], following: Callable[[int], Iterable[int]]
) -> set[int]:
    found: set[int] = set()
    pending = [other for task in start for other in following(task)]
    while pending:
        task = pending.pop()
        if task not in found:
            found.add(task)
            pending += following(task)
    return found


def _children_of(tasks: Sequence[VirtualTask]) -> list[list[int]]:
    children: list[list[int]] = [[] for _ in tasks]
    for number, task in enumerate(tasks):
        for parent in task.parents:
            children[parent].append(number)
    return children


def _upward_ranks(tasks: Sequence[VirtualTask]) -> list[float]:
    ranks = [sum(task.times.values()) / len(task.times) for task in tasks]
    means = list(ranks)
    for number in reversed(range(len(tasks))):
        for parent in tasks[number].parents:
            ranks[parent] = max(ranks[parent], means[parent] + ranks[number])
    return ranks
