"""Results: conversion of the return value of `save` to plain values.

A result never makes a computed task fail. NumPy scalars, small arrays, dates, paths,
enumerations, dataclasses and sets become numbers, texts, lists and maps. Other values are
pickled, within the result if they are small, else in a file of the user, and a warning
names their key. Workers use `ResultEncoder`, clients `restored`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import decimal
import enum
import math
import os
import pickle
import sys
import uuid
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import msgspec

from libtask.app_modules import PREFIX
from libtask.errors import InputError
from libtask.messages import MAX_FRAME
from libtask.pickles import pickled, unpickled, write_pickled
from libtask.plaintext import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader

    from libtask.pickles import Pickled

MARK = "pickled"
"""Key of the type's name in the map for a pickled value. Further keys are `data`, or
`file` and `bytes`."""
INLINE = 64 << 10
"""Maximum bytes of pickled values within a result."""
LARGEST = MAX_FRAME - 8192
MOST_VALUES = 20_000
"""Maximum bytes and values of a result in a message; a larger one becomes a file."""
MOST_SHOWN = 1_000_000
"""Maximum values of a result that is only shown."""
ARRAY_VALUES = 1000
"""Maximum elements of a small array."""
DEEPEST = 50
WARNINGS = 20
"""Maximum number of warnings for one result."""
LARGEST_WHOLE = 1 << 63


SIMPLE = (bool, int, float, str, type(None))
"""Types whose values a message returns unchanged."""


class _NotPlainError(Exception):
    """A value has no plain form."""


@dataclasses.dataclass(slots=True)
class EncodedResult:
    """A result encoded for a message.

    Attributes:
        value: plain values.
        warnings: a line for each value without a plain form.
        packed: the value as encoded in a message; empty: None.

    """

    value: Any
    warnings: list[str]
    packed: bytes = b""


class Exact:
    """Marks a value that is kept pickled unless its plain form is the same object type.

    Calls of Python functions return it: a tuple must not come back as a list.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class ResultEncoder:
    """Encodes one result as plain values.

    Args:
        file: path for large pickled values; a number is appended to its name. None: the
            result is only shown; nothing is pickled, and values without a plain form
            become texts.

    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._files = 0
        self._room = INLINE
        self._most = MOST_VALUES if file else MOST_SHOWN
        self._largest = LARGEST if file else sys.maxsize
        self._values = 0
        self._warnings: list[str] = []

    def keep(self, result: Any) -> EncodedResult:
        """Encode a result."""
        if isinstance(result, Exact):
            value = self._exactly(result.value)
        else:
            value = self._plain(result, "result", 0)
        packed = msgspec.msgpack.encode(value)
        if self._values > self._most or len(packed) > self._largest:
            self._room = 0
            value = self._pickled(result, "result", "it is large")
            packed = msgspec.msgpack.encode(value)
        return EncodedResult(value, self._warnings[:WARNINGS], packed)

    def _exactly(self, value: Any) -> Any:
        """Keep a value that comes back as it is: short plain ones, or pickled ones."""
        if type(value) in SIMPLE and _is_short(value):
            return value
        if self._file is None:
            return {MARK: type(value).__name__, "text": _shown(value)}
        return self._stored(self._file, type(value).__name__, pickled_result(value))

    def _plain(self, value: Any, key: str, depth: int) -> Any:
        self._values += 1
        if self._values > self._most or depth > DEEPEST:
            return None if depth <= DEEPEST else self._pickled(value, key, "deep")
        if value is None or isinstance(value, bool | float):
            return None if value is None else _exact(value)
        try:
            return self._nested(value, key, depth)
        except _NotPlainError:
            return self._pickled(value, key, "no plain value")

    def _nested(self, value: Any, key: str, depth: int) -> Any:
        inner = _inside(value)
        if isinstance(inner, dict):
            return {
                _key(name): self._plain(each, f"{key}[{name!r}]", depth + 1)
                for name, each in inner.items()
            }
        if isinstance(inner, list):
            return [
                self._plain(each, f"{key}[{place}]", depth + 1)
                for place, each in enumerate(inner)
            ]
        return inner

    def _pickled(self, value: Any, key: str, why: str) -> dict[str, Any]:
        """Pickle a value and add a warning."""
        name = type(value).__name__
        if self._file is None:
            self._warnings.append(f"{key}: {why} ({name}): not kept"[:500])
            return {MARK: name, "text": _shown(value)}
        try:
            shown = self._stored(self._file, name, _pickle(value))
            where = f"in {shown['file']}" if "file" in shown else "with the task"
            warning = f"{key}: {why} ({name}): kept pickled {where}"
        except Exception as error:  # noqa: BLE001  users' objects may raise anything
            text = _shown(value)
            shown = {MARK: name, "text": text}
            why_not = one_line(f"{type(error).__name__}: {error}")[:200]
            warning = f"{key}: {why} ({name}), nor can it be pickled: {why_not}"
        self._warnings.append(warning[:500])
        return shown

    def _stored(self, base: Path, name: str, content: Pickled) -> dict[str, Any]:
        if content.size <= self._room:
            self._room -= content.size
            return {MARK: name, "data": content.stream}
        self._files += 1
        path = base.with_name(f"{base.name}-{self._files}.pickle")
        return {
            MARK: name,
            "file": str(path),
            "bytes": write_pickled(path, content),
        }


def _is_short(value: Any) -> bool:
    """Return whether a simple value fits into a message as it is."""
    if isinstance(value, str):
        return len(value) <= INLINE and value.isascii()
    return not isinstance(value, int) or -LARGEST_WHOLE <= value < LARGEST_WHOLE


def pickled_result(value: Any) -> Pickled:
    """Pickle the result of a call.

    Raises:
        InputError: it cannot be pickled.

    """
    try:
        return pickled(value)
    except Exception as error:
        kind = type(value).__name__
        text = f"the result, a {kind}, cannot be pickled: {error}"
        raise InputError(one_line(text)) from error


def restored(result: Any) -> Any:
    """Return a result with its values unpickled, for the caller's own tasks only.

    Large arrays are mapped from their file, see `pickles`; they can be changed like others.
    Unpickling another user's result could execute that user's code.

    Raises:
        InputError: a file is gone, or a value cannot be unpickled here.

    """
    if isinstance(result, list):
        return [restored(each) for each in result]
    if not isinstance(result, dict):
        return result
    if MARK not in result:
        return {key: restored(each) for key, each in result.items()}
    if result.get("data") is None and "file" not in result:
        return result
    try:
        return _restored_value(result)
    except InputError:
        raise
    except Exception as error:
        text = f"a {result[MARK]} of the result: {type(error).__name__}: {error}"
        raise InputError(one_line(text)) from error


def _restored_value(stored: dict[str, Any]) -> Any:
    data = stored.get("data")
    if data is not None:
        return pickle.loads(data)  # noqa: S301  the caller's own task wrote it
    path = Path(stored["file"])
    with own_file(path) as file:
        demand_size(file, path, stored.get("bytes"))
        return unpickled(file, path)


def has_pickled(result: Any) -> bool:
    """Return whether a result contains a pickled value."""
    if isinstance(result, list):
        return any(has_pickled(each) for each in result)
    if isinstance(result, dict):
        return MARK in result or any(has_pickled(each) for each in result.values())
    return False


def told(result: Any) -> Any:
    """Return a result for display: pickled values by their type and size.

    JSON has no NaN and no infinities: they become the texts that JSON mappings use for them.
    """
    if isinstance(result, list | tuple):
        return [told(each) for each in result]
    if isinstance(result, float) and not math.isfinite(result):
        return "NaN" if math.isnan(result) else _INFINITIES[result > 0]
    if not isinstance(result, dict):
        return result
    if MARK in result:
        return {
            key: f"<{len(each)} bytes>" if isinstance(each, bytes) else each
            for key, each in result.items()
        }
    return {key: told(each) for key, each in result.items()}


_INFINITIES = ("-Infinity", "Infinity")


def own_content(path: Path, size: int) -> bytes:
    """Read a file of this size that the caller must own.

    Raises:
        InputError: it is gone, has another size, or is another user's.

    """
    with own_file(path) as file:
        demand_size(file, path, size)
        return file.read(size)


def demand_size(file: BufferedReader, path: Path, expected: int | None) -> None:
    """Check that a file has the size with which it was written; None: that is not known.

    Raises:
        InputError: it has not: somebody has changed it.

    """
    size = os.fstat(file.fileno()).st_size
    if expected not in {None, size}:
        raise InputError(f"result {path}: {size} bytes, expected {expected}")


@contextlib.contextmanager
def own_file(path: Path) -> Iterator[BufferedReader]:
    """Open a file that the caller must own, to read it.

    Raises:
        InputError: it is gone, or another user's.

    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise InputError(f"result {path}: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        if os.fstat(descriptor).st_uid != os.getuid():
            raise InputError(f"result {path}: it is another user's")
        yield file


# ---------------------------------------------------------------- plain forms


def _inside(value: Any) -> Any:
    """Return the plain form of a value: a plain value, list or map.

    Raises:
        _NotPlainError: it has none.

    """
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, str | bytes | int | float | None):
        return _exact(value)
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, set | frozenset):
        return _ordered(value)
    return list(value) if isinstance(value, list | tuple) else _single(value)


