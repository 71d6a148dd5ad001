"""Clients: threads that load a daemon with all that users ask, and note what they hear.

They speak through `libtask`'s own session, so that its retries are tested with the
daemon. What they do is drawn from a seeded generator; when it happens is not.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from libtask import messages as m
from libtask.client import session as sessions
from libtask.client.session import Session
from libtask.errors import DaemonUnreachableError, HetError
from torture import counting
from torture.deployment import PATIENCE, RESOURCES
from torture.history import ENDED, FAILS, Found, History, name_of

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from libtask.client.connection import Connection

APP = f"{counting.__file__}:Counting"
TIMEOUT_S = 10.0
IMPATIENCE_S = 0.05
"""Between two looks for a daemon that was killed; users' programs have a second."""
PAUSE_S = 0.006
"""Between two requests, at most."""
LOAD = 25
"""Tasks of one client that have not ended; with more, it only observes."""
WEIGHTS = {
    "submit": 10,
    "repeat": 2,
    "cancel": 3,
    "hold": 2,
    "release": 2,
    "migrate": 3,
    "snapshot": 1,
    "look": 4,
}


class LoadClient(threading.Thread):
    """One user's program.

    Args:
        socket: the daemon's.
        history: where everything is noted.
        name: begins the keys of its submits; unique.
        draw: decides its requests.

    Attributes:
        waits: whether it waits for an answer now.
        requests: how many were answered.
        error: the error that ended it early.

    """

    def __init__(
        self, socket: Path, history: History, name: str, draw: random.Random
    ) -> None:
        super().__init__(name=name, daemon=True)
        # The next kill is not to find everybody asleep.
        sessions.LONGEST_PAUSE = IMPATIENCE_S
        self.waits = False
        self.requests = 0
        self.error: BaseException | None = None
        self._draw = draw
        self._history = history
        self._keys: list[tuple[str, list[m.TaskSpec]]] = []
        self._live: set[int] = set()
        self._enough = threading.Event()
        self._session = Session(socket, self, timeout=TIMEOUT_S, patience=PATIENCE)
        self._actions: dict[str, Callable[[], None]] = {
            "submit": self._submit,
            "repeat": self._repeat,
            "cancel": self._cancel,
            "hold": lambda: self._control("hold"),
            "release": lambda: self._control("release"),
            "migrate": self._migrate,
            "snapshot": lambda: self._control("snapshot"),
            "look": self._look,
        }

    def run(self) -> None:
        """Ask for one thing after another until it is enough."""
        try:
            while not self._enough.is_set():
                with contextlib.suppress(
                    DaemonUnreachableError
                ):  # killed again and again
                    self._act()
                self._enough.wait(self._draw.uniform(0, PAUSE_S))
        except BaseException as error:  # noqa: BLE001  the run reports it
            self.error = error

    def end(self) -> None:
        """Ask for nothing more, once the last answer has come; release what is held."""
        self._enough.set()
        self.join(2 * PATIENCE)
        if self.error is None:
            self.release(sorted(self._live.copy()))

    def release(self, held: list[int]) -> None:
        """Let tasks go on, whoever holds them."""
        if held:
            self._ask(m.Control(request=0, verb="release", ids=held))

    def close(self) -> None:
        self._session.close()

    # ------------------------------------------------------------ requests

    def _act(self) -> None:
        busy = len(self._live) >= LOAD
        names = [name for name in WEIGHTS if not (busy and name == "submit")]
        weights = [WEIGHTS[name] for name in names]
        (chosen,) = self._draw.choices(names, weights)
        self._actions[chosen]()

    def _submit(self) -> None:
        key = f"{self.name}-{len(self._keys)}"
        wanted = [self._wanted() for _ in range(self._draw.randint(1, 5))]
        specs = [
            described(name_of(key, position), params)
            for position, (params, _) in enumerate(wanted)
        ]
        self._history.ask(key, [result for _, result in wanted])
        self._keys.append((key, specs))
        self._send(key, specs)

    def _wanted(self) -> tuple[dict[str, Any], Any]:
        """Draw a task's parameters, and compute the result that it must have."""
        iterations = self._draw.choice((1, 3, 10, 40))
        seed = self._draw.randrange(1 << 32)
        params: dict[str, Any] = {"seed": seed, "iterations": iterations}
        kind = self._draw.random()
        if kind < 0.05:
            return {**params, "fail_at": iterations - 1}, FAILS
        if kind < 0.1:
            params["iterations"] = iterations = 1
            return {**params, "pause_s": 0.5}, counting.reference(seed, iterations)
        params["pause_s"] = self._draw.choice((0.0, 0.0, 0.001, 0.002))
        return params, counting.reference(seed, iterations)

    def _repeat(self) -> None:
        """Submit again what was submitted, as if the answer had been lost."""
        if self._keys:
            self._send(*self._keys[-self._draw.randint(1, min(5, len(self._keys)))])

    def _send(self, key: str, specs: list[m.TaskSpec]) -> None:
        try:
            answer = self._ask(m.Submit(request=0, tasks=specs, key=key))
        except DaemonUnreachableError:
            return  # nobody knows whether it was heard
        except HetError:
            self._history.refuse(key)
            return
        self._live.update(answer.ids)
        self._history.acknowledge(key, answer.ids)

    def _cancel(self) -> None:
        some = self._some()
        self._history.ask_to_cancel(*some)
        self._control("cancel", some)

    def _control(self, verb: Any, some: Sequence[int] | None = None) -> None:
        chosen = self._some() if some is None else some
        if chosen:
            self._tolerant(m.Control(request=0, verb=verb, ids=list(chosen)))

    def _migrate(self) -> None:
        for task in self._some()[:1]:
            resource = self._draw.choice(RESOURCES)
            self._tolerant(m.Migrate(request=0, id=task, resource=resource))

    def _look(self) -> None:
        some = self._some()
        if some:
            found = self._ask(m.ListTasks(request=0, ids=some))
            for info in found.tasks:
                self._hear(as_found(info))

    def _some(self) -> list[int]:
        live = sorted(self._live.copy())  # the connection's thread takes from it
        return self._draw.sample(live, min(len(live), self._draw.randint(1, 3)))

    # ------------------------------------------------------------ asking, hearing

    def _tolerant(self, request: m.Request) -> None:
        """Ask for what may have become impossible meanwhile."""
        try:
            self._ask(request)
        except HetError:
            return

    def _ask(self, request: m.Request) -> Any:
        self.waits = True
        try:
            return self._session.request(request)
        finally:
            self.waits = False
            self.requests += 1

    def _hear(self, found: Found) -> None:
        self._history.tell(found)
        if found.state in ENDED:
            self._live.discard(found.id)

    def pushed(self, change: m.TaskChanged) -> None:
        """Take a pushed change; in the connection's thread."""
        self._hear(Found(change.id, "", change.state, change.result))

    def renewed(self, connection: Connection) -> None:
        """Hear of everything from now on."""
        connection.ask(m.Subscribe(request=0, progress=False))

    def gone(self, error: HetError) -> None:
        """The daemon did not come back: the next request tells."""


def described(name: str, params: dict[str, Any], priority: int = 0) -> m.TaskSpec:
    """Describe a task that counts."""
    return m.TaskSpec(
        app=APP,
        params=params,
        type="counting/any",
        kinds=["cpu", "gpu", "fpga"],
        iterations=params["iterations"],
        name=name,
        priority=priority,
    )


def as_found(info: m.TaskInfo) -> Found:
    """Say of a task what the checker needs."""
    return Found(info.id, info.name, info.state, info.result, info.reason)


def all_tasks(socket: Path) -> list[Found]:
    """List all tasks, page by page."""
    session = Session(socket, DEAF, timeout=TIMEOUT_S, patience=PATIENCE)
    found: list[Found] = []
    before: int | None = None
    try:
        while page := session.request(m.ListTasks(request=0, before=before)).tasks:
            found += map(as_found, page)
            before = page[-1].id
    finally:
        session.close()
    return found


class _Deaf:
    """Hears nothing that it did not ask for."""

    def pushed(self, change: m.TaskChanged) -> None: ...
    def renewed(self, connection: Connection) -> None: ...
    def gone(self, error: HetError) -> None: ...


DEAF = _Deaf()
