"""The daemon's shell without its socket and processes: what it sends is recorded."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from unittest.mock import patch

import msgspec

from hetd.assembly import assemble, make_reports, make_service
from hetd.clock import SYSTEM_CLOCK, Clock
from hetd.config import ActiveConfig, Config
from hetd.requests.subscriptions import Subscriptions
from hetd.store import Store
from hetd.tasks.journal import Journal
from hetd.transport.router import Peer
from hetd.workers.host_processes import HostProcesses
from hetd.workers.pool import WorkerPool
from hetsched.estimates.table import EstimateTable
from hetsched.policies import make_policy
from libtask import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

Kind = TypeVar("Kind", bound=m.Message)

USER, OTHER = 1000, 2000
"""uids of two users, neither of whom is root or runs the daemon."""

DEVICES = [
    m.DeviceInfo(m.DeviceSpec("cpu", "cpu", "null"), slots=2),
    m.DeviceInfo(m.DeviceSpec("gpu0", "gpu", "null")),
]
CONFIG = Config(policy="affinity", cancel_grace_s=0.0, restore_grace_s=0.0)


def a_peer(route: str, uid: int = USER, pid: int = 1) -> Peer:
    return Peer(route.encode(), uid, pid)


def a_spec(**fields: Any) -> m.TaskSpec:
    """Describe a task that the CPU and the GPU can run."""
    return m.TaskSpec(**{"app": "app", "kinds": ["cpu", "gpu"], **fields})


class Sent:
    """Records what is sent, by route."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, m.Message]] = []
        self.gone: set[str] = set()
        """Routes at which nobody is."""

    def send(self, route: bytes, *messages: m.Message) -> bool:
        name = route.decode()
        if name in self.gone:
            return False
        self.messages += [(name, message) for message in messages]
        return True

    def to(self, name: str, kind: type[Kind]) -> list[Kind]:
        return [
            e for route, e in self.messages if route == name and isinstance(e, kind)
        ]


class Shell:
    """A node with its desks, over a real store.

    Args:
        folder: where the store lies; another shell there is the next start.
        clock: what tells the time.
        devices: the resources.
        fields: of the configuration.

    """

    def __init__(
        self,
        folder: Path,
        clock: Clock = SYSTEM_CLOCK,
        devices: Sequence[m.DeviceInfo] = tuple(DEVICES),
        **fields: Any,
    ) -> None:
        self.sent = Sent()
        self.killed: list[int] = []
        """Pids of the workers that the daemon killed itself."""
        self.starts: dict[int, int] = {}
        """When processes started, by pid; 0: it is gone. The others at 1."""
        # tests name workers by the number of the start, which a new store draws
        with patch("hetd.store.store.secrets.randbelow", return_value=0):
            self.store = Store(folder / "hetd.db")
        self.pool = WorkerPool(
            self.sent.send,
            str(self.store.incarnation),
            HostProcesses(self.killed.append, self._started_at),
        )
        self.journal = Journal(self.store)
        self.parts = assemble(
            ActiveConfig(msgspec.structs.replace(CONFIG, **fields)),
            devices,
            make_policy("affinity", {}),
            EstimateTable(),
            self.journal,
            self.pool,
            clock,
        )
        self.runtime = self.parts.runtime
        self.service = make_service(self.parts, self.store, Subscriptions())
        self.reports = make_reports(self.parts)

    def _started_at(self, pid: int) -> int:
        return self.starts.get(pid, 1)

    def close(self) -> None:
        self.store.close()

    def commit(self) -> None:
        """Make everything durable."""
        self.store.submit(self.journal.take_batch())
        self.store.flush()

    # ------------------------------------------------------------ what users do

    def ask(self, request: m.Request, uid: int = USER) -> Any:
        """Ask as a user; return the answer."""
        return self.service.answer(a_peer(f"client{uid}", uid), request)

    def submit(self, *specs: m.TaskSpec, uid: int = USER, **fields: Any) -> list[int]:
        answer = self.ask(m.Submit(1, list(specs), **fields), uid)
        assert isinstance(answer, m.Submitted), answer
        return answer.ids

    def error(self, request: m.Request, uid: int = USER) -> m.Error:
        answer = self.ask(request, uid)
        assert isinstance(answer, m.Error), answer
        return answer

    def state(self, task: int) -> str:
        page = self.journal.find(task)
        assert page is not None
        return page.state

    # ------------------------------------------------------------ what processes do

    def launcher(self, uid: int = USER, pid: int = 77) -> Peer:
        """Let a user's launcher come."""
        peer = a_peer(f"launcher{uid}", uid, pid)
        self.reports.launcher_came(peer)
        return peer

    def worker(self, name: str, uid: int = USER, **fields: Any) -> Peer:
        """Let a worker come, by a route of the same name unless told otherwise."""
        peer = a_peer(fields.pop("route", name), uid)
        self.reports.worker_came(peer, m.Register("worker", worker=name, **fields))
        return peer

    def run_of(self, name: str) -> m.Run:
        """Return the one order to run that a worker got."""
        (run,) = self.sent.to(name, m.Run)
        return run

    def finish(self, name: str, run: m.Run | m.Stage, **fields: Any) -> None:
        finished = m.Finished(run.task, run.epoch, **fields)
        self.reports.report(a_peer(name), finished)


@contextmanager
def restarting(folder: Path) -> Iterator[Callable[[], Shell]]:
    """Yield what starts a daemon, and what starts it again over the same store."""
    shells: list[Shell] = []

    def start() -> Shell:
        if shells:
            shells[-1].commit()
            shells[-1].close()
        shells.append(Shell(folder))
        shells[-1].runtime.restore()
        return shells[-1]

    yield start
    shells[-1].close()
