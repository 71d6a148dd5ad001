"""Parameters: conversion of plain values (command line, TOML, wire) to a checked task.

Every value is checked against the type that the application's dataclass declares, so
that a mistake is reported in one line before submission.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import json
import sys
import threading
import types
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from libtask.errors import InputError
from libtask.wording import one_line, shown, suggestion, type_name

if TYPE_CHECKING:
    from collections.abc import Mapping


_PARAMETERS: dict[type[Any], dict[str, Parameter]] = {}
"""Parameters by application; mypy rejects `functools.cache` with classes as keys."""
_CONVERTING = threading.RLock()
"""msgspec examines a type when it meets it first; two threads that do so at the same time
crash the process."""


PLAIN = (bool, bytes, float, int, str)
"""Types whose values need no conversion."""

Application = typing.TypeVar("Application")


class FileRole(enum.Enum):
    """The use that a task makes of the files that a parameter names."""

    INPUT = "input"
    OUTPUT = "output"


Input = FileRole.INPUT
"""Declares a parameter with the path of a file that the task reads: `Annotated[str, Input]`."""
Output = FileRole.OUTPUT
"""Declares a parameter with the path of a file that the task writes."""


@dataclasses.dataclass(frozen=True, slots=True)
class TaskFile:
    """A file of a task.

    Attributes:
        parameter: the parameter that names it.
        role: whether the task reads or writes it.
        path: as given, relative to the folder of the submission; empty: none.

    """

    parameter: str
    role: FileRole
    path: str


@dataclasses.dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of an application: its name, declared type and default."""

    name: str
    type: Any
    required: bool
    default: Any

    def __str__(self) -> str:
        tail = "" if self.required else f" = {self.default!r}"
        return f"{self.name}: {type_name(self.type)}{tail}"


def build(
    app_class: type[Application], params: Mapping[str, Any], *, text: bool = False
) -> Application:
    """Build a task of `app_class` from plain parameters after checking them.

    Args:
        app_class: the application.
        params: parameter name -> value.
        text: values are command-line strings, to be parsed as the declared types.

    Raises:
        InputError: parameters are unknown, missing or invalid; names all of them, with
            their types.

    """
    values = _all_checked(app_class, params, set(), text=text)
    try:
        return app_class(**values)
    except (ValueError, TypeError) as error:
        raise InputError(f"{app_class.__name__}: {one_line(error)}") from error


def parameters(app_class: type[Any]) -> dict[str, Parameter]:
    """List the parameters of an application, in order of declaration."""
    if app_class not in _PARAMETERS:
        untyped: Any = app_class  # mypy does not know that a Task is a dataclass
        fields = (
            dataclasses.fields(untyped) if dataclasses.is_dataclass(untyped) else ()
        )
        _PARAMETERS[app_class] = {
            field.name: _parameter(app_class, field) for field in fields if field.init
        }
    return _PARAMETERS[app_class]


def file_parameters(app_class: type[Any]) -> dict[str, FileRole]:
    """Return the role of each parameter that is declared as a file, or as several files."""
    roles = {each.name: _role_of(each.type) for each in parameters(app_class).values()}
    return {name: role for name, role in roles.items() if role is not None}


def _role_of(kind: Any) -> FileRole | None:
    """Return the role in an annotation, which may be within an optional one."""
    if typing.get_origin(kind) is typing.Annotated:
        for each in kind.__metadata__:
            if isinstance(each, FileRole):
                return each
    if typing.get_origin(kind) in (typing.Union, types.UnionType, typing.Annotated):
        found = (_role_of(part) for part in typing.get_args(kind))
        return next((role for role in found if role is not None), None)
    return None


def files_of(app_class: type[Any], values: Mapping[str, Any]) -> list[TaskFile]:
    """List the files that parameters of an application name, in order of declaration.

    Args:
        app_class: the application.
        values: parameter name -> value; those that are missing, empty or not known yet
            name no file.

    """
    found = []
    for name, role in file_parameters(app_class).items():
        given = values.get(name)
        several = given if isinstance(given, list | tuple) else [given]
        paths = [str(each) for each in several if isinstance(each, str | Path)]
        found += [TaskFile(name, role, path) for path in paths if path not in ("", ".")]
    return found


def know_parameters(app_class: type[Any], known: dict[str, Parameter]) -> None:
    """Set the parameters of a class whose annotations cannot be evaluated here."""
    _PARAMETERS[app_class] = known


def check_all(app_class: type[Any], params: Mapping[str, Any], late: set[str]) -> None:
    """Check parameters of a task that cannot be built yet.

    Args:
        app_class: the application.
        params: parameter name -> value.
        late: names of parameters whose values are not known yet.

    Raises:
        InputError: as for `build`.

    """
    _all_checked(app_class, params, late, text=False)


def values_of(task: object) -> dict[str, Any]:
    """Return the values of a task's parameters."""
    return {name: getattr(task, name) for name in parameters(type(task))}


