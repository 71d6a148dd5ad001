"""Reads files of trained weights: those that come with hetd, by name, or a file by its path."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from libtask.errors import InputError

NAMED = ("node", "rack")
"""Weights that come with hetd."""
MOST_BYTES = 1_000_000
"""Of a file; the arrays take 35 kB."""


def read_weights(name: str) -> bytes:
    """Read weights.

    Args:
        name: one of `NAMED`, or an absolute path: the reader may be a daemon, whose
            working directory is not the user's.

    Raises:
        InputError: there are none, or the file is too large or no regular one.

    """
    if name in NAMED:
        return (resources.files("libtask.data") / f"{name}.npz").read_bytes()
    path = Path(name)
    if not path.is_absolute():
        raise InputError(
            f"weights: expected {' or '.join(NAMED)} or an absolute path, got {name!r}"
        )
    try:
        return _read(path)
    except OSError as error:
        raise InputError(f"weights: {path}: {error.strerror or error}") from error


def _read(path: Path) -> bytes:
    if path.exists() and not path.is_file():
        raise InputError(f"weights: {path}: not a regular file")
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise InputError(f"weights: {path}: more than {MOST_BYTES:,} bytes: no weights")
    return data
