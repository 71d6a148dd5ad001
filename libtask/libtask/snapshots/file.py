"""One snapshot in one file, written atomically and verified by checksums.

    magic, version, length and checksum of the header
    header                                 MessagePack: its task, its progress
    values, arrays                         in the order of the header
    checksum                               128 bits over everything before

The checksum is XXH3: it detects damage at more than ten times the speed of any disk
(hashlib's fastest hash takes as long as the disk itself). It does not detect malicious
changes; the file is the user's own in a folder of mode 0700, and a file of another user
is refused.
"""

from __future__ import annotations

import os
import stat
import struct
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import msgspec
import xxhash

from libtask.errors import HetError
from libtask.messages import CheckpointRecord
from libtask.snapshots.state import Packed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

MAGIC = b"hetsnap\n"
VERSION = 1
PREFIX = struct.Struct("<8sII16s")
"""Magic, version, length and checksum of the header, which is verified before use."""
DIGEST_BYTES = 16
LONGEST_HEADER = 1 << 20
CHUNK = 4 << 20
"""Bytes per step of hashing and writing, so that they stay in the CPU's cache."""


class SnapshotError(HetError):
    """A snapshot cannot be written or is invalid."""

    code = "snapshot"


@dataclass(frozen=True, slots=True)
class Identity:
    """The task to which a snapshot belongs.

    Attributes:
        name: name of the task among those of its user (`SnapshotFolder`).
        task: its id.
        app: its application.
        version: version of the application.

    """

    name: str
    task: int
    app: str
    version: str


class _Array(msgspec.Struct, array_like=True):
    """The layout of an array in the file."""

    name: str
    dtype: str
    shape: list[int]

    def bytes(self) -> int:
        import numpy as np

        return prod(self.shape) * np.dtype(self.dtype).itemsize


