"""The worker pool: which worker holds which task, and who makes new ones.

Called by the loop. It only keeps books and sends messages; workers are made, watched
and killed by their user's launcher.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from libtask.messages import KillWorker, Message, Retire, StartWorkers

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetd.transport.router import Peer
    from libtask.messages import Hello

SPARE = 2
"""Idle workers kept for each user beside those that work: they stay warm."""


@dataclass(eq=False, slots=True)
class Worker:
    """A worker that said hello."""

    name: str
    uid: int
    route: bytes
    pid: int
    own: bool = False
    """Started by the user's own program: it runs only the task that it submitted."""
    task: int | None = None
    aborting: bool = False
    """It was told to give up a task that is no longer its own, and has not answered."""


@dataclass(eq=False, slots=True)
class Crew:
    """One user's launcher and workers."""

    launcher: Peer | None = None
    idle: list[Worker] = field(default_factory=list)
    starting: set[str] = field(default_factory=set)
    waiting: deque[int] = field(default_factory=deque)
    """Tasks that need a worker, in the order they asked."""


class WorkerPool:
    """Finds each task a worker, and carries messages between them.

    Args:
        send: sends a message to a route; False where nobody is there.
        prefix: begins the names of the workers asked for; another one at each start of
            the daemon, so that names never come twice.

    """

    def __init__(self, send: Callable[[bytes, Message], bool], prefix: str) -> None:
        self._send = send
        self._prefix = prefix
        self._crews: defaultdict[int, Crew] = defaultdict(Crew)
        self._by_name: dict[str, Worker] = {}
        self._by_route: dict[bytes, Worker] = {}
        self._by_task: dict[int, Worker] = {}
        self._backlog: dict[int, list[Message]] = {}
        self._owners: dict[int, int] = {}
        self._started = 0

    # ------------------------------------------------------------ tasks

    def bind(self, task: int, uid: int) -> None:
        """Find a worker for a task; until there is one, its messages wait."""
        if task in self._by_task:
            return  # reserved for the program that submitted it
        crew = self._crews[uid]
        self._owners[task] = uid
        if crew.idle:
            self._assign(crew.idle.pop(), task)
            return
        self._backlog[task] = []
        crew.waiting.append(task)
        self._ask_for_workers(uid)

    def send(self, task: int, message: Message) -> None:
        """Send to the worker of a bound task, or keep until it has one."""
        worker = self._by_task.get(task)
        if worker is not None:
            self._send(worker.route, message)
        elif task in self._backlog:
            self._backlog[task].append(message)

    def release(self, task: int) -> bool:
        """Part a task from its worker, which is idle then; False: it never had one."""
        uid = self._owners.pop(task, None)
        worker = self._by_task.pop(task, None)
        if worker is not None:
            worker.task = None
            self._idle(worker)
            return True
        if self._backlog.pop(task, None) is not None and uid is not None:
            self._crews[uid].waiting.remove(task)
        return False

    def part(self, task: int) -> None:
        """Take a task from its worker at once; it is idle when it has given it up."""
        worker = self._by_task.get(task)
        if worker is None:
            self.release(task)
            return
        del self._by_task[task]
        self._owners.pop(task, None)
        worker.task = None
        worker.aborting = True

    def gave_up(self, route: bytes) -> None:
        """Take note that a worker gave up a task that was parted from it."""
        worker = self._by_route.get(route)
        if worker is not None and worker.aborting:
            worker.aborting = False
            self._idle(worker)

    def holder(self, task: int, route: bytes) -> bool:
        """Whether the worker at this route holds the task."""
        worker = self._by_task.get(task)
        return worker is not None and worker.route == route

    def worker_of(self, task: int) -> Worker | None:
        return self._by_task.get(task)

    def kill(self, task: int, reason: str) -> bool:
        """Have the launcher end the worker of a task; False: there is no launcher."""
        worker = self._by_task[task]
        launcher = self._crews[worker.uid].launcher
        if launcher is None:
            return False
        return self._send(launcher.route, KillWorker(worker.name, reason))

    # ------------------------------------------------------------ peers

    def has_launcher(self, uid: int) -> bool:
        return self._crews[uid].launcher is not None

    def launcher_came(self, peer: Peer) -> None:
        crew = self._crews[peer.uid]
        crew.launcher = peer
        crew.starting.clear()
        self._ask_for_workers(peer.uid)

    def launcher_left(self, peer: Peer) -> list[int]:
        """Forget a launcher; return the tasks that wait for a worker of it."""
        crew = self._crews[peer.uid]
        if crew.launcher is None or crew.launcher.pid != peer.pid:
            return []
        crew.launcher = None
        crew.starting.clear()
        return list(crew.waiting)

    def worker_came(self, peer: Peer, hello: Hello) -> Worker:
        """Take in a worker; one that holds a task keeps it."""
        worker = self._by_name.get(hello.worker)
        if worker is None or worker.uid != peer.uid:
            worker = Worker(hello.worker, peer.uid, peer.route, peer.pid, hello.own)
            self._by_name[hello.worker] = worker
        self._by_route.pop(worker.route, None)
        worker.route = peer.route
        self._by_route[peer.route] = worker
        self._crews[peer.uid].starting.discard(hello.worker)
        if hello.task is not None:
            worker.task = hello.task
            self._by_task[hello.task] = worker
            self._owners[hello.task] = peer.uid
        elif worker.task is None and not worker.own:
            self._idle(worker)
        return worker

    def stillborn(self, uid: int, name: str) -> int | None:
        """Take note that a worker ended before it came; return a task that lacks it."""
        crew = self._crews[uid]
        if name not in crew.starting:
            return None
        crew.starting.remove(name)
        return crew.waiting[0] if len(crew.waiting) > len(crew.starting) else None

    def free(self, name: str, uid: int) -> bool:
        """Whether this user's worker of that name is here and holds no task."""
        worker = self._by_name.get(name)
        return worker is not None and worker.uid == uid and worker.task is None

    def reserve(self, name: str, task: int) -> None:
        """Bind a task to the program that submitted it; see `free`."""
        worker = self._by_name[name]
        self._owners[task] = worker.uid
        self._assign(worker, task)

    def worker_left(self, name: str) -> Worker | None:
        """Forget a worker; return what was known of it."""
        worker = self._by_name.pop(name, None)
        if worker is None:
            return None
        self._by_route.pop(worker.route, None)
        crew = self._crews[worker.uid]
        if worker in crew.idle:
            crew.idle.remove(worker)
        if worker.task is not None:
            self._by_task.pop(worker.task, None)
            self._owners.pop(worker.task, None)
        return worker

    def holds(self, uid: int, name: str) -> bool:
        """Whether a worker of that name belongs to this user, or is about to come."""
        worker = self._by_name.get(name)
        if worker is not None:
            return worker.uid == uid
        return name in self._crews[uid].starting

    def workers_of(self, uid: int) -> list[Worker]:
        return [worker for worker in self._by_name.values() if worker.uid == uid]

    def retire_launchers(self) -> None:
        """Send home every launcher none of whose workers holds a task."""
        for uid, crew in self._crews.items():
            for worker in crew.idle:  # a launcher of before may have left orphans
                self._send(worker.route, Retire())
            busy = any(worker.task is not None for worker in self.workers_of(uid))
            if crew.launcher is not None and not busy:
                self._send(crew.launcher.route, Retire())

    # ------------------------------------------------------------ steps

    def _assign(self, worker: Worker, task: int) -> None:
        worker.task = task
        self._by_task[task] = worker
        for message in self._backlog.pop(task, ()):
            self._send(worker.route, message)

    def _idle(self, worker: Worker) -> None:
        crew = self._crews[worker.uid]
        if worker.own:
            return
        if crew.waiting:
            self._assign(worker, crew.waiting.popleft())
        elif len(crew.idle) >= SPARE + len(self._by_task):
            self._send(worker.route, Retire())
        elif worker not in crew.idle:
            crew.idle.append(worker)

    def _ask_for_workers(self, uid: int) -> None:
        crew = self._crews[uid]
        missing = len(crew.waiting) - len(crew.starting)
        if crew.launcher is None or missing <= 0:
            return
        names = []
        for _ in range(missing):
            self._started += 1
            names.append(f"{self._prefix}-{self._started}")
        if self._send(crew.launcher.route, StartWorkers(names)):
            crew.starting.update(names)
