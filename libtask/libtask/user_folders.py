"""Folders of a user for hetd's files, by the XDG base directory specification."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from libtask.errors import InputError


def user_folder(
    kind: Literal["state", "config", "cache", "data"], name: str = "hetd"
) -> Path:
    """Return this user's folder for files of a kind; it may not exist yet.

    Raises:
        InputError: the user has no home directory; the text names the variables to set.

    """
    import platformdirs  # a twelfth of a command's start

    try:
        return Path(getattr(platformdirs, f"user_{kind}_dir")(name))
    except RuntimeError as error:
        raise InputError(
            f"no home directory for {kind} files: set HOME, or XDG_{kind.upper()}_HOME, "
            "to an absolute path"
        ) from error
