"""The free capacity of a link over time: rates that are constant between instants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hetsched.planning.batch.arrays import Floats

NOTHING = 1e-9
"""Less than this share of a link is rounding."""


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """Rates from each of `times` on; the last one for ever. The first time is 0."""

    times: Floats
    rates: Floats

    @classmethod
    def constant(cls, rate: float) -> Profile:
        return cls(np.zeros(1), np.full(1, rate))

    def at(self, times: Floats) -> Floats:
        """Look up the rates from these instants on."""
        return self.rates[np.searchsorted(self.times, times, side="right") - 1]

    def least(self, other: Profile) -> Profile:
        """Return what both have at each instant."""
        if len(self.times) == len(other.times) == 1:
            return Profile(self.times, np.minimum(self.rates, other.rates))
        times = np.union1d(self.times, other.times)
        return Profile(times, np.minimum(self.at(times), other.at(times)))

    def without(self, pieces: Floats, limit: float) -> Profile:
        """Take the rates of `pieces` away; `limit` is what the whole link carries."""
        times = np.union1d(self.times, pieces[:, :2])
        rates = self.at(times) - _used(pieces, times)
        rates[rates < NOTHING * limit] = 0.0
        keep = np.ones(len(times), dtype=bool)
        keep[1:] = np.abs(np.diff(rates)) > NOTHING * limit
        return Profile(times[keep], rates[keep])

    def opens(self) -> float:
        """Return when there is something left for the first time, in seconds."""
        return float(self.times[int((self.rates > 0).argmax())])

    def amount_by(self, time: float) -> float:
        """Return the data that can be carried from 0 to `time`."""
        edges = np.minimum(np.append(self.times, time), time)
        return float(np.diff(edges) @ self.rates) if time > 0 else 0.0

    def ends(self, sizes: Floats) -> Floats:
        """Return when each of these sizes, alone, would be carried, in seconds."""
        lengths = np.append(np.diff(self.times), np.inf)
        with np.errstate(invalid="ignore"):
            carried = np.cumsum(np.where(self.rates > 0, self.rates * lengths, 0.0))
        last = np.minimum(np.searchsorted(carried, sizes), len(carried) - 1)
        before = np.concatenate([[0.0], carried])[last]
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = self.times[last] + (sizes - before) / self.rates[last]
        return np.where(sizes > 0, ends, 0.0)

    def first(self, size: float) -> Floats:
        """Carry `size` as soon as can be (water-filling); return the pieces."""
        lengths = np.append(np.diff(self.times), np.inf)
        with np.errstate(invalid="ignore"):
            carried = np.cumsum(np.where(self.rates > 0, self.rates * lengths, 0.0))
        last = int(np.searchsorted(carried, size))
        if last == len(carried):
            raise ValueError("a link that is promised away for ever carries nothing")
        before = carried[last - 1] if last else 0.0
        end = self.times[last] + (size - before) / self.rates[last]
        edges = np.append(self.times[: last + 1], end)
        return self._pieces(edges, self.rates[: last + 1])

    def spread(self, size: float, time: float) -> Floats:
        """Carry `size` by exactly `time`, at the same share of all that is left."""
        share = size / self.amount_by(time)
        inside = self.times < time
        edges = np.append(self.times[inside], time)
        return self._pieces(edges, self.rates[inside] * share)

    @staticmethod
    def _pieces(edges: Floats, rates: Floats) -> Floats:
        pieces = np.column_stack([edges[:-1], edges[1:], rates])
        return pieces[(rates > 0) & (pieces[:, 1] > pieces[:, 0])]


def end_through(one: Profile, other: Profile, size: float) -> float:
    """Return when `size` would be carried through both links, in seconds.

    Walks the pieces of both: for the few that links usually have, this takes a tenth of
    the time of `least` and `ends`.
    """
    times, rates = one.times.tolist(), one.rates.tolist()
    others, other_rates = other.times.tolist(), other.rates.tolist()
    i = j = 0
    now = 0.0
    while True:
        rate = min(rates[i], other_rates[j])
        turn = times[i + 1] if i + 1 < len(times) else np.inf
        other_turn = others[j + 1] if j + 1 < len(others) else np.inf
        then = min(turn, other_turn)
        if rate > 0 and (then - now) * rate >= size:
            return float(now + size / rate)
        if then == np.inf:
            return np.inf
        size -= rate * (then - now)
        now = then
        i += turn <= then
        j += other_turn <= then


def _used(pieces: Floats, times: Floats) -> Floats:
    """Rate of the pieces, which do not overlap, from each instant on."""
    edges = np.concatenate([pieces[:, 0], pieces[:, 1]])
    steps = np.concatenate([pieces[:, 2], -pieces[:, 2]])
    order = np.argsort(edges, kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(steps[order])])
    return np.asarray(sums[np.searchsorted(edges[order], times, side="right")])
