"""Loads learned from runs beside others: kept in the store, in force in the model.

The requests about models call it. Loads that `hetd.toml` declares go before them. A load on
what is not there any more is kept without effect: the next configuration may have it again.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from hetd.config import LARGEST_LOAD
from hetsched.contention import Load
from libtask.errors import InputError
from libtask.messages import MAX_LOADS, LearnedLoad

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hetd.config import ContentionTable
    from hetd.tasks.journal import Journal
    from hetsched.contention import ContentionModel, Loads

STORED = "load"
"""Under this name the table of settings has the loads."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(LearnedLoad).decode


class MeasuredLoads:
    """The learned loads.

    Args:
        table: of the configuration.
        model: of contention; None: nothing is declared to be shared.
        journal: of the store.

    """

    def __init__(
        self, table: ContentionTable, model: ContentionModel | None, journal: Journal
    ) -> None:
        self._model = model
        self._journal = journal
        self._declared = {(each.app, each.resource, each.shared) for each in table.load}
        self._before = {} if model is None else dict(model.loads)
        self._known: dict[str, LearnedLoad] = {}
        self._restore()

    def all(self) -> list[LearnedLoad]:
        """Return the learned loads."""
        return list(self._known.values())

    def check(self, loads: Sequence[LearnedLoad]) -> None:
        """Refuse loads that cannot be, or that are too many.

        Raises:
            InputError: a figure is out of range, or nothing of that name is shared there.

        """
        for load in loads:
            self._check(load)
        if len(self._known.keys() | {_subject(load) for load in loads}) > MAX_LOADS:
            text = f"at most {MAX_LOADS} loads are kept"
            raise InputError(f"{text}: delete some with `hetctl models forget`")

    def learn(self, loads: Sequence[LearnedLoad]) -> None:
        """Store checked loads, in place of those of the same names."""
        for load in loads:
            subject = _subject(load)
            self._known[subject] = load
            self._journal.batch.settings[STORED, subject] = _encode(load)
        self._apply(loads)

    def forget(self, chosen: Callable[[LearnedLoad], bool]) -> int:
        """Forget the chosen loads; return their number."""
        gone = {subject: load for subject, load in self._known.items() if chosen(load)}
        for subject in gone:
            del self._known[subject]
            self._journal.batch.settings[STORED, subject] = None
        self._apply(list(gone.values()))
        return len(gone)

    def _restore(self) -> None:
        for (what, subject), stored in sorted(self._journal.settings().items()):
            if what == STORED and len(self._known) < MAX_LOADS:
                try:
                    self._known[subject] = _decode(stored)
                except msgspec.MsgspecError:
                    continue
        self._apply(self.all())

    def _check(self, load: LearnedLoad) -> None:
        where = f"{load.app} on {load.resource}"
        if load.shared not in self._shared_by(load.resource):
            text = f"nothing says that it uses a shared resource {load.shared!r}"
            raise InputError(f"{where}: {text}; see [contention] in hetd.toml")
        if not 0 <= load.demand <= LARGEST_LOAD:
            text = f"demand: expected 0 to {LARGEST_LOAD:g}, got {load.demand:g}"
            raise InputError(f"{where}: {text}")
        if not 0 <= load.bound <= 1:
            text = f"bound: expected a share from 0 to 1, got {load.bound:g}"
            raise InputError(f"{where}: {text}")
        for app, factor in load.slowdowns.items():
            if not 0 < factor < math.inf:
                text = f"slowdown beside {app}: expected above 0, got {factor:g}"
                raise InputError(f"{where}: {text}")

    def _shared_by(self, resource: str) -> list[str]:
        model = self._model
        return [] if model is None else list(model.uses.get(resource, {}).values())

    def _apply(self, changed: Sequence[LearnedLoad]) -> None:
        """Put the loads of these applications into the model, as they are known now."""
        model = self._model
        if model is not None:
            for app, resource in {(load.app, load.resource): None for load in changed}:
                usual = model.defaults.get(resource, ())
                model.put(app, resource, self._in_force(app, resource, usual))

    def _in_force(self, app: str, resource: str, usual: Loads) -> Loads | None:
        """Return what applies to an application; None: nothing is known of it.

        Args:
            app: its name.
            resource: that it runs on.
            usual: loads of unmeasured applications there.

        """
        learned = {
            each.shared: Load(each.shared, each.demand, each.bound)
            for each in self._known.values()
            if (each.app, each.resource) == (app, resource)
            and (app, resource, each.shared) not in self._declared
            and each.shared in self._shared_by(resource)
        }
        declared = self._before.get((app, resource))
        if not learned:
            return declared
        rest = usual if declared is None else declared
        return tuple(({each.shared: each for each in rest} | learned).values())


def _subject(load: LearnedLoad) -> str:
    """Return what a load is stored under: JSON keeps any two names apart."""
    names = [load.app, load.resource, load.shared]
    return msgspec.json.encode(names).decode()
