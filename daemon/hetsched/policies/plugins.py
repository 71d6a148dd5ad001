"""Policies of other packages: entry points of the group `hetsched.policies`.

`hetsched.policies` loads them once in each process: hetd when it starts, the simulator
for the first name that is not built in. A fault of one of them becomes one line in
`PlugIns.faults`, and the others are used. A plug-in runs with the rights of the process
that loads it.
"""

from __future__ import annotations

import contextlib
import inspect
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from hetsched.planning.registry import make_named, parameter_names
from libtask.wording import one_line

if TYPE_CHECKING:
    from collections.abc import Container, Iterable
    from importlib.metadata import EntryPoint

    from hetsched.policy import Policy

GROUP = "hetsched.policies"
NAME = re.compile(r"[a-z][a-z0-9-]{0,63}")
"""Valid names of policies; users type them."""


@dataclass(frozen=True, slots=True)
class PlugIns:
    """The policies that other packages bring.

    Attributes:
        policies: name -> class.
        packages: name -> the package that brings it.
        faults: name -> why an entry point of that name is not used, in one line.

    """

    policies: dict[str, type[Policy]] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)


def load(points: Iterable[EntryPoint], built_in: Container[str]) -> PlugIns:
    """Import the policies that these entry points name.

    Of several with one name, that of the first package in the order of names is used.

    Args:
        points: all of the group.
        built_in: names that no plug-in may take.

    """
    found = PlugIns()
    for point in sorted(points, key=lambda point: (point.name, _package(point))):
        package = _package(point)
        fault = _name_fault(point.name, found, built_in)
        if not fault:
            kind, fault = _policy(point)
            if kind is not None:
                found.policies[point.name] = kind
                found.packages[point.name] = package
        if fault:
            text = f"policy {point.name!r} of package {package} is not used: {fault}"
            found.faults.setdefault(point.name, text)
    return found


def _package(point: EntryPoint) -> str:
    return (point.dist.name if point.dist is not None else None) or "unknown"


def _name_fault(name: str, found: PlugIns, built_in: Container[str]) -> str:
    """Say why a policy cannot be called this; empty: it can."""
    if name in built_in:
        return "a built-in policy has that name"
    if name in found.packages:
        return f"package {found.packages[name]} has one of that name"
    if not NAME.fullmatch(name):
        return (
            "its name may have lower-case letters, digits and hyphens, 64 at most, "
            "and begins with a letter"
        )
    return ""


def _policy(point: EntryPoint) -> tuple[type[Policy] | None, str]:
    """Import a policy; return its class, or else what is wrong with it."""
    try:
        kind = point.load()
    except (Exception, SystemExit) as error:  # noqa: BLE001  its code is not ours
        return None, f"import fails: {type(error).__name__}: {one_line(error)}"
    fault = _class_fault(kind, point.name)
    return (None, f"{point.value} {fault}") if fault else (kind, "")


def _class_fault(kind: Any, name: str) -> str:
    """Say why a class is not a policy; empty: it is one."""
    settings = getattr(kind, "__dataclass_params__", None)
    if not isinstance(kind, type) or settings is None:
        return "is not a dataclass"
    if not settings.frozen:
        return "is not frozen"
    fault = _react_fault(getattr(kind, "react", None))
    if fault:
        return fault
    try:
        _make_twice(kind, name)
    except Exception as error:  # noqa: BLE001  its code is not ours
        return f"cannot be made with its defaults: {one_line(error)}"
    return ""


def _react_fault(react: object) -> str:
    if not callable(react):
        return "has no method react"
    # compiled code may not tell its parameters
    with contextlib.suppress(ValueError):
        try:
            inspect.signature(react).bind("policy", "event", "system", "now")
        except TypeError:
            return "has a react that does not take (self, event, system, now)"
    return ""


def _make_twice(kind: type[Policy], name: str) -> None:
    """Make a policy with its defaults, and again with these as they arrive at clients."""
    table = {name: kind}
    policy = make_named("policy", table, name, {})
    parameters = {each: getattr(policy, each) for each in parameter_names(kind)}
    received = msgspec.msgpack.decode(msgspec.msgpack.encode(parameters))
    make_named("policy", table, name, received)
