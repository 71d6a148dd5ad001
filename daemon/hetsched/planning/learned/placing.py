"""The rule of `learned`: the network chooses pairs of tasks and resources until it waits.

A decision starts one task now, or nothing until the next event. That a program must be
loaded first is part of a choice: the resource does it as it starts the task. Running tasks
leave crowded places by the rule of `contention-aware`. Of several owners each in turn has its
tasks scored, the next one where the network lets those wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from hetsched.events import StripsDone
from hetsched.planning.crowded_rule import CrowdedRule
from hetsched.planning.expected_finish import ExpectedFinish
from hetsched.planning.learned.decision import DecisionMaker
from hetsched.planning.learned.network import empty_memory, score
from hetsched.planning.owners_in_turn import OwnersInTurn
from hetsched.policy import Place, Wake
from hetsched.system import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from hetsched.events import Event
    from hetsched.ids import Nanoseconds
    from hetsched.planning.learned.decision import DecisionInput
    from hetsched.planning.learned.weights import Weights
    from hetsched.policy import Decision
    from hetsched.system import System

    Floats: TypeAlias = NDArray[np.float64]

RULE_LEARNED = "the trained network gives this task on this resource its highest score"
LOOK_AGAIN_S = 2.0
"""Seconds after which it decides again, if nothing else happens."""


TIE = 1e-9
"""Scores as close as this are equal.

The last bits of a product of matrices depend on where the matrices lie in memory, so like
resources get scores that differ by chance.
"""


def highest(seen: DecisionInput, scores: Floats, now: Nanoseconds) -> int:
    """Choose the highest score, and the first of equal ones."""
    return int(np.argmax(scores >= scores.max() - TIE))


class NetworkRule:
    """Decides by a network.

    Args:
        weights: of the network.
        least_gain: of moves, as of `contention-aware`.
        choose: takes the input, its scores and the instant; returns a choice.

    """

    def __init__(
        self,
        weights: Weights,
        least_gain: float,
        choose: Callable[[DecisionInput, Floats, Nanoseconds], int] = highest,
    ) -> None:
        self._weights = weights
        self._moves = CrowdedRule(least_gain=least_gain)
        self._choose = choose
        self._maker = DecisionMaker(belief=weights.variant.belief)
        self._memory = empty_memory()

    def decide(self, event: Event, system: System) -> Iterator[Decision]:
        """Place what should start now, and move what should leave its place."""
        if not system.idle():
            return
        ends = ExpectedFinish(system)
        # reports of progress change no choice, and come many times a second
        if system.unplaced and not isinstance(event, StripsDone):
            yield from self._place(ends)
        if self._moves.least_gain > 0.0:
            yield from self._moves.leave_crowds(ends)
        if system.unplaced and system.idle():
            yield Wake(system.now + int(LOOK_AGAIN_S * SECOND))

    def _place(self, ends: ExpectedFinish) -> Iterator[Place]:
        turns = OwnersInTurn(ends.system)
        while (offer := self._maker.offer(ends, turns)) is not None:
            scores, self._memory = score(self._weights, offer.seen, self._memory)
            choice = self._choose(offer.seen, scores, ends.system.now)
            chosen = offer.pair(choice)
            if chosen is None:
                if not turns.several:
                    return
                turns.pass_on(offer.tasks[0])
                continue
            task, name = chosen
            ends.take(ends.prospective(task, name))
            turns.charge(task)
            yield Place(task.id, name, rule=RULE_LEARNED)
