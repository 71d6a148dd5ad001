"""The cache of test results about this machine, with one small file per result.

`discovery` stores the drivers that compute correctly, kernels store their fastest variant.
A key covers everything that a result depends on; a lost or damaged entry only costs the
time to repeat the test. Entries are read by decoders that their readers made when they were
imported: msgspec examines a type when it meets it first, and two threads that do so at the
same time crash the process.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import TypeVar

import msgspec

from libtask.devices.icd import write_atomically

T = TypeVar("T")

ENTRIES = 200
"""Maximum files in a folder: several for each driver, device, or kernel and size."""


class Cache:
    """Entries in a folder, each written atomically.

    Args:
        folder: the folder; created with the first entry.

    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, key: str, decoder: msgspec.json.Decoder[T]) -> T | None:
        """Read an entry; None: it is missing or damaged."""
        try:
            return decoder.decode((self._folder / key).read_bytes())
        except (OSError, msgspec.MsgspecError):
            return None

    def put(self, key: str, value: T) -> T:
        """Write an entry and remove the oldest surplus ones; a full disk is tolerated."""
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(self._folder / key, msgspec.json.encode(value))
            entries = sorted(self._folder.iterdir(), key=_age)
            for old in entries[ENTRIES:]:
                old.unlink(missing_ok=True)
        return value


def key_of(*parts: str) -> str:
    """Return the name of the entry that depends on `parts`."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def cpu_identity() -> str:
    """Return the model and the features of the first CPU."""
    with contextlib.suppress(OSError):
        first = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
        fields = ("vendor_id", "cpu family", "model", "flags", "Features", "CPU part")
        return "\n".join(line for line in first.split("\n") if line.startswith(fields))
    return ""


def _age(entry: Path) -> float:
    with contextlib.suppress(OSError):
        return -entry.stat().st_mtime
    return 0.0
