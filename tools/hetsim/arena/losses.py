"""Whether a policy's losses in the arena could be foreseen (`hetsim arena --explain`).

Up to the first instant at which two policies differ, both have seen the same tasks. What
arrives later is drawn again, several times, and both run again: the choice that lost in
the scenario as drawn may be the better one for most of what could have arrived.
"""

from __future__ import annotations

import random
from functools import partial
from statistics import mean
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hetsim.arena.generator import draw
from hetsim.arena.standing import CLEARLY, Explanation, loss_of
from hetsim.processes import on_all_cores
from hetsim.scenario import TaskModel
from hetsim.simulate import simulate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetsim.arena.contest import Contest, Entrant
    from hetsim.arena.generator import Drawn, Generator
    from hetsim.arena.standing import Loss
    from hetsim.result import Result
    from hetsim.scenario import Scenario


def explain_losses(
    contests: Sequence[Contest],
    policy: str,
    generator: Generator,
    entrants: Sequence[Entrant],
    count: int,
) -> list[Explanation]:
    """Explain each clear loss of a policy by `count` continuations, on all cores."""
    losses = [loss for contest in contests if (loss := loss_of(contest, policy))]
    clear = [loss for loss in losses if loss.ratio < CLEARLY]
    one = partial(
        _explain, policy=policy, generator=generator, entrants=entrants, count=count
    )
    return on_all_cores(one, clear)


def _explain(
    loss: Loss,
    policy: str,
    generator: Generator,
    entrants: Sequence[Entrant],
    count: int,
) -> Explanation:
    drawn = draw(loss.seed, generator)
    ran = {
        each.policy: _run(drawn.scenario, each)
        for each in entrants
        if each.policy in (policy, loss.best)
    }
    instant = first_difference(ran[policy], ran[loss.best])
    to_come = sum((task.arrival or 0.0) > instant for task in drawn.scenario.tasks)
    if not to_come:
        return Explanation(loss, instant, 0, loss.ratio, 1.0, 0.0)
    runs = []
    for number in range(count):
        scenario = draw_again(drawn, instant, number)
        runs.append({each.policy: _run(scenario, each).makespan for each in entrants})
    return Explanation(
        loss=loss,
        instant=instant,
        to_come=to_come,
        mean_ratio=mean(run[loss.best] / run[policy] for run in runs),
        lost=_share_lost(runs, policy),
        least_lost=min(_share_lost(runs, each.policy) for each in entrants),
    )


def _run(scenario: Scenario, entrant: Entrant) -> Result:
    return simulate(scenario, entrant.policy, dict(entrant.parameters))


def _share_lost(runs: list[dict[str, float]], policy: str) -> float:
    return mean(min(run.values()) < CLEARLY * run[policy] for run in runs)


def first_difference(one: Result, other: Result) -> float:
    """Return the instant at which two schedules of the same tasks begin to differ."""
    return min(_instants(one) ^ _instants(other), default=(one.makespan,))[0]


def _instants(result: Result) -> set[tuple[float, str | int, str, str]]:
    """Return all instants at which tasks start somewhere, or stop there."""
    return {
        (at, task.id, segment.resource, what)
        for task in result.tasks
        for segment in task.segments
        for at, what in ((segment.start, "starts"), (segment.finish, "stops"))
    }


def draw_again(drawn: Drawn, after: float, number: int) -> Scenario:
    """Draw other tasks in place of those that arrive after an instant; the rest stay.

    As many arrive, in the same kind of process: evenly at the same instants, at random
    with the same mean interval, in bursts at the same instants.
    """
    chance = random.Random(f"arena {drawn.seed} again {number}")
    tasks = drawn.scenario.tasks
    known = [task for task in tasks if (task.arrival or 0.0) <= after]
    later = tasks[len(known) :]
    instants = _later_instants(chance, drawn, after, len(later))
    names = [kind.name for kind in drawn.scenario.types]
    drawn_again = [
        TaskModel(id=task.id, type=chance.choice(names), arrival=round(at, 6))
        for task, at in zip(later, instants, strict=True)
    ]
    return replace(drawn.scenario, tasks=[*known, *drawn_again])


def _later_instants(
    chance: random.Random, drawn: Drawn, after: float, count: int
) -> list[float]:
    arrivals = [task.arrival or 0.0 for task in drawn.scenario.tasks]
    later = arrivals[len(arrivals) - count :]
    if drawn.arrivals == "bursts":
        return sorted(chance.choices(sorted(set(later)), k=count))
    if drawn.arrivals != "poisson":
        return later
    every = arrivals[-1] / max(len(arrivals) - 1, 1)
    found, at = [], after
    for _ in range(count):
        at += chance.expovariate(1.0 / every)
        found.append(at)
    return found
