"""The training: imitation of `contention-aware`, then advantage actor-critic (A2C).

An update runs some episodes and changes the weights once. All that an update does follows
from its number, the seed and the weights, so that a training that was interrupted goes on as
if it had not been, and the same command gives the same file.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from hetsched.planning.learned.weights import (
    NetworkVariant,
    Weights,
    decode_weights,
    draw_weights,
    encode_weights,
)
from hetsim.learning.batch import Advice, DecisionBatch, loss_of, run_forward
from hetsim.learning.episodes import EpisodeOrder
from hetsim.learning.reverse_mode import Tape

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from hetsim.learning.batch import Forward
    from hetsim.learning.episodes import Episode
    from hetsim.learning.runner import EpisodeRunner

    Floats: TypeAlias = NDArray[np.float64]

Method: TypeAlias = Literal["imitate", "a2c", "both"]

TRACE = 0.95
"""Lambda of the generalised advantage estimate; returns are not discounted."""
FIRST_MOMENT, SECOND_MOMENT, TINY = 0.9, 0.999, 1e-8
"""Of Adam (Kingma and Ba, 2015)."""


@dataclass(frozen=True, slots=True)
class TrainingRecipe:
    """How a network is trained.

    Attributes:
        imitation: updates that imitate; `values`: updates of the value alone after that.
        episodes: of an update; `held_out`: draws of a test, every `test_every` updates.
        share: probability of the rule's own choice in the first update; `fall`: by which
            it falls with each update.
        norm: greatest norm of a gradient.

    """

    method: Method = "both"
    variant: NetworkVariant = field(default_factory=NetworkVariant)
    seed: int = 1
    imitation: int = 25
    values: int = 10
    episodes: int = 16
    held_out: int = 24
    test_every: int = 10
    share: float = 0.8
    fall: float = 0.1
    rate: float = 2e-3
    entropy: float = 0.01
    norm: float = 1.0


@dataclass(frozen=True, slots=True)
class TestResult:
    """A test on held-out draws: mean slowdown after a number of updates."""

    __test__ = False  # no test of pytest

    updates: int
    episodes: int
    decisions: int
    slowdown: float


@dataclass(slots=True)
class TrainingState:
    """Everything that the next update depends on, and what was reached.

    Attributes:
        arrays: weights; `first`, `second`: their moments.
        best: weights with the least slowdown so far, as a file has them.

    """

    arrays: dict[str, Floats]
    first: dict[str, Floats]
    second: dict[str, Floats]
    updates: int = 0
    episodes: int = 0
    decisions: int = 0
    best: dict[str, Floats] = field(default_factory=dict)
    tests: list[TestResult] = field(default_factory=list)


def begin(recipe: TrainingRecipe) -> TrainingState:
    """Return the state before the first update."""
    generator = np.random.default_rng(recipe.seed)
    arrays = draw_weights(generator, recipe.variant).arrays
    zeros = {name: np.zeros_like(array) for name, array in arrays.items()}
    return TrainingState(arrays, zeros, {n: a.copy() for n, a in zeros.items()})


class Training:
    """A training.

    Args:
        recipe: how.
        runner: runs episodes and tests.
        state: to go on from; None: from the beginning.

    """

    def __init__(
        self,
        recipe: TrainingRecipe,
        runner: EpisodeRunner,
        state: TrainingState | None = None,
    ) -> None:
        self.recipe = recipe
        self.runner = runner
        self.state = begin(recipe) if state is None else state
        self.last: tuple[TestResult, Weights] | None = None
        """A test at the end, between two regular ones: a training that goes on repeats none."""

    @property
    def best(self) -> TestResult | None:
        """Return the best test so far."""
        tests = [*self.state.tests, *([self.last[0]] if self.last else [])]
        return min(tests, key=lambda test: test.slowdown, default=None)

    @property
    def best_weights(self) -> Weights:
        """Return the weights of the best test."""
        if self.last is not None and self.last[0] is self.best:
            return self.last[1]
        return Weights(self.state.best, self.recipe.variant)

    def train(self, goes_on: Callable[[TrainingState], bool]) -> None:
        """Update while `goes_on` says so; test now and then, and at the end."""
        while goes_on(self.state):
            self.update()
            if self.state.updates % self.recipe.test_every == 0:
                self.test()
        self.finish()

    def finish(self) -> None:
        """Test at the end, unless that was just done."""
        updates = self.state.updates
        if not updates or updates % self.recipe.test_every:
            self.last = self._measured()

    def update(self) -> None:
        """Run the episodes of an update, and change the weights."""
        state, recipe = self.state, self.recipe
        imitates = self._imitates()
        share = 0.0
        if imitates:
            share = max(recipe.share - recipe.fall * state.updates, 0.0)
        orders = [
            EpisodeOrder(f"train {recipe.seed} {state.updates} {number}", share)
            for number in range(recipe.episodes)
        ]
        ran = self.runner.run(Weights(state.arrays, recipe.variant), orders)
        ran = [episode for episode in ran if episode.steps]
        state.updates += 1
        state.episodes += recipe.episodes
        if not ran:
            return
        state.decisions += sum(len(episode.steps) for episode in ran)
        self._change(gradients_of(state.arrays, recipe, ran, self._advise))

    def test(self) -> TestResult:
        """Test on held-out draws; keep the weights if they are the best."""
        state = self.state
        found, weights = self._measured()
        if all(found.slowdown < test.slowdown for test in state.tests):
            state.best = weights.arrays
        state.tests.append(found)
        return found

    def _measured(self) -> tuple[TestResult, Weights]:
        """Test the present weights, as a file has them."""
        state = self.state
        weights = decode_weights(
            encode_weights(Weights(state.arrays, self.recipe.variant))
        )
        slowdown = self.runner.test(weights, self.held_out())
        result = TestResult(state.updates, state.episodes, state.decisions, slowdown)
        return result, weights

    def held_out(self) -> list[str]:
        """Return the seeds of the draws that no update sees."""
        return [f"held out {number}" for number in range(self.recipe.held_out)]

    def _imitates(self) -> bool:
        method, updates = self.recipe.method, self.state.updates
        return method == "imitate" or (
            method == "both" and updates < self.recipe.imitation
        )

    def _advise(
        self, batch: DecisionBatch, forward: Forward, episodes: Sequence[Episode]
    ) -> Advice:
        """Return what this update is to raise; the state counts it already."""
        recipe, number = self.recipe, self.state.updates - 1
        first = 0 if recipe.method == "a2c" else recipe.imitation
        if recipe.method == "imitate" or (recipe.method == "both" and number < first):
            return Advice(batch.rule, np.ones(batch.count), None)
        returns, advantages = estimate_advantages(batch, forward, episodes)
        if number < first + recipe.values:
            return Advice(batch.chosen, np.zeros(batch.count), returns)
        return Advice(batch.chosen, advantages, returns, recipe.entropy)

    def _change(self, gradients: dict[str, Floats]) -> None:
        """Take a step of Adam, with the gradient cut to a greatest norm."""
        state, recipe = self.state, self.recipe
        square = sum(float((g * g).sum()) for g in gradients.values())
        scale = min(1.0, recipe.norm / max(np.sqrt(square), 1e-12))
        number = state.updates
        for name, gradient in gradients.items():
            g = gradient * scale
            first, second = state.first[name], state.second[name]
            first += (1.0 - FIRST_MOMENT) * (g - first)
            second += (1.0 - SECOND_MOMENT) * (g * g - second)
            mean = first / (1.0 - FIRST_MOMENT**number)
            deviation = np.sqrt(second / (1.0 - SECOND_MOMENT**number))
            state.arrays[name] = state.arrays[name] - recipe.rate * mean / (
                deviation + TINY
            )


def gradients_of(
    arrays: dict[str, Floats],
    recipe: TrainingRecipe,
    episodes: Sequence[Episode],
    advise: Callable[[DecisionBatch, Forward, Sequence[Episode]], Advice],
) -> dict[str, Floats]:
    """Return the gradient of the loss by all weights."""
    batch = DecisionBatch([episode.steps for episode in episodes])
    tape = Tape()
    nodes = {name: tape.variable(array) for name, array in arrays.items()}
    forward = run_forward(tape, nodes, batch, recipe.variant)
    loss = loss_of(tape, forward, batch, advise(batch, forward, episodes))
    tape.gradients(loss)
    return {name: node.grad for name, node in nodes.items()}


def estimate_advantages(
    batch: DecisionBatch, forward: Forward, episodes: Sequence[Episode]
) -> tuple[Floats, Floats]:
    """Return the aims of the values, and the advantages (generalised, normalised)."""
    values = [np.zeros(len(episode.steps) + 1) for episode in episodes]
    for row, (number, place) in enumerate(batch.order):
        values[number][place] = forward.values.value[row]
    found = [
        _generalised(np.array(episode.rewards), value)
        for episode, value in zip(episodes, values, strict=True)
    ]
    advantages = np.array([found[number][place] for number, place in batch.order])
    known = np.array([values[number][place] for number, place in batch.order])
    spread = max(float(advantages.std()), 1e-6)
    return advantages + known, (advantages - advantages.mean()) / spread


def _generalised(rewards: Floats, values: Floats) -> Floats:
    """Return sums of TRACE^j times the j-th next temporal difference."""
    differences = rewards + values[1:] - values[:-1]
    sums = np.zeros(len(rewards))
    later = 0.0
    for place in range(len(rewards) - 1, -1, -1):
        later = differences[place] + TRACE * later
        sums[place] = later
    return sums


def finished(training: Training, about: Mapping[str, object]) -> Weights:
    """Return the best weights, with how they were trained.

    Args:
        about: further entries of the header.

    """
    recipe, best = training.recipe, training.best
    trained: dict[str, object] = {
        "seed": recipe.seed,
        "method": recipe.method,
        "updates": training.state.updates,
        "episodes": training.state.episodes,
        "decisions": training.state.decisions,
        "tests": [list(astuple(test)) for test in training.state.tests],
        **about,
    }
    if best is not None:
        trained["best_after_updates"] = best.updates
    return replace(training.best_weights, trained=trained)
