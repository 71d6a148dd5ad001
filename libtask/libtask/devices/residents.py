"""Copies of results that stay in a device's memory for the next task of the same user.

A worker is a process of one user and runs one task at a time, so that a copy is only ever
seen by tasks of its owner. Each copy equals a part of a file with a result, by which it is
found again: losing it loses nothing. Copies of one device take up a fixed budget; the least
recently used one is dropped first. While a task uses a copy it is taken out of here, so that
nobody can drop it.

Drivers' modules hold the copies: `opencl` buffers, `arrays` arrays of a library.
"""

from __future__ import annotations

import contextlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from libtask.file_parts import ResultPart

    Written = Mapping[tuple[int, int], ResultPart]
    """(address, bytes) of arrays on the host -> their part of a file."""

EMULATED_BUDGET = 512 << 20
"""Bytes of copies on an emulated device at most: they take up memory of the machine."""
MOST = 1000
"""Copies on one device; small arrays are not worth more."""


@dataclass(eq=False, slots=True)
class FreshResult:
    """A copy of a result that is not in a file yet.

    Attributes:
        array: the array on the host that it equals.
        copy: on the device; `bytes`: its size.
        place: address and bytes of the array.

    """

    array: Any
    copy: Any
    bytes: int
    place: tuple[int, int]


class Residents:
    """The copies on one device.

    Args:
        release: frees the memory of a copy.

    Attributes:
        budget: bytes that they may take up; 0: none are kept.
        found: bytes that were not copied to the device, as they were there.

    """

    def __init__(self, release: Callable[[Any], None] = lambda _copy: None) -> None:
        self._release = release
        self.budget = 0
        self.found = 0
        self._copies: dict[Hashable, tuple[Any, int]] = {}
        """Part of a file, and what else determines the copy -> copy and bytes; the most
        recently used one last."""
        self._fresh: list[FreshResult] = []
        self._refuses = False
        """Another process was given the device since the task began."""

    @property
    def bytes(self) -> int:
        """Bytes of all copies."""
        kept = sum(size for _, size in self._copies.values())
        return kept + sum(each.bytes for each in self._fresh)

    def begin(self, budget: int) -> None:
        """Begin a task that may keep copies within a budget."""
        self.budget = budget
        self._refuses = False
        self._make_room(0)

    def take(self, key: Hashable) -> Any | None:
        """Remove a copy and return it; None: it is not here."""
        found = self._copies.pop(key, None)
        if found is None:
            return None
        self.found += found[1]
        return found[0]

    def look(self, key: Hashable) -> Any | None:
        """Return a copy that stays here; None: it is not here."""
        found = self._copies.pop(key, None)
        if found is None:
            return None
        self._copies[key] = found
        self.found += found[1]
        return found[0]

    def fits(self, size: int) -> bool:
        """Return whether a copy of this size would be kept."""
        return not self._refuses and 0 < size <= self.budget

    def keep(self, key: Hashable, copy: Any, size: int) -> None:
        """Keep a copy, or release it if there is no room for it."""
        known = self._copies.pop(key, None)
        if known is not None:
            self._release(known[0])
        if not self.fits(size):
            self._release(copy)
            return
        self._make_room(size)
        self._copies[key] = (copy, size)

    def add_fresh(self, fresh: FreshResult) -> None:
        """Hold a copy of a result until it is written to a file, if there is room."""
        if not self.fits(fresh.bytes):
            self._release(fresh.copy)
            return
        self._make_room(fresh.bytes)
        self._fresh.append(fresh)

    def keep_fresh(
        self,
        written: Written,
        key: Callable[[ResultPart, Any], Hashable] = lambda part, _array: part,
    ) -> None:
        """Keep the copies of results that were written, and release the others.

        Args:
            written: the arrays that are in files.
            key: the key of a copy, from part and array.

        """
        fresh, self._fresh = self._fresh, []
        for each in fresh:
            part = written.get(each.place)
            if part is None:
                self._release(each.copy)
            else:
                self.keep(key(part, each.array), each.copy, each.bytes)

    def drop(self) -> int:
        """Release all copies that no task uses, as memory is short; return their bytes."""
        freed = self.bytes
        for copy, _ in self._copies.values():
            self._release(copy)
        self._copies.clear()
        self.keep_fresh({})
        return freed

    def give_way(self) -> None:
        """Drop all copies, and keep none of the present task: the device has another process."""
        self.drop()
        self._refuses = True

    def _make_room(self, size: int) -> None:
        """Drop copies, the least recently used ones first, until `size` bytes are free."""
        used = self.bytes
        while used + size > self.budget or len(self._copies) >= MOST:
            if self._copies:
                copy, freed = self._copies.pop(next(iter(self._copies)))
            elif self._fresh:
                oldest = self._fresh.pop(0)
                copy, freed = oldest.copy, oldest.bytes
            else:
                return
            self._release(copy)
            used -= freed


class FrozenArrays:
    """Results on the host that are read-only, so that they stay equal to their copies."""

    def __init__(self) -> None:
        self._arrays: list[NDArray[Any]] = []

    def freeze(self, array: NDArray[Any]) -> None:
        """Make an array read-only, until `thaw`."""
        array.flags.writeable = False
        self._arrays.append(array)

    def thaw(self) -> None:
        """Make all arrays writable again."""
        arrays, self._arrays = self._arrays, []
        for array in arrays:
            # a view cannot be writable where its base is not
            with contextlib.suppress(ValueError):
                array.flags.writeable = True


class ResultsOnHost:
    """Base of devices that compute on the host's arrays: nothing has to stay elsewhere.

    See `Device` for the methods.
    """

    def __init__(self) -> None:
        self.bytes_in = 0
        self.residents = Residents()
        self._frozen = FrozenArrays()

    def begin(self, share: float) -> None:
        del share
        self._frozen.thaw()

    def resident(self, *arrays: Any) -> AbstractContextManager[tuple[Any, ...]]:
        raise NotImplementedError

    @contextmanager
    def results(self, *arrays: Any, copy_in: bool = True) -> Iterator[tuple[Any, ...]]:
        del copy_in
        with self.resident(*arrays) as held:
            yield held
        for array in arrays:
            self._frozen.freeze(array)

    def thaw(self) -> None:
        self._frozen.thaw()

    def withdraw(self) -> None:
        self._frozen.thaw()

    def keep_results(self, written: Written) -> None:
        pass

    def give_way(self) -> None:
        pass