def plain(app_class: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters as plain values for the wire.

    Raises:
        InputError: a value has no plain form.

    """
    try:
        result: dict[str, Any] = msgspec.to_builtins(
            values, builtin_types=(bytes, bytearray), enc_hook=_to_plain
        )
    except (TypeError, ValueError) as error:
        raise InputError(f"{app_class.__name__}: {one_line(error)}") from error
    return result


def _parameter(app_class: type[Any], field: dataclasses.Field[Any]) -> Parameter:
    missing = dataclasses.MISSING
    default = field.default
    if default is missing and field.default_factory is not missing:
        default = field.default_factory()
    return Parameter(
        field.name, _field_type(app_class, field.name), default is missing, default
    )


def _field_type(app_class: type[Any], name: str) -> Any:
    """Evaluate one field's annotation in the module of the class that declares it."""
    for owner in app_class.__mro__:
        declared = inspect.get_annotations(owner)
        if name in declared:
            single = types.SimpleNamespace(__annotations__={name: declared[name]})
            scope = vars(sys.modules[owner.__module__]) | vars(owner)
            return _evaluated(single, scope, name)
    return Any


def _evaluated(single: Any, scope: dict[str, Any], name: str) -> Any:
    try:
        return typing.get_type_hints(single, scope, include_extras=True)[name]
    except NameError:
        return Any  # a type that is imported only for type checkers cannot be checked


def _all_checked(
    app_class: type[Any], params: Mapping[str, Any], late: set[str], *, text: bool
) -> dict[str, Any]:
    """Return the values of parameters, without those whose values are not known yet.

    Raises:
        InputError: some are wrong; names all of them in one line.

    """
    known = parameters(app_class)
    values: dict[str, Any] = {}
    mistakes: list[str] = []
    for name, value in params.items():
        if name in known and name in late:
            continue
        try:
            values[name] = _checked(known, name, value, text=text)
        except InputError as error:
            mistakes.append(str(error))
    mistakes += [
        f"missing parameter {each}"
        for each in known.values()
        if each.required and each.name not in params
    ]
    if any(name not in known for name in params):
        listing = "; ".join(str(each) for each in known.values()) or "none"
        mistakes.append(f"parameters: {listing}{_undecorated(app_class, params)}")
    if mistakes:
        raise InputError(f"{app_class.__name__}: {'; '.join(mistakes)}")
    return values


def _undecorated(app_class: type[Any], params: Mapping[str, Any]) -> str:
    """Return a hint if the class annotates what are not its fields: not a dataclass."""
    annotated = inspect.get_annotations(app_class)
    if "__dataclass_fields__" in vars(app_class) or annotated.keys().isdisjoint(params):
        return ""
    return f"; write @dataclass before class {app_class.__name__}"


def _checked(
    known: dict[str, Parameter],
    name: str,
    value: Any,
    *,
    text: bool,
) -> Any:
    if name not in known:
        raise InputError(f"unknown parameter {name!r}{suggestion(name, known)}")
    return converted(f"parameter {name}", value, known[name].type, text=text)


def converted(name: str, value: Any, kind: Any, *, text: bool = False) -> Any:
    """Check a value against a type and its limits; return it in that type.

    Args:
        name: what the value is, for the message.
        value: the value.
        kind: the type, which may be annotated with limits.
        text: the value is a command-line string, to be parsed as the type.

    Raises:
        InputError: the value is of another type, or exceeds a limit.

    """
    try:
        return _converted(value, kind, text=text)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        expected = _expected(kind, error)
        raise InputError(f"{name}: {expected}, got {shown(value)}") from error


def _converted(value: Any, kind: Any, *, text: bool) -> Any:
    if type(value) is kind and kind in PLAIN:
        return value
    try:
        return _as_typed(value, kind, strict=not text)
    except msgspec.ValidationError:
        if not text:
            raise
        return _as_typed(_structure(value), kind, strict=False)


def _as_typed(value: Any, kind: Any, *, strict: bool) -> Any:
    with _CONVERTING:
        return msgspec.convert(value, kind, strict=strict, dec_hook=_from_plain)


def _structure(value: str) -> Any:
    """Parse a list or map given as text: JSON or comma-separated words."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return [word.strip() for word in value.split(",")]


def _expected(kind: Any, error: Exception) -> str:
    """Describe what was expected: a limit that the value exceeds, or the type."""
    text = one_line(error).replace("`", "")
    if text.startswith("Expected ") and ", got " not in text:
        return text.replace("Expected", "expected")
    return f"expected {type_name(kind)}"


def _from_plain(kind: Any, value: Any) -> Any:
    if (
        isinstance(kind, type)
        and issubclass(kind, Path)
        and isinstance(value, str | Path)
    ):
        return kind(value)
    raise TypeError(f"cannot read a {type_name(kind)}")


def _to_plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # NumPy scalars and small arrays
        return value.tolist()
    raise TypeError(
        f"a parameter of type {type(value).__name__} cannot be sent; use plain values"
    )