class _Header(msgspec.Struct):
    name: str
    task: int
    app: str
    app_version: str
    epoch: int
    written: float
    checkpoint: CheckpointRecord
    values: int
    arrays: list[_Array]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A task at a checkpoint.

    Attributes:
        identity: the task.
        epoch: the attempt that wrote it.
        written: time of writing, seconds since the Unix epoch.
        checkpoint: the task's progress.
        packed: the task's state.

    """

    identity: Identity
    epoch: int
    written: float
    checkpoint: CheckpointRecord
    packed: Packed


@dataclass(frozen=True, slots=True)
class SnapshotSummary:
    """A description of a snapshot file, without the state of the task.

    Attributes:
        identity: the task that may continue from it.
        epoch: the attempt that wrote it; 0: another task.
        written: time of writing, seconds since the Unix epoch.
        checkpoint: the task's progress.
        size_bytes: length of the file.

    """

    identity: Identity
    epoch: int
    written: float
    checkpoint: CheckpointRecord
    size_bytes: int

    @property
    def progress(self) -> float:
        """Share done, from 0 to 1; 0 if the total is unknown."""
        total = self.checkpoint.total
        return min(1.0, self.checkpoint.done / total) if total else 0.0


# ---------------------------------------------------------------- writing


def write(descriptor: int, snapshot: Snapshot) -> int:
    """Write a snapshot to an open, empty file and flush it to disk.

    Returns:
        Its bytes.

    Raises:
        OSError: the disk is full or broken, or a quota or size limit is exceeded.

    """
    sink = _Sink(descriptor)
    for part in _parts(snapshot):
        sink.put(part)
    return sink.close()


class _Sink:
    """Writes a file from its start, and hashes what it writes."""

    def __init__(self, descriptor: int) -> None:
        self._digest: Any = xxhash.xxh3_128()
        self._written = 0
        self._descriptor = descriptor

    def put(self, part: memoryview) -> None:
        self._digest.update(part)
        self._written += _write_all(self._descriptor, part)

    def close(self) -> int:
        """Write the checksum, and flush the file to disk; return its bytes."""
        checksum = memoryview(self._digest.digest())
        self._written += _write_all(self._descriptor, checksum)
        os.fsync(self._descriptor)
        return self._written


def _parts(snapshot: Snapshot) -> Iterator[memoryview]:
    import numpy as np

    yield _start_of(_header(snapshot))
    yield from _chunks(memoryview(snapshot.packed.values))
    for array in snapshot.packed.arrays:
        # A view of the bytes; a copy only if the array is not contiguous.
        flat: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        yield from _chunks(memoryview(flat))


def _start_of(header: _Header) -> memoryview:
    """Encode everything before the values."""
    encoded = msgspec.msgpack.encode(header)
    if len(encoded) > LONGEST_HEADER:
        raise SnapshotError("the task has too many arrays, or too large an `extra`")
    own = xxhash.xxh3_128_digest(encoded)
    return memoryview(PREFIX.pack(MAGIC, VERSION, len(encoded), own) + encoded)


def _header(snapshot: Snapshot) -> _Header:
    owner, packed = snapshot.identity, snapshot.packed
    named = zip(packed.names, packed.arrays, strict=True)
    return _Header(
        name=owner.name,
        task=owner.task,
        app=owner.app,
        app_version=owner.version,
        epoch=snapshot.epoch,
        written=snapshot.written,
        checkpoint=snapshot.checkpoint,
        values=len(packed.values),
        arrays=[_Array(name, each.dtype.str, list(each.shape)) for name, each in named],
    )


def _chunks(data: memoryview) -> Iterator[memoryview]:
    for start in range(0, len(data), CHUNK):
        yield data[start : start + CHUNK]


def _write_all(descriptor: int, data: memoryview) -> int:
    done = 0
    while done < len(data):
        done += os.write(descriptor, data[done:])
    return done


# ---------------------------------------------------------------- reading


def read(descriptor: int, owner: Identity, limit: int) -> Snapshot:
    """Read a snapshot that must be this task's.

    Args:
        descriptor: the open file.
        owner: the task.
        limit: maximum bytes.

    Raises:
        SnapshotError: it is not a valid snapshot of this task; gives the reason.
        OSError: it cannot be read.

    """
    size = _checked_size(descriptor, limit)
    source = _Source(descriptor)
    header = _read_header(source)
    _check_owner(header, owner)
    _check_lengths(header, size, source.taken)
    values = source.take(header.values)
    arrays = [_read_array(source, array) for array in header.arrays]
    found = source.digest.digest()
    if bytes(source.take(DIGEST_BYTES)) != found:
        raise SnapshotError("its checksum is wrong")
    packed = Packed(bytes(values), arrays, [array.name for array in header.arrays])
    return Snapshot(owner, header.epoch, header.written, header.checkpoint, packed)


def copy(
    source: int, target: int, owner: Callable[[Identity], Identity], limit: int
) -> SnapshotSummary:
    """Copy a snapshot to an open, empty file and flush it to disk; check all of it.

    Nothing is unpickled, and no more than a few MiB are in memory.

    Args:
        source, target: the open files.
        owner: returns the task that the copy is for, from the one that wrote it.
        limit: maximum bytes.

    Raises:
        SnapshotError: the source is not a valid snapshot, or not for that task.
        OSError: it cannot be read, or the copy cannot be written.

    """
    size = _checked_size(source, limit)
    reading, writing = _Source(source), _Sink(target)
    header = _read_header(reading)
    _check_lengths(header, size, reading.taken)
    new = _given_to(header, owner)
    left = size - reading.taken - DIGEST_BYTES
    writing.put(_start_of(new))
    buffer = memoryview(bytearray(min(left, CHUNK)))
    while left:
        part = buffer[: min(left, CHUNK)]
        reading.fill(part)
        writing.put(part)
        left -= len(part)
    found = reading.digest.digest()
    if bytes(reading.take(DIGEST_BYTES)) != found:
        raise SnapshotError("its checksum is wrong")
    return SnapshotSummary(
        _owner_of(new), new.epoch, new.written, new.checkpoint, writing.close()
    )


def _owner_of(header: _Header) -> Identity:
    return Identity(header.name, header.task, header.app, header.app_version)


def _given_to(header: _Header, owner: Callable[[Identity], Identity]) -> _Header:
    """Return the header of a copy; that of another task counts its attempts from 0."""
    before = _owner_of(header)
    new = owner(before)
    return msgspec.structs.replace(
        header,
        name=new.name,
        task=new.task,
        app=new.app,
        app_version=new.version,
        epoch=header.epoch if new == before else 0,
    )


def _checked_size(descriptor: int, limit: int) -> int:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise SnapshotError("it is not a regular file")
    if status.st_uid != os.getuid():
        raise SnapshotError(f"it belongs to uid {status.st_uid}")
    if status.st_size > limit:
        raise SnapshotError(f"it has {status.st_size} bytes, above {limit}")
    return status.st_size


def _read_header(source: _Source) -> _Header:
    magic, version, length, own = PREFIX.unpack(source.take(PREFIX.size))
    if magic != MAGIC:
        raise SnapshotError("it is not a snapshot")
    if version != VERSION:
        raise SnapshotError(f"its format is {version}; this libtask reads {VERSION}")
    if length > LONGEST_HEADER:
        raise SnapshotError(f"its header would have {length} bytes")
    header = source.take(length)
    if xxhash.xxh3_128_digest(header) != own:
        raise SnapshotError("the checksum of its header is wrong")
    try:
        return msgspec.msgpack.decode(header, type=_Header)
    except msgspec.MsgspecError as error:
        raise SnapshotError(f"its header is damaged: {error}") from error


def _check_owner(header: _Header, owner: Identity) -> None:
    if (header.name, header.task) != (owner.name, owner.task):
        raise SnapshotError(f"it is of another task, {header.task} ({header.name})")
    if header.app != owner.app:
        raise SnapshotError(f"it is of another application, {header.app}")
    if header.app_version != owner.version:
        raise SnapshotError("its application has changed since")


def _check_lengths(header: _Header, size: int, taken: int) -> None:
    """Check the lengths against the file's size before allocating memory."""
    try:
        lengths = [header.values, *(array.bytes() for array in header.arrays)]
    except (TypeError, ValueError, SyntaxError) as error:
        raise SnapshotError(f"its header names no type: {error}") from error
    if min(lengths) < 0 or taken + sum(lengths) + DIGEST_BYTES != size:
        raise SnapshotError(f"it has {size} bytes, not what its header says")


def _read_array(source: _Source, array: _Array) -> NDArray[Any]:
    import numpy as np

    flat: Any = np.empty(array.bytes(), np.uint8)
    source.fill(memoryview(flat))
    shaped: NDArray[Any] = flat.view(array.dtype).reshape(array.shape)
    return shaped


class _Source:
    """Reads a file from its start, and hashes what it reads.

    Attributes:
        digest: over everything read so far.
        taken: bytes read so far.

    """

    def __init__(self, descriptor: int) -> None:
        self.digest: Any = xxhash.xxh3_128()
        self.taken = 0
        self._descriptor = descriptor

    def take(self, length: int) -> bytearray:
        data = bytearray(length)
        self.fill(memoryview(data))
        return data

    def fill(self, target: memoryview) -> None:
        for chunk in _chunks(target):
            done = 0
            while done < len(chunk):
                count = os.readv(self._descriptor, [chunk[done:]])
                if not count:
                    raise SnapshotError("it is truncated")
                done += count
            self.digest.update(chunk)
        self.taken += len(target)
