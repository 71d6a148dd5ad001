"""Runs the episodes of an update, in this process or in several."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from hetsim.learning.episodes import (
    run_episode,
    slowdown_of_policy,
    slowdown_of_weights,
)
from hetsim.processes import map_in, process_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import ProcessPoolExecutor

    from hetsched.planning.learned.weights import Weights
    from hetsim.learning.episodes import Episode, EpisodeOrder
    from hetsim.learning.family import Family

Argument = TypeVar("Argument")
Found = TypeVar("Found")


class EpisodeRunner:
    """Runs episodes of a family.

    Args:
        pool: of processes; None: in this one. What is found is the same.

    """

    def __init__(self, family: Family, pool: ProcessPoolExecutor | None = None) -> None:
        self.family = family
        self._pool = pool

    def run(self, weights: Weights, orders: Sequence[EpisodeOrder]) -> list[Episode]:
        """Run episodes."""
        return self._map(partial(run_episode, self.family, weights), orders)

    def test(self, weights: Weights, seeds: Sequence[str]) -> float:
        """Return the mean slowdown of draws under the highest scores."""
        find = partial(_of_weights, self.family, weights)
        return _mean(self._map(find, seeds))

    def test_policy(self, name: str, seeds: Sequence[str]) -> float:
        """Return the mean slowdown of draws under a policy."""
        return _mean(self._map(partial(_of_policy, self.family, name), seeds))

    def _map(
        self, find: Callable[[Argument], Found], arguments: Sequence[Argument]
    ) -> list[Found]:
        if self._pool is None:
            return [find(argument) for argument in arguments]
        return map_in(self._pool, find, arguments)


def _of_weights(family: Family, weights: Weights, seed: str) -> float:
    return slowdown_of_weights(family, seed, weights)


def _of_policy(family: Family, name: str, seed: str) -> float:
    return slowdown_of_policy(family, seed, name)


def _mean(found: list[float]) -> float:
    return sum(found) / len(found)


@contextmanager
def runner_of(family: Family, workers: int) -> Iterator[EpisodeRunner]:
    """Make a runner with this number of processes, for the time of a block."""
    if workers == 1:
        yield EpisodeRunner(family)
        return
    with process_pool(workers) as pool:
        yield EpisodeRunner(family, pool)
