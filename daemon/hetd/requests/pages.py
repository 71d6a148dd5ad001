"""Split long answers into pages that fit into one message.

The encoded size is counted while a page is filled, so that no answer exceeds the largest
frame. Each answer names the start of the next page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from libtask.messages import MAX_FRAME

if TYPE_CHECKING:
    from libtask.messages import Record

PAGE_BYTES = MAX_FRAME
"""Bytes of a full page; a single item may be larger, up to `MAX_ANSWER`."""

Part = TypeVar("Part", bound="Record")


class AnswerPage(Generic[Part]):
    """One page of an answer.

    Args:
        most: maximum number of items.

    Attributes:
        parts: the items added so far.

    """

    def __init__(self, most: int) -> None:
        self.parts: list[Part] = []
        self._most = most
        self._room = PAGE_BYTES

    def take(self, part: Part) -> bool:
        """Add an item; return False if it belongs on the next page."""
        size = len(msgspec.msgpack.encode(part))
        if self.parts and (size > self._room or len(self.parts) >= self._most):
            return False
        self._room -= size
        self.parts.append(part)
        return True
