"""An interior-point method for the makespan program with few columns a job.

    minimise T   where   sum over c of job i:      x_c = 1
                         sum over c on machine j:  e_c x_c + s_j = T - free_j
                         x, s >= 0

Each job's row meets only its own columns, so the jobs are eliminated by hand and each
step solves one dense system, machines by machines (the Schur complement). Start and
steps are feasible on both sides: the gap between T and the dual value is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

if TYPE_CHECKING:
    from hetsched.planning.batch.arrays import Floats, Ints

MOST_STEPS = 40
STEP_SHARE = 0.995
"""Steps end so close to the border, as a share of the way to it."""


@dataclass(slots=True)
class Point:
    """The state of the method.

    Attributes:
        shares: x, (jobs, columns).
        slacks: s, (machines,), seconds.
        time: T, seconds.
        values: dual of the jobs' rows, (jobs,), seconds.
        prices: dual of the machines' rows, (machines,); they sum to 1.
        excess: p_j e_c - u_i of each column, (jobs, columns); the dual slack.

    """

    shares: Floats
    slacks: Floats
    time: float
    values: Floats
    prices: Floats
    excess: Floats

    def gap(self) -> float:
        """Complementarity: T minus the dual value, in seconds."""
        columns = float(np.vdot(self.shares, self.excess))
        return columns + float(self.slacks @ self.prices)


class Interior:
    """The program: seconds of each column and the machine it is on, both (jobs, columns)."""

    def __init__(self, seconds: Floats, machines: Ints, free_at: Floats) -> None:
        self.seconds = seconds
        self.machines = machines
        self.free_at = free_at
        self._count = len(free_at)
        self._flat = machines.ravel()
        width = seconds.shape[1]
        self._left, self._right = np.triu_indices(width, 1)
        pairs = machines[:, self._left] * self._count + machines[:, self._right]
        self._pairs = pairs.ravel()

    def solve(self, prices: Floats, accuracy: float) -> Point:
        """Go on from these prices until the gap is within this share of T."""
        point = self._start(prices)
        for _ in range(MOST_STEPS):
            if point.gap() <= accuracy * point.time:
                break
            try:
                self._step(point)
            except LinAlgError:
                break  # too ill-conditioned to go on; the point is still feasible
        return point

    def _start(self, prices: Floats) -> Point:
        shares = np.full(self.seconds.shape, 1.0 / self.seconds.shape[1])
        loads = self._by_machine(self.seconds * shares) + self.free_at
        time = 1.2 * float(loads.max())
        prices = np.maximum(prices, 0.1 / len(prices))
        prices = prices / prices.sum()
        costs = prices[self.machines] * self.seconds
        # jobs that take no time at all need room below their cost, too
        room = 0.2 * costs.mean() + 1e-3 * time / len(costs)
        values = costs.min(axis=1) - room
        excess = costs - values[:, None]
        return Point(shares, time - loads, time, values, prices, excess)

    def _by_machine(self, amounts: Floats) -> Floats:
        sums = np.bincount(self._flat, amounts.ravel(), self._count)
        return sums.astype(np.float64, copy=False)

    def _step(self, point: Point) -> None:
        """Take one predictor-corrector step (Mehrotra)."""
        system = _System(self, point)
        count = point.shares.size + self._count
        now = point.gap() / count
        zero = -point.shares * point.excess
        guess = system.direction(zero, -point.slacks * point.prices)
        ahead = _moved(point, guess, *_lengths(point, guess, 1.0))
        aim = now * (ahead.gap() / count / now) ** 3
        second = aim + zero - guess.shares * guess.excess
        third = aim - point.slacks * point.prices - guess.slacks * guess.prices
        chosen = system.direction(second, third)
        reached = _moved(point, chosen, *_lengths(point, chosen, STEP_SHARE))
        for name in Point.__slots__:
            setattr(point, name, getattr(reached, name))


class _System:
    """The Newton system at a point, factored once and solved twice."""

    def __init__(self, program: Interior, point: Point) -> None:
        self.program = program
        self.point = point
        self.weights = point.shares / point.excess
        self.loads = self.weights * program.seconds
        self.sums = self.weights.sum(axis=1)
        self._factor = cho_factor(self._complement(), check_finite=False)
        ones = np.ones(len(point.prices))
        self._along = cho_solve(self._factor, ones, check_finite=False)

    def _complement(self) -> Floats:
        program, count = self.program, len(self.point.prices)
        scaled = self.loads / self.sums[:, None]
        own = self.loads * (program.seconds - scaled)
        diagonal = program._by_machine(own) + self.point.slacks / self.point.prices  # noqa: SLF001  same module
        products = scaled[:, program._left] * self.loads[:, program._right]  # noqa: SLF001  same module
        cross = np.bincount(program._pairs, products.ravel(), count * count)  # noqa: SLF001  same module
        upper = cross.reshape(count, count).astype(np.float64)
        complement = -(upper + upper.T)
        complement[np.diag_indices(count)] += diagonal
        return complement

    def direction(self, columns: Floats, slacks: Floats) -> Point:
        """Solve for given complementarity residuals of the columns and the slacks."""
        program, point = self.program, self.point
        target = columns / point.excess
        behind = -target.sum(axis=1) / self.sums
        shifted = program._by_machine(  # noqa: SLF001  same module
            program.seconds * target + self.loads * behind[:, None]
        )
        plain = cho_solve(
            self._factor, shifted + slacks / point.prices, check_finite=False
        )
        time = float(plain.sum() / self._along.sum())
        prices = plain - self._along * time
        costs = program.seconds * prices[program.machines]
        values = behind + (self.weights * costs).sum(axis=1) / self.sums
        excess = costs - values[:, None]
        shares = target - self.weights * excess
        held = (slacks - point.slacks * prices) / point.prices
        return Point(shares, held, time, values, prices, excess)


def _lengths(point: Point, way: Point, share: float) -> tuple[float, float]:
    """Return the greatest step along `way`, on the primal and on the dual side."""
    primal = min(_room(point.shares, way.shares), _room(point.slacks, way.slacks))
    dual = min(_room(point.excess, way.excess), _room(point.prices, way.prices))
    return min(1.0, share * primal), min(1.0, share * dual)


def _room(values: Floats, change: Floats) -> float:
    ratio = float((change / values).min())
    return -1.0 / ratio if ratio < 0 else np.inf


def _moved(point: Point, way: Point, primal: float, dual: float) -> Point:
    return Point(
        point.shares + primal * way.shares,
        point.slacks + primal * way.slacks,
        point.time + primal * way.time,
        point.values + dual * way.values,
        point.prices + dual * way.prices,
        point.excess + dual * way.excess,
    )
