"""Contests: every scenario under every policy, on all cores."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from hetsched.policies import make_policy
from hetsim.arena.generator import draw
from hetsim.bound import lower_bound_of
from hetsim.processes import on_all_cores
from hetsim.simulate import simulate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetsim.arena.generator import Arrivals, Generator, Matrix
    from hetsim.scenario import Scenario


class Entrant(Struct, frozen=True):
    """A policy that takes part, with its parameters."""

    policy: str
    parameters: dict[str, str] = {}


class Errors(Struct, frozen=True):
    """How wrong the scheduler's expectations are; see `hetsim arena --help`."""

    noise: float = 0.0
    correct: bool = False
    strip_variation: float = 0.0

    def put_into(self, scenario: Scenario) -> Scenario:
        """Let the strips of all types vary."""
        types = [
            replace(kind, strip_variation=self.strip_variation)
            for kind in scenario.types
        ]
        return replace(scenario, types=types)


class Score(Struct, frozen=True):
    """The result of one policy in one scenario.

    Attributes:
        makespan: seconds.
        moves: migrations a task; `most_moves`: of the task with most.
        unfinished: tasks that were not completed in time.

    """

    makespan: float
    moves: float
    most_moves: int
    unfinished: int


class Contest(Struct, frozen=True):
    """One scenario under all policies.

    Attributes:
        lower_bound: no schedule is shorter, in seconds.

    """

    seed: int
    arrivals: Arrivals
    matrix: Matrix
    resources: int
    tasks: int
    lower_bound: float
    scores: dict[str, Score]


def hold_all(
    seeds: Sequence[int],
    generator: Generator,
    entrants: Sequence[Entrant],
    errors: Errors,
) -> list[Contest]:
    """Hold the contests of these seeds, on all cores that this process may use.

    Raises:
        InputError: no such policy or parameter.

    """
    for entrant in entrants:
        make_policy(entrant.policy, dict(entrant.parameters))
    one = partial(hold, generator=generator, entrants=entrants, errors=errors)
    return on_all_cores(one, seeds)


def hold(
    seed: int, generator: Generator, entrants: Sequence[Entrant], errors: Errors
) -> Contest:
    """Hold the contest of one seed."""
    drawn = draw(seed, generator)
    scenario = errors.put_into(drawn.scenario)
    scores = {}
    for entrant in entrants:
        result = simulate(
            scenario,
            entrant.policy,
            dict(entrant.parameters),
            noise=errors.noise,
            seed=seed,
            correct=errors.correct,
        )
        moves = [task.migrations for task in result.tasks]
        scores[entrant.policy] = Score(
            makespan=result.makespan,
            moves=sum(moves) / len(moves),
            most_moves=max(moves),
            unfinished=len(result.tasks) - result.counts["completed"],
        )
    return Contest(
        seed=seed,
        arrivals=drawn.arrivals,
        matrix=drawn.matrix,
        resources=len(drawn.scenario.resources),
        tasks=len(drawn.scenario.tasks),
        lower_bound=lower_bound_of(drawn.scenario),
        scores=scores,
    )
