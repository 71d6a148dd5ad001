"""Model files: measured times and loads as lines of JSON, to copy between machines.

The first line names the format, each other line is a measurement or, by its own format, a
load. An unusable line is reported by its number; the others are used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from libtask.complaints import OBJECT, convert
from libtask.errors import InputError
from libtask.messages import LearnedLoad, Sample
from libtask.whole_files import LARGEST_DATA, read_whole

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from libtask.messages import DeviceList

FORMAT = "hetctl/models-1"
LINE = "hetctl/model-1"
"""The format of each measurement; readers ignore it."""
LOAD = "hetctl/load-1"
"""The format of each load."""
LARGEST_LOAD = 16.0
"""Largest demand that a node takes."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """The usable lines of a file, and the errors of the others."""

    samples: list[Sample] = field(default_factory=list)
    loads: list[LearnedLoad] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


def write(samples: Iterable[Sample], loads: Iterable[LearnedLoad] = ()) -> str:
    """Return measurements and loads as the text of a model file."""
    lines: list[Any] = [{"format": FORMAT}]
    lines += [{"format": LINE} | msgspec.to_builtins(each) for each in samples]
    lines += [{"format": LOAD} | msgspec.to_builtins(each) for each in loads]
    return "".join(msgspec.json.encode(line).decode() + "\n" for line in lines)


def read(path: Path, node: DeviceList) -> ModelFile:
    """Return the contents of a file.

    Args:
        path: the file.
        node: this node's resources, and what they share; lines about others are rejected.

    Raises:
        InputError: the file cannot be read, or is not a model file.

    """
    try:
        lines = read_whole(path, LARGEST_DATA).split(b"\n")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    _check_format(path, lines[0])
    found = ModelFile()
    for number, line in enumerate(lines[1:], start=2):
        try:
            if line.strip():
                _take(line, node, found)
        except (ValueError, InputError, RecursionError) as error:
            found.complaints.append(f"{path}: line {number}: {error}")
    return found


class _Line(msgspec.Struct):
    """The part of a line that names its kind."""

    format: str = LINE


def _take(line: bytes, node: DeviceList, found: ModelFile) -> None:
    """Parse a line, and add what it says.

    Raises:
        ValueError, InputError: the line is unusable here; the text has the reason.

    """
    document = msgspec.json.decode(line)
    if convert(document, _Line, OBJECT).format == LOAD:
        found.loads.append(_load(document, node))
    else:
        resources = [device.spec.name for device in node.devices]
        found.samples.append(_sample(document, resources))


def _load(document: Any, node: DeviceList) -> LearnedLoad:
    load = convert(document, LearnedLoad, OBJECT)
    shared = [each.name for each in node.shared if load.resource in each.used_by]
    if load.shared not in shared:
        known = ", ".join(shared) or "nothing"
        raise ValueError(
            f"no {load.shared!r} of {load.resource!r} here; known: {known}"
        )
    if not 0 <= load.demand <= LARGEST_LOAD or not 0 <= load.bound <= 1:
        text = f"expected a demand from 0 to {LARGEST_LOAD:g} and a bound from 0 to 1"
        raise ValueError(text)
    if not all(0 < factor < math.inf for factor in load.slowdowns.values()):
        raise ValueError("slowdowns: expected numbers above 0")
    return load


def _check_format(path: Path, line: bytes) -> None:
    try:
        header: Any = msgspec.json.decode(line)
    except (msgspec.MsgspecError, RecursionError):
        header = None
    found = header.get("format") if isinstance(header, dict) else None
    if found != FORMAT:
        raise InputError(f"{path}: line 1: expected the format {FORMAT!r}")


def _sample(document: Any, resources: Collection[str]) -> Sample:
    """Return one measurement.

    Raises:
        ValueError, InputError: the line is not a measurement, or unusable here; the text has the reason.

    """
    sample = convert(document, Sample, OBJECT)
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
