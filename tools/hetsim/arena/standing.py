"""Standings: what the contests say of each policy."""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetsim.arena.contest import Contest

BASELINE = "affinity"
CLEARLY = 0.99
"""Below this share of the best other policy's speed a policy has clearly lost."""


class Loss(Struct, frozen=True):
    """A scenario in which another policy was quicker.

    Attributes:
        seed: `hetsim arena --scenarios 1 --seed …` makes it again.
        ratio: makespan of the best other policy over that of this one.

    """

    seed: int
    ratio: float
    best: str


class Standing(Struct, frozen=True):
    """The results of one policy over all contests.

    Attributes:
        speed_up: makespan of `affinity` over its own, in the mean.
        beside: other policy -> its makespan over this one's, in the mean.
        over_bound: its makespan over the lower bound, in the mean; `most_over_bound`.
        clearly_lost: scenarios in which it is below 0.99 of the best other policy.
        worst: those in which it loses most, the worst first.
        moves: migrations a task, in the mean; `most_moves`: of any task.

    """

    policy: str
    speed_up: float
    beside: dict[str, float]
    over_bound: float
    most_over_bound: float
    clearly_lost: int
    worst: list[Loss]
    moves: float
    most_moves: int
    unfinished: int


class Explanation(Struct, frozen=True):
    """A loss, and what other arrivals would have made of the same choice.

    Attributes:
        loss: in the scenario as drawn.
        instant: when the schedules of the two policies begin to differ, seconds.
        to_come: tasks that arrive later: nothing was drawn again where there are none.
        mean_ratio: makespan of the policy that was best over that of this one, in the
            mean over the continuations; above 1: the choice is right in expectation.
        lost: share of the continuations in which this policy is below 0.99 of the best.
        least_lost: the same of the policy that has the least share.

    """

    loss: Loss
    instant: float
    to_come: int
    mean_ratio: float
    lost: float
    least_lost: float


class ArenaResult(Struct, frozen=True):
    """The output of `hetsim arena --json`.

    Attributes:
        explanations: of the clear losses of one policy, where they were asked for.

    """

    standings: list[Standing]
    contests: list[Contest]
    seconds: float
    explanations: list[Explanation] = []
    format: str = "hetsim/arena-1"


def standings_of(contests: Sequence[Contest], count: int) -> list[Standing]:
    """Sum the contests up; list `count` of the worst losses of each policy."""
    return [_standing(contests, name, count) for name in contests[0].scores]


def _standing(contests: Sequence[Contest], policy: str, count: int) -> Standing:
    own = [contest.scores[policy] for contest in contests]
    over = [_over_bound(contest, policy) for contest in contests]
    losses = [loss for contest in contests if (loss := loss_of(contest, policy))]
    losses.sort(key=lambda loss: loss.ratio)
    return Standing(
        policy=policy,
        speed_up=mean(speed_up(contest, policy) for contest in contests),
        beside={
            other: mean(speed_up(contest, policy, other) for contest in contests)
            for other in contests[0].scores
            if other != policy
        },
        over_bound=mean(over),
        most_over_bound=max(over),
        clearly_lost=sum(loss.ratio < CLEARLY for loss in losses),
        worst=losses[:count],
        moves=mean(score.moves for score in own),
        most_moves=max(score.most_moves for score in own),
        unfinished=sum(score.unfinished for score in own),
    )


def speed_up(contest: Contest, policy: str, other: str = BASELINE) -> float:
    """Makespan of another policy over that of this one."""
    return contest.scores[other].makespan / contest.scores[policy].makespan


def loss_of(contest: Contest, policy: str) -> Loss | None:
    """Compare with the best other policy; None: no other was quicker."""
    own = contest.scores[policy].makespan
    others = {n: s.makespan for n, s in contest.scores.items() if n != policy}
    if not others:
        return None
    best = min(others, key=lambda name: others[name])
    if others[best] >= own:
        return None
    return Loss(contest.seed, others[best] / own, best)


def _over_bound(contest: Contest, policy: str) -> float:
    return contest.scores[policy].makespan / contest.lower_bound
