"""The times of a training and of a decision of `learned`."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING

from hetpapers.banerjee.testbed import Setting, make_family
from hetsched.planning.learned.network import empty_memory, score
from hetsched.planning.learned.placing import NetworkRule, highest
from hetsched.planning.learned.weights import decode_weights
from hetsim.learning.family import check_family
from hetsim.learning.runner import EpisodeRunner
from hetsim.learning.training import Training, TrainingRecipe
from hetsim.simulation import Simulation
from hetsim.workload import expected_seconds
from libtask.weights import read_weights

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from hetpapers.figures import Row
    from hetsched.events import Event
    from hetsched.ids import Nanoseconds
    from hetsched.planning.learned.decision import DecisionInput
    from hetsched.planning.learned.weights import Weights
    from hetsched.policy import Decision
    from hetsched.system import System

RUNS = 15
"""Of the same decisions; the least time of each counts: others on the machine only add."""
UPDATES = 120
"""Of the trainings that come with hetd."""
MEASURED_UPDATES = 2
MOST_MINUTES = 5.0
MOST_MS = 2.0
WARM = 20


class Stopwatch:
    """The policy, with its processor time for each decision."""

    def __init__(self, weights: Weights) -> None:
        self.milliseconds: list[float] = []
        self.inputs: list[DecisionInput] = []
        self._decisions = 0
        self._rule = NetworkRule(weights, 0.1, self._count)

    def react(
        self, event: Event, system: System, now: Nanoseconds
    ) -> Iterator[Decision]:
        before, took = self._decisions, 0.0
        decisions = self._rule.decide(event, system)
        while True:
            began = time.thread_time()
            decided = next(decisions, None)
            took += time.thread_time() - began
            if decided is None:
                break
            yield decided
        if self._decisions > before:
            self.milliseconds.append(1000.0 * took / (self._decisions - before))

    def _count(self, seen: DecisionInput, scores: np.ndarray, now: Nanoseconds) -> int:
        self._decisions += 1
        self.inputs.append(seen)
        return highest(seen, scores, now)


def decision_rows() -> list[Row]:
    """Measure decisions with eight and more tasks ready on the rack (F14)."""
    weights = decode_weights(read_weights("rack"))
    watches = [_watched(weights) for _ in range(RUNS)]
    times = zip(*(watch.milliseconds for watch in watches), strict=True)
    whole = median([min(each) for each in times][WARM:])
    network = median(_scoring(weights, seen) for seen in watches[0].inputs[WARM:])
    text = f"decision of `learned`, {_slots()} slots, median, ms"
    accepted = "<= 2 (0.2 to 0.5 in C and NumPy)"
    return [
        _row("F14", text, accepted, whole, reached=whole <= MOST_MS),
        _row("F14", "of that, the network", "", network, reached=None),
    ]


def _watched(weights: Weights) -> Stopwatch:
    """Run the same jobs with a new policy."""
    family = check_family(make_family(Setting(jobs=6)) | {"jobs": [6, 6]})
    scenario = family.draw("speed")
    watch = Stopwatch(weights)
    Simulation(scenario, watch, expected_seconds(scenario)).run()
    return watch


def _scoring(weights: Weights, seen: DecisionInput) -> float:
    """Return the least milliseconds of the network's scores for an input."""
    memory, times = empty_memory(), []
    for _ in range(RUNS):
        began = time.thread_time()
        score(weights, seen, memory)
        times.append(time.thread_time() - began)
    return 1000.0 * min(times)


def training_row() -> Row:
    """Estimate the time of a training from that of some updates (F13)."""
    family = check_family(make_family(Setting("half-rack")))
    recipe = TrainingRecipe(imitation=1, values=0, held_out=1)
    training = Training(recipe, EpisodeRunner(family))
    training.update()
    began = time.process_time()
    for _ in range(MEASURED_UPDATES):
        training.update()
    each = (time.process_time() - began) / MEASURED_UPDATES
    minutes = each * UPDATES / 60.0
    return _row(
        "F13",
        f"{UPDATES} updates on half the rack, minutes of one core, without tests",
        "<= 5",
        minutes,
        reached=minutes <= MOST_MINUTES,
    )


def _slots() -> int:
    resources = make_family(Setting())["resources"]
    return sum(resource["slots"] for resource in resources)


def _row(
    figure: str, text: str, accepted: str, ours: float, *, reached: bool | None
) -> Row:
    return {
        "figure": figure,
        "ratio": text,
        "prototype": None,
        "accepted": accepted,
        "ours": ours,
        "95 %": "",
        "reached": yes_or_no(reached),
    }


def yes_or_no(reached: bool | None) -> str:  # noqa: FBT001  what the word stands for
    """Return the word for whether an aim is reached; None: there is none."""
    return "" if reached is None else "yes" if reached else "no"
