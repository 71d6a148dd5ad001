"""How mokhtari-felare is interpreted where its text leaves something open.

Every open point is a parameter. A preset gives all of them a value: `text` follows the
paper, `authors-code` the simulator with which its authors made their figures. Each
parameter that is set overrides the preset. `docs/papers/mokhtari-felare.md` lists the
effect of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Preset: TypeAlias = Literal["text", "authors-code"]
UNTIL_DEADLINE = -1


@dataclass(frozen=True, slots=True)
class MappingParameters:
    """Parameters that all heuristics share; None: the value of the preset.

    Attributes:
        reading: the preset.
        deferrals: how often a task that no machine can finish in time is put off
            before it is dropped; each time causes another mapping event. -1: until its
            deadline.
        feasible: whether a task that is expected to end `at` its deadline is in time,
            or only `before` it.
        overrunning: a running task that takes longer than expected is expected to end
            now (`clamped`), or when it was to end (`unclamped`).
        mappings: tasks mapped in one event: one `per-machine` or one in all (`single`).
        knowledge: the time of a task in the eyes of the mapper: the `expected` one, or
            a value `drawn` once for each task and machine, evenly within
            10 % x sqrt(3) of it.
        full: whether a machine without a free place can be `chosen` in Phase I (the
            task then waits for it), or is `left-out`.
        cut: whether tasks ahead are taken to stop at their deadlines.
        places: tasks that may wait for a machine; None: what the resource says.
        seed: of the drawn values.

    """

    reading: Preset = "text"
    deferrals: int | None = None
    feasible: Literal["at", "before"] | None = None
    overrunning: Literal["clamped", "unclamped"] | None = None
    mappings: Literal["per-machine", "single"] | None = None
    knowledge: Literal["expected", "drawn"] | None = None
    full: Literal["left-out", "chosen"] = "left-out"
    cut: bool = True
    places: int | None = None
    seed: int = 0

    def interpretation(self) -> Interpretation:
        """Resolve the preset and the parameters that override it."""
        as_code = self.reading == "authors-code"
        deferrals = self.deferrals
        if deferrals is None:
            deferrals = 3 if as_code else UNTIL_DEADLINE
        return Interpretation(
            deferrals=None if deferrals == UNTIL_DEADLINE else deferrals,
            margin=int((self.feasible or _either(as_code, "before", "at")) == "before"),
            clamped=(self.overrunning or _either(as_code, "unclamped", "clamped"))
            == "clamped",
            single=(self.mappings or _either(as_code, "single", "per-machine"))
            == "single",
            drawn=(self.knowledge or _either(as_code, "drawn", "expected")) == "drawn",
            full=self.full == "chosen",
            cut=self.cut,
            places=self.places,
            seed=self.seed,
        )


@dataclass(frozen=True, slots=True)
class Interpretation:
    """An interpretation with nothing left open; see `MappingParameters`.

    Attributes:
        deferrals: None: until the deadline.
        margin: nanoseconds that must be left between the expected end and the deadline.

    """

    deferrals: int | None = None
    margin: int = 0
    clamped: bool = True
    single: bool = False
    drawn: bool = False
    full: bool = False
    cut: bool = True
    places: int | None = None
    seed: int = 0


def _either(first: bool, one: str, other: str) -> str:  # noqa: FBT001  reads well in place
    return one if first else other
