"""Users' modules that a worker has imported, compared with the files on disk.

A warm worker serves a task only if a fresh interpreter would import the same: modules
outside the standard library and site-packages are unchanged on disk, their folders hold
the same modules, and all of them were found from the folder of the task's application.
Otherwise the worker leaves, and the launcher forks another one in its place.

Files are compared by time of change, size and inode. One that was changed so shortly
before its import that a further change may have the same time is compared by content, as
git does it (racy-git.txt in its documentation).
"""

from __future__ import annotations

import hashlib
import os
import site
import sys
import sysconfig
import time
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from libtask.apps import is_value
from libtask.messages import CALL

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

RACY_NS = 50_000_000
"""Age of a change in ns below which another change may get the same time: some ticks."""
SUFFIXES = (".py", ".so")
"""Ends of the names of modules, beside folders."""
CACHE = "__pycache__"
SITE = ("site-packages", "dist-packages")
"""Names of folders of installed packages."""


class FileStamp(NamedTuple):
    """The state of a file: time of change in ns, size in bytes, inode, digest of content.

    The digest is empty for a file whose last change was long before.
    """

    changed: int
    size: int
    inode: int
    digest: bytes


class ImportedCode(MetaPathFinder):
    """Records files of users' modules just before they are imported.

    `watch` puts it in front of the finders of modules. Modules that a worker inherited
    from its launcher are not recorded: another worker would have the same.
    """

    def __init__(self) -> None:
        self._libraries = _libraries()
        self._files: dict[str, FileStamp | None] = {}
        self._folders: dict[str, tuple[int, frozenset[str]]] = {}
        """Folder -> time of its last change in ns, and the modules in it."""
        self._folder = ""
        """Folder of the applications in files that this worker serves; empty: any."""

    def watch(self) -> None:
        """Record imports from now on."""
        sys.meta_path.insert(0, self)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> None:
        """Record the file of a user's module that is about to be imported; find nothing."""
        if path is not None and all(f"{p}/".startswith(self._libraries) for p in path):
            return
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.has_location and spec.origin:
            self._record(spec.origin)

    def serves(self, app: str) -> bool:
        """Return whether a task would run the code here that a fresh interpreter would.

        If so, the application's file is recorded, as it is imported next.

        Args:
            app: its application: a name, or `/abs/path/file.py:Class`.

        """
        # functions may refer to modules of the same names as those of others, too
        by_value = app == CALL or is_value(app)
        path, _, class_name = app.rpartition(":")
        in_file = class_name and not by_value
        folder = os.path.dirname(path) if in_file else ""  # noqa: PTH120  for speed
        if self._folder not in ("", folder) and (folder or by_value):
            return False
        if not self._is_on_disk():
            return False
        if folder:
            self._folder = folder
            self._record(path)
        return True

    def _is_on_disk(self) -> bool:
        same = all(_is_same(path, known) for path, known in self._files.items())
        return same and all(self._holds_the_same(each) for each in self._folders)

    def _record(self, path: str) -> None:
        if path in self._files or path.startswith(self._libraries):
            return
        folder = os.path.dirname(path)  # noqa: PTH120  for speed
        if folder not in self._folders:
            self._folders[folder] = _listed(folder)
        self._files[path] = _stamp(path)

    def _holds_the_same(self, folder: str) -> bool:
        changed, names = self._folders[folder]
        try:
            now = os.stat(folder).st_mtime_ns  # noqa: PTH116  for speed
        except OSError:
            return False
        if now == changed:
            return True
        listed = _listed(folder)
        if listed[1] != names:
            return False
        self._folders[folder] = listed
        return True


def _libraries() -> tuple[str, ...]:
    """Return the beginnings of the paths of modules that are not the users'."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    places = {sysconfig.get_path(name) for name in names}
    own = str(Path(__file__).parents[2])
    found = {*places, *site.getsitepackages(), site.getusersitepackages(), own}
    # of other environments, which `.pth` files and PYTHONPATH add
    found |= {entry for entry in sys.path if Path(entry).name in SITE}
    return tuple(f"{place}/" for place in found)


def _stamp(path: str) -> FileStamp | None:
    """Return the state of a file; None: it is not there."""
    now = time.time_ns()
    try:
        status = os.stat(path)  # noqa: PTH116  for speed
        racy = now - status.st_mtime_ns < RACY_NS
        digest = _digest(path) if racy else b""
    except OSError:
        return None
    return FileStamp(status.st_mtime_ns, status.st_size, status.st_ino, digest)


def _is_same(path: str, known: FileStamp | None) -> bool:
    try:
        status = os.stat(path)  # noqa: PTH116  for speed
        if known is None or known[:3] != (
            status.st_mtime_ns,
            status.st_size,
            status.st_ino,
        ):
            return False
        return not known.digest or known.digest == _digest(path)
    except OSError:
        return known is None


def _digest(path: str) -> bytes:
    return hashlib.blake2b(Path(path).read_bytes(), digest_size=16).digest()


def _listed(folder: str) -> tuple[int, frozenset[str]]:
    """Return when a folder last changed, in ns, and the names of modules in it."""
    now = time.time_ns()
    try:
        changed = os.stat(folder).st_mtime_ns  # noqa: PTH116  for speed
        with os.scandir(folder) as entries:
            names = frozenset(each.name for each in entries if _is_module(each))
    except OSError:
        return 0, frozenset()
    # a further change may get the same time: list it again at the next look
    return (0 if now - changed < RACY_NS else changed), names


def _is_module(entry: os.DirEntry[str]) -> bool:
    if entry.name.endswith(SUFFIXES):
        return True
    return entry.name != CACHE and entry.is_dir()
