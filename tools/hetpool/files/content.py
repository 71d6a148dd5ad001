"""Files by content id, in one folder of a node: what agents pull from each other.

A content id is the BLAKE2b digest (32 bytes, hexadecimal) of the whole file. Names from the
wire are such ids and nothing else; files are opened relative to the folder's descriptor,
never through symbolic links. The folder has a quota: what nobody uses goes first.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NewType, Self

from libtask.errors import HetError, InputError, NotFoundError
from libtask.whole_files import demand_unchanged, status_of_regular

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ContentId = NewType("ContentId", str)

CHUNK = 1 << 20
"""Bytes that are asked for at once: at 256 KiB a transfer costs twice the processor time."""
MOST_READ = 4 * CHUNK
"""A peer gets at most this in one answer."""

_ID = re.compile(r"[0-9a-f]{64}")
_PARTIAL, _PRESENT = ".partial", ".present"
_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC


class NoRoomError(HetError):
    """The folder's quota has no room for the file; it may have later."""

    retry = True
    code = "no-room"


class DamagedError(HetError):
    """A file has other bytes than its content id says."""

    retry = True
    code = "damaged"


def content_id(text: str) -> ContentId:
    """Check that a text is a content id.

    Raises:
        InputError: it is not.

    """
    if _ID.fullmatch(text) is None:
        shown = repr(text)[:80]
        raise InputError(f"content id: expected 64 digits of 0-9a-f, got {shown}")
    return ContentId(text)


def digest_of(descriptor: int) -> ContentId:
    """Compute the content id of an open file, from its beginning, a chunk at a time.

    What it has now counts: a file that another program appends to has no end.
    """
    digest = hashlib.blake2b(digest_size=32)
    offset, size = 0, os.fstat(descriptor).st_size
    while block := os.pread(descriptor, min(CHUNK, size - offset), offset):
        digest.update(block)
        offset += len(block)
    return ContentId(digest.hexdigest())


@dataclass(slots=True)
class _Kept:
    """A complete or partial file of the folder."""

    size: int
    users: int = 0


