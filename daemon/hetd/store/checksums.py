"""Checksums of rows: they detect flipped bits, which SQLite does not."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

if TYPE_CHECKING:
    import sqlite3

FIGURES = struct.Struct("<qdddqdd")
"""Grain, seconds, work, spread, count, setup, joules of a measurement."""
NEVER_MEASURED = -1.0
"""Stands for unknown joules, which are never negative."""
NOBODY = -1


def page_sum(task: int, ended: int, entry: bytes) -> int:
    """Return the checksum of a task's page."""
    return crc32(entry, (task * 31 + ended) & 0xFFFFFFFF)


def key_sum(owner: int, key: bytes, digest: bytes, answer: bytes, at: int) -> int:
    """Return the checksum of the answer to a change and of its key."""
    return crc32(answer, crc32(digest, crc32(key, (owner * 31 + at) & 0xFFFFFFFF)))


def sample_sum(kind: bytes, resource: bytes, *figures: float | None) -> int:
    """Return the checksum of a measured execution time.

    Args:
        kind: type of task.
        resource: where it was measured.
        figures: as `FIGURES` has them.

    """
    *known, joules = figures
    told = NEVER_MEASURED if joules is None else joules
    try:
        packed = FIGURES.pack(*known, told)
    except (struct.error, OverflowError):  # damage changed the type of a number
        return NOBODY
    return crc32(packed, crc32(resource, crc32(kind)))


def setting_sum(what: bytes, subject: bytes, value: bytes) -> int:
    """Return the checksum of an operator's setting."""
    return crc32(value, crc32(subject, crc32(what)))


def circuit_sum(owner: int, app: bytes, resource: bytes, value: bytes) -> int:
    """Return the checksum of the known failures of an application on a resource."""
    return crc32(value, crc32(resource, crc32(app, owner & 0xFFFFFFFF)))


class _Owned(msgspec.Struct):
    owner: int


_decode = msgspec.msgpack.Decoder(_Owned).decode


def owner_of(entry: bytes) -> int:
    """Return the owner of a page; `NOBODY` if it is illegible."""
    try:
        return _decode(entry).owner
    except msgspec.MsgspecError:
        return NOBODY


def teach(connection: sqlite3.Connection) -> None:
    """Register the checksums as SQL functions."""
    sums = ((page_sum, 3), (key_sum, 5), (sample_sum, 9), (setting_sum, 3))
    for function, arguments in (*sums, (circuit_sum, 4), (owner_of, 1)):
        name = function.__name__
        connection.create_function(name, arguments, function, deterministic=True)
