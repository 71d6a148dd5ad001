"""The rules by which rollouts go on: the paper's (loesch-2016, III-D) and our own.

They are what the policies of the same names do, in the terms of a rollout.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hetsched.planning.rollout import ARRIVING, LEAVING, NEXT, TINY, Rollout, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetsched.planning.rollout import RolloutRun

SHORT = 0.01
"""Items below this share of a resource's work go first; see `FinishTime.short_share`."""
CAUTION = 2.0
"""An item that goes there and back must save this multiple of the cost."""
LEAST_GAIN = 0.02
"""Share of the time left that a move must save at least."""
DIVISIBLE = 2
"""Strips that an item must have left to be taken for a part of them only."""


class WorkConserving(Rollout):
    """Principles A and B."""

    def decide(self) -> None:
        """Let idle resources take what waits elsewhere."""
        self._fill_idle()

    def _fill_idle(self) -> None:
        """Principle B."""
        while self.waiting_items and any(self.queues) and (idle := self.idle()):
            found = min(self._steals(idle), default=None)
            if found is None:
                return
            self.take(Step(found[1], found[2], rule="B"))

    def _steals(self, idle: list[int]) -> Iterator[tuple[float, int, int]]:
        for other in self.range:
            waiting = self.waiting(other) if self.queues[other] else []
            for i in waiting:
                item = self.items[i]
                if not self.stays(i):
                    for r in idle:
                        if r != other and item.affinities[r] > 0:
                            yield -item.affinities[r], i, r

    def misfits(self, r: int) -> list[RolloutRun]:
        """List what runs on a resource, fits another best, and may leave."""
        items = self.items
        return [
            run
            for run in self.on[r]
            if items[run.item].best != r
            and items[run.item].best >= 0
            and not (run.asked or self.stays(run.item))
        ]

    def may_go(self, i: int, r: int) -> bool:
        """Whether an item may go to a resource: not back where it just came from."""
        return r != self.came_from[i] or self.now >= self.settled[i]

    def opening(self, r: int) -> int:
        """Count the slots that are free or whose items were asked to leave."""
        return self.free[r] + self.leaving[r]


class Migrating(WorkConserving):
    """Principles A to D."""

    def does_as(self, rule: type[Rollout]) -> bool:
        """Whether C and D decided nothing, or nothing decided anything."""
        return super().does_as(rule) or (rule is WorkConserving and not self.preempted)

    def decide(self) -> None:
        """Make way for what fits better, fill idle resources, move to better ones."""
        if self.waiting_items:
            self._make_way_for_better()
            self._fill_idle()
        self._move_to_better()

    def _make_way_for_better(self) -> None:
        """Principle C of loesch-2016."""
        items = self.items
        for r in self.range:
            queue = self.queues[r]
            if not queue:
                continue
            misfits = [
                x for x in self.misfits(r) if self.may_go(x.item, items[x.item].best)
            ]
            if not misfits:
                continue
            misfits.sort(key=lambda run: (items[run.item].affinities[r], run.item))
            taken = max(self.opening(r) - len(self.fronts[r]), 0)
            for i, run in zip(queue[taken:], misfits, strict=False):
                if items[i].affinities[r] <= items[run.item].affinities[r]:
                    break
                best = items[run.item].best
                self.take(Step(run.item, best, preempts=True, makes_way=True, rule="C"))

    def _move_to_better(self) -> None:
        """Principle D."""
        while idle := self.idle():
            found = min(self._moves_to_better(idle), default=None)
            if found is None:
                return
            self.take(Step(found[1], found[2], preempts=True, rule="D"))

    def _moves_to_better(self, idle: list[int]) -> Iterator[tuple[float, int, int]]:
        for here in self.range:
            for run in self.misfits(here) if self.on[here] else ():
                affinities = self.items[run.item].affinities
                for r in idle:
                    gain = affinities[here] - affinities[r]
                    if gain < 0 and self.may_go(run.item, r):
                        yield gain, run.item, r


def _rank(offer: tuple[float, int, int, RolloutRun]) -> tuple[float, int, int]:
    return offer[:3]


