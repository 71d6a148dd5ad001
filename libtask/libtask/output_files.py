"""Files that users name for output and that are replaced in one step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from libtask.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path


def check_replaceable(path: Path) -> None:
    """Check a path before something is renamed to it.

    Raises:
        InputError: it is not a regular file: a rename would take the
            place of a device such as /dev/null, for all users of the machine.

    """
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: not a regular file")
