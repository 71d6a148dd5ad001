"""Energy: of stretches of tasks, and how far it is known; `history` and `report` print it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetctl.units import readable_joules
from libtask.messages import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetctl.documents.parts import EnergyPart, Source
    from libtask.messages import Segment


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy of some stretches.

    Attributes:
        joules: of those for which it is known; None: of none.
        measured: whether meters say so of all that are known; else it is modelled,
            wholly or in part.
        missing: stretches of which it is not known, or not yet.

    """

    joules: float | None
    measured: bool
    missing: int

    @property
    def source(self) -> Source | None:
        if self.joules is None:
            return None
        return "measured" if self.measured else "modelled"


def energy_of(segments: Sequence[Segment]) -> Energy:
    """Add up the energy of stretches, and say how far it is known.

    Failed attempts have none.
    """
    segments = counted(segments)
    known = [each for each in segments if each.joules is not None]
    joules = sum(each.joules or 0.0 for each in known) if known else None
    measured = bool(known) and all(each.measured for each in known)
    return Energy(joules, measured, len(segments) - len(known))


def readable_energy(energy: Energy) -> str:
    """Write an energy and where it is from: `3.1 J (modelled)`; `-`: not known."""
    if energy.joules is None:
        return "-"
    least = "at least " if energy.missing else ""
    return f"{least}{readable_joules(energy.joules)} ({energy.source})"


def energy_document(energy: Energy) -> EnergyPart:
    """Write an energy as keys of a JSON object."""
    return {
        "joules": energy.joules,
        "energy_source": energy.source,
        "energy_missing": energy.missing,
    }
