"""One roll-out of `lookahead`: jobs are played to their ends in one future.

Tasks go where the rule of `contention-aware` would place them, slow each other down as
their loads come and go, and move by its rule. The load of other programs stays as drawn.
All times are seconds from the present instant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING

# the types of fields are read at run time where this is compiled
from hetsched.planning.crowded_futures import NumberedLoads
from hetsched.planning.outlook import CHECKPOINT_S

if TYPE_CHECKING:
    from hetsched.planning.crowded_futures import (
        Future,
        FutureItem,
        Futures,
        ItemPlace,
        TransferPath,
    )

LOOK = 8
"""Waiting tasks that an instant of a roll-out looks at."""
LEAST = 1e-9
NOWHERE = -1
SLOT = -1
"""In the agenda, instead of the number of an item: a slot is free."""
AGAIN = -2
"""The same: running tasks may move, since the loads of others have become known."""
KNOWN_AFTER_S = 2.0
"""Counters are read this often."""


@dataclass(slots=True)
class PlayedTask:
    """A task in a roll-out.

    Attributes:
        resource: number of where it runs, or `NOWHERE`; after its end where it ran.
        rest: seconds of it, alone, that are left at `since`; `whole`: of all of it.
        begun: instant at which it came to its resource.
        pause: seconds from `since` until it computes: a program or a state is loaded.
        version: of its end in the agenda.
        frees: whether its end frees a slot: others have a claim on some.

    """

    moved: int
    unmet: int
    resource: int = NOWHERE
    loads: NumberedLoads = ()
    rest: float = 0.0
    whole: float = 0.0
    begun: float = -math.inf
    pause: float = 0.0
    slowdown: float = 1.0
    since: float = 0.0
    end: float = math.inf
    version: int = 0
    frees: bool = True

    def left_at(self, now: float) -> float:
        """Return the seconds alone that are left."""
        passed = now - self.since - self.pause
        return max(self.rest - max(passed, 0.0) / self.slowdown, 0.0)

    def advance(self, now: float) -> None:
        """Let it compute until now."""
        self.rest = self.left_at(now)
        self.pause = max(self.pause - (now - self.since), 0.0)
        self.since = now


@dataclass(frozen=True, slots=True)
class PlayedStart:
    """A start on a resource that was found for a task.

    Attributes:
        wait: seconds until a slot is free; `duration`: seconds from then to its end.
        alone: seconds of its rest alone, with its transfers; `pause`: before it computes.
        share: of the task that is left.

    """

    resource: int
    wait: float
    duration: float
    alone: float
    loads: NumberedLoads
    pause: float
    share: float


class Play:
    """A roll-out.

    Args:
        futures: what is played.
        future: the loads of others.
        forced: item -> resource that it goes to.
        least_gain: of moves, as of `contention-aware`; 0: none.

    Attributes:
        finishes: end of each job.

    """

    def __init__(
        self,
        futures: Futures,
        future: Future,
        forced: dict[int, int],
        least_gain: float,
    ) -> None:
        self._futures = futures
        self._machine = futures.machine
        self._items = futures.items
        self._future = future
        self._pace_of = future.pace
        self._forced = forced
        self._least_gain = least_gain
        self.now = 0.0
        self.finishes = [0.0] * len(futures.work_left)
        self._work = list(futures.work_left)
        self._demand = list(self._machine.demand)
        self._pace = [future.pace(s, own) for s, own in enumerate(self._demand)]
        self._users: list[list[int]] = [[] for _ in self._demand]
        self._free = list(self._machine.slots)
        self._busy: list[list[int]] = [[] for _ in self._free]
        self._reserved: dict[int, list[float]] = {}
        """Ends of tasks that wait for a resource, at one instant."""
        self._programs = dict(self._machine.programs)
        self._tasks = [PlayedTask(x.moves.made, x.unmet) for x in self._items]
        self._agenda: list[tuple[float, int, int]] = []
        """A heap of (instant, item or `SLOT`, version or resource)."""
        self._ready: list[int] = []
        self._begin()

    def play(self) -> float:
        """Play until nothing runs any more; return the sum of the jobs' ends."""
        self._go_on()
        agenda = self._agenda
        while agenda:
            at, i, version = heappop(agenda)
            if i == SLOT:
                self.now = at
                self._free[version] += 1
            elif i == AGAIN:
                self.now = at
            elif version == self._tasks[i].version:
                self.now = at
                self._finish(i)
            else:
                continue
            if not (agenda and agenda[0][0] <= at):
                self._go_on()
        return sum(self.finishes)

    def _go_on(self) -> None:
        """Start and move tasks at one instant."""
        if self._ready:
            self._start_ready()
        if self._least_gain:
            self._move_running()

    # ------------------------------------------------------------ tasks come and go

    def _begin(self) -> None:
        """Enter what runs at the present instant: its loads are known already."""
        for resource, free in self._futures.blocked.items():
            self._free[resource] = sum(at <= 0.0 for at in free)
            for at in free:
                if 0.0 < at < math.inf:  # of tasks that are not played: only the slot
                    heappush(self._agenda, (at, SLOT, resource))
        for i, (item, task) in enumerate(zip(self._items, self._tasks, strict=True)):
            if item.running is None:
                if not task.unmet:
                    self._ready.append(i)
                continue
            place, task.rest = item.running
            task.whole = place.alone
            task.frees = place.resource not in self._futures.blocked
            self._free[place.resource] -= task.frees
            self._sit(i, place.resource, place.loads)
            self._expect_end(i)
        heappush(self._agenda, (KNOWN_AFTER_S, AGAIN, 0))

    def _sit(self, i: int, resource: int, loads: NumberedLoads) -> None:
        task = self._tasks[i]
        task.resource, task.loads = resource, loads
        self._busy[resource].append(i)
        for shared, _, _ in loads:
            self._users[shared].append(i)

    def _start(self, i: int, found: PlayedStart) -> None:
        task = self._tasks[i]
        task.rest, task.pause, task.frees = found.alone, found.pause, True
        task.begun = task.since = self.now
        task.whole = found.alone / max(found.share, LEAST)
        self._free[found.resource] -= 1
        self._change_load(found.loads, 1.0)
        self._sit(i, found.resource, found.loads)
        self._expect_end(i)
        if found.resource in self._programs:
            self._programs[found.resource] = self._items[i].app

    def _leave(self, i: int) -> None:
        task = self._tasks[i]
        self._busy[task.resource].remove(i)
        self._free[task.resource] += task.frees
        for shared, _, _ in task.loads:
            self._users[shared].remove(i)
        task.version += 1
        self._change_load(task.loads, -1.0)

    def _finish(self, i: int) -> None:
        item = self._items[i]
        self.finishes[item.job] = self.now
        self._work[item.job] -= item.least
        self._leave(i)
        for child in item.children:
            task = self._tasks[child]
            task.unmet -= 1
            if not task.unmet:
                self._ready.append(child)

    def _change_load(self, loads: NumberedLoads, sign: float) -> None:
        """Add or remove loads; those who share the resources go on at another pace."""
        affected: set[int] = set()
        for shared, demand, _ in loads:
            own = self._demand[shared] + sign * demand
            self._demand[shared] = own
            pace = self._pace_of(shared, own)
            if pace != self._pace[shared]:
                self._pace[shared] = pace
                affected.update(self._users[shared])
        for i in sorted(affected):
            self._tasks[i].advance(self.now)
            self._expect_end(i)

    def _expect_end(self, i: int) -> None:
        task, slowdown = self._tasks[i], 1.0
        for shared, _, bound in task.loads:
            slowdown += bound * (self._pace[shared] - 1.0)
        task.slowdown = slowdown
        task.version += 1
        task.end = task.since + task.pause + task.rest * slowdown
        heappush(self._agenda, (task.end, i, task.version))

    # ------------------------------------------------------------ starts

    def _start_ready(self) -> None:
        """Start what costs least where a slot is free; others reserve theirs."""
        if not any(free > 0 for free in self._free):
            return
        items, work = self._items, self._work
        self._ready.sort(key=lambda i: (work[items[i].job], -items[i].rank, i))
        left = self._ready[LOOK:]
        waiting = []
        self._reserved = {}
        for i in self._ready[:LOOK]:
            found = self._best(i)
            if found is None:
                continue  # nowhere, in this future
            if found.wait <= 0.0:
                self._start(i, found)
            else:
                end = self.now + found.wait + found.duration
                self._reserved.setdefault(found.resource, []).append(end)
                waiting.append(i)
        self._ready = waiting + left

    def _best(self, i: int) -> PlayedStart | None:
        """Return the start of least cost: its end, and the harm to others."""
        item, forced = self._items[i], self._forced.get(i)
        best, found = math.inf, None
        for whole, place in self._future.ranked(i, item):
            least = whole * item.rest
            if forced is None:
                if least >= best:
                    break  # beside no own task it would end later
            elif place.resource != forced:
                continue
            wait = self._wait(place.resource)
            if wait + least >= best:
                continue
            inputs = self._inputs(item, place.resource) if item.inputs else []
            if wait + least + sum(size * path[0] for size, path in inputs) < best:
                start, harm = self._on(item, place, wait, inputs)
                cost = wait + start.duration + harm
                if cost < best:
                    best, found = cost, start
        return found

    def _wait(self, resource: int) -> float:
        """Return the seconds until a slot is free that no task has reserved."""
        reserved = self._reserved.get(resource, ())
        if self._free[resource] > len(reserved):
            return 0.0
        if resource in self._futures.blocked:
            ends = [at for at in self._futures.blocked[resource] if at > self.now]
        else:
            ends = [self._tasks[i].end for i in self._busy[resource]]
        ends = sorted([*ends, *reserved])
        # each reservation takes the slot that is free first
        skipped = len(reserved) - max(self._free[resource], 0)
        return ends[skipped] - self.now if skipped < len(ends) else math.inf

    def _inputs(
        self, item: FutureItem, resource: int
    ) -> list[tuple[int, TransferPath]]:
        """Return the bytes of inputs that are elsewhere, and their paths."""
        found = []
        for source, size in item.inputs:
            where = self._tasks[source].resource if isinstance(source, int) else source
            if size and where != resource:
                found.append((size, self._machine.path(where, resource)))
        return found

    def _on(
        self,
        item: FutureItem,
        place: ItemPlace,
        wait: float,
        inputs: list[tuple[int, TransferPath]],
    ) -> tuple[PlayedStart, float]:
        """Return a start on a resource, and the seconds by which others take longer."""
        alone, loads = place.alone * item.rest, place.loads
        if inputs:
            alone, loads = _with_transfers(alone, loads, inputs)
        pause = self._reloading(item, place.resource)
        slowdown = 1.0
        slower: list[tuple[int, float, float]] = []
        for shared, demand, bound in loads:
            pace = self._pace_of(shared, self._demand[shared] + demand)
            slowdown += bound * (pace - 1.0)
            if self._users[shared] and pace > self._pace[shared]:
                slower.append((shared, pace - self._pace[shared], bound))
        duration = pause + alone * slowdown
        harm = 0.0
        for shared, more, bound in slower:
            most = duration * (
                1.0 + bound
            )  # they are slowed down for as long as it runs
            harm += more * min(self._sensitive(shared), most)
        start = PlayedStart(
            place.resource, wait, duration, alone, loads, pause, item.rest
        )
        return start, harm

    def _reloading(self, item: FutureItem, resource: int) -> float:
        loaded = self._programs.get(resource, item.app)
        return 0.0 if loaded == item.app else self._machine.reconfigure[resource]

    def _sensitive(self, shared: int) -> float:
        """Return the seconds alone of running tasks that are bound to a shared resource."""
        return sum(
            bound * self._tasks[i].rest
            for i in self._users[shared]
            for used, _, bound in self._tasks[i].loads
            if used == shared
        )

    # ------------------------------------------------------------ moves

    def _move_running(self) -> None:
        """Move tasks to free slots where they end sooner, by the rule of the policy."""
        running = [i for busy in self._busy for i in busy]
        for i in running:
            task = self._tasks[i]
            may = task.moved < self._items[i].moves.most
            if may and task.begun < self.now and task.pause <= 0.0:
                found = self._better(i, task)
                if found is not None:
                    self._leave(i)
                    task.moved += 1
                    self._start(i, found)

    def _share(self, i: int, task: PlayedTask) -> float:
        """Return the share of a running task that is left."""
        return min(task.left_at(self.now) / max(task.whole, LEAST), self._items[i].rest)

    def _better(self, i: int, task: PlayedTask) -> PlayedStart | None:
        """Return the move of a running task that saves most; None: it stays."""
        item, moves = self._items[i], self._items[i].moves
        left, share = task.end - self.now, self._share(i, task)
        until = CHECKPOINT_S
        if moves.strip:
            until = left * min(moves.strip / max(share, LEAST), 1.0)
        margin = left * (1.0 - self._least_gain * 2.0**task.moved)
        margin -= until + moves.seconds
        links = self._machine.links
        saved, found = 0.0, None
        for least, place in self._future.ranked(i, item):
            if least * share >= margin - saved:
                break
            there = place.resource
            taken = self._free[there] <= 0 or there == task.resource
            if taken or self._machine.shuns[there]:
                continue
            start = self._moved_to(place, share, item, until)
            state = moves.state * (links[task.resource] + links[there])
            gain = margin + until + moves.seconds - start.duration - state
            if gain > saved:
                saved, found = gain, replace(start, pause=start.pause + state)
        return found

    def _moved_to(
        self, place: ItemPlace, share: float, item: FutureItem, until: float
    ) -> PlayedStart:
        """Return the start of a moved task, its checkpoint included."""
        slowdown = 1.0
        for shared, demand, bound in place.loads:
            pace = self._pace_of(shared, self._demand[shared] + demand)
            slowdown += bound * (pace - 1.0)
        pause = until + item.moves.seconds + self._reloading(item, place.resource)
        alone = place.alone * share
        duration = pause + alone * slowdown
        return PlayedStart(
            place.resource, 0.0, duration, alone, place.loads, pause, share
        )


def _with_transfers(
    alone: float, loads: NumberedLoads, inputs: list[tuple[int, TransferPath]]
) -> tuple[float, NumberedLoads]:
    """Return the seconds of a task alone with its transfers, and the loads of both."""
    seconds: dict[int, float] = {}
    for size, (_, paces) in inputs:
        for shared, pace in paces:
            seconds[shared] = seconds.get(shared, 0.0) + size * pace
    whole = alone + sum(seconds.values())
    if whole <= 0.0 or not seconds:
        return alone, loads
    share = alone / whole
    found = [(s, demand * share, bound * share) for s, demand, bound in loads]
    found += [(s, each / whole, each / whole) for s, each in seconds.items()]
    return whole, tuple(found)
