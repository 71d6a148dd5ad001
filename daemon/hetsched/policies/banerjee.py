"""The policies around Banerjee et al.: `contention-aware`, and the paper's baselines.

`docs/papers/banerjee.md` compares what they do with the paper's figures, and says how each
baseline is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hetsched.planning.baselines_of_graphs import graphene, heft, paragon
from hetsched.planning.crowded_rule import CrowdedRule, LookaheadRule
from hetsched.planning.probing import launches
from hetsched.policy import Place, Wake
from hetsched.system import SECOND
from libtask.errors import BugError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hetsched.events import Event
    from hetsched.ids import Nanoseconds
    from hetsched.planning.learned.placing import NetworkRule
    from hetsched.policy import Decision
    from hetsched.system import System

RULE_HEFT = "by upward rank: it is expected to end soonest there"
RULE_GRAPHENE = "troublesome tasks of a job go first, then those that fit what is free"
RULE_SPARROW = "it probed this resource, which is free first"
RULE_PARAGON = "the quickest free resource for it with little interference"

LOOK_AGAIN_S = 1.0

MOST_FUTURES = 64
"""More would make one decision take too long."""


@dataclass(frozen=True, slots=True)
class ContentionAware:
    """Earliest expected end where others slow tasks down: waits, and leaves crowded places.

    Attributes:
        look: waiting tasks that one reaction considers.
        harm_weight: weight of the seconds by which running tasks take longer.
        least_gain: a move must save this share of the time left, twice that with each
            move that the task has made; 0: no task moves.

    """

    uses_belief: ClassVar[bool] = True

    look: int = 32
    harm_weight: float = 1.0
    least_gain: float = 0.1

    def react(
        self, event: Event, system: System, now: Nanoseconds
    ) -> Iterator[Decision]:
        """Place what should start now; move what should leave its place."""
        rule = CrowdedRule(self.look, self.harm_weight, self.least_gain)
        yield from rule.decide(system)


@dataclass(frozen=True, slots=True)
class Lookahead:
    """`contention-aware`, its first choices compared by playing the jobs to their ends.

    Attributes:
        look, harm_weight, least_gain: as of `contention-aware`.
        futures: draws of other programs' loads in which each choice is played; 1: it is
            played with the expected slowdown instead.
        tasks: waiting tasks whose choices are compared in one reaction.
        places: resources that are compared for each.
        seed: of the draws.

    """

    uses_belief: ClassVar[bool] = True

    look: int = 32
    harm_weight: float = 1.0
    least_gain: float = 0.1
    futures: int = 4
    tasks: int = 3
    places: int = 5
    seed: int = 0

    def react(
        self, event: Event, system: System, now: Nanoseconds
    ) -> Iterator[Decision]:
        """Place what should start now; move what should leave its place."""
        rule = LookaheadRule(
            self.look,
            self.harm_weight,
            self.least_gain,
            futures=min(self.futures, MOST_FUTURES),
            tasks=self.tasks,
            places=self.places,
            seed=self.seed,
        )
        yield from rule.decide(system)


@dataclass(frozen=True)
class Learned:
    """Scores of a trained network for tasks on resources; `contention-aware` taught it.

    It has a state, the memory of its network; decisions follow from the events since it was
    made.

    Attributes:
        weights: absolute path of a file, or weights that come with hetd: `node` or `rack`.
        least_gain: as of `contention-aware`: running tasks are moved by its rule.

    """

    uses_belief: ClassVar[bool] = True

    weights: str = "node"
    least_gain: float = 0.1

    def read_files(self, read: Callable[[str], bytes]) -> None:
        """Take in the weights. Called once, before the first event."""
        # NumPy is loaded for those only who use it
        from hetsched.planning.learned.placing import NetworkRule
        from hetsched.planning.learned.weights import decode_weights

        data = read(self.weights)
        try:
            rule = NetworkRule(decode_weights(data), self.least_gain)
        except InputError as error:
            raise InputError(f"{self.weights}: {error}") from error
        object.__setattr__(self, "_rule", rule)  # its parameters are frozen

    def react(
        self, event: Event, system: System, now: Nanoseconds
    ) -> Iterator[Decision]:
        """Place what should start now; move what should leave its place."""
        rule: NetworkRule | None = getattr(self, "_rule", None)
        if rule is None:
            raise BugError("policy learned: no weights were handed in")
        yield from rule.decide(event, system)


@dataclass(frozen=True, slots=True)
class HeterogeneousEarliestFinish:
    """HEFT: ready tasks by upward rank, each where it is expected to end first."""

    def react(
        self, event: Event, system: System, now: Nanoseconds
    ) -> Iterator[Decision]:
        for number, (task, name) in enumerate(heft(system)):
            # each queue is in the order of binding, not of arrival; so are those of one
            # instant, a nanosecond apart
            yield Place(task.id, name, (now + number) / SECOND, RULE_HEFT)


@dataclass(frozen=True, slots=True)
class Graphene:
    """Graphene: troublesome tasks of each job first, packed, with short jobs preferred."""

    def react(
        self, event: Event, system: System, now: Nanoseconds
    ) -> Iterator[Decision]:
        if not system.unplaced or not system.idle():
            return
        for task, name in graphene(system):
            yield Place(task.id, name, rule=RULE_GRAPHENE)


@dataclass(frozen=True, slots=True)
class Sparrow:
    """Sparrow: each task probes a few resources at random and takes the first free one.

    Attributes:
        probes: resources that each task probes.
        seed: of the random choice.

    """

    probes: int = 2
    seed: int = 0

    def react(
        self, event: Event, system: System, now: Nanoseconds
    ) -> Iterator[Decision]:
        if not system.unplaced or not system.idle():
            return
        for task, name in launches(system, self.probes, self.seed):
            yield Place(task.id, name, rule=RULE_SPARROW)


@dataclass(frozen=True, slots=True)
class Paragon:
    """Paragon: first come, first served; times by classification, little interference.

    Attributes:
        known: share of the pairs of application and model of resource that is measured.
        seed: of the choice of these pairs.

    """

    known: float = 0.5
    seed: int = 0

    def react(
        self, event: Event, system: System, now: Nanoseconds
    ) -> Iterator[Decision]:
        waits = False
        for task, name in paragon(system, self.known, self.seed):
            if name is None:
                waits = True
            else:
                yield Place(task.id, name, rule=RULE_PARAGON)
        if waits:
            yield Wake(now + int(LOOK_AGAIN_S * SECOND))
