"""Model files: measured execution times as lines of JSON, to copy between machines.

The first line names the format, each other line is a measurement. An unusable line is
reported by its number; the others are used.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec

from libtask.errors import InputError
from libtask.messages import Sample

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

FORMAT = "hetctl/models-1"
LINE = "hetctl/model-1"
"""The format of each measurement; readers ignore it."""


def write(samples: Iterable[Sample]) -> str:
    """Return measurements as the text of a model file."""
    lines: list[Any] = [{"format": FORMAT}]
    lines += [{"format": LINE} | msgspec.to_builtins(each) for each in samples]
    return "".join(msgspec.json.encode(line).decode() + "\n" for line in lines)


def read(path: Path, resources: Collection[str]) -> tuple[list[Sample], list[str]]:
    """Return the measurements of a file, and the errors of rejected lines.

    Args:
        path: the file.
        resources: names of this node's resources; lines about others are rejected.

    Raises:
        InputError: the file cannot be read, or is not a model file.

    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    _check_format(path, lines[0])
    samples, complaints = [], []
    for number, line in enumerate(lines[1:], start=2):
        try:
            samples += [_sample(line, resources)] if line.strip() else []
        except (ValueError, RecursionError) as error:
            complaints.append(f"{path}: line {number}: {error}")
    return samples, complaints


def _check_format(path: Path, line: bytes) -> None:
    try:
        header: Any = msgspec.json.decode(line)
    except (msgspec.MsgspecError, RecursionError):
        header = None
    found = header.get("format") if isinstance(header, dict) else None
    if found != FORMAT:
        raise InputError(f"{path}: line 1: expected the format {FORMAT!r}")


def _sample(line: bytes, resources: Collection[str]) -> Sample:
    """Parse one measurement.

    Raises:
        ValueError: the line is not a measurement, or unusable here; the text has the reason.

    """
    sample = msgspec.json.decode(line, type=Sample)
    if sample.resource not in resources:
        offered = ", ".join(resources)
        raise ValueError(f"no resource {sample.resource!r} here; there are: {offered}")
    for name in ("seconds", "work"):
        value = getattr(sample, name)
        if not 0 < value < math.inf:
            raise ValueError(f"{name}: expected a number above 0, got {value:g}")
    if sample.spread < 0 or sample.count < 1:
        raise ValueError("expected a spread of at least 0 and a count of at least 1")
    if not 0 <= sample.setup <= sample.seconds:
        raise ValueError("setup: expected at most the seconds of the whole task")
    return sample
