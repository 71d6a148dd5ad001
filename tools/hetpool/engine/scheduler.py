"""The engine beside the broker: a Dask scheduler with one plugin."""

from __future__ import annotations

import asyncio
import pickle
import time
from typing import TYPE_CHECKING, Any

import dask
from distributed import Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin

from hetpool.engine.answers import Answered, answered, unpacked
from hetpool.engine.configuration import HTTP, configure, security
from hetpool.engine.inputs import LOAD
from hetpool.seam import ErrandCancelledError, ErrandState
from libtask.user_folders import user_folder

if TYPE_CHECKING:
    from hetpool.seam import Answer, SchedulerAudience
    from hetpool.setup.settings import EngineSettings

STATES = {
    "memory": ErrandState.ENDED,
    "erred": ErrandState.ENDED,
    "forgotten": ErrandState.FORGOTTEN,
    "processing": ErrandState.OPEN,
    "no-worker": ErrandState.OPEN,
}


class _Reports(SchedulerPlugin):  # type: ignore[misc]  # Dask is not typed
    """Passes on what the broker has to know."""

    name = "hetpool"

    def __init__(self, audience: SchedulerAudience) -> None:
        self._audience = audience
        self._names: dict[str, str] = {}
        """Address -> name: a worker that is removed is not listed any longer."""

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        self._names[worker] = str(scheduler.workers[worker].name)

    def remove_worker(self, scheduler: Scheduler, worker: str, **further: Any) -> None:
        self._audience.node_went(self._names.pop(worker, worker), worker)

    def transition(
        self, key: Any, start: str, finish: str, *args: Any, **further: Any
    ) -> None:
        state = STATES.get(finish)
        if state is not None and not str(key).startswith(LOAD):
            self._audience.errand_changed(str(key), state)


class DaskSchedulerEngine:
    """The scheduler's side of `hetpool.seam`."""

    def __init__(self, settings: EngineSettings) -> None:
        configure(settings)
        # its own files, which it would share with other users else
        dask.config.set(temporary_directory=str(user_folder("cache", "hetpool")))
        self._settings = settings
        self._handlers: dict[str, Answer] = {}
        self._scheduler: Scheduler = None

    def answer(self, name: str, handler: Answer) -> None:
        self._handlers[name] = handler

    async def ask(self, node: str, name: str, message: bytes) -> bytes:
        peer = self._scheduler.rpc(node)
        return unpacked(await peer.hetpool_ask(name=name, message=message))

    def pin(self, key: str, node: str) -> None:
        task = self._scheduler.tasks.get(key)
        if task is None:
            return
        self._scheduler.set_restrictions({key: [node]})
        if task.state == "no-worker":
            # looked at only when a worker arrives; `set_restrictions` alone does nothing
            self._scheduler.transitions({key: "processing"}, _stimulus("pin"))

    def take_back(self, key: str) -> None:
        task = self._scheduler.tasks.get(key)
        if task is not None and task.state == "processing":
            self._scheduler.transitions({key: "released"}, _stimulus("take-back"))

    def cancel(self, key: str, reason: str) -> None:
        task = self._scheduler.tasks.get(key)
        if task is None or task.state != "no-worker":
            return
        # as Dask ends tasks that no worker took in time; to release them would tell their
        # clients what the loss of the scheduler tells them, and they would start them again
        error = pickle.dumps(ErrandCancelledError(reason))
        stimulus = _stimulus("cancel")
        further = self._scheduler.transition(
            key, "erred", exception=error, cause=key, stimulus_id=stimulus
        )
        self._scheduler.transitions(further, stimulus)

    def give_back(self, key: str) -> None:
        task = self._scheduler.tasks.get(key)
        if task is None or not task.who_wants:
            return
        client = next(iter(task.who_wants)).client_key  # in the name of any of them
        reason = "the broker does not know it"
        self._scheduler.stimulus_cancel(
            [key], client, force=True, reason=reason, msg=""
        )

    def knows(self, key: str) -> bool:
        return key in self._scheduler.tasks

    async def run(self, audience: SchedulerAudience, stop: asyncio.Event) -> None:
        """Serve until `stop` is set."""
        scheme, _, place = self._settings.scheduler.partition("://")
        host, _, port = place.rpartition(":")
        self._scheduler = Scheduler(
            host=host.strip("[]"),
            port=int(port),
            protocol=scheme,
            security=security(self._settings),
            dashboard=False,
            dashboard_address=HTTP,
            validate=False,
        )
        self._scheduler.handlers["hetpool_ask"] = self._answered
        self._scheduler.add_plugin(_Reports(audience))
        async with self._scheduler:
            await stop.wait()

    async def _answered(self, name: str, message: bytes) -> Answered:
        handler = self._handlers.get(name)
        if handler is None:
            raise ValueError(f"no handler for {name[:80]!r}")
        return await answered(handler, message)


def _stimulus(what: str) -> str:
    return f"hetpool-{what}-{time.monotonic()}"
