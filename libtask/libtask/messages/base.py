"""Base classes of all messages, their limits and their common types."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import msgspec

PROTOCOL = 2
MAX_FRAME = 1 << 20
"""Maximum bytes of a message; larger data is in files whose path the message holds."""
MAX_ANSWER = 4 * MAX_FRAME
"""Maximum bytes of a message from hetd: it combines parts of several accepted messages
(a task's parameters, result and reason) and must always be sendable."""

NAME_BYTES = 256
"""Names of tasks, workers, resources and policies; keys of a policy's parameters."""
TYPE_BYTES = 1024
"""An application, with its path if it has one; a task type, which begins with it."""
TEXT_BYTES = 4096
"""A path, a reason, the message of an error."""
TRACE_BYTES = 64 << 10
"""A Python traceback."""
EXTRA_BYTES = 64 << 10
"""An application's extra values in a checkpoint record; the parameters of a policy."""
LONGEST_KEY = 128
"""Characters of an idempotency key."""
MAX_TASKS = 500
"""Tasks in one submit, which hetd accepts as a whole in one turn of its loop."""
MAX_IDS = 10_000
"""Ids of tasks in one request."""
MAX_PARKED = 64
"""Tasks of a user that are being parked at a time."""
MAX_SAMPLES = 1000
"""Measurements in one message."""
MAX_LOADS = 256
"""Learned loads that a node keeps, and in one message."""
MAX_TYPES = 16
"""Task types in one question about their loads."""
MAX_NAMES = 10_000
"""Names of workers or snapshots in one message of a launcher."""
MAX_ATTACHMENTS = 8
"""Attachments of a task."""
MIN_LEASE_S = 1.0
MAX_LEASE_S = 86_400.0
"""Seconds of a lease."""
MAX_GRACE_S = 86_400.0
"""Seconds that a preempted task may take to yield."""
MAX_REPORTS = 64
"""Finished tasks in one report of a worker."""
MAX_INPUTS = 1000
"""Tasks whose results a task takes as parameters."""
MAX_PLACES = 1000
"""Places in a task's parameters that hold such results."""
MAX_PLACE = 16
"""Depth of such a place: keys and positions on the path to it."""
RESULT_INLINE = 2048
"""Maximum encoded bytes of a result that travels with the command to a task that takes it:
`MAX_INPUTS` of them fit into a message. Larger ones are read from a file."""
MAX_RESOURCES = 64
"""Resources or kinds in a task or a request."""


def text_of(limit: int) -> msgspec.Meta:
    """Limit the bytes of a text from a peer; see `limits`."""
    return msgspec.Meta(extra={"bytes": limit})


def entries(limit: int) -> msgspec.Meta:
    """Limit the entries of a list from a peer."""
    return msgspec.Meta(extra={"most": limit})


def packed_in(limit: int) -> msgspec.Meta:
    """Limit the encoded bytes of a value from a peer."""
    return msgspec.Meta(extra={"packed": limit})


Whole = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""An integer that every component can hold, including the store."""
Seconds = Annotated[float, msgspec.Meta(ge=-1e12, le=1e12)]
"""A finite duration or moment that fits into 64-bit nanoseconds."""
ExpectedSeconds = Annotated[float, msgspec.Meta(ge=0, le=1e10)]
"""Time that a user expects a task to take."""
Amount = Annotated[float, msgspec.Meta(ge=-1e18, le=1e18)]

Name = Annotated[str, msgspec.Meta(max_length=200)]
"""A peer's name for itself."""

NameText = Annotated[str, text_of(NAME_BYTES)]
TypeText = Annotated[str, text_of(TYPE_BYTES)]
Text = Annotated[str, text_of(TEXT_BYTES)]
Ids = Annotated[list[Whole], entries(MAX_IDS)]
"""Ids of tasks in a request."""

Kind = Literal["cpu", "gpu", "fpga"]
KINDS: tuple[Kind, ...] = get_args(Kind)
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
    """Base of the records that messages contain."""
