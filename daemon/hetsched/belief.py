"""The filter: how much load other programs offer to each shared resource of the node.

The load is on one of a few levels, drawn again now and then (a hidden Markov chain); the
probabilities are exact: the prior spreads over time, and each counter multiplies them by the
likelihood of what it showed. Any subset of counters will do, none included.

Equation numbers are those of Banerjee et al., "Inductive Bias-driven Reinforcement Learning
For Efficient Schedules in Heterogeneous Clusters".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from hetsched.contention import slowdown_at_capacity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from hetsched.contention import ContentionModel, Loads
    from hetsched.events import CounterReading
    from hetsched.ids import Nanoseconds

NANOSECONDS = 1e9
LEAST_DEVIATION = 1e-6
"""Counters that show exactly the same in all samples are not trusted more than this."""
LEAST_PROBABILITY = 1e-9
"""No level is ruled out for good: a wrong model must not end in 0 / 0."""
LEAST_SAMPLES = 2
LEAST_STALLS, MOST_STALLS = 0.1, 0.7
"""Without a filter: stalls below are taken for noise, and none are believed above."""
MOST_RAW_STALLS = 0.95
"""Of counters as they are: a load stays finite."""


def bandwidth(load: float) -> float:
    """Return the share of a resource's capacity that is used at an offered load."""
    return min(1.0, load)


def stall(load: float) -> float:
    """Return the share of time that tasks wait for a resource at an offered load."""
    return 1.0 - 1.0 / max(1.0, load)


def offered(load: float) -> float:
    """Return the offered load itself: a kernel shows it for its cores, no hardware does."""
    return load


def waiting(load: float) -> float:
    """Return the share of time in which some task waits for a resource.

    None does up to its capacity; one always does from a quarter above it.
    """
    return min(1.0, max(0.0, 4.0 * (load - 1.0)))


COUNTERS: dict[str, Callable[[float], float]] = {
    "bandwidth": bandwidth,
    "stall": stall,
    "offered": offered,
    "waiting": waiting,
}
"""Name of each counter, and what it shows at an offered load."""


class Belief:
    """Probabilities of the levels of other programs' load on each shared resource."""

    def __init__(self, model: ContentionModel) -> None:
        tenants = model.tenants
        whole = sum(tenants.weights)
        self.prior = [weight / whole for weight in tenants.weights]
        self.mean_s = tenants.mean_s
        self.law = model.law
        self.levels = {
            name: tenants.levels_of(each.kind) for name, each in model.shared.items()
        }
        self._probabilities = {name: list(self.prior) for name in model.shared}
        self._at: dict[str, Nanoseconds] = dict.fromkeys(model.shared, 0)
        self._known: dict[tuple[str, float], tuple[float, float]] = {}
        """Moments at the instant `_known_at`: policies ask for the same ones repeatedly."""
        self._known_at: Nanoseconds = 0

    def probabilities(self, shared: str, now: Nanoseconds) -> list[float]:
        """Return the probability of each level at an instant."""
        found, at = self._probabilities[shared], self._at[shared]
        if now > at:
            self._at[shared] = now
            kept = math.exp(-((now - at) / NANOSECONDS) / self.mean_s)
            drawn = 1.0 - kept
            found = self._probabilities[shared] = [
                kept * p + drawn * q
                for p, q in zip(found, self.prior)  # noqa: B905  the same lengths, in the innermost loop
            ]
        return found

    def read(self, reading: CounterReading, own: float, now: Nanoseconds) -> None:
        """Take in a counter; `own`: load of the tasks that run, which is known.

        The true value follows a Student-t distribution around the mean of the samples
        (equation 6). Readings that say nothing are ignored.
        """
        shows = COUNTERS.get(reading.counter)
        if shows is None or reading.shared not in self.levels:
            return
        if reading.samples < LEAST_SAMPLES or not math.isfinite(reading.mean):
            return
        deviation = max(reading.deviation, LEAST_DEVIATION)
        error = deviation / math.sqrt(reading.samples)
        freedom = reading.samples - 1
        self._multiply(
            reading.shared,
            now,
            [
                (1.0 + ((reading.mean - shows(own + level)) / error) ** 2 / freedom)
                ** (-reading.samples / 2)
                for level in self.levels[reading.shared]
            ],
        )

    def take_in_progress(
        self,
        loads: Loads,
        demand: Mapping[str, float],
        factor: float,
        noise: float,
        now: Nanoseconds,
    ) -> None:
        """Take in by which factor a task took longer than expected alone.

        It depends on several resources. For each of them the others are taken at their
        mean, and their variance is added to that of the noise (moment matching).

        Args:
            loads: of the task.
            demand: load of the tasks that run on each shared resource, its own included.
            factor: time taken / time expected alone.
            noise: relative standard deviation of the expectation.
            now: the present instant.

        """
        moments = {
            load.shared: self._moments(load.shared, demand.get(load.shared, 0.0), now)
            for load in loads
        }
        mean = 1.0 + sum(x.bound * (moments[x.shared][0] - 1.0) for x in loads)
        variance = sum(x.bound**2 * moments[x.shared][1] for x in loads)
        for load in loads:
            if load.bound <= 0.0:
                continue
            own_mean, own_variance = moments[load.shared]
            rest = mean - load.bound * own_mean
            spread = variance - load.bound**2 * own_variance + (noise * factor) ** 2
            own = demand.get(load.shared, 0.0)
            self._multiply(
                load.shared,
                now,
                [
                    math.exp(
                        -((factor - rest - load.bound * self.law(own + level)) ** 2)
                        / (2.0 * spread)
                    )
                    for level in self.levels[load.shared]
                ],
            )

    def slowdown(self, shared: str, own: float, now: Nanoseconds) -> float:
        """Return the expectation of g(own + load of others) of a shared resource."""
        return self._moments(shared, own, now)[0]

    def expected_level(self, shared: str, now: Nanoseconds) -> float:
        """Return the expected load of other programs on a shared resource."""
        probabilities = self.probabilities(shared, now)
        return sum(
            p * level
            for p, level in zip(probabilities, self.levels[shared], strict=True)
        )

    def _moments(
        self, shared: str, own: float, now: Nanoseconds
    ) -> tuple[float, float]:
        """Return mean and variance of g(own + load of others)."""
        if now != self._known_at:
            self._known.clear()
            self._known_at = now
        found = self._known.get((shared, own))
        if found is None:
            found = self._known[shared, own] = self._compute(shared, own, now)
        return found

    def _compute(
        self, shared: str, own: float, now: Nanoseconds
    ) -> tuple[float, float]:
        law = self.law
        mean = square = 0.0
        at_capacity = law is slowdown_at_capacity  # written out: it is the usual one
        probabilities = self.probabilities(shared, now)
        for p, level in zip(probabilities, self.levels[shared]):  # noqa: B905  the same lengths, in the innermost loop
            value = own + level
            if not at_capacity:
                value = law(value)
            elif value < 1.0:
                value = 1.0
            part = p * value
            mean += part
            square += part * value
        return mean, max(square - mean * mean, 0.0)

    def _multiply(
        self, shared: str, now: Nanoseconds, likelihoods: Iterable[float]
    ) -> None:
        self._known.clear()
        probabilities = self.probabilities(shared, now)
        joint = [p * q for p, q in zip(probabilities, likelihoods, strict=True)]
        whole = sum(joint)
        if not 0.0 < whole < math.inf:
            return
        floored = [max(p / whole, LEAST_PROBABILITY) for p in joint]
        whole = sum(floored)
        self._probabilities[shared] = [p / whole for p in floored]


