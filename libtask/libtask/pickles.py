"""Pickles whose large arrays lie beside them, in files that readers map into memory.

A result that another task takes is written once, from the array's own memory, and never
read: the arrays of the reader are the pages of the file, in memory for all processes that
map it, and dropped by the system when memory is short. A page that a task changes becomes
the task's own; no other one sees the change.

A file begins with `MAGIC`, the number of its parts, and the bytes of each (64-bit numbers,
little endian). The first part is the pickle (protocol 5), the others are the buffers that it
refers to, in order; each begins at a multiple of `ALIGNMENT`. A file without `MAGIC` is a
plain pickle.

Writers never change a file: they remove it and create another one. A file that became
shorter under a reader would kill it (SIGBUS).
"""

from __future__ import annotations

import mmap
import os
import pickle
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from libtask.file_parts import File, note_mapped, note_written

if TYPE_CHECKING:
    from io import BufferedReader
    from pathlib import Path

MAGIC = b"hetpick1"
ALIGNMENT = 64
"""Bytes; what vector units and array libraries like best."""
LEAST = 128 << 10
"""Bytes from which a buffer lies beside the pickle; no such value fits into a message."""
NUMBER = struct.Struct("<Q")


@dataclass(slots=True)
class Pickled:
    """A pickle, and the buffers that it refers to; without any it is complete.

    The buffers are those of the value: it must not change until they are written.
    """

    stream: bytes
    buffers: list[memoryview] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return len(self.stream) + sum(each.nbytes for each in self.buffers)


def pickled(value: Any) -> Pickled:
    """Pickle a value.

    Raises:
        Exception: the value cannot be pickled; its classes may raise anything.

    """
    import cloudpickle

    buffers: list[memoryview] = []

    def take(buffer: pickle.PickleBuffer) -> bool:
        """Return whether the buffer stays within the pickle."""
        try:
            raw = buffer.raw()
        except BufferError:  # it is not contiguous
            return True
        if raw.nbytes >= LEAST:
            buffers.append(raw)
        return raw.nbytes < LEAST

    stream = cloudpickle.dumps(value, protocol=5, buffer_callback=take)
    return Pickled(stream, buffers)


def write_pickled(path: Path, content: Pickled) -> int:
    """Write a file that only its owner can read, in place of one there; return its bytes.

    Raises:
        OSError: it cannot be written.

    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # never changed: it may be mapped
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        if not content.buffers:
            file.write(content.stream)
            return file.tell()
        parts: list[bytes | memoryview] = [content.stream, *content.buffers]
        sizes = [len(content.stream), *(each.nbytes for each in content.buffers)]
        file.write(MAGIC + b"".join(map(NUMBER.pack, [len(sizes), *sizes])))
        begins: list[int] = []
        for part in parts:
            file.write(bytes(-file.tell() % ALIGNMENT))
            begins.append(file.tell())
            file.write(part)
        file.flush()
        written = File.of(str(path), descriptor)
        for begin, buffer in zip(begins[1:], content.buffers, strict=True):
            note_written(written, begin, buffer)
        return file.tell()


def unpickled(file: BufferedReader, path: Path) -> Any:
    """Return the value in a file, with its large arrays mapped.

    Args:
        file: the open file; `path`: the name by which it was opened.

    Raises:
        Exception: the file is damaged, or the value cannot be unpickled here.

    """
    head = file.read(len(MAGIC))
    if head != MAGIC:
        rest = file.read(os.fstat(file.fileno()).st_size)  # it may grow meanwhile
        return pickle.loads(head + rest)  # noqa: S301  the caller's own task wrote it
    (count,) = NUMBER.unpack(file.read(NUMBER.size))
    memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    note_mapped(memory, File.of(str(path), file.fileno()))
    mapped = memoryview(memory)
    begin = len(MAGIC) + NUMBER.size
    end = begin + NUMBER.size * count
    if not begin < end <= len(mapped):
        raise ValueError("the file is incomplete")
    sizes = struct.unpack_from(f"<{count}Q", mapped, begin)
    stream, *buffers = _parts(mapped, end, sizes)
    return pickle.loads(stream, buffers=buffers)  # noqa: S301  the caller's own task wrote it


def _parts(mapped: memoryview, offset: int, sizes: tuple[int, ...]) -> list[memoryview]:
    parts: list[memoryview] = []
    for size in sizes:
        offset += -offset % ALIGNMENT
        part = mapped[offset : offset + size]
        if len(part) != size:
            raise ValueError("the file is incomplete")
        parts.append(part)
        offset += size
    return parts
