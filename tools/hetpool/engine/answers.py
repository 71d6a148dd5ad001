"""Errors in answers: they travel as plain values and are raised where the question came from.

Dask's scheduler leaves what it receives packed, so that an error of a node would reach the
broker as a bare `Exception`, and a client with all tracebacks on the way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from libtask.errors import HetError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetpool.seam import Answer

Answered = bytes | dict[str, str]
"""The answer of a handler, or its error."""


async def answered(handler: Answer, message: bytes) -> Answered:
    """Return a handler's answer, or its error as a plain value."""
    try:
        return await handler(message)
    except HetError as error:
        return {"error": type(error).__name__, "text": str(error)}


def unpacked(answer: Answered) -> bytes:
    """Return an answer.

    Raises:
        HetError: the handler raised this error.

    """
    if isinstance(answer, dict):
        known = {kind.__name__: kind for kind in _kinds(HetError)}
        error: HetError = known.get(answer["error"], HetError)(answer["text"])
        raise error
    return answer


def _kinds(base: type[Any]) -> Iterator[type[Any]]:
    yield base
    for each in base.__subclasses__():
        yield from _kinds(each)
