"""Reverse mode against difference quotients, and the batched network against single decisions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hetsched.planning.learned.decision import DecisionInput
from hetsched.planning.learned.network import empty_memory, score
from hetsched.planning.learned.weights import (
    PAIR,
    PROCESSOR,
    TASK,
    WORLD,
    NetworkVariant,
    Weights,
    draw_weights,
)
from hetsim.learning.batch import (
    Advice,
    DecisionBatch,
    RecordedStep,
    loss_of,
    run_forward,
)
from hetsim.learning.reverse_mode import Tape

VARIANTS = [
    NetworkVariant(),
    NetworkVariant(graph=False),
    NetworkVariant(recurrent=False),
    NetworkVariant(graph=False, recurrent=False),
]


def a_decision(generator: np.random.Generator, tasks: int, pairs: int) -> DecisionInput:
    """Return random features of a chain of tasks and of two processors."""
    chain = np.arange(tasks - 1)
    return DecisionInput(
        generator.normal(size=(tasks, TASK)),
        chain,
        chain + 1,
        generator.normal(size=(2, PROCESSOR)),
        generator.normal(size=(pairs, PAIR)),
        generator.integers(0, tasks, pairs),
        generator.integers(0, 2, pairs),
        generator.normal(size=WORLD),
        bool(generator.integers(0, 2)),
        0,
    )


def some_episodes(seed: int = 3) -> list[list[RecordedStep]]:
    """Return three episodes of different lengths."""
    generator = np.random.default_rng(seed)
    return [
        [
            RecordedStep(
                a_decision(generator, 2 + t % 3, 1 + t),
                int(generator.integers(0, 1 + t)),
            )
            for t in range(length)
        ]
        for length in (2, 4, 3)
    ]


def loud_weights(variant: NetworkVariant) -> Weights:
    """Return weights of a size at which nothing is nearly linear or saturated."""
    drawn = draw_weights(np.random.default_rng(5), variant)
    generator = np.random.default_rng(6)
    arrays = {
        name: generator.normal(scale=0.4, size=array.shape)
        for name, array in drawn.arrays.items()
    }
    return replace(drawn, arrays=arrays)


def advice_for(batch: DecisionBatch) -> Advice:
    generator = np.random.default_rng(9)
    return Advice(
        batch.chosen,
        generator.normal(size=batch.count),
        generator.normal(size=batch.count),
        entropy=0.3,
    )


def loss_and_gradients(
    weights: Weights, batch: DecisionBatch
) -> tuple[float, dict[str, np.ndarray]]:
    tape = Tape()
    nodes = {name: tape.variable(array) for name, array in weights.arrays.items()}
    forward = run_forward(tape, nodes, batch, weights.variant)
    loss = loss_of(tape, forward, batch, advice_for(batch))
    tape.gradients(loss)
    return float(loss.value), {name: node.grad for name, node in nodes.items()}


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients_are_difference_quotients(variant: NetworkVariant) -> None:
    weights, batch = loud_weights(variant), DecisionBatch(some_episodes())
    _, gradients = loss_and_gradients(weights, batch)
    generator = np.random.default_rng(1)

    for name, array in weights.arrays.items():
        for place in generator.integers(0, array.size, 4):
            found = []
            for sign in (1.0, -1.0):
                moved = array.copy()
                moved.flat[place] += sign * 1e-5
                changed = replace(weights, arrays={**weights.arrays, name: moved})
                found.append(loss_and_gradients(changed, batch)[0])
            quotient = (found[0] - found[1]) / 2e-5
            assert gradients[name].flat[place] == pytest.approx(
                quotient, rel=1e-5, abs=1e-8
            ), name


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_batch_has_the_scores_of_single_decisions(variant: NetworkVariant) -> None:
    weights, episodes = loud_weights(variant), some_episodes()
    batch = DecisionBatch(episodes)
    tape = Tape()
    nodes = {name: tape.variable(array) for name, array in weights.arrays.items()}

    together = run_forward(tape, nodes, batch, variant).scores.value

    for number, steps in enumerate(episodes):
        memory = empty_memory()
        for place, step in enumerate(steps):
            alone, memory = score(weights, step.seen, memory)
            row = batch.order.index((number, place))
            pairs = together[: len(batch.pairs)][batch.decision == row]
            assert pairs == pytest.approx(alone[:-1], rel=1e-12)
            if step.seen.may_wait:
                waits = together[len(batch.pairs) + row]
                assert waits == pytest.approx(alone[-1], rel=1e-12)


def test_probabilities_of_each_decision_add_up_to_one() -> None:
    weights, batch = loud_weights(NetworkVariant()), DecisionBatch(some_episodes())
    tape = Tape()
    nodes = {name: tape.variable(array) for name, array in weights.arrays.items()}
    forward = run_forward(tape, nodes, batch, NetworkVariant())

    logs = tape.log_softmax(forward.scores, batch.groups, batch.count).value

    assert np.bincount(batch.groups, np.exp(logs)) == pytest.approx(
        np.ones(batch.count)
    )
