"""Parts of several documents: moments, shares, amounts, energy."""

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
"""The source of an energy figure."""


class AvoidedPart(TypedDict):
    """An application of a user that avoids a resource after failures there."""

    app: str
    resource: str
    owner: str
    state: Annotated[
        Literal["open", "half-open"],
        Meta(description="half-open: the time is over, and one task may try again"),
    ]
    failures: Annotated[Count, Meta(description="in a row, without a checkpoint")]
    cause: Annotated[
        str, Meta(description="crash, hang, killed, stuck, program or binary")
    ]
    reason: str
    until: Annotated[Moment, Meta(description="the time when one task may try again")]
    task: Annotated[Id | None, Meta(description="the task that may try again")]


class EnergyPart(TypedDict):
    """An energy with its source and the number of missing figures."""

    joules: Seconds | None
    energy_source: Source | None
    energy_missing: Annotated[Count, Meta(description="segments without a figure")]
