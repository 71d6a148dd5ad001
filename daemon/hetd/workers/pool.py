"""The worker pool: which worker holds which task.

The loop calls it. The pool keeps tables and sends messages; the user's launcher starts,
watches and kills the processes.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import product
from typing import TYPE_CHECKING

from hetd.tasks.worker_key import ANY_LAUNCHERS, WorkerKey
from hetd.workers.binding import Binding, Worker
from hetd.workers.host_processes import HostProcesses
from hetd.workers.user_workers import UserWorkers
from hetsched.ids import TaskId
from libtask.errors import BugError
from libtask.messages import (
    Abort,
    DropResidents,
    KillWorker,
    Message,
    Retire,
    StartWorkers,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from hetd.tasks.page import HoldingProcess
    from hetd.transport.router import Peer
    from libtask.messages import Register

SPARE = 2
"""Idle workers of a key kept per user in addition to busy ones: they stay warm."""
SPARE_OF_ALL = 8
"""The same for the idle workers of all keys of a user; the least recently used one ends."""


class WorkerPool:
    """Binds tasks to workers and routes messages to them.

    Args:
        send: sends messages to a route together; returns False if the peer is gone.
        prefix: begins the names of requested workers; differs at each start of the
            daemon, so that names are unique.
        processes: of the machine.

    """

    def __init__(
        self,
        send: Callable[..., bool],
        prefix: str,
        processes: HostProcesses | None = None,
    ) -> None:
        self._send = send
        self._prefix = prefix
        self._users: defaultdict[int, UserWorkers] = defaultdict(UserWorkers)
        self._by_name: dict[tuple[int, str], Worker] = {}
        """Names are unique per user: nobody can take the name of another user's worker."""
        self._by_route: dict[bytes, Worker] = {}
        self._bindings: dict[int, Binding] = {}
        self._gathered: dict[bytes, list[Message]] | None = None
        """Commands of one instant, by route, sent together; None: sent one by one."""
        self._started = 0
        self._holders: defaultdict[str, list[Worker]] = defaultdict(list)
        """Accelerator -> workers that may have results on it."""
        self.processes = processes or HostProcesses()
        self.assigned: list[Binding] = []
        """Bindings that got a worker since `take_assigned`."""

    def count(self) -> int:
        """Count the connected workers."""
        return len(self._by_route)

    def launchers(self) -> int:
        """Count the users with a connected launcher."""
        return sum(user.launcher is not None for user in self._users.values())

    # ------------------------------------------------------------ tasks

    def binding(self, task: int) -> Binding | None:
        """Return the binding of a task; None: the task is not bound."""
        return self._bindings.get(task)

    def bindings(self) -> list[Binding]:
        return list(self._bindings.values())

    def bind(
        self,
        task: int,
        uid: int,
        epoch: int,
        key: WorkerKey = ANY_LAUNCHERS,
        inputs: Collection[int] = (),
    ) -> None:
        """Bind a task to a worker; keep its commands until there is one.

        Args:
            task: the task; `uid`: its owner; `epoch`: number of the binding.
            key: what the worker has to serve.
            inputs: tasks whose results it takes.

        """
        known = self._bindings.get(task)
        if known is not None and known.worker is not None:
            known.epoch = epoch  # reserved for the program that submitted it
            return
        binding = self._make(task, uid, epoch, key)
        user = self._users[uid]
        idle = user.take_idle(key, inputs)
        if idle is not None:
            self._assign(idle, binding)
            return
        user.waiting.append(binding)
        self._ask_for_workers(uid)

    def occupy(self, task: int, device: str) -> None:
        """Give an accelerator to the process of a bound task: others free what stays there.

        So the memory that tasks need of it is free but for the budget of one process.
        """
        binding = self._bindings[task]
        binding.device = device
        holders = self._holders[device]
        for other in holders.copy():
            if other is not binding.worker:
                self._order(other, DropResidents(device))
                # it may keep something until the end of a task that runs there now
                if not any(each.device == device for each in other.bindings):
                    holders.remove(other)
        if binding.worker is not None:
            self._note_holder(binding.worker, device)

    def follow(self, task: int, uid: int, epoch: int, leader: int) -> None:
        """Bind a task behind another one to the same worker, now or once it has one."""
        first = self._bindings[leader]
        binding = self._make(task, uid, epoch, first.key)
        if first.worker is not None:
            self._give(first.worker, binding)
        else:
            binding.leader = first
            first.followers.append(binding)

    def take_assigned(self) -> list[Binding]:
        """Return the bindings that got a worker since the last call, and have it still."""
        assigned, self.assigned = self.assigned, []
        return [each for each in assigned if self._bindings.get(each.task) is each]

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

    def expect(
        self,
        task: int,
        uid: int,
        epoch: int,
        holder: HoldingProcess | None,
        key: WorkerKey = ANY_LAUNCHERS,
    ) -> None:
        """Bind a task to the worker of a previous run of the daemon.

        Args:
            task: the task; `uid`: its owner; `epoch`: its binding at that time.
            holder: that worker; None: unknown, so that any worker of a launcher may
                claim the task.
            key: what it serves.

        """
        binding = self._make(task, uid, epoch, key)
        if holder is None:
            binding.expected = True
            return
        worker = Worker(holder.name, uid, b"", holder.pid, holder.own)
        worker.started = holder.started
        worker.bindings.append(binding)
        binding.worker = self._by_name[uid, holder.name] = worker

    def mark_lost(self, task: int) -> None:
        """Stop waiting for the worker of a task; see `expect`."""
        worker = self.worker_of(task)
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
        binding = self._bindings.get(task)
        if binding is None:
            return
        if binding.worker is None:
            binding.backlog.append(message)
        elif binding.worker.route:  # else it gets its commands when it registers again
            self._order(binding.worker, message)

    def release(self, task: int) -> None:
        """Delete a task's binding; its worker, if it has one, may become idle."""
        binding = self._bindings.get(task)
        if binding is None:
            return
        self._delete(binding)
        worker = binding.worker
        if worker is not None:
            worker.served = True
            if binding.device:
                worker.results.append(task)
            if not worker.bindings:
                self._on_idle(worker)

    def has_served(self, route: bytes) -> bool:
        """Return whether a worker may have had a task to its end."""
        worker = self._by_route.get(route)
        return worker is not None and worker.served

    def unbind(self, task: int) -> None:
        """Delete a task's binding; its worker becomes idle once it has aborted the task."""
        binding = self._bindings.get(task)
        if binding is None:
            return
        self._delete(binding)
        if binding.worker is not None:
            binding.worker.aborting.add(task)

    def aborted(self, route: bytes, task: int) -> Worker | None:
        """Record that a worker aborted a task; return the worker."""
        worker = self._by_route.get(route)
        if worker is not None and task in worker.aborting:
            worker.aborting.remove(task)
            self._on_idle(worker)
        return worker

    def stop_assigning(self, route: bytes) -> list[Binding]:
        """Assign no further task to a worker that is about to exit.

        Returns:
            The bindings of the tasks that it was given and has not begun; they are
            deleted now.

        """
        worker = self._by_route.get(route)
        if worker is None or worker.own:
            return []
        worker.leaving = True
        user = self._users[worker.uid]
        if worker in user.idle:
            user.idle.remove(worker)
        bindings = worker.bindings.copy()
        for binding in bindings:
            self._delete(binding)
        return bindings

    def may_claim(self, task: int, uid: int, register: Register) -> bool:
        """Whether a worker may be the holder of a bound task, as it claims.

        A task that waits for a worker was sent to none under its present epoch, and
        a task with a worker is held by that one. Only after a restart of the daemon
        may a worker hold it that is not on disk: one of a launcher.
        """
        binding = self._bindings.get(task)
        if binding is None:
            return False
        if binding.worker is not None:
            return (binding.worker.uid, binding.worker.name) == (uid, register.worker)
        return binding.expected and not register.own

    def held_at(self, task: int, route: bytes) -> Binding | None:
        """Return the binding of a task that the worker at this route holds."""
        binding = self._bindings.get(task)
        if binding is None or binding.worker is None or binding.worker.route != route:
            return None
        return binding

    def worker_at(self, route: bytes) -> Worker | None:
        return self._by_route.get(route)

    def worker_of_name(self, uid: int, name: str) -> Worker | None:
        return self._by_name.get((uid, name))

    def worker_of(self, task: int) -> Worker | None:
        binding = self._bindings.get(task)
        return None if binding is None else binding.worker

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
        user.yields = False
        user.record_activity()
        user.supervised = set(workers)
        user.forget_asked()
        user.paused = False
        self._ask_for_workers(peer.uid)

    def is_launcher(self, peer: Peer) -> bool:
        """Whether this is the connection of the user's present launcher."""
        return self._users[peer.uid].launcher == peer

    def keep_no_idle_workers(self, uid: int) -> None:
        """Retire a user's idle workers, now and from now on, as their launcher yields."""
        user = self._users[uid]
        user.yields = True
        while user.idle:
            self._send(user.idle.pop().route, Retire())

    def launcher_left(self, peer: Peer) -> list[Binding]:
        """Forget a launcher; return the bindings that wait for one of its workers."""
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
    ) -> list[Binding]:
        """Register a worker, perhaps again over a new connection.

        Args:
            peer: its connection.
            register: what it says of itself.
            keeps: the bound tasks that it holds or has ended and that it keeps, in order.
                It has to abort any other.

        Returns:
            The bindings of tasks that it was given and does not hold, as the commands
            were lost; they are deleted now.

        """
        worker = self._registered(peer, register)
        lost = [each for each in worker.bindings if each.task not in keeps]
        for binding in lost:
            self._delete(binding)
        worker.bindings.clear()
        for task in keeps:
            # it reports the task's state again, and gets its commands in reply
            binding = self._bindings[task]
            binding.backlog.clear()
            self._give(worker, binding)
        if register.task is not None and register.task not in keeps:
            worker.aborting.add(register.task)
            self._send(worker.route, Abort(register.task, register.epoch))
        self._on_idle(worker)
        return lost

    def failed_to_start(self, uid: int, name: str) -> Binding | None:
        """Record that a worker exited before it registered; return a binding that lacks it."""
        user = self._users[uid]
        key = user.settle_start(name)
        return None if key is None else user.first_lacking(key)

    def not_started(self, uid: int, name: str) -> int:
        """Record that the system had no process for a worker.

        Returns:
            Consecutive failures; 0: a retry is already scheduled, or nobody asked.

        """
        user = self._users[uid]
        if user.settle_start(name) is None:
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

    def waiting(self, uid: int) -> list[Binding]:
        """List a user's bindings that need a worker, oldest request first.

        A binding's followers come right after it.
        """
        waiting = self._users[uid].waiting
        return [each for first in waiting for each in (first, *first.followers)]

    def free(self, uid: int, name: str) -> bool:
        """Whether this user's own program of that name is connected and holds no task."""
        worker = self._by_name.get((uid, name))
        return worker is not None and worker.own and not worker.bindings

    def reserve(self, uid: int, name: str, task: int) -> None:
        """Bind a task to the program that submitted it; see `free`."""
        self._assign(self._by_name[uid, name], self._make(task, uid, 0))

    def worker_left(self, uid: int, name: str) -> Worker | None:
        """Forget a worker and return it, with its bindings, which are deleted now."""
        worker = self._by_name.pop((uid, name), None)
        if worker is None:
            return None
        self._by_route.pop(worker.route, None)
        user = self._users[worker.uid]
        user.supervised.discard(name)
        if worker in user.idle:
            user.idle.remove(worker)
        for holders in self._holders.values():
            if worker in holders:
                holders.remove(worker)
        for binding in worker.bindings:
            del self._bindings[binding.task]
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
        for binding in self._bindings.values():
            yield from self._disagreements_about(binding)
        for (uid, name), worker in self._by_name.items():
            bound = self._bindings
            strange = [b.task for b in worker.bindings if bound.get(b.task) is not b]
            if strange:
                yield f"worker {name} of {uid} is booked for tasks {strange}"
            if worker.route and self._by_route.get(worker.route) is not worker:
                yield f"worker {name} of {uid} is not where its messages go"
        for uid, user in self._users.items():
            yield from self._disagreements_of(uid, user)

    def _disagreements_about(self, binding: Binding) -> Iterator[str]:
        task, worker, leader = binding.task, binding.worker, binding.leader
        waits = binding in self._users[binding.owner].waiting
        if worker is None:
            follows = leader is not None and binding in leader.followers
            if [waits, follows].count(True) != binding.waits:
                yield f"task {task} waits in no place, or in two"
            return
        if binding not in worker.bindings or binding.owner != worker.uid:
            yield f"task {task} is not bound to worker {worker.name}"
        if waits or binding.backlog:
            yield f"task {task} has a worker, and waits for one"

    def _disagreements_of(self, uid: int, user: UserWorkers) -> Iterator[str]:
        tasks = [binding.task for binding in user.waiting]
        if len(set(tasks)) != len(tasks):
            yield f"a task of {uid} waits twice: {tasks}"
        for binding in user.waiting:
            if self._bindings.get(binding.task) is not binding or binding.owner != uid:
                yield f"task {binding.task} waits, and is not bound"
        for worker in user.idle:
            if worker.bindings or self._by_name.get((uid, worker.name)) is None:
                yield f"worker {worker.name} of {uid} is idle, and has a task or is gone"
        pairs = product(user.idle, user.waiting)
        if any(worker.key.serves(each.key) for worker, each in pairs):
            yield f"workers of {uid} are idle while tasks wait for one"

    # ------------------------------------------------------------ steps

    def _registered(self, peer: Peer, register: Register) -> Worker:
        """Return the worker that registers, reachable by its new connection."""
        user = self._users[peer.uid]
        key = user.settle_start(register.worker)
        if key is not None:
            user.record_activity()
            user.failed_starts = 0
            user.supervised.add(register.worker)
        worker = self._by_name.get((peer.uid, register.worker))
        if worker is None:
            worker = Worker(
                register.worker, peer.uid, peer.route, peer.pid, register.own
            )
            # one that an earlier start of the daemon asked for may have served tasks
            worker.served = not register.worker.startswith(f"{self._prefix}-")
            worker.key = key or WorkerKey(register.origin, None)
            self._by_name[peer.uid, register.worker] = worker
        elif worker in user.idle:
            user.idle.remove(worker)
        self._by_route.pop(worker.route, None)
        self._by_route[peer.route] = worker
        worker.route = peer.route
        if worker.pid != peer.pid or not worker.started:
            worker.pid, worker.started = peer.pid, self.processes.started_at(peer.pid)
            worker.process_ended = False
            worker.process = None
        worker.aborting.clear()
        return worker

    def _make(
        self, task: int, uid: int, epoch: int, key: WorkerKey = ANY_LAUNCHERS
    ) -> Binding:
        """Make a binding without a worker, in place of an earlier one of the task."""
        known = self._bindings.get(task)
        if known is not None:
            self._delete(known)
        binding = self._bindings[task] = Binding(TaskId(task), uid, epoch, key=key)
        return binding

    def _delete(self, binding: Binding) -> None:
        """Delete a binding; its worker, if any, is not informed."""
        del self._bindings[binding.task]
        if binding.worker is not None:
            binding.worker.bindings.remove(binding)
            return
        if binding.leader is not None:
            binding.leader.followers.remove(binding)
        elif binding.waits:
            self._users[binding.owner].waiting.remove(binding)
        self._succeed(binding)

    def _succeed(self, binding: Binding) -> None:
        """Make the first follower of a task without a worker the leader of the others."""
        if not binding.followers:
            return
        first, *others = binding.followers
        first.leader = None
        first.followers = others
        for other in others:
            other.leader = first
        self._users[first.owner].waiting.append(first)

    def _order(self, worker: Worker, message: Message) -> None:
        if self._gathered is not None:
            self._gathered.setdefault(worker.route, []).append(message)
        else:
            self._send(worker.route, message)

    def _served(self) -> int:
        """Count the tasks that have a worker."""
        return sum(each.worker is not None for each in self._bindings.values())

    def _assign(self, worker: Worker, binding: Binding) -> None:
        """Give a task and its followers to an idle worker."""
        followers, binding.followers = binding.followers, []
        for each in (binding, *followers):
            self._give(worker, each)

    def _give(self, worker: Worker, binding: Binding) -> None:
        worker.bindings.append(binding)
        binding.worker, binding.leader, binding.expected = worker, None, False
        worker.key = binding.key
        self.assigned.append(binding)
        if binding.device:
            self._note_holder(worker, binding.device)
        for message in binding.backlog:
            self._order(worker, message)
        binding.backlog.clear()

    def _note_holder(self, worker: Worker, device: str) -> None:
        if worker not in self._holders[device]:
            self._holders[device].append(worker)

    def _on_idle(self, worker: Worker) -> None:
        user = self._users[worker.uid]
        if worker.own or worker.leaving or not worker.route:
            return
        if worker.bindings or worker.aborting:
            return
        waiting = user.take_waiting(worker.key) if user.waiting else None
        if waiting is not None:
            self._assign(worker, waiting)
        elif worker not in user.idle:
            user.idle.append(worker)
            if user.yields or len(user.idle) > SPARE:
                self._retire_surplus(user, worker.key)

    def _retire_surplus(self, user: UserWorkers, key: WorkerKey) -> None:
        """Retire an idle worker beyond those kept: of a key, and of all keys."""
        alike = [worker for worker in user.idle if worker.key == key]
        if user.yields:
            surplus = user.idle[0]
        elif len(alike) > SPARE and len(alike) > SPARE + self._served():
            surplus = alike[0]
        elif (
            len(user.idle) > SPARE_OF_ALL
            and len(user.idle) > SPARE_OF_ALL + self._served()
        ):
            surplus = user.idle[0]
        else:
            return
        user.idle.remove(surplus)
        self._send(surplus.route, Retire())

    def _ask_for_workers(self, uid: int) -> None:
        user = self._users[uid]
        if user.launcher is None or user.paused:
            return
        for key, missing in user.missing().items():
            names = []
            for _ in range(missing):
                self._started += 1
                names.append(f"{self._prefix}-{self._started}")
            if self._send(user.launcher.route, StartWorkers(names, key.origin)):
                user.starting.update(dict.fromkeys(names, key))