class ContentStore:
    """The folder of one node: for several threads, not for several processes at a time.

    Args:
        folder: made with mode 0700 if it is absent; the user's own otherwise.
        quota: bytes of all files in it at most, the full size of partial ones counted.

    Raises:
        InputError: the folder is another user's, or others may write into it.

    """

    def __init__(self, folder: Path, quota: int) -> None:
        self.quota = quota
        self._path = folder
        self._lock = threading.RLock()
        """Held while `_kept` is looked through or changed."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _FLAGS)
        try:
            _check_owner(os.fstat(self._folder), folder)
            self._kept = dict(self._found())
        except BaseException:
            os.close(self._folder)
            raise

    def close(self) -> None:
        """Close the folder's descriptor."""
        os.close(self._folder)

    def used(self) -> int:
        """Return the bytes that count against the quota."""
        with self._lock:
            return sum(each.size for each in self._kept.values())

    def __contains__(self, content: ContentId) -> bool:
        with self._lock:
            return content in self._kept

    def path(self, content: ContentId) -> Path:
        """Return where a complete file is, for the task that reads it."""
        self._known(content)
        return self._path / content

    def size(self, content: ContentId) -> int:
        """Return the size of a complete file, bytes."""
        return self._known(content).size

    def read(self, content: ContentId, offset: int, count: int) -> bytes:
        """Read a part of a complete file; all of it must be there.

        Raises:
            NotFoundError: there is no such content here.
            InputError: the part is not in the file, or above `MOST_READ`.

        """
        kept = self._known(content_id(content))
        if not 0 < count <= MOST_READ or not 0 <= offset <= kept.size - count:
            raise InputError(
                f"content {content[:12]}: no bytes {offset} to {offset + count} in"
                f" {kept.size}, or above {MOST_READ} at once"
            )
        self._touch(content)
        descriptor = self._open(content, os.O_RDONLY)
        try:
            return os.pread(descriptor, count, offset)
        finally:
            os.close(descriptor)

    def add(self, source: Path) -> ContentId:
        """Copy a file into the folder (shared blocks where the file system can).

        Raises:
            InputError: not a regular file, or it changed meanwhile.
            NoRoomError: the quota is used up.

        """
        origin = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        try:
            status = status_of_regular(origin)
            content = digest_of(origin)
            demand_unchanged(origin, status)
            if content not in self:
                self._copy_in(content, origin, status.st_size)
            self._touch(content)
        except DamagedError as error:
            raise InputError(f"{source}: changed while it was read") from error
        except InputError as error:
            raise InputError(f"{source}: {error}") from error
        finally:
            os.close(origin)
        return content

    def begin(self, content: ContentId, size: int, chunk: int = CHUNK) -> Partial:
        """Open the partial file of a content, with what an earlier attempt left.

        Raises:
            NoRoomError: the quota is used up.

        """
        name = content_id(content) + _PARTIAL
        with self._lock:
            left = self._kept.get(name)
            if left and left.size != size and not left.users:
                self._delete(name)
            if name not in self._kept:
                self._make_room(content, size)
                self._kept[name] = _Kept(size)
            self._kept[name].users += 1
        try:
            return Partial(self, content, size, chunk)
        except BaseException:
            self._put_down(content)
            raise

    def hold(self, content: ContentId) -> None:
        """Keep a complete file until as many calls of `release`."""
        with self._lock:
            self._known(content).users += 1
            self._touch(content)

    def release(self, content: ContentId) -> None:
        """Allow that a file goes when room is needed."""
        with self._lock:
            kept = self._known(content)
            kept.users = max(0, kept.users - 1)

    def remove(self, content: ContentId) -> None:
        """Delete a complete file, if it is there."""
        self._delete(content)

    # ------------------------------------------------------------ for `Partial`

    def _open(self, name: str, flags: int) -> int:
        return os.open(name, flags | _FLAGS, 0o600, dir_fd=self._folder)

    def _complete(self, content: ContentId) -> None:
        with self._lock:
            if content in self._kept:  # added from a file meanwhile
                return
            os.rename(
                content + _PARTIAL,
                content,
                src_dir_fd=self._folder,
                dst_dir_fd=self._folder,
            )
            self._unlink(content + _PRESENT)
            kept = self._kept.pop(content + _PARTIAL)
            self._kept[content] = _Kept(kept.size)

    def _put_down(self, content: ContentId) -> None:
        with self._lock:
            if kept := self._kept.get(content + _PARTIAL):
                kept.users -= 1

    def _delete(self, name: str) -> None:
        with self._lock:
            self._unlink(name)
            if name.endswith(_PARTIAL):
                self._unlink(name.removesuffix(_PARTIAL) + _PRESENT)
            self._kept.pop(name, None)

    # ---------------------------------------------------------------- the folder

    def _found(self) -> Iterator[tuple[str, _Kept]]:
        """List what an earlier process left, what was used last at the end."""
        files = [
            (entry.stat(follow_symlinks=False), entry.name)
            for entry in os.scandir(self._folder)
        ]
        for status, name in sorted(files, key=lambda each: each[0].st_mtime_ns):
            known = _ID.fullmatch(name.removesuffix(_PARTIAL)) is not None
            if known and stat.S_ISREG(status.st_mode):
                yield name, _Kept(status.st_size)
            elif not name.endswith(_PRESENT):
                raise InputError(f"{self._path}: {name} is not a file of a pool's node")

    def _known(self, content: ContentId) -> _Kept:
        with self._lock:
            kept = self._kept.get(content)
        if kept is None:
            raise NotFoundError(f"content {content[:12]}: not on this node")
        return kept

    def _touch(self, content: ContentId) -> None:
        """Let a file be the last to go."""
        with self._lock:
            self._kept[content] = self._kept.pop(content)

    def _make_room(self, content: ContentId, size: int) -> None:
        held = sum(kept.size for kept in self._kept.values() if kept.users)
        if held + size > self.quota:
            raise NoRoomError(
                f"content {content[:12]}: {size} bytes, and {held} of the quota of"
                f" {self.quota} are in use"
            )
        excess = self.used() + size - self.quota
        for name, kept in list(self._kept.items()):
            if excess <= 0:
                return
            if not kept.users:
                excess -= kept.size
                self._delete(name)

    def _copy_in(self, content: ContentId, origin: int, size: int) -> None:
        with self.begin(content, size) as partial:
            copy_bytes(origin, partial.descriptor, size)
            partial.finish(digest_of(partial.descriptor))

    def _unlink(self, name: str) -> None:
        try:
            os.unlink(name, dir_fd=self._folder)
        except FileNotFoundError:
            return


