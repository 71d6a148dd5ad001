"""Episodes: scenarios of a family under a network that is being trained.

An episode depends on its order alone, so that several processes give what one gives.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from hetsched.planning.learned.placing import NetworkRule, highest
from hetsched.policies import make_policy
from hetsched.system import SECOND
from hetsim.learning.batch import RecordedStep
from hetsim.result import job_results
from hetsim.simulation import Simulation
from hetsim.workload import expected_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hetsched.events import Event
    from hetsched.ids import Nanoseconds
    from hetsched.planning.learned.decision import DecisionInput
    from hetsched.planning.learned.network import Floats
    from hetsched.planning.learned.weights import Weights
    from hetsched.policy import Decision, Policy
    from hetsched.system import System
    from hetsim.learning.family import Family
    from hetsim.scenario import Scenario

REWARD_SCALE = 0.1
LEAST_GAIN = 0.1
"""Of moves, as in the policy by default."""


@dataclass(frozen=True, slots=True)
class EpisodeOrder:
    """An episode that is to be run.

    Attributes:
        seed: of the draw, of other programs' loads, and of choices.
        rule_share: probability with which a choice is that of `contention-aware`.

    """

    seed: str
    rule_share: float = 0.0


@dataclass(slots=True)
class Episode:
    """An episode that was run.

    Attributes:
        rewards: of each decision: minus the sum, over the jobs that are not done, of the
            time until the next decision over the job's critical path.
        slowdown: mean of the jobs' completion times over their critical paths.

    """

    steps: list[RecordedStep] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    slowdown: float = 0.0


class Recorder:
    """A policy that draws its choices and records its decisions."""

    def __init__(self, weights: Weights, order: EpisodeOrder) -> None:
        self.steps: list[RecordedStep] = []
        self._random = random.Random(f"choices {order.seed}")
        self._rule_share = order.rule_share
        self._rule = NetworkRule(weights, LEAST_GAIN, self._choose)

    def react(
        self, event: Event, system: System, now: Nanoseconds
    ) -> Iterator[Decision]:
        yield from self._rule.decide(event, system)

    def _choose(self, seen: DecisionInput, scores: Floats, now: Nanoseconds) -> int:
        choice = self._drawn(scores)
        if seen.rule == len(seen.pairs) and not seen.may_wait:
            seen.rule = choice  # where it may not wait, the rule advises nothing
        if self._rule_share and self._random.random() < self._rule_share:
            choice = seen.rule
        self.steps.append(RecordedStep(seen, choice, now / SECOND))
        return choice

    def _drawn(self, scores: Floats) -> int:
        chances = np.exp(scores - scores.max())
        bounds = np.cumsum(chances)
        drawn = self._random.random() * bounds[-1]
        found = int(np.searchsorted(bounds, drawn, side="right"))
        return min(found, int(np.flatnonzero(chances)[-1]))


class Greedy:
    """A policy that takes the highest score."""

    def __init__(self, weights: Weights) -> None:
        self._rule = NetworkRule(weights, LEAST_GAIN, highest)

    def react(
        self, event: Event, system: System, now: Nanoseconds
    ) -> Iterator[Decision]:
        yield from self._rule.decide(event, system)


def run_episode(family: Family, weights: Weights, order: EpisodeOrder) -> Episode:
    """Run an episode, with choices drawn by the network's scores."""
    recorder = Recorder(weights, order)
    simulation = _run(family.draw(order.seed), recorder, order.seed)
    episode = Episode(recorder.steps)
    jobs = [
        (job.arrival, job.finish or job.arrival, job.critical_path)
        for job in job_results(simulation.jobs)
    ]
    end = max((finish for _, finish, _ in jobs), default=0.0)
    instants = [*(step.at for step in episode.steps), end]
    for begin, until in pairwise(instants):
        whole = sum(
            max(min(finish, until) - max(arrival, begin), 0.0) / max(path, 1e-9)
            for arrival, finish, path in jobs
        )
        episode.rewards.append(-REWARD_SCALE * whole)
    episode.slowdown = _slowdown(simulation)
    return episode


def slowdown_under(family: Family, seed: str, make: Callable[[], Policy]) -> float:
    """Return the mean slowdown of a draw's jobs under a policy."""
    return _slowdown(_run(family.draw(seed), make(), seed))


def slowdown_of_policy(family: Family, seed: str, name: str) -> float:
    """Return the mean slowdown of a draw's jobs under a policy by its name."""
    return slowdown_under(family, seed, lambda: make_policy(name, {}))


def slowdown_of_weights(family: Family, seed: str, weights: Weights) -> float:
    """Return the mean slowdown of a draw's jobs under the highest scores."""
    return slowdown_under(family, seed, lambda: Greedy(weights))


def _run(scenario: Scenario, policy: Policy, seed: str) -> Simulation:
    number = random.Random(f"world {seed}").getrandbits(31)
    simulation = Simulation(scenario, policy, expected_seconds(scenario), seed=number)
    simulation.run()
    return simulation


def _slowdown(simulation: Simulation) -> float:
    found = [job.slowdown for job in job_results(simulation.jobs)]
    known = [slowdown for slowdown in found if slowdown is not None]
    return sum(known) / len(known) if known else 0.0
