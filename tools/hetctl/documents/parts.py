"""What several documents are made of: moments, shares, amounts, energy."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias, TypedDict

from msgspec import Meta

Moment: TypeAlias = Annotated[
    str,
    Meta(
        pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$",
        description="UTC, as 2026-01-02T03:04:05.678Z",
    ),
]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0)]
Count: TypeAlias = Annotated[int, Meta(ge=0)]
Id: TypeAlias = Annotated[int, Meta(ge=1)]
Source: TypeAlias = Literal["measured", "modelled"]
"""Where a figure of energy comes from."""


class EnergyPart(TypedDict):
    """An energy and how far it is known; a part of other documents."""

    joules: Seconds | None
    energy_source: Source | None
    energy_missing: Annotated[Count, Meta(description="stretches without a figure")]