@dataclass(slots=True)
class Partial:
    """A file that is being pulled, beside it a byte for each chunk that is here.

    The bytes of `present` are written after their chunks, so an attempt that ended early
    goes on where it was. A power cut may keep one and lose the other; `finish` finds that.
    """

    store: ContentStore
    content: ContentId
    size: int
    chunk: int = CHUNK
    descriptor: int = field(init=False)
    _present: int = field(init=False)

    def __post_init__(self) -> None:
        flags = os.O_RDWR | os.O_CREAT
        self.descriptor = self.store._open(self.content + _PARTIAL, flags)  # noqa: SLF001  one module
        try:
            self._present = self.store._open(self.content + _PRESENT, flags)  # noqa: SLF001  one module
            os.ftruncate(self.descriptor, self.size)
        except BaseException:
            os.close(self.descriptor)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files; what is here stays for the next attempt."""
        os.close(self.descriptor)
        os.close(self._present)
        self.store._put_down(self.content)  # noqa: SLF001  one module

    def present(self) -> frozenset[int]:
        """Return the numbers of the chunks that are here."""
        marks = os.pread(self._present, -(-self.size // self.chunk), 0)
        return frozenset(index for index, mark in enumerate(marks) if mark)

    def write(self, offset: int, block: bytes) -> None:
        """Write a chunk at its place, then record that it is here."""
        view = memoryview(block)
        while view:
            written = os.pwrite(self.descriptor, view, offset + len(block) - len(view))
            view = view[written:]
        os.pwrite(self._present, b"\x01", offset // self.chunk)

    def clear(self) -> None:
        """Forget all chunks: some were damaged, and none says which."""
        os.ftruncate(self._present, 0)

    def finish(self, digest: ContentId) -> None:
        """Give the file its name if it has the bytes that its content id says.

        Args:
            digest: `digest_of` the descriptor, which takes a second a gigabyte.

        Raises:
            DamagedError: they differ; the file stays partial, without a chunk.

        """
        if digest != self.content:
            self.clear()
            raise DamagedError(f"content {self.content[:12]}: other bytes than its id")
        self.store._complete(self.content)  # noqa: SLF001  one module


def _check_owner(status: os.stat_result, folder: Path) -> None:
    if status.st_uid != os.getuid():
        raise InputError(f"{folder}: belongs to uid {status.st_uid}")
    if status.st_mode & 0o022:
        raise InputError(f"{folder}: others may write into it; chmod 700 it")


def copy_bytes(origin: int, target: int, size: int) -> None:
    """Copy the first bytes of a file; of a shorter one, what it has."""
    offset = 0
    while offset < size:
        try:
            copied = os.copy_file_range(origin, target, size - offset, offset, offset)
        except OSError:  # other file systems, or one that cannot
            block = os.pread(origin, min(CHUNK, size - offset), offset)
            copied = os.pwrite(target, block, offset)
        if not copied:
            return
        offset += copied
