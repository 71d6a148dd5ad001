"""Exit records: the exits of a launcher's workers, kept until hetd has processed them.

Each is a small file, written atomically. Exit records outlive the launcher; they are not
flushed to disk, because a crash of the machine ends hetd too.
"""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

from libtask.errors import InputError
from libtask.faultpoints import reach
from libtask.messages import WorkerExited, decode_to_daemon, encode

if TYPE_CHECKING:
    from pathlib import Path

CONFIRMED_S = 60.0
"""Seconds after which an exit counts as processed by a hetd that is still connected."""


MOST_EXITS = 1000
"""Maximum number of records; the newest are kept. A launcher that is killed more often
than once in `CONFIRMED_S` seconds would never remove one; hetd detects missing workers."""


class ExitRecords:
    """The exits that hetd may not know.

    Args:
        folder: folder of the records.

    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._sent_at: dict[str, float] = {}
        for draft in self._folder.glob(".*.new"):  # of a killed launcher
            draft.unlink()

    def keep(self, exited: WorkerExited) -> None:
        """Write an exit record before the exit is reported; a full disk is tolerated."""
        path = self._folder / exited.name
        draft = path.with_name(f".{exited.name}.new")
        self._sent_at[exited.name] = time.monotonic()
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft.write_bytes(encode(exited))
            reach("exit.drafted")
            draft.replace(path)
        except OSError as error:
            sys.stderr.write(f"libtask: {path}: {error.strerror}; not kept\n")

    def unconfirmed(self) -> list[WorkerExited]:
        """Return the exits to report to a new hetd, oldest first."""
        paths = [path for path in self._folder.glob("*") if path.name[0] != "."]
        paths.sort(key=_changed)
        for path in paths[:-MOST_EXITS]:
            path.unlink(missing_ok=True)
        found = [self._read(path) for path in paths[-MOST_EXITS:]]
        now = time.monotonic()
        self._sent_at = {exited.name: now for exited in found if exited}
        return [exited for exited in found if exited]

    def remove_confirmed(self) -> None:
        """Remove records that hetd has processed; call it while hetd is connected."""
        limit = time.monotonic() - CONFIRMED_S
        for name in [name for name, at in self._sent_at.items() if at < limit]:
            del self._sent_at[name]
            with contextlib.suppress(OSError):
                (self._folder / name).unlink()

    def _read(self, path: Path) -> WorkerExited | None:
        with contextlib.suppress(InputError, OSError):
            message = decode_to_daemon(path.read_bytes())
            if isinstance(message, WorkerExited):
                return message
        path.unlink(missing_ok=True)  # unreadable
        return None


def _changed(path: Path) -> int:
    return path.stat().st_mtime_ns
