"""Which arrays hold the bytes of a result's file: those that were mapped, or just written.

Devices keep copies of results by the part of the file that holds them. A file with results
is never changed, but the private mapping of it is memory of the task, which may write to it.
The kernel knows which pages of a mapping were written to: those are no longer pages of the
file (`/proc/self/pagemap`, bit 61, https://docs.kernel.org/admin-guide/mm/pagemap.html). An
array is only identified where it is certain that it holds what the file holds.

`pickles` notes what it maps and writes; devices and workers ask.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

PAGE = mmap.PAGESIZE
ENTRY = 8
"""Bytes of pagemap for each page."""
PRESENT, SWAPPED, OF_FILE = 1 << 63, 1 << 62, 1 << 61
"""Bits of an entry. A page that a task wrote to is present or swapped, and not of a file."""


@dataclass(frozen=True, slots=True)
class File:
    """A file with a result, as it was at a time: files of one name may follow each other."""

    path: str
    device: int
    inode: int
    modified_ns: int

    @classmethod
    def of(cls, path: str, descriptor: int) -> File:
        """Return the identity of an open file."""
        found = os.fstat(descriptor)
        return cls(path, found.st_dev, found.st_ino, found.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class ResultPart:
    """A range of bytes of a file with a result."""

    file: File
    begin: int
    bytes: int


_mapped: weakref.WeakKeyDictionary[mmap.mmap, File] = weakref.WeakKeyDictionary()
"""The mapped files of this process, as long as an array refers to them."""
_recorded: dict[tuple[int, int], ResultPart] | None = None
"""(address, bytes) of buffers that were written -> their part; None: nobody asks."""


def note_mapped(mapped: mmap.mmap, file: File) -> None:
    """Record that a file is mapped privately, from its beginning."""
    _mapped[mapped] = file


def note_written(file: File, begin: int, buffer: memoryview) -> None:
    """Record that a file holds a buffer from `begin` on."""
    if _recorded is not None and "numpy" in sys.modules:
        _recorded[_address(buffer), buffer.nbytes] = ResultPart(
            file, begin, buffer.nbytes
        )


@contextlib.contextmanager
def recorded() -> Iterator[dict[tuple[int, int], ResultPart]]:
    """Record which buffers are written to files in the block, by (address, bytes).

    The buffers have to outlive the block, so that no two have the same address.
    """
    global _recorded  # noqa: PLW0603  a worker runs one task at a time
    written: dict[tuple[int, int], ResultPart] = {}
    _recorded = written
    try:
        yield written
    finally:
        _recorded = None


def part_of(array: NDArray[Any]) -> ResultPart | None:
    """Return the part of a file that an array certainly equals; None: there is none."""
    mapped = _mapping_of(array)
    file = None if mapped is None else _mapped.get(mapped)
    if mapped is None or file is None or not array.flags.c_contiguous:
        return None
    address = array.ctypes.data
    if array.nbytes == 0 or not is_unwritten(address, array.nbytes):
        return None
    return ResultPart(file, address - _address(memoryview(mapped)), array.nbytes)


def place_of(array: NDArray[Any]) -> tuple[int, int]:
    """Return (address, bytes) of a contiguous array, as `recorded` gives them."""
    return array.ctypes.data, array.nbytes


def is_unwritten(address: int, size: int) -> bool:
    """Return whether no page of a private mapping was written to; False if unknown."""
    first, last = address // PAGE, (address + size - 1) // PAGE
    entries = _pagemap(first, last + 1 - first)
    if entries is None:
        return False
    in_memory = (entries & (PRESENT | SWAPPED)) != 0
    return not bool((in_memory & ((entries & OF_FILE) == 0)).any())


def _pagemap(first: int, count: int) -> NDArray[Any] | None:
    """Read the entries of pages; None: the system does not tell them."""
    import numpy as np

    try:
        descriptor = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        read = os.pread(descriptor, count * ENTRY, first * ENTRY)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    if len(read) != count * ENTRY:
        return None
    return np.frombuffer(read, np.uint64)


def _mapping_of(array: Any) -> mmap.mmap | None:
    """Return the mapping whose memory an array is a view of."""
    import numpy as np

    holder = array
    while holder is not None and not isinstance(holder, mmap.mmap):
        if isinstance(holder, np.ndarray):
            holder = holder.base
        elif isinstance(holder, memoryview):
            holder = holder.obj
        else:
            return None
    return holder


def _address(buffer: memoryview) -> int:
    import numpy as np

    return int(np.frombuffer(buffer, np.uint8).ctypes.data)
