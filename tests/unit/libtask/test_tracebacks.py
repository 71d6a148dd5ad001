"""Tracebacks begin in the user's code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from libtask.tracebacks import formatted
from libtask.wording import one_line, suggestion

if TYPE_CHECKING:
    from types import TracebackType


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


def after_the_test(error: BaseException) -> TracebackType | None:
    """Return the frames of what a test called."""
    return error.__traceback__ and error.__traceback__.tb_next


def test_frames_of_the_runtime_before_the_users_code_are_left_out() -> None:
    with pytest.raises(RuntimeError) as caught:
        one_line(UnprintableError())
    error = caught.value.with_traceback(after_the_test(caught.value))

    lines = formatted(error).splitlines()

    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].endswith(", in __str__")
    assert lines[-1] == "RuntimeError: not even this"


def test_a_traceback_of_the_runtime_alone_is_whole() -> None:
    with pytest.raises(TypeError) as caught:
        suggestion("a", None)  # type: ignore[arg-type]  # a fault of the runtime
    error = caught.value.with_traceback(after_the_test(caught.value))

    assert "in suggestion" in formatted(error)


def test_an_exception_that_cannot_be_printed_has_a_traceback() -> None:
    with pytest.raises(UnprintableError) as caught:
        raise UnprintableError

    assert "UnprintableError: <exception str() failed>" in formatted(caught.value)
