"""Paragon's knowledge: execution times by classification of half of the pairs.

Of the pairs of application and model of processor, those that a hash selects are known;
the times of the others are completed (`completion`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hetsched.planning.completion import completed
from hetsched.planning.hashed_random import hashed
from hetsched.tasks import Row

if TYPE_CHECKING:
    from hetsched.system import Resource, System
    from hetsched.tasks import TaskRecord

LEAST_S = 1e-9
TYPES = 256
"""Applications in the table at most: a bound of the time of its completion."""
DIGITS = 2
"""Decimals of a logarithm in the table: one that is corrected slightly stays the same."""


class Classification:
    """Expected times as Paragon would know them.

    Args:
        system: whose estimates are partly known.
        known: share of the pairs that is known.
        seed: of the selection.
        live: applications that tasks had so far, with an example of each.

    """

    def __init__(
        self, system: System, known: float, seed: int, live: dict[str, Row]
    ) -> None:
        self.system = system
        self.known = known
        self.seed = seed
        models: dict[Resource, int] = {}
        self.models = {
            name: models.setdefault(_model_of(resource), len(models))
            for name, resource in system.resources.items()
        }
        self._examples = {number: name for name, number in self.models.items()}
        self._rows = _applications(system, live)
        self._numbers = {app: number for number, app in enumerate(self._rows)}
        self._measured = {
            app: self._measured_of(app, row) for app, row in self._rows.items()
        }
        table = tuple(self._known_row(app, row) for app, row in self._rows.items())
        self._table = completed(table)

    def seconds(self, row: Row, app: str, name: str) -> float:
        """Return the time of a task on a processor that can run it, as it is classified."""
        model = self.models[name]
        if app not in self._numbers or self._is_known(app, model):
            return self.system.seconds(row, name)
        logarithms = self._table[self._numbers[app]]
        scale = [
            self._logarithm(row, other) - logarithms[other]
            for other in self._examples
            if self._is_known(app, other) and self._logarithm(row, other) < math.inf
        ]
        factor = sum(scale) / len(scale) if scale else 0.0
        return math.exp(min(logarithms[model] + factor, 50.0))

    def _known_row(self, app: str, row: Row) -> tuple[float | None, ...]:
        return tuple(
            round(value, DIGITS)
            if self._is_known(app, model)
            and (value := self._logarithm(row, model)) < math.inf
            else None
            for model in self._examples
        )

    def _is_known(self, app: str, model: int) -> bool:
        return model in self._measured[app]

    def _measured_of(self, app: str, row: Row) -> set[int]:
        """Return the models on which an application was measured; at least one of them."""
        number = _number_of(app)
        able = [m for m in self._examples if self._logarithm(row, m) < math.inf]
        draws = {m: hashed(self.seed, number, m) for m in able}
        first = min(able, key=lambda m: draws[m], default=-1)
        return {m for m in able if m == first or draws[m] < self.known * 2**64}

    def _logarithm(self, row: Row, model: int) -> float:
        resource = self.system.resources[self._examples[model]]
        if resource.kind not in row.kinds:
            return math.inf
        seconds = self.system.estimates.seconds(row, resource)
        return math.log(max(seconds, LEAST_S)) if seconds < math.inf else math.inf


@dataclass(slots=True)
class _Kept:
    """The knowledge of a system: the table is completed when something changes only."""

    live: dict[str, Row] = field(default_factory=dict)
    versions: tuple[float, int, int, int, int] = (0.0, 0, -1, -1, -1)
    classes: Classification | None = None


def classification_of(
    system: System, known: float, seed: int, waiting: list[TaskRecord]
) -> Classification:
    """Return the knowledge of a system, with the applications of waiting tasks.

    An application's example stays the first that was seen.
    """
    kept: _Kept = system.remembered.setdefault("classification", _Kept())
    for task in waiting:
        if len(kept.live) < TYPES:
            kept.live.setdefault(task.submitted.app, task.row)
    model = 0 if system.crowding is None else system.crowding.model.version
    versions = known, seed, system.estimates.version, model, len(kept.live)
    if kept.classes is None or kept.versions != versions:
        kept.classes = Classification(system, known, seed, kept.live)
        kept.versions = versions
    return kept.classes


def _applications(system: System, live: dict[str, Row]) -> dict[str, Row]:
    """Return an example of each known application: modelled ones, and those of tasks."""
    found: dict[str, Row] = {}
    if system.crowding is not None:
        kinds = frozenset(r.kind for r in system.resources.values())
        for task_type, _ in system.crowding.model.loads:
            app = task_type.rpartition("/")[0] or task_type
            if len(found) < TYPES:
                found.setdefault(app, Row(task_type, kinds, frozenset(), 1.0))
    for app, row in live.items():
        if len(found) < TYPES:
            found.setdefault(app, row)
    return dict(sorted(found.items()))


def _model_of(resource: Resource) -> Resource:
    """Return what processors of one model have in common: all but the name."""
    return replace(resource, name="")


def _number_of(app: str) -> int:
    number = 0
    for character in app:
        number = (number * 131 + ord(character)) % 2**64
    return number
