"""What all messages are made of: base classes, limits and the words of the wire."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

PROTOCOL = 1
MAX_FRAME = 1 << 20
"""Bytes in one message; larger data travels in files, the message holds the path."""
MAX_ANSWER = 4 * MAX_FRAME
"""Bytes in one message of hetd: it repeats parts of several that it accepted, as a
task's parameters, result and reason, and must never fail to tell."""

Whole = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""A whole number that every part can hold, the store too."""
Seconds = Annotated[float, msgspec.Meta(ge=-1e12, le=1e12)]
"""A duration or a moment that can be told in nanoseconds: finite, above all."""
Amount = Annotated[float, msgspec.Meta(ge=-1e18, le=1e18)]

Name = Annotated[str, msgspec.Meta(max_length=200)]
"""What somebody calls himself."""

Kind = Literal["cpu", "gpu", "fpga"]
TaskState = Literal[
    "held",
    "waiting",
    "queued",
    "running",
    "preempted",
    "completed",
    "failed",
    "cancelled",
    "dropped",
]
ENDED: frozenset[str] = frozenset({"completed", "failed", "cancelled", "dropped"})


class Message(msgspec.Struct, frozen=True, tag_field="t", tag=str, omit_defaults=True):
    """Base of all messages. `tag=str` names each by its class."""


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of the parts that messages carry."""
