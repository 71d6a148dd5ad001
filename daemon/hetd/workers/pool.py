"""The worker pool: which worker holds which task.

The loop calls it. The pool keeps tables and sends messages; the user's launcher starts,
watches and kills the processes.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from hetd.workers.user_workers import UserWorkers, Worker
from libtask.errors import BugError
from libtask.messages import Abort, KillWorker, Message, Retire, StartWorkers
from libtask.processes import started_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from hetd.tasks.page import HoldingProcess
    from hetd.transport.router import Peer
    from libtask.messages import Register

SPARE = 2
"""Idle workers kept per user in addition to busy ones: they stay warm."""


class WorkerPool:
    """Binds tasks to workers and routes messages to them.

    Args:
        send: sends messages to a route together; returns False if the peer is gone.
        prefix: begins the names of requested workers; differs at each start of the
            daemon, so that names are unique.

    """

    def __init__(self, send: Callable[..., bool], prefix: str) -> None:
        self._send = send
        self._prefix = prefix
        self._users: defaultdict[int, UserWorkers] = defaultdict(UserWorkers)
        self._by_name: dict[tuple[int, str], Worker] = {}
        """Names are unique per user: nobody can take the name of another user's worker."""
        self._by_route: dict[bytes, Worker] = {}
        self._by_task: dict[int, Worker] = {}
        self._backlog: dict[int, list[Message]] = {}
        self._owners: dict[int, int] = {}
        self._followers: dict[int, list[int]] = {}
        """Task without a worker -> tasks that its worker runs after it."""
        self._gathered: dict[bytes, list[Message]] | None = None
        """Commands of one instant, by route, sent together; None: sent one by one."""
        self._started = 0
        self.assigned: Callable[[int, Worker], None] = _ignore
        """Called when a task is bound to a worker."""
        self.started_at: Callable[[int], int] = started_at
        """Returns when the process of a pid started."""

    def count(self) -> int:
        """Count the connected workers."""
        return len(self._by_route)

    def launchers(self) -> int:
        """Count the users with a connected launcher."""
        return sum(user.launcher is not None for user in self._users.values())

    # ------------------------------------------------------------ tasks

    def bind(self, task: int, uid: int) -> None:
        """Bind a task to a worker; keep its messages until there is one."""
        if task in self._by_task:
            return  # reserved for the program that submitted it
        user = self._users[uid]
        self._forget(task)
        self._owners[task] = uid
        if user.idle:
            self._assign(user.idle.pop(), task)
            return
        self._backlog[task] = []
        user.waiting.append(task)
        self._ask_for_workers(uid)

    def follow(self, task: int, uid: int, leader: int) -> None:
        """Queue a task behind another one in the same worker, now or once it has one."""
        self._forget(task)
        self._owners[task] = uid
        worker = self._by_task.get(leader)
        if worker is not None:
            self._give(worker, task)
        else:
            self._backlog[task] = []
            self._followers.setdefault(leader, []).append(task)

    def gather(self) -> bool:
        """Collect commands until `flush`, so that those for one worker are sent together.

        Returns:
            Whether the caller has to flush: the commands were not collected before.

        """
        begins = self._gathered is None
        if begins:
            self._gathered = {}
        return begins

    def flush(self) -> None:
        """Send the collected commands."""
        gathered, self._gathered = self._gathered or {}, None
        for route, messages in gathered.items():
            self._send(route, *messages)

    def expect(self, task: int, uid: int, holder: HoldingProcess | None) -> None:
        """Keep a task bound to the worker of a previous run of the daemon.

        Args:
            holder: that worker; None: unknown, so that any worker of a launcher may
                claim the task.

        """
        self._owners[task] = uid
        if holder is None:
            self._backlog[task] = []
            return
        worker = Worker(holder.name, uid, b"", holder.pid, holder.own)
        worker.started = holder.started
        worker.task = task
        self._by_name[uid, holder.name] = self._by_task[task] = worker

    def mark_lost(self, task: int) -> None:
        """Stop waiting for the worker of a task; see `expect`."""
        worker = self._by_task.get(task)
        if worker is not None and not worker.route:
            self.worker_left(worker.uid, worker.name)
        self.release(task)

    def is_there(self, worker: Worker) -> bool | None:
        """Whether its launcher has a worker; None: no launcher can tell."""
        user = self._users[worker.uid]
        if worker.own or user.launcher is None:
            return None
        return worker.name in user.supervised

    def send(self, task: int, message: Message) -> None:
        """Send to the worker of a bound task, or keep the message until it has one."""
        worker = self._by_task.get(task)
        if worker is not None:
            if worker.route:  # else it gets its commands when it registers again
                self._order(worker, message)
        elif task in self._backlog:
            self._backlog[task].append(message)

    def release(self, task: int) -> bool:
        """Take a task from its worker, which becomes idle; return whether it had one."""
        worker = self._by_task.get(task)
        if worker is None:
            self._forget(task)
            return False
        self._detach(worker, task)
        self._on_idle(worker)
        return True

    def unbind(self, task: int) -> None:
        """Take a task from its worker, which becomes idle once it has aborted the task."""
        worker = self._by_task.get(task)
        if worker is None:
            self.release(task)
            return
        self._detach(worker, task)
        worker.aborting.add(task)

    def aborted(self, route: bytes, task: int) -> Worker | None:
        """Record that a worker aborted a task; return the worker."""
        worker = self._by_route.get(route)
        if worker is not None and task in worker.aborting:
            worker.aborting.remove(task)
            self._on_idle(worker)
        return worker

    def stop_assigning(self, route: bytes) -> list[int]:
        """Assign no further task to a worker that is about to exit.

        Returns:
            The tasks that it was given and has not begun; they are unbound now.

        """
        worker = self._by_route.get(route)
        if worker is None or worker.own:
            return []
        worker.leaving = True
        user = self._users[worker.uid]
        if worker in user.idle:
            user.idle.remove(worker)
        tasks = worker.tasks
        for task in tasks:
            self._detach(worker, task)
        return tasks

    def may_claim(self, task: int, uid: int, register: Register) -> bool:
        """Whether a worker may be the holder of a bound task, as it claims.

        A task that waits for a worker was sent to none under its present epoch, and
        a task with a worker is held by that one. Only after a restart of the daemon
        may a worker hold it that is not on disk: one of a launcher.
        """
        worker = self._by_task.get(task)
        if worker is not None:
            return (worker.uid, worker.name) == (uid, register.worker)
        return self.is_expected(task) and not register.own

    def is_expected(self, task: int) -> bool:
        """Whether the worker of a task has not registered since a restart."""
        worker = self._by_task.get(task)
        if worker is not None:
            return not worker.route
        return task in self._backlog and not self.waits(task)

    def waits(self, task: int) -> bool:
        """Whether a task is in the queue of tasks that need a worker."""
        uid = self._owners.get(task)
        if uid is None:
            return False
        if task in self._users[uid].waiting:
            return True
        return any(task in behind for behind in self._followers.values())

    def holder(self, task: int, route: bytes) -> bool:
        """Whether the worker at this route holds the task."""
        worker = self._by_task.get(task)
        return worker is not None and worker.route == route

    def worker_at(self, route: bytes) -> Worker | None:
        return self._by_route.get(route)

    def worker_of_name(self, uid: int, name: str) -> Worker | None:
        return self._by_name.get((uid, name))

    def worker_of(self, task: int) -> Worker | None:
        return self._by_task.get(task)

    def kill(self, task: int, reason: str) -> bool:
        """Have the launcher kill the worker of a task; see `end`."""
        return self.end(self._by_task[task], reason)

    def end(self, worker: Worker, reason: str) -> bool:
        """Have its launcher kill a worker; return False without a working launcher."""
        user = self._users[worker.uid]
        if user.launcher is None:
            return False
        sent = self._send(user.launcher.route, KillWorker(worker.name, reason))
        return sent and not user.hung

    # ------------------------------------------------------------ peers

    def has_launcher(self, uid: int) -> bool:
        """Whether a user has a working launcher."""
        user = self._users[uid]
        return user.launcher is not None and not user.hung

    def of_user(self, uid: int) -> UserWorkers:
        return self._users[uid]

    def wanting(self) -> dict[int, UserWorkers]:
        """Return the users with tasks that wait for a worker."""
        return {uid: user for uid, user in self._users.items() if user.waiting}

    def supervised(self, uid: int, name: str) -> bool:
        """Whether a connected launcher will report the exit of this worker."""
        user = self._users[uid]
        return user.expects(name) or name in user.supervised

    def launcher_came(self, peer: Peer, workers: Iterable[str] = ()) -> None:
        """Register a user's launcher and the names of its workers."""
        user = self._users[peer.uid]
        user.launcher = peer
        user.record_activity()
        user.supervised = set(workers)
        user.forget_asked()
        user.paused = False
        self._ask_for_workers(peer.uid)

    def launcher_left(self, peer: Peer) -> list[int]:
        """Forget a launcher; return the tasks that wait for one of its workers."""
        user = self._users[peer.uid]
        if user.launcher is None or user.launcher.pid != peer.pid:
            return []
        user.launcher = None
        user.hung = False
        user.forget_asked()
        user.supervised.clear()
        return self.waiting(peer.uid)

    def worker_came(
        self, peer: Peer, register: Register, keeps: Sequence[int]
    ) -> list[int]:
        """Register a worker, perhaps again over a new connection.

        Args:
            keeps: the tasks that it holds or has ended and that it keeps, in order.
                It has to abort any other.

        Returns:
            Tasks that it was given and does not hold, as the commands were lost. They
            are unbound now.

        """
        worker = self._registered(peer, register)
        lost = worker.tasks
        for task in lost:
            self._detach(worker, task)
        for task in keeps:
            # It reports the task's state again, and gets its commands in reply.
            self._forget(task)
            self._owners[task] = peer.uid
            self._give(worker, task)
        if register.task is not None and register.task not in keeps:
            worker.aborting.add(register.task)
            self._send(worker.route, Abort(register.task, register.epoch))
        self._on_idle(worker)
        return [task for task in lost if task not in keeps]

    def failed_to_start(self, uid: int, name: str) -> int | None:
        """Record that a worker exited before it registered; return a task that lacks it."""
        user = self._users[uid]
        if not user.settle_start(name):
            return None
        return user.waiting[0] if len(user.waiting) > len(user.starting) else None

    def not_started(self, uid: int, name: str) -> int:
        """Record that the system had no process for a worker.

        Returns:
            Consecutive failures; 0: a retry is already scheduled, or nobody asked.

        """
        user = self._users[uid]
        if not user.settle_start(name):
            return 0
        if user.paused:
            return 0
        user.paused = True
        user.failed_starts += 1
        return user.failed_starts

    def ask_again(self, uid: int) -> None:
        """Request workers after a pause; see `not_started`."""
        self._users[uid].paused = False
        self._ask_for_workers(uid)

    def waiting(self, uid: int) -> list[int]:
        """List a user's tasks that need a worker, oldest request first.

        A task's followers come right after it.
        """
        followers = self._followers
        waiting = self._users[uid].waiting
        return [each for task in waiting for each in (task, *followers.get(task, ()))]

    def free(self, uid: int, name: str) -> bool:
        """Whether this user's own program of that name is connected and holds no task."""
        worker = self._by_name.get((uid, name))
        return worker is not None and worker.own and worker.task is None

    def reserve(self, uid: int, name: str, task: int) -> None:
        """Bind a task to the program that submitted it; see `free`."""
        self._owners[task] = uid
        self._assign(self._by_name[uid, name], task)

    def worker_left(self, uid: int, name: str) -> Worker | None:
        """Forget a worker and return it."""
        worker = self._by_name.pop((uid, name), None)
        if worker is None:
            return None
        self._by_route.pop(worker.route, None)
        user = self._users[worker.uid]
        user.supervised.discard(name)
        if worker in user.idle:
            user.idle.remove(worker)
        for task in worker.tasks:
            self._forget(task)
        return worker

    def holds(self, uid: int, name: str) -> bool:
        """Whether a worker of that name belongs to this user or was requested."""
        return (uid, name) in self._by_name or self._users[uid].expects(name)

    def workers_of(self, uid: int) -> list[Worker]:
        return [worker for worker in self._by_name.values() if worker.uid == uid]

    def retire_launchers(self, has_tasks: Callable[[int], object]) -> None:
        """Retire the launchers of users without tasks, and idle workers.

        A launcher whose user has tasks stays for the next start of the daemon, even
        if nothing runs now.
        """
        for uid, user in self._users.items():
            for worker in user.idle:  # an earlier launcher may have left orphans
                self._send(worker.route, Retire())
            if user.launcher is not None and not has_tasks(uid):
                self._send(user.launcher.route, Retire())

    # ------------------------------------------------------------ invariants

    def check(self) -> None:
        """Check that the tables agree; tests call it after every step.

        Raises:
            BugError: they disagree; the message names the task or worker.

        """
        for complaint in self._disagreements():
            raise BugError(f"worker pool: {complaint}")

    def _disagreements(self) -> Iterator[str]:
        for task, worker in self._by_task.items():
            if task not in worker.tasks or self._owners.get(task) != worker.uid:
                yield f"task {task} is not bound to worker {worker.name}"
            if task in self._backlog or self.waits(task):
                yield f"task {task} has a worker, and waits for one"
        for (uid, name), worker in self._by_name.items():
            strange = [t for t in worker.tasks if self._by_task.get(t) is not worker]
            if strange:
                yield f"worker {name} of {uid} is booked for tasks {strange}"
            if worker.route and self._by_route.get(worker.route) is not worker:
                yield f"worker {name} of {uid} is not where its messages go"
        for uid, user in self._users.items():
            yield from self._disagreements_of(uid, user)

    def _disagreements_of(self, uid: int, user: UserWorkers) -> Iterator[str]:
        if len(set(user.waiting)) != len(user.waiting):
            yield f"a task of {uid} waits twice: {list(user.waiting)}"
        for task in user.waiting:
            if task not in self._backlog or self._owners.get(task) != uid:
                yield f"task {task} waits, and no order for it is kept"
        for worker in user.idle:
            if worker.task is not None or self._by_name.get((uid, worker.name)) is None:
                yield f"worker {worker.name} of {uid} is idle, and has a task or is gone"
        if user.idle and user.waiting:
            yield f"workers of {uid} are idle while tasks wait for one"

    # ------------------------------------------------------------ steps

    def _registered(self, peer: Peer, register: Register) -> Worker:
        """Return the worker that registers, reachable by its new connection."""
        user = self._users[peer.uid]
        if user.settle_start(register.worker):
            user.record_activity()
            user.failed_starts = 0
            user.supervised.add(register.worker)
        worker = self._by_name.get((peer.uid, register.worker))
        if worker is None:
            worker = Worker(
                register.worker, peer.uid, peer.route, peer.pid, register.own
            )
            self._by_name[peer.uid, register.worker] = worker
        elif worker in user.idle:
            user.idle.remove(worker)
        self._by_route.pop(worker.route, None)
        self._by_route[peer.route] = worker
        worker.route = peer.route
        if worker.pid != peer.pid or not worker.started:
            worker.pid, worker.started = peer.pid, self.started_at(peer.pid)
        worker.aborting.clear()
        return worker

    def _detach(self, worker: Worker, task: int) -> None:
        worker.drop(task)
        self._forget(task)

    def _forget(self, task: int) -> None:
        """Remove a task from every table; its worker, if any, is not informed."""
        self._by_task.pop(task, None)
        if self._followers:
            self._leave_train(task)
        uid = self._owners.pop(task, None)
        if self._backlog.pop(task, None) is not None and uid is not None:
            waiting = self._users[uid].waiting
            if task in waiting:  # else its worker was expected to register again
                waiting.remove(task)

    def _leave_train(self, task: int) -> None:
        """Make the next follower of a task without a worker the leader of the others."""
        for followers in self._followers.values():
            if task in followers:
                followers.remove(task)
        followers = self._followers.pop(task, [])
        if followers:
            first, *others = followers
            self._users[self._owners[first]].waiting.append(first)
            self._followers[first] = others

    def _order(self, worker: Worker, message: Message) -> None:
        if self._gathered is not None:
            self._gathered.setdefault(worker.route, []).append(message)
        else:
            self._send(worker.route, message)

    def _assign(self, worker: Worker, task: int) -> None:
        """Give a task and its followers to an idle worker."""
        followers = self._followers.pop(task, [])
        for each in (task, *followers):
            self._give(worker, each)

    def _give(self, worker: Worker, task: int) -> None:
        worker.take(task)
        self._by_task[task] = worker
        self.assigned(task, worker)
        for message in self._backlog.pop(task, ()):
            self._order(worker, message)

    def _on_idle(self, worker: Worker) -> None:
        user = self._users[worker.uid]
        if worker.own or worker.leaving or not worker.route:
            return
        if worker.task is not None or worker.aborting:
            return
        if user.waiting:
            self._assign(worker, user.waiting.popleft())
        elif len(user.idle) >= SPARE + len(self._by_task):
            self._send(worker.route, Retire())
        elif worker not in user.idle:
            user.idle.append(worker)

    def _ask_for_workers(self, uid: int) -> None:
        user = self._users[uid]
        missing = len(user.waiting) - len(user.starting)
        if user.launcher is None or user.paused or missing <= 0:
            return
        names = []
        for _ in range(missing):
            self._started += 1
            names.append(f"{self._prefix}-{self._started}")
        if self._send(user.launcher.route, StartWorkers(names)):
            user.starting.update(names)


def _ignore(_task: int, _worker: Worker) -> None:
    """Do nothing: the default of `WorkerPool.assigned`."""
