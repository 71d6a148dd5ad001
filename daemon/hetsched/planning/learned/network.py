"""The network's scores for one decision.

Graph layers embed the tasks (two rounds of messages from children to parents) and the
processors; a long short-term memory follows their means from decision to decision; each pair
of a waiting task and a free processor gets a score, and waiting gets one. `hetsim train`
differentiates the same formulas.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from hetsched.planning.learned.weights import HIDDEN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hetsched.planning.learned.decision import DecisionInput
    from hetsched.planning.learned.weights import Weights

    Floats: TypeAlias = NDArray[np.float64]


@dataclass(slots=True)
class Memory:
    """Output and cell of the memory."""

    output: Floats
    cell: Floats


def empty_memory() -> Memory:
    """Return the memory before the first decision."""
    return Memory(np.zeros(HIDDEN), np.zeros(HIDDEN))


def sigmoid(x: Floats) -> Floats:
    """Return 1 / (1 + exp(-x)), without overflow."""
    return 0.5 * (np.tanh(0.5 * x) + 1.0)


def score(
    weights: Weights, seen: DecisionInput, memory: Memory
) -> tuple[Floats, Memory]:
    """Return the scores of all pairs, that of waiting last, and the memory afterwards.

    Waiting scores minus infinity where it is not allowed.
    """
    w, variant = weights.arrays, weights.variant
    x = np.zeros((len(seen.tasks), HIDDEN))
    y = np.zeros((len(seen.processors), HIDDEN))
    if variant.graph:
        below = np.zeros((len(x), len(x)))
        below[seen.parents, seen.children] = 1.0
        first = np.tanh(seen.tasks @ w["T0"] + w["Tb"])
        x = np.tanh(below @ first @ w["T1"] + first)
        x = np.tanh(below @ x @ w["T2"] + first)
        y = np.tanh(seen.processors @ w["P0"] + w["Pb"])
    means = np.add.reduce(x) / len(x), np.add.reduce(y) / len(y)
    pooled = np.concatenate([*means, seen.world])
    if variant.recurrent:
        memory = _remember(w, pooled, memory)
    hidden = seen.pairs @ w["X0"] + (x @ w["XT"])[seen.of_task]
    hidden += (y @ w["XP"])[seen.of_processor] + memory.output @ w["XH"] + w["Xb"]
    scores = (np.tanh(hidden) @ w["X1"] + seen.pairs @ w["X2"])[:, 0]
    waiting = np.tanh(pooled @ w["N0"] + w["Nb"]) @ w["N1"] + w["Nc"]
    if not seen.may_wait:
        waiting = np.full(1, -np.inf)
    return np.concatenate([scores, waiting]), memory


def _remember(w: dict[str, Floats], pooled: Floats, memory: Memory) -> Memory:
    gates = pooled @ w["L"] + memory.output @ w["LH"] + w["Lb"]
    enter, keep, show = sigmoid(gates[: 3 * HIDDEN]).reshape(3, HIDDEN)
    cell = keep * memory.cell + enter * np.tanh(gates[3 * HIDDEN :])
    return Memory(show * np.tanh(cell), cell)
