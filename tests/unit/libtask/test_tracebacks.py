"""Tracebacks begin in the user's code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from libtask import tracebacks as module
from libtask.commands.standard_input import open_input
from libtask.errors import InputError
from libtask.tracebacks import formatted, is_of_app
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


def test_what_the_runtime_found_wrong_is_not_of_the_app() -> None:
    with pytest.raises(InputError) as caught:
        open_input(Path("/nonexistent"))
    error = caught.value

    assert isinstance(error.__cause__, FileNotFoundError)
    assert is_of_app(error), "this test has called it"
    assert not is_of_app(error.with_traceback(after_the_test(error)))


def test_an_error_that_code_of_the_app_has_caused_is_of_the_app() -> None:
    with pytest.raises(RuntimeError) as caught:
        one_line(UnprintableError())
    error = InputError("it cannot be described")
    alone = is_of_app(error)

    error.__cause__ = caught.value.with_traceback(after_the_test(caught.value))

    assert (alone, is_of_app(error)) == (False, True)


def test_a_package_below_the_standard_library_is_of_the_app() -> None:
    names = ("json/decoder.py", "site-packages/package/module.py")
    standard = Path(json.__file__).parents[1]

    assert [module.is_apps_file(str(standard / name)) for name in names] == [
        False,
        True,
    ]