class ByEnds(WorkConserving):
    """Ours: moves what ends sooner elsewhere, at the donor or at the taker."""

    def decide(self) -> None:
        """Send helpers' items back, and let idle resources take what ends sooner there."""
        if self.waiting_items and any(self.queues):
            self._send_back()
        while idle := self._helpers():
            waits = self.waiting_items and any(self.queues)
            step = self._best_waiting(idle) if waits else None
            step = step or self._best_running(idle)
            if step is None:
                return
            self.take(step)

    def choose_next(self, r: int) -> int:
        """Take the first of the short items, else the longest."""
        queue = self.queues[r]
        if len(queue) == 1:
            return queue.pop()
        chosen = self._first_of(r)
        if chosen != queue[0]:
            self.plain = False
            if self.now == 0.0:
                self.steps.append(Step(chosen, r, rule=NEXT))
        queue.remove(chosen)
        return chosen

    def waiting(self, r: int) -> list[int]:
        """List the waiting items that free slots do not take next."""
        taken, queue = self.taken(r), self.queues[r]
        if not taken or taken >= len(queue):
            return queue[taken:] if taken else queue
        items = self.items
        longest = sorted(queue, key=lambda i: -items[i].times[r])[:taken]
        return [i for i in queue if i not in longest]

    def _first_of(self, r: int) -> int:
        """Choose among those whose turn it is."""
        queue = self.in_turn(r)
        items, rests = self.items, self.rests
        times = [items[i].times[r] * rests[i] for i in queue]
        short = SHORT * self.dry(r)
        if min(times) >= short:
            return queue[times.index(max(times))]
        return next(i for i, time in zip(queue, times, strict=True) if time < short)

    def _helpers(self) -> list[int]:
        """List the idle resources; one that is shared only if it is empty."""
        if not self.sharing:
            return self.idle()
        shared = self.node.shared
        return [
            r
            for r in self.idle()
            if not shared[r] or not (self.on[r] or self.inbound[r])
        ]

    def _send_back(self) -> None:
        """Send items back to where they fit best when their helper has more to do itself."""
        for r in self.range:
            misfits = self.misfits(r) if self.queues[r] else []
            for run in misfits:
                if len(self.queues[r]) <= max(self.opening(r), 0):
                    break
                if self._is_better_off_back(run):
                    best = self.items[run.item].best
                    self.take(
                        Step(run.item, best, preempts=True, makes_way=True, rule="back")
                    )

    def _is_better_off_back(self, run: RolloutRun) -> bool:
        item, r = self.items[run.item], run.resource
        if not self.may_go(run.item, item.best):
            return False
        cost = self.arriving(run.item, item.best, r) + self._leaving_s(run)
        if self.left(run) <= CAUTION * cost:
            return False
        there = self.rest(run) * item.times[item.best]
        return self.dry(r) > self.dry(item.best) + there + cost

    def _best_waiting(self, idle: list[int]) -> Step | None:
        """Choose what waits at the resource that has most to do, and fits a helper best."""
        offers = [
            (dry, there / max(here, TINY), -i, r)
            for donor in self.range
            if self.queues[donor]
            for waiting in [self.waiting(donor)]
            if waiting
            for dry in [self.dry(donor)]
            for i in waiting
            if not self.stays(i)
            for there in [self.items[i].times[donor] * self.rests[i]]
            for r in idle
            if r != donor
            for here in [self.items[i].times[r] * self.rests[i]]
            if here < math.inf and self._pays(i, r, dry, there)
        ]
        if not offers:
            return None
        _, _, number, r = max(offers)
        return Step(-number, r, rule="help")

    def _pays(self, i: int, r: int, dry: float, there: float) -> bool:
        """Whether a taker ends before the donor would; or does a part that is worth it."""
        item = self.items[i]
        here = item.times[r] * self.rests[i]
        cost = self.arriving(i, r, self.homes[i])
        if here + cost < dry:
            return True
        strips = item.strips[r] * self.rests[i]
        window = dry - there - cost
        if strips < DIVISIBLE or window <= 0:
            return False
        back = item.copies[r] + item.moving + here / strips / 2
        return min(window / here, 1.0) * there > CAUTION * (cost + back)

    def _best_running(self, idle: list[int]) -> Step | None:
        """Choose the running item that gains most by going to an idle resource."""
        offers = []
        shared = self.node.shared
        for run in self.runs:
            donor = run.resource
            times = self.items[run.item].times
            loaded = self.waiting_items > 0 and self._is_loaded(donor)
            # where it is alone, and no other waits, it gains only where it is faster
            most = math.inf if loaded or shared[donor] else times[donor]
            places = [r for r in idle if times[r] < most and r != donor]
            if places and not (run.asked or self.stays(run.item)):
                for gain, r in self._gains_of_moving(run, places, loaded=loaded):
                    offers.append((gain, -run.item, r, run))
        if not offers:
            return None
        _, number, r, run = max(offers, key=_rank)
        donor = run.resource
        way = self._is_loaded(donor) and not self.making_way[donor]
        return Step(-number, r, preempts=True, makes_way=way, rule="sooner")

    def _gains_of_moving(
        self, run: RolloutRun, places: list[int], *, loaded: bool
    ) -> list[tuple[float, int]]:
        """List the seconds that moves save the item, or its donor, where it is enough."""
        i, donor = run.item, run.resource
        times = self.items[i].times
        pace = self.computing[donor] if self.node.shared[donor] else 1
        left, rest, leaving = self.left(run), self.rest(run), self._leaving_s(run)
        least = LEAST_GAIN * left * pace
        found = []
        for r in places:
            if not self.may_go(i, r):
                continue
            move = leaving + self.arriving(i, r, donor)
            moved = move + times[r] * rest
            gain = left * pace - moved
            if gain <= least and loaded:
                gain = min(self.dry(donor) - moved, left - CAUTION * move)
            if gain > least:
                found.append((gain, r))
        return found

    def _is_loaded(self, r: int) -> bool:
        queued = len(self.queues[r]) + len(self.fronts[r])
        return queued > self.opening(r)

    def _leaving_s(self, run: RolloutRun) -> float:
        """Seconds until a run's slot would be free, if it were asked to yield."""
        item, r = self.items[run.item], run.resource
        if run.phase == ARRIVING:
            return run.left + item.copies[r]
        if run.phase == LEAVING:
            return run.left
        rest, strips = self.rest(run), item.strips[r]
        stop = math.floor(rest * strips + 1e-6) / strips
        pace = self.computing[r] if self.node.shared[r] else 1
        return (rest - stop) * item.times[r] * pace + item.copies[r]
