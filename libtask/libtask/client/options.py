"""The keyword options of a submission, checked before anything is sent."""

from __future__ import annotations

import functools
import os
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec

from libtask.apps import Options, check_job
from libtask.client.origins import EVERYTHING, Export
from libtask.documents import ALL_CORES
from libtask.errors import InputError
from libtask.messages import LONGEST_KEY, TaskSpec
from libtask.origin import current_folder
from libtask.parameters import converted
from libtask.wording import suggestion

PART_OF_KEY = 8
"""Characters by which a key grows that several messages of a submission share."""


class OptionFields(TypedDict, total=False):
    """Keyword options of a task; see `libtask.apps.Options`."""

    priority: int
    after: Sequence[int]
    after_any: Sequence[int]
    after_notok: Sequence[int]
    hold: bool
    resources: Sequence[str]
    seconds: Mapping[str, float]
    strip: int | None
    name: str
    deadline_s: float | None
    overrun: Literal["continue", "stop"]
    cores: int | Literal["all"] | None
    memory_bytes: int
    device_bytes: int
    time_limit_s: float | None
    job: str
    retries: int | None
    begin: float | datetime | None
    at_once: int
    resume: bool
    lease: str
    lease_s: float
    cwd: str | Path


class SubmitFields(OptionFields, total=False):
    """The options of a submission from this process.

    `env` sets environment variables of the tasks, `export` names the variables of this
    process that they get: `all`, `none`, or names separated by commas.
    `key` identifies the submission among those of the user: repeated with the same key, by
    any client and after restarts of hetd, it makes no second task. See `Client.submit`.
    """

    env: Mapping[str, str]
    export: str
    key: str


@dataclass(frozen=True, slots=True)
class Sending:
    """The options of a submission that are not options of its tasks.

    Attributes:
        export: the variables that the tasks get from the environment of this process.
        key: idempotency key; empty: a new one.

    """

    export: Export = EVERYTHING
    key: str = ""


ONCE = Sending()


def sending_of(options: SubmitFields) -> Sending:
    """Take the options of the submission out of those of its tasks.

    Raises:
        InputError: one of them is invalid, or the key is too long.

    """
    if not options.keys() & {"key", "export", "env"}:
        return ONCE  # of most submissions
    key: str = converted("option key", options.pop("key", ""), str)
    if len(key) > LONGEST_KEY - PART_OF_KEY:
        raise InputError(
            f"key: expected at most {LONGEST_KEY - PART_OF_KEY} characters, got {len(key)}"
        )
    names: str = converted("option export", options.pop("export", "all"), str)
    return Sending(Export(names, _variables(options.pop("env", {}))), key)


def _variables(env: Any) -> dict[str, str]:
    named = env if isinstance(env, Mapping) else converted("option env", env, dict)
    return {
        converted("option env: a name", name, str): converted(
            f"option env: {name}", value, str
        )
        for name, value in named.items()
    }


def options_of(fields: OptionFields, job: str) -> Options:
    """Check the options of tasks.

    Args:
        fields: options by name.
        job: name of the job of the tasks if `fields` has none.

    Raises:
        InputError: an option is unknown, or its value is invalid.

    """
    values = {
        name: _checked(name, value)
        for name, value in fields.items()
        if value is not None or name not in OptionFields.__annotations__
    }
    values["job"] = check_job(values.get("job") or job)
    return Options(**values)


def _checked(name: str, value: Any) -> Any:
    known = OptionFields.__annotations__
    if name not in known:
        every = sorted(typing.get_type_hints(SubmitFields))
        raise InputError(
            f"no option {name!r}{suggestion(name, every)};"
            f" a submission knows {', '.join(every)}"
        )
    found = converted(f"option {name}", _plain(name, value), _kinds()[name])
    if isinstance(found, str):
        _demand_text(name, found)
    return tuple(found) if isinstance(found, list) else found


def _demand_text(name: str, value: str) -> None:
    """Refuse what has no code in UTF-8, such as the name of a file may be (PEP 383)."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"option {name}: expected text in UTF-8, got {value!r}"
        ) from error


def _plain(name: str, value: Any) -> Any:
    """Return an option's value in the form in which a `TaskSpec` has it."""
    value = _scalar(value)
    if name == "begin" and isinstance(value, datetime):
        return value.timestamp()
    if name == "cwd" and value and isinstance(value, str | Path):
        return os.path.join(current_folder(), value)  # noqa: PTH118  it keeps the text
    if name == "cores" and value == "all":
        return ALL_CORES
    return _parts(value)


def _parts(value: Any) -> Any:
    """Return a map or a list in the form of JSON, and anything else as it is."""
    if isinstance(value, Mapping):
        return {key: _scalar(each) for key, each in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [_scalar(each) for each in value]
    return value


def _scalar(value: Any) -> Any:
    """Return the Python value of a NumPy scalar, which msgspec does not know; else the value."""
    return value.item() if getattr(value, "shape", None) == () else value


@functools.cache
def _kinds() -> dict[str, Any]:
    """Return the types of a task's fields, which have the limits of their values."""
    fields = typing.get_type_hints(TaskSpec, include_extras=True)
    # the field itself may be 0 in records of earlier versions
    return fields | {"strip": Annotated[int, msgspec.Meta(ge=1)] | None}
