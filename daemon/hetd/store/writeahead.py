"""The write-ahead log: detects durable commits that are missing from it.

SQLite reads a log up to its first bad frame and drops the rest. That is right for a
tail torn by a crash, and wrong for a log that was cut or damaged later: acknowledged
commits would be lost silently. Two witnesses distinguish the cases:

- The index in shared memory (`-shm`), which a crash of the process leaves behind, says
  how many frames were durable: it is written after their sync. A stale one (after a
  power cut) says less, or speaks of another log, as its salts tell; never too much.
- One transaction is under way at a time: no two commits can stand behind a torn frame.

Formats: https://www.sqlite.org/walformat.html
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

HEADER = 32
FRAME_HEADER = 24
MAGIC = 0x377F0682
"""The lowest bit, where set, says that checksums take words as big-endian."""
INDEX = struct.Struct("=III B B H I I 8s 8s 8s")
"""Header of the index: version, unused, change, ready, big-endian, page size, frames,
pages, checksum of the last frame, salts, checksum of the header."""
BACKFILLED = 96
"""Offset in the index of how many frames are in the database already."""


@dataclass(frozen=True, slots=True)
class Witness:
    """The frames of the log according to its index."""

    frames: int
    salts: bytes


def lost_commits(database: Path) -> str | None:
    """Return the damage of a database's log; None: no damage found.

    Only for a database that nobody has open.

    Raises:
        OSError: the log cannot be read.

    """
    log = _read(database.with_name(database.name + "-wal"))
    index = _read(database.with_name(database.name + "-shm"))
    witness = _witness(index)
    if witness is not None and not log:
        return f"its log of {witness.frames} frames is gone ({database.name}-wal)"
    if len(log) < HEADER:
        return None
    salts, good, behind = _examine(log)
    if witness is not None and salts in {witness.salts, b""} and good < witness.frames:
        return f"its log is damaged: {good} of {witness.frames} frames are good"
    if behind > 1:
        return f"its log is damaged: {behind} commits stand behind bad frame {good + 1}"
    return None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _witness(index: bytes) -> Witness | None:
    """Read the index; None: it says nothing, or only of what the database has too."""
    if len(index) < BACKFILLED + 4:
        return None
    header, copy = index[: INDEX.size], index[INDEX.size : 2 * INDEX.size]
    words = struct.unpack("=10I", header[:40])
    told = struct.unpack("=2I", header[40:])
    if header != copy or _checksum(words, (0, 0)) != told:
        return None
    fields = INDEX.unpack(header)
    frames, salts = fields[6], fields[9]
    (backfilled,) = struct.unpack_from("=I", index, BACKFILLED)
    return Witness(frames, salts) if frames > backfilled else None


def _examine(log: bytes) -> tuple[bytes, int, int]:
    """Return the log's salts, how many frames are good, and commits behind them.

    The salts of a log with a bad header are empty: it may have been any.
    """
    magic, _, page = struct.unpack_from(">3I", log)
    salts = log[16:24]
    order = ">" if magic & 1 else "<"
    sums = _checksum(struct.unpack(f"{order}6I", log[:24]), (0, 0))
    sound = magic | 1 == MAGIC | 1 and sums == struct.unpack_from(">2I", log, 24)
    if not sound:
        return b"", 0, 0
    frames = [
        memoryview(log)[start : start + FRAME_HEADER + page]
        for start in range(HEADER, len(log), FRAME_HEADER + page)
    ]
    good = _good_frames(frames, salts, sums, f"{order}{page // 4}I")
    return salts, good, sum(_commits(frame, salts) for frame in frames[good:])


def _good_frames(
    frames: list[memoryview], salts: bytes, sums: tuple[int, int], words: str
) -> int:
    """Follow the chain of checksums; return how many frames hold."""
    page = struct.Struct(words)
    head = struct.Struct(words[0] + "2I")
    for count, frame in enumerate(frames):
        if len(frame) < FRAME_HEADER + page.size or frame[8:16] != salts:
            return count
        sums = _checksum(head.unpack(frame[:8]), sums)
        sums = _checksum(page.unpack(frame[FRAME_HEADER:]), sums)
        if sums != struct.unpack(">2I", frame[16:24]):
            return count
    return len(frames)


def _commits(frame: memoryview, salts: bytes) -> bool:
    """Whether a frame of this log ends a transaction."""
    if len(frame) < FRAME_HEADER:
        return False
    return any(frame[4:8]) and frame[8:16] == salts


def _checksum(words: tuple[int, ...], sums: tuple[int, int]) -> tuple[int, int]:
    first, second = sums
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second
