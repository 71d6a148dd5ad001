"""Equal specifications of tasks as one object: an array takes half of the memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from libtask.messages import TaskSpec


class EqualSpecs:
    """Replaces a specification by the one before it, if they are equal.

    Specifications are never changed in place, so that tasks may share one.
    """

    def __init__(self) -> None:
        self._last: TaskSpec | None = None

    def shared(self, spec: TaskSpec) -> TaskSpec:
        """Return the specification before this one if it is equal, else this one."""
        last = self._last
        if last is not None and last == spec and _alike(last.params, spec.params):
            return last
        self._last = spec
        return spec


_encode = msgspec.msgpack.Encoder().encode


def _alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether equal parameters are of equal types, too: 1 equals 1.0 and True."""
    return not one or _encode(one) == _encode(other)