def _single(value: Any) -> Any:
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, PurePath | decimal.Decimal | uuid.UUID):
        return str(value)
    return str(value) if _is_fraction(value) else _of_parts(value)


def _is_fraction(value: Any) -> bool:
    fractions: Any = sys.modules.get("fractions")  # else there can be no such value
    return fractions is not None and isinstance(value, fractions.Fraction)


def _of_parts(value: Any) -> Any:
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, complex):
        return {"real": value.real, "imag": value.imag}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in dataclasses.fields(value)]
        return {name: getattr(value, name) for name in names}
    return _of_array(value)


def _of_array(value: Any) -> Any:
    """Return the plain form of an array of any library: a number or a list."""
    numpy: Any = sys.modules.get("numpy")
    kinds = (numpy.ndarray, numpy.generic) if numpy else ()
    if not isinstance(value, kinds) or value.dtype.kind not in "biufcSUMm":
        raise _NotPlainError
    if value.size > ARRAY_VALUES:
        raise _NotPlainError
    if value.dtype.kind in "Mm":
        return value.astype(str).tolist()
    found = value.tolist()
    return float(found) if hasattr(found, "dtype") else found


def _exact(value: Any) -> Any:
    """Convert a value of a subclass to the plain type."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        if not -LARGEST_WHOLE <= value < LARGEST_WHOLE:
            raise _NotPlainError
        return int(value)
    if isinstance(value, float):
        return float(value)
    return _text(value) if isinstance(value, str) else bytes(value)


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _NotPlainError from None
    return str(value)


def _ordered(values: Any) -> list[Any]:
    """List the members of a set, sorted if possible."""
    with contextlib.suppress(TypeError):
        return sorted(values)
    return sorted(values, key=repr)


def _key(name: Any) -> str:
    """Convert a key of a map to text."""
    if isinstance(name, enum.Enum):
        name = name.value
    text = name if isinstance(name, str) else str(name)
    return text.encode(errors="replace").decode()


def _pickle(value: Any) -> Pickled:
    """Pickle a value, with classes of a user's own file by value."""
    import cloudpickle

    module = sys.modules.get(type(value).__module__)
    own = module is not None and module.__name__.startswith(PREFIX)
    if own:
        cloudpickle.register_pickle_by_value(module)
    try:
        return pickled(value)
    finally:
        if own:
            cloudpickle.unregister_pickle_by_value(module)


def _shown(value: Any) -> str:
    try:
        return repr(value)[:1000].encode(errors="replace").decode()
    except Exception:  # noqa: BLE001  a user's __repr__ may raise anything
        return f"a {type(value).__name__}"