class LastReadings(Belief):
    """The counters as they were read last, without a filter: for comparisons.

    The load is that which the last readings show: 1 / (1 - stalls) where there are stalls,
    else the bandwidth; nothing is known of a shared resource before its first reading.
    """

    least_stalls: ClassVar[float] = LEAST_STALLS
    most_stalls: ClassVar[float] = MOST_STALLS

    def __init__(self, model: ContentionModel) -> None:
        super().__init__(model)
        self._read: dict[tuple[str, str], float] = {}
        self._others: dict[str, float] = {}

    def read(self, reading: CounterReading, own: float, now: Nanoseconds) -> None:
        """Take the mean of the samples for the true value."""
        if reading.shared not in self.levels or not math.isfinite(reading.mean):
            return
        self._known.clear()
        self._read[reading.shared, reading.counter] = reading.mean
        used = self._read.get((reading.shared, "bandwidth"), 0.0)
        stalls = self._read.get((reading.shared, "stall"), 0.0)
        load = max(used, 0.0)
        if stalls > self.least_stalls:
            load = max(load, 1.0 / (1.0 - min(stalls, self.most_stalls)))
        self._others[reading.shared] = max(load - own, 0.0)

    def take_in_progress(
        self,
        loads: Loads,
        demand: Mapping[str, float],
        factor: float,
        noise: float,
        now: Nanoseconds,
    ) -> None:
        """Learn nothing from progress."""

    def _compute(
        self, shared: str, own: float, now: Nanoseconds
    ) -> tuple[float, float]:
        return self.law(own + self._others.get(shared, 0.0)), 0.0


class RawReadings(LastReadings):
    """The counters as they are, noise and all: no stall is too small or too large."""

    least_stalls: ClassVar[float] = 0.0
    most_stalls: ClassVar[float] = MOST_RAW_STALLS


BELIEFS: dict[str, type[Belief]] = {
    "filter": Belief,
    "last": LastReadings,
    "raw": RawReadings,
}
"""Name in scenarios -> class of the belief."""


def belief_of(model: ContentionModel) -> Belief:
    """Return the belief that a model asks for."""
    return BELIEFS[model.belief](model)
