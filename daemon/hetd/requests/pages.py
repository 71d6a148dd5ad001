"""Pages: answers that list things end where they are large enough.

The bytes are summed up while a page is gathered, so that no answer is built that is too
large to be sent; it says where the next page begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from libtask.messages import MAX_FRAME

if TYPE_CHECKING:
    from libtask.messages import Record

PAGE_BYTES = MAX_FRAME
"""Bytes at which a page ends; one thing alone may have more, up to `MAX_ANSWER`."""

Part = TypeVar("Part", bound="Record")


class AnswerPage(Generic[Part]):
    """One page of an answer.

    Args:
        most: parts that it may have.

    Attributes:
        parts: those gathered so far.

    """

    def __init__(self, most: int) -> None:
        self.parts: list[Part] = []
        self._most = most
        self._room = PAGE_BYTES

    def take(self, part: Part) -> bool:
        """Add a part; False: it belongs to the next page."""
        size = len(msgspec.msgpack.encode(part))
        if self.parts and (size > self._room or len(self.parts) >= self._most):
            return False
        self._room -= size
        self.parts.append(part)
        return True
