"""The network's formulas for many decisions at once, on a tape.

Decisions of all episodes are ordered by their number in the episode, and then by episode,
the longest first: the decisions of one step of the memory follow each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from scipy import sparse

from hetsched.planning.learned.weights import HIDDEN
from hetsim.learning.reverse_mode import Tape, TapeValue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hetsched.planning.learned.decision import DecisionInput
    from hetsched.planning.learned.weights import NetworkVariant

    Floats: TypeAlias = NDArray[np.float64]
    Indices: TypeAlias = NDArray[np.intp]

FORBIDDEN = -1e9
"""Score of waiting where it is not allowed."""


@dataclass(slots=True)
class RecordedStep:
    """A decision of an episode, as it was recorded.

    Attributes:
        choice: number of a pair, or the number of pairs: it waited.
        at: instant, in seconds.

    """

    seen: DecisionInput
    choice: int
    at: float = 0.0


class DecisionBatch:
    """The decisions of several episodes as arrays.

    Attributes:
        order: (episode, number of the decision) of each row.

    """

    def __init__(self, episodes: Sequence[Sequence[RecordedStep]]) -> None:
        longest = sorted(range(len(episodes)), key=lambda i: -len(episodes[i]))
        most = max(len(steps) for steps in episodes)
        self.order = [
            (i, t) for t in range(most) for i in longest if t < len(episodes[i])
        ]
        self.widths = [sum(t < len(steps) for steps in episodes) for t in range(most)]
        steps = [episodes[i][t] for i, t in self.order]
        seen = [step.seen for step in steps]
        self.count = len(seen)
        self.tasks = np.concatenate([each.tasks for each in seen])
        self.processors = np.concatenate([each.processors for each in seen])
        self.pairs = np.concatenate([each.pairs for each in seen])
        self.world = np.array([each.world for each in seen])
        self.forbidden = np.array([0.0 if s.may_wait else FORBIDDEN for s in seen])
        tasks = _starts([len(each.tasks) for each in seen])
        processors = _starts([len(each.processors) for each in seen])
        pairs = _starts([len(each.pairs) for each in seen])
        self.below = _ones(
            _shifted([each.parents for each in seen], tasks),
            _shifted([each.children for each in seen], tasks),
            (len(self.tasks), len(self.tasks)),
        )
        self.mean_task = _means(tasks)
        self.mean_processor = _means(processors)
        self.of_task = _choose(
            _shifted([each.of_task for each in seen], tasks), len(self.tasks)
        )
        self.of_processor = _choose(
            _shifted([each.of_processor for each in seen], processors),
            len(self.processors),
        )
        self.decision = np.repeat(np.arange(self.count), np.diff(pairs))
        self.of_decision = _choose(self.decision, self.count)
        self.groups = np.concatenate([self.decision, np.arange(self.count)])
        self.chosen = self._positions([step.choice for step in steps], pairs)
        self.rule = self._positions([each.rule for each in seen], pairs)

    def _positions(self, choices: list[int], starts: Indices) -> Indices:
        """Return where choices stand in the vector of scores."""
        picked = np.array(choices, dtype=np.intp)
        waits = picked >= np.diff(starts)
        return np.where(
            waits, len(self.pairs) + np.arange(self.count), starts[:-1] + picked
        )


def _starts(counts: list[int]) -> Indices:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.intp)


def _shifted(parts: list[Indices], starts: Indices) -> Indices:
    return np.concatenate(
        [part + start for part, start in zip(parts, starts[:-1], strict=True)]
    ).astype(np.intp)


def _ones(rows: Indices, columns: Indices, shape: tuple[int, int]) -> sparse.csr_matrix:
    matrix = sparse.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=shape)
    matrix.data[:] = 1.0  # a dependency that stands twice counts once
    return matrix


def _choose(columns: Indices, width: int) -> sparse.csr_matrix:
    rows = np.arange(len(columns))
    return sparse.csr_matrix(
        (np.ones(len(columns)), (rows, columns)), shape=(len(columns), width)
    )


def _means(starts: Indices) -> sparse.csr_matrix:
    counts = np.diff(starts)
    rows = np.repeat(np.arange(len(counts)), counts)
    weights = np.repeat(1.0 / np.maximum(counts, 1), counts)
    shape = (len(counts), int(starts[-1]))
    return sparse.csr_matrix((weights, (rows, np.arange(starts[-1]))), shape=shape)


@dataclass(slots=True)
class Forward:
    """The output of the network for a batch.

    Attributes:
        scores: of all pairs, then of waiting in each decision.
        values: of each decision.

    """

    scores: TapeValue
    values: TapeValue


def run_forward(
    tape: Tape, w: dict[str, TapeValue], batch: DecisionBatch, variant: NetworkVariant
) -> Forward:
    """Compute scores and values; the formulas are those of `learned.network`."""
    x, y = _embeddings(tape, w, batch, variant)
    world = tape.variable(batch.world)
    pooled = tape.concatenate(
        [tape.apply(batch.mean_task, x), tape.apply(batch.mean_processor, y), world], 1
    )
    pairs = tape.variable(batch.pairs)
    hidden = tape.add(tape.matmul(pairs, w["X0"]), w["Xb"])
    if variant.graph:
        of_task = tape.apply(batch.of_task, tape.matmul(x, w["XT"]))
        of_processor = tape.apply(batch.of_processor, tape.matmul(y, w["XP"]))
        hidden = tape.add(tape.add(hidden, of_task), of_processor)
    if variant.recurrent:
        outputs = tape.matmul(_remember(tape, w, pooled, batch), w["XH"])
        hidden = tape.add(hidden, tape.apply(batch.of_decision, outputs))
    scores = tape.add(
        tape.matmul(tape.tanh(hidden), w["X1"]), tape.matmul(pairs, w["X2"])
    )
    waiting = _two_layers(tape, w, pooled, ("N0", "Nb", "N1", "Nc"))
    forbidden = tape.variable(batch.forbidden[:, None])
    column = tape.concatenate([scores, tape.add(waiting, forbidden)], 0)
    values = _two_layers(tape, w, pooled, ("V0", "Vb", "V1", "Vc"))
    return Forward(_flat(tape, column), _flat(tape, values))


def _embeddings(
    tape: Tape, w: dict[str, TapeValue], batch: DecisionBatch, variant: NetworkVariant
) -> tuple[TapeValue, TapeValue]:
    if not variant.graph:
        return (
            tape.variable(np.zeros((len(batch.tasks), HIDDEN))),
            tape.variable(np.zeros((len(batch.processors), HIDDEN))),
        )
    tasks = tape.variable(batch.tasks)
    first = tape.tanh(tape.add(tape.matmul(tasks, w["T0"]), w["Tb"]))
    x = first
    for name in ("T1", "T2"):
        below = tape.matmul(tape.apply(batch.below, x), w[name])
        x = tape.tanh(tape.add(below, first))
    processors = tape.variable(batch.processors)
    y = tape.tanh(tape.add(tape.matmul(processors, w["P0"]), w["Pb"]))
    return x, y


def _remember(
    tape: Tape, w: dict[str, TapeValue], pooled: TapeValue, batch: DecisionBatch
) -> TapeValue:
    """Return the output of the memory at each decision."""
    entering = tape.add(tape.matmul(pooled, w["L"]), w["Lb"])
    width = batch.widths[0]
    output = tape.variable(np.zeros((width, HIDDEN)))
    cell = tape.variable(np.zeros((width, HIDDEN)))
    outputs, begin = [], 0
    for width in batch.widths:
        output, cell = tape.rows(output, 0, width), tape.rows(cell, 0, width)
        gates = tape.add(
            tape.rows(entering, begin, begin + width), tape.matmul(output, w["LH"])
        )
        enter, keep, show = (
            tape.sigmoid(tape.columns(gates, i * HIDDEN, (i + 1) * HIDDEN))
            for i in range(3)
        )
        fresh = tape.tanh(tape.columns(gates, 3 * HIDDEN, 4 * HIDDEN))
        cell = tape.add(tape.multiply(keep, cell), tape.multiply(enter, fresh))
        output = tape.multiply(show, tape.tanh(cell))
        outputs.append(output)
        begin += width
    return tape.concatenate(outputs, 0)


def _two_layers(
    tape: Tape, w: dict[str, TapeValue], x: TapeValue, names: tuple[str, str, str, str]
) -> TapeValue:
    first, bias, second, last = names
    hidden = tape.tanh(tape.add(tape.matmul(x, w[first]), w[bias]))
    return tape.add(tape.matmul(hidden, w[second]), w[last])


def _flat(tape: Tape, column: TapeValue) -> TapeValue:
    """Return a column as a vector."""
    return tape.reshape(column, (len(column.value),))


@dataclass(frozen=True, slots=True)
class Advice:
    """The terms of a loss.

    Attributes:
        chosen: weights of the logarithms of the probabilities of choices, to be raised.
        positions: of these choices.
        returns: aims of the values; None: values are not trained.

    """

    positions: Indices
    chosen: Floats
    returns: Floats | None
    entropy: float = 0.0
    value_weight: float = 0.5


def loss_of(
    tape: Tape, forward: Forward, batch: DecisionBatch, advice: Advice
) -> TapeValue:
    """Return the loss (equations 1a and 1b): of the actor, the critic, and the entropy."""
    count = batch.count
    logs = tape.log_softmax(forward.scores, batch.groups, count)
    picked = np.zeros(len(logs.value))
    np.add.at(picked, advice.positions, -advice.chosen / count)
    loss = tape.weighted_sum(logs, picked)
    if advice.entropy:
        terms = tape.multiply(tape.exp(logs), logs)
        weights = np.full(len(logs.value), advice.entropy / count)
        # what may not be chosen has neither probability nor entropy
        weights[len(batch.pairs) :][batch.forbidden < 0.0] = 0.0
        loss = tape.add(loss, tape.weighted_sum(terms, weights))
    if advice.returns is not None:
        off = tape.add(forward.values, tape.variable(-advice.returns))
        square = tape.multiply(off, off)
        weights = np.full(count, advice.value_weight / count)
        loss = tape.add(loss, tape.weighted_sum(square, weights))
    return loss
