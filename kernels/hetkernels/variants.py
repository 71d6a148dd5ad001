"""Chooses the fastest of a kernel's variants by timing them at the task's own work.

Which loop is the fastest depends on the size, the caches and the make of the CPU. Variants
of a kernel give the same bits, so any of them may do any piece of a task: the choice can
change in the middle, and differ between machines and threads. While none is chosen they take
turns, and what they compute counts: measuring costs only what the slower ones take longer.
The choice is kept in the user's cache, by CPU, versions of the libraries, and threads.
"""

from __future__ import annotations

import functools
import importlib.metadata
import time
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import msgspec

from libtask.devices.cache import Cache, cpu_identity, key_of
from libtask.devices.icd import cache_folder

Variant = TypeVar("Variant")

ROUNDS = 5
"""Turns of each variant; the best one counts, as others disturb the rest."""
GAIN = 0.03
"""Part of the time that another variant must save to be chosen before the first one."""
COMPILERS = ("hetd", "llvmlite", "numba", "numpy")
"""Packages whose versions change how fast a variant is."""


class Chosen(msgspec.Struct, frozen=True):
    """An entry of the cache: the place of the variant in the table, and the best times.

    Attributes:
        variant: index of the fastest one.
        seconds: best time of each, for a unit of work.

    """

    variant: int
    seconds: list[float]


_CHOSEN = msgspec.json.Decoder(Chosen)


class Size(NamedTuple):
    """The conditions that a choice is valid for.

    Attributes:
        work: of a piece, up to a factor of two: `size_of` makes it.
        threads: that the task may use.
        form: of the data: its type, whatever else changes the loop.

    """

    work: int
    threads: int
    form: str


def size_of(work: int, threads: int, form: str) -> Size:
    """Return the size of some work; sizes between two powers of two are one."""
    return Size(1 << max(0, work - 1).bit_length(), threads, form)


class Selection(Generic[Variant]):
    """The choice among the variants of a kernel at one size.

    Args:
        variants: the first one is taken where none is better by `GAIN`.
        chosen: index of the one known to be the fastest; None: find out. One that is not
            there is as good as none.

    """

    def __init__(
        self, variants: tuple[Variant, ...], chosen: int | None = None
    ) -> None:
        self._variants = variants
        known = chosen is not None and 0 <= chosen < len(variants)
        self._chosen = chosen if known else None
        if len(variants) == 1:
            self._chosen = 0
        self._seconds: list[list[float]] = [[] for _ in variants]

    @property
    def chosen(self) -> Variant | None:
        """The variant for all that comes; None: they still take turns."""
        return None if self._chosen is None else self._variants[self._chosen]

    @property
    def outcome(self) -> Chosen | None:
        """The choice to store, once measuring has decided it."""
        if self._chosen is None or not all(self._seconds):
            return None
        return Chosen(self._chosen, [min(times) for times in self._seconds])

    def turn(self) -> int:
        """Return the index of the variant whose turn it is: the least measured one."""
        counts = [len(times) for times in self._seconds]
        return counts.index(min(counts))

    def variant(self, index: int) -> Variant:
        return self._variants[index]

    def measured(self, index: int, seconds: float) -> None:
        """Note what a unit of work took; decide after `ROUNDS` turns of each."""
        self._seconds[index].append(seconds)
        if min(len(times) for times in self._seconds) < ROUNDS:
            return
        best = [min(times) for times in self._seconds]
        fastest = best.index(min(best))
        self._chosen = fastest if best[fastest] < (1 - GAIN) * best[0] else 0


class Kernel(Generic[Variant]):
    """The variants of a kernel, and which to take at which size.

    Args:
        name: the same in all processes; part of the key in the cache.
        variants: lists them for a size, best guess first.
        turn: work that a variant does in one turn, in one piece at least, where there is as
            much: for kernels whose pieces cost less together than one by one.

    """

    def __init__(
        self,
        name: str,
        variants: Callable[[Size], tuple[Variant, ...]],
        turn: int = 0,
    ) -> None:
        self._name = name
        self._variants = variants
        self._turn = turn
        self._selections: dict[Size, Selection[Variant]] = {}

    def run(
        self, size: Size, pieces: int, do: Callable[[Variant, int, int], bool]
    ) -> None:
        """Do `pieces` pieces of work, all alike.

        Args:
            size: of a piece.
            pieces: how many there are.
            do: does with (variant) from (this piece) up to (that one); tells whether
                all of it was there to do. Nothing comes after what was not.

        """
        selection = self.selection(size)
        turn = max(1, self._turn // size.work)
        piece, goes_on = 0, True
        while piece < pieces and goes_on and selection.chosen is None:
            index = selection.turn()
            stop = min(piece + turn, pieces)
            begin = time.perf_counter()
            goes_on = do(selection.variant(index), piece, stop)
            if goes_on:
                seconds = (time.perf_counter() - begin) / (stop - piece)
                selection.measured(index, seconds)
                self._keep(selection, size)
            piece = stop
        if piece < pieces and goes_on and selection.chosen is not None:
            do(selection.chosen, piece, pieces)

    def selection(self, size: Size) -> Selection[Variant]:
        """Return the choice for a size, as it stands."""
        found = self._selections.get(size)
        if found is None:
            known = _cache().get(self._key(size), _CHOSEN)
            chosen = known.variant if known else None
            found = Selection(self._variants(size), chosen)
            self._selections[size] = found
        return found

    def _keep(self, selection: Selection[Variant], size: Size) -> None:
        if selection.outcome is not None:
            _cache().put(self._key(size), selection.outcome)

    def _key(self, size: Size) -> str:
        parts = (repr(size), repr(self._variants(size)), str(self._turn))
        return key_of(self._name, *parts, *_machine())


@functools.cache
def _machine() -> tuple[str, ...]:
    return (cpu_identity(), *(importlib.metadata.version(name) for name in COMPILERS))


def _cache() -> Cache:
    return Cache(cache_folder() / "variants")
