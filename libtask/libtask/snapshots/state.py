"""A task's state, packed for a file: raw arrays, and the other attributes pickled.

Arrays are neither copied nor pickled; they are written from their memory, and restored
into the arrays that `load()` created, so that other references to them (a view, a
tuple) see the state too.
"""

from __future__ import annotations

import copy
import io
import pickle
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from libtask.errors import TaskFailedError
from libtask.parameters import file_parameters

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from libtask.task import Task


SIMPLE = "biufcmMSU"
"""Kinds of types of which an array's bytes can be written."""


@dataclass(slots=True)
class Packed:
    """The attributes of a task that strips change.

    Attributes:
        values: the attributes, pickled, without their arrays.
        arrays: the arrays, in the order of the references in `values`.
        names: the first attribute that contains each array.

    """

    values: bytes = b""
    arrays: list[NDArray[Any]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)


def pack(task: Task) -> Packed:
    """Pack the state of a task, with references to its arrays.

    Raises:
        TaskFailedError: an attribute cannot be pickled (an open file, a lock), or
            `state_names` has one that the task lacks.

    """
    attributes = vars(task)
    names = type(task).state_names or tuple(attributes)
    packed = Packed()
    values = io.BytesIO()
    pickler = _Pickler(values, packed)
    pickler.dump(len(names))
    for name in names:
        if name not in attributes:
            text = f"{type(task).__name__} has no attribute {name!r}, which is in state_names"
            raise TaskFailedError(text)
        pickler.attribute = name
        try:
            pickler.dump((name, attributes[name]))
        except Exception as error:
            raise TaskFailedError(
                f"attribute {name!r} cannot be saved, {type(error).__name__}: {error};"
                " leave it out of state_names, and create it in load()"
            ) from error
    packed.values = values.getvalue()
    return packed


def put_back(task: Task, packed: Packed) -> None:
    """Restore the packed state into a newly loaded task; paths of its files stay.

    Raises:
        Exception: the values cannot be unpickled here.

    """
    unpickler = _Unpickler(io.BytesIO(packed.values), packed.arrays)
    count = unpickler.load()
    attributes = [unpickler.load() for _ in range(count)]
    # on another node, or in another attempt, its files have other paths
    files = file_parameters(type(task))
    for name, saved in attributes:
        if name in files:
            continue
        setattr(task, name, _merged(getattr(task, name, None), saved))


def other_with(task: Task, packed: Packed) -> Task:
    """Return a shallow copy of a task that has the packed state, in arrays of its own.

    Raises:
        Exception: the values cannot be unpickled here.

    """
    other = copy.copy(task)
    unpickler = _Unpickler(io.BytesIO(packed.values), packed.arrays)
    for _ in range(unpickler.load()):
        setattr(other, *unpickler.load())
    return other


def _merged(loaded: Any, saved: Any) -> Any:
    """Return `saved` with its arrays copied into the loaded ones."""
    types = _array_types()
    if isinstance(loaded, types) and isinstance(saved, types):
        alike = loaded.shape == saved.shape and loaded.dtype == saved.dtype
        if not alike or not loaded.flags.writeable:
            return saved
        loaded[...] = saved
        return loaded
    if _is_row(loaded) and type(loaded) is type(saved) and len(loaded) == len(saved):
        merged = [_merged(*pair) for pair in zip(loaded, saved, strict=True)]
        # the constructor of named tuples takes separate fields
        return (
            type(saved)(*merged) if hasattr(saved, "_fields") else type(saved)(merged)
        )
    return saved


def _array_types() -> tuple[Any, ...]:
    """Return the types of NumPy's arrays; none if it is not imported, so that there is no array.

    This module does not import it: a launcher, which has this one, does so without threads.
    """
    numpy = sys.modules.get("numpy")
    return () if numpy is None else (numpy.ndarray, numpy.memmap)


def _is_row(value: Any) -> bool:
    return type(value) in (list, tuple) or (
        isinstance(value, tuple) and hasattr(value, "_fields")
    )


class _Pickler(pickle.Pickler):
    """Pickles attributes, with a number in place of each array."""

    def __init__(self, values: io.BytesIO, packed: Packed) -> None:
        super().__init__(values, protocol=5)
        self.attribute = ""
        self._packed = packed
        self._numbers: dict[int, int] = {}
        self._array_types = _array_types()

    def persistent_id(self, value: Any) -> int | None:
        if type(value) not in self._array_types or value.dtype.kind not in SIMPLE:
            return None
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._packed.arrays)
            self._packed.arrays.append(value)
            self._packed.names.append(self.attribute)
        return number

    def reducer_override(self, value: Any) -> Any:
        """Pickle a class by value if the task's class came by value and brought it along.

        In a process that has it from there, it becomes the same class again.
        """
        if not isinstance(value, type) or _can_be_imported(value):
            return NotImplemented
        import cloudpickle  # most states hold no such class

        return pickle.loads, (cloudpickle.dumps(value),)


def _can_be_imported(value: type) -> bool:
    found: Any = sys.modules.get(value.__module__)
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value


class _Unpickler(pickle.Unpickler):
    """Unpickles the output of `_Pickler`, after verification of the file's checksum."""

    def __init__(self, values: io.BytesIO, arrays: list[NDArray[Any]]) -> None:
        super().__init__(values)
        self._arrays = arrays

    def persistent_load(self, number: Any) -> NDArray[Any]:
        array: NDArray[Any] = self._arrays[number]
        return array
