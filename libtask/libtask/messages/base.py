"""What all messages are made of: base classes, limits and the words of the wire."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

PROTOCOL = 2
MAX_FRAME = 1 << 20
"""Bytes in one message; larger data travels in files, the message holds the path."""
MAX_ANSWER = 4 * MAX_FRAME
"""Bytes in one message of hetd: it repeats parts of several that it accepted, as a
task's parameters, result and reason, and must never fail to tell."""

NAME_BYTES = 256
"""Names of tasks, workers, resources and policies; keys of parameters of a policy."""
TYPE_BYTES = 1024
"""An application, with its path where it has one; and a task type, which begins with it."""
TEXT_BYTES = 4096
"""A path, a reason, the message of an error."""
TRACE_BYTES = 64 << 10
"""A Python traceback."""
EXTRA_BYTES = 64 << 10
"""What an application keeps in a checkpoint record; the parameters of a policy."""
MAX_TASKS = 500
"""Tasks in one submit: they are accepted as one, in one turn of hetd."""
MAX_IDS = 10_000
"""Ids of tasks in one request."""
MAX_SAMPLES = 1000
"""Measurements in one message."""
MAX_NAMES = 10_000
"""Workers or snapshots that a launcher names in one message."""
MAX_ATTACHMENTS = 8
"""Files kept by content that a task refers to."""
MAX_GRACE_S = 86_400.0
"""Seconds that a task may take to leave when it is asked to."""
MAX_REPORTS = 64
"""Ends of tasks that a worker tells of at once."""
MAX_RESOURCES = 64
"""Resources and kinds that a task, or a request, names."""


def text_of(limit: int) -> msgspec.Meta:
    """Bound a text that a peer sends to so many bytes; see `bounds`."""
    return msgspec.Meta(extra={"bytes": limit})


def entries(limit: int) -> msgspec.Meta:
    """Bound a list that a peer sends to so many entries."""
    return msgspec.Meta(extra={"most": limit})


def packed_in(limit: int) -> msgspec.Meta:
    """Bound a value that a peer sends to so many bytes in its encoded form."""
    return msgspec.Meta(extra={"packed": limit})


Whole = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""A whole number that every part can hold, the store too."""
Seconds = Annotated[float, msgspec.Meta(ge=-1e12, le=1e12)]
"""A duration or a moment that can be told in nanoseconds: finite, above all."""
Amount = Annotated[float, msgspec.Meta(ge=-1e18, le=1e18)]

Name = Annotated[str, msgspec.Meta(max_length=200)]
"""What somebody calls himself."""

NameText = Annotated[str, text_of(NAME_BYTES)]
TypeText = Annotated[str, text_of(TYPE_BYTES)]
Text = Annotated[str, text_of(TEXT_BYTES)]
Ids = Annotated[list[Whole], entries(MAX_IDS)]
"""Ids of tasks, as a request names them."""

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
