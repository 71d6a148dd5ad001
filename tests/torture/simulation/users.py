"""Simulated users: what they have on the machine, and what they were promised."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from libtask import messages as m
from torture.history import History, name_of
from torture.simulation.launchers import Records, SimulatedLauncher
from torture.simulation.workers import ENDLESS, result_of

if TYPE_CHECKING:
    from collections.abc import Hashable

    from torture.simulation.network import Network
    from torture.simulation.processes import Machine

Subject = TypeVar("Subject", bound="Hashable")


class Wishes(Generic[Subject]):
    """The last request about each subject, and whether hetd confirmed it.

    A wish counts as granted only where nothing else was asked of its subject before
    the answer came: then nobody could say which of the two was heard last.
    """

    def __init__(self) -> None:
        self._granted: dict[Subject, Any] = {}
        self._open: dict[Subject, int] = {}
        self._mixed: set[Subject] = set()

    def ask(self, subject: Subject) -> None:
        """Note that something is asked; until it is answered, nothing is certain."""
        self._open[subject] = self._open.get(subject, 0) + 1
        self._granted.pop(subject, None)
        if self._open[subject] > 1:
            self._mixed.add(subject)

    def answer(self, subject: Subject, wish: Any | None) -> None:
        """Note an answer; None: it was refused, or changed nothing."""
        self._open[subject] -= 1
        if self._open[subject]:
            return
        if subject not in self._mixed and wish is not None:
            self._granted[subject] = wish
        self._mixed.discard(subject)

    def granted(self) -> dict[Subject, Any]:
        return dict(self._granted)


@dataclass(slots=True)
class Promises:
    """Requests that hetd acknowledged, other than submits.

    Attributes:
        holds: task -> held (True) or released (False).
        cancels: tasks whose cancellation was acknowledged.
        pins: task -> the resource that its owner wants it on.
        drains: resource -> drained or not.
        policy: the policy that was set, under one subject.

    """

    holds: Wishes[int] = field(default_factory=Wishes)
    cancels: set[int] = field(default_factory=set)
    pins: Wishes[int] = field(default_factory=Wishes)
    drains: Wishes[str] = field(default_factory=Wishes)
    policy: Wishes[str] = field(default_factory=Wishes)


@dataclass(slots=True)
class User:
    """A user of the machine.

    Attributes:
        tasks: ids that the user's clients know.
        unanswered: submits of clients that died; another may repeat them.
        endless: tasks that end only when they are cancelled.
        heard_of: tasks of whose changes the user's clients heard.

    """

    uid: int
    history: History
    promises: Promises
    records: Records
    launcher: SimulatedLauncher | None = None
    tasks: list[int] = field(default_factory=list)
    unanswered: list[m.Submit] = field(default_factory=list)
    endless: set[int] = field(default_factory=set)
    heard_of: set[int] = field(default_factory=set)

    def start_launcher(self, network: Network, machine: Machine) -> None:
        """Start the launcher, unless there is one; one that hangs is ended first."""
        if self.launcher is not None and self.launcher.process.stopped:
            self.launcher.process.end(-9)
        if self.launcher is None or not self.launcher.process.alive:
            self.launcher = SimulatedLauncher(network, machine, self.uid, self.records)

    def ask(self, request: m.Submit) -> None:
        """Note a submit before it is sent for the first time."""
        expected = [
            result_of(spec.params["token"], spec.params["iterations"])
            if spec.params["iterations"] < ENDLESS
            else None
            for spec in request.tasks
        ]
        self.history.ask(request.key, expected)

    def acknowledged(self, request: m.Submit, ids: list[int]) -> None:
        """Note that a submit was answered."""
        self.history.acknowledge(request.key, ids)
        known = set(self.tasks)
        self.tasks += [task for task in ids if task not in known]
        for task, spec in zip(ids, request.tasks, strict=False):
            if spec.params["iterations"] >= ENDLESS:
                self.endless.add(task)


def named(key: str, specs: list[m.TaskSpec]) -> list[m.TaskSpec]:
    """Name the tasks of a submit so that they are recognised without its answer."""
    return [
        msgspec.structs.replace(spec, name=name_of(key, position))
        for position, spec in enumerate(specs)
    ]
