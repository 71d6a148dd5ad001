"""Lying launchers and workers, with a memory, beside an honest user.

The daemon's own parts run in this process, on a clock that is turned. A liar knows every
task, epoch and worker name, and says whatever its roles can say: it claims tasks that it
does not hold, ignores orders, exits without a word, names other epochs, resources and
processes. After every case the daemon's parts must agree, every bound task must have
somebody (`Watchdog.neglected`), and no place may be held longer than is documented.
When the liar falls silent, all places must become free, and the honest user's tasks must
have lost nothing.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal
from unittest.mock import patch

from hetd.assembly import assemble, make_loop
from hetd.clock import Clock
from hetd.config import ActiveConfig, Config
from hetd.reports.worker_reports import EXIT_S
from hetd.store import Store
from hetd.tasks.journal import EPOCHS, Journal
from hetd.transport.poller import Poller, WatchedProcess
from hetd.transport.router import Peer
from hetd.workers.deadlines import WORKER_S
from hetd.workers.host_processes import HostProcesses
from hetd.workers.pool import WorkerPool
from hetd.workers.watchdog import KILL_S, LOOK_S
from hetsched.estimates.table import EstimateTable
from hetsched.policies import make_policy
from hetsched.system import SECOND
from libtask import messages as m
from torture.bodies import ADMIN, DEVICES, GoodTrial, Inlet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from hetd.tasks.page import TaskPage
    from hetsched.tasks import TaskRecord

LIAR, HONEST = 1000, 2000
ROUND = 200
"""Cases between two silences of the liar."""
TASKS = 6
"""Tasks of the liar that there may be at a time, and of the honest user."""
SLACK_S = 2 * LOOK_S + 1.0
"""The daemon looks twice a second, and turns at least once."""
STEP_S = 30.0
"""Between two turns of a silence."""
PATIENCE = 20_000
"""Turns of a silence: a strip may take 20 times as long as the longest before it."""
KINDS: tuple[list[m.Kind], ...] = (["cpu"], ["cpu", "gpu"], ["gpu"])
CONFIG = Config(policy="affinity", meters=False)


class Turned:
    """A clock that is turned by hand, in seconds."""

    def __init__(self) -> None:
        self.seconds = 1_000_000.0

    def clock(self) -> Clock:
        return Clock(lambda: int(self.seconds * SECOND), lambda: self.seconds)


class Processes(Poller):
    """The processes of all users, and listeners for their ends."""

    def __init__(self) -> None:
        # not as a poller
        self._last = 100
        self._by_pid: dict[int, set[WatchedProcess]] = {}
        self.ended: list[WatchedProcess] = []

    def begin(self) -> int:
        """Start a process; return its pid."""
        self._last += 1
        self._by_pid[self._last] = set()
        return self._last

    def watch(self, watched: WatchedProcess) -> bool:
        if watched.peer.pid in self._by_pid:
            self._by_pid[watched.peer.pid].add(watched)
            return True
        self.ended.append(watched)
        return False

    def end(self, pid: int) -> None:
        self.ended += sorted(self._by_pid.pop(pid, ()), key=repr)

    def started_at(self, pid: int) -> int:
        """Tell no start time of a liar's: hetd's own user is another one."""
        del pid
        return 0


class Mail(Inlet):
    """The daemon's router, with what it sends."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[bytes, m.Message]] = []

    def send(self, route: bytes, *messages: m.Message) -> bool:
        self.sent += [(route, message) for message in messages]
        return super().send(route, *messages)


class SharedNode:
    """A daemon of two users, without a socket and without processes.

    Args:
        folder: where its store lies.

    """

    def __init__(self, folder: Path) -> None:
        self.time = Turned()
        self.mail = Mail()
        self.processes = Processes()
        # epochs that a seed repeats: a new store draws where they begin
        with patch("hetd.store.store.secrets.randbelow", return_value=0):
            self.store = Store(folder / "hetd.db")
        self.parts = assemble(
            ActiveConfig(CONFIG),
            DEVICES,
            make_policy("affinity", {}),
            EstimateTable(),
            Journal(self.store),
            WorkerPool(
                self.mail.send,
                "p",
                HostProcesses(self.processes.end, self.processes.started_at),
            ),
            self.time.clock(),
        )
        self.runtime = self.parts.runtime
        self.runtime.watchdog.health.try_device = GoodTrial
        self.loop = make_loop(self.parts, self.mail, self.store, self.processes)

    def turn(self) -> None:
        ended, self.processes.ended = self.processes.ended, []
        self.loop.turn(ended)

    def say(self, peer: Peer, message: m.Message) -> None:
        """Let a peer say something, and do the turn."""
        self.mail.put(peer, m.encode(message))
        self.turn()

    def own(self, uid: int) -> list[TaskPage]:
        live = self.runtime.journal.live.values()
        return [page for page in live if page.owner == uid]

    def running(self, uid: int) -> list[TaskRecord]:
        states = self.runtime.scheduler.system.states.values()
        running = [record for state in states for record in state.running.values()]
        return [record for record in running if record.submitted.owner == uid]

    def close(self) -> None:
        self.loop.finish()
        self.store.close()


class HonestUser:
    """A user whose launcher and workers follow each order at once."""

    def __init__(self, shared: SharedNode) -> None:
        self._shared = shared
        self._client = Peer(b"honest-client", HONEST, shared.processes.begin())
        self._launcher = Peer(b"honest-launcher", HONEST, shared.processes.begin())
        self._workers: dict[bytes, tuple[str, Peer]] = {}
        shared.say(self._launcher, m.Register("launcher"))

    def submit(self, *kinds: Literal["cpu", "gpu"]) -> None:
        """Submit a task, unless there are many."""
        if len(self._shared.own(HONEST)) < TASKS:
            task = m.TaskSpec("good", type="good", kinds=list(kinds or ("cpu", "gpu")))
            self._shared.say(self._client, m.Submit(1, [task]))

    def work(self) -> None:
        """Do all that was asked for, and all that follows."""
        while self._shared.mail.sent:
            sent, self._shared.mail.sent = self._shared.mail.sent, []
            for route, message in sent:
                if route == self._launcher.route:
                    self._launch(message)
                elif route in self._workers:
                    self._obey(*self._workers[route], message)

    def _launch(self, message: m.Message) -> None:
        match message:
            case m.StartWorkers(names):
                for name in names:
                    pid = self._shared.processes.begin()
                    peer = Peer(f"honest-{name}".encode(), HONEST, pid)
                    self._workers[peer.route] = name, peer
                    self._shared.say(peer, m.Register("worker", worker=name))
            case m.KillWorker(name):
                self._end(name)
            case _:
                pass

    def _end(self, name: str) -> None:
        for route, (known, peer) in list(self._workers.items()):
            if known == name:
                del self._workers[route]
                self._shared.processes.end(peer.pid)
                self._shared.say(self._launcher, m.WorkerExited(name, 0))

    def _obey(self, name: str, peer: Peer, message: m.Message) -> None:
        say = self._shared.say
        match message:
            case m.Run(task, epoch):
                done = m.CheckpointRecord(1, 2)
                say(peer, m.Progress(task, epoch, done, 0.1, 1, started=1.0))
                say(peer, m.Finished(task, epoch, seconds=0.2, iterations=2, strips=2))
            case m.Stage(task, epoch):
                say(peer, m.Ready(task, epoch))
            case m.Abort(task, epoch):
                say(peer, m.Aborted(task, epoch))
            case m.Retire():
                self._end(name)
            case _:
                pass


@dataclass
class Findings:
    """The result of a run: what is wrong, and what the liar did."""

    cases: int = 0
    said: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Place:
    """A slot that a task of the liar has.

    Attributes:
        since: when it came there, by the clock.
        unserved: since when it has had no worker; None: it has one.
        reported: whether its worker has reported strips.

    """

    since: float
    unserved: float | None = None
    reported: bool = False


class Liar:
    """A member of the group whose launcher and workers lie.

    Args:
        chance: draws every lie.

    """

    def __init__(self, shared: SharedNode, chance: random.Random) -> None:
        self.said: Counter[str] = Counter()
        self._shared = shared
        self._chance = chance
        self._peers: list[Peer] = []
        self._born = 0
        self._lies: list[Callable[[], None]] = [
            *[self._submit] * 4,
            *[self._be_launcher] * 3,
            *[self._be_worker] * 8,
            *[self._report] * 8,
            *[self._end_process] * 4,
            *[self._tell_of_exit] * 4,
            self._leave,
            self._steer,
            *[self._let_time_pass] * 6,
        ]

    def lie(self) -> None:
        lie = self._chance.choice(self._lies)
        self.said[lie.__name__[1:]] += 1
        lie()

    def end(self) -> None:
        """End all processes, and cancel all tasks."""
        for peer in self._peers:
            self._shared.processes.end(peer.pid)
        self._peers.clear()
        ids = [page.id for page in self._shared.own(LIAR)]
        self._shared.turn()
        if ids:
            admin = Peer(b"admin", ADMIN, 1)
            self._shared.say(admin, m.Control(1, "cancel", ids))

    # ------------------------------------------------------------ what is drawn

    def _peer(self) -> Peer:
        """Return a connection; of a process that there is, or of another one."""
        chance = self._chance
        if self._peers and chance.random() < 0.6:
            return chance.choice(self._peers)
        self._born += 1
        known = [peer.pid for peer in self._peers]
        new = not known or chance.random() < 0.7
        pid = self._shared.processes.begin() if new else chance.choice(known)
        peer = Peer(f"liar-{self._born}".encode(), LIAR, pid)
        self._peers.append(peer)
        return peer

    def _name(self) -> str:
        """Return a name of a worker: asked for, known, made up, or another user's."""
        pool = self._shared.runtime.pool
        crew = pool.of_user(LIAR)
        known = [worker.name for worker in pool.workers_of(LIAR)]
        names = [*sorted(crew.starting), *sorted(crew.overdue), *known, "x", "y"]
        names += [worker.name for worker in pool.workers_of(HONEST)][:1]
        return self._chance.choice(names)

    def _claim(self) -> tuple[int | None, int]:
        """Return a task to claim, and an epoch: right, old, or made up."""
        chance = self._chance
        live = list(self._shared.runtime.journal.live.values())
        own = self._shared.own(LIAR)
        pages = own if own and chance.random() < 0.9 else live
        if not pages or chance.random() < 0.3:
            return None, 0
        page = chance.choice(pages)
        lie = chance.choice((0, 0, 0, 0, -1, 1, EPOCHS))
        return page.id, page.runtime.epoch + lie

    def _say(self, peer: Peer, message: m.Message) -> None:
        self._shared.say(peer, message)

    # ------------------------------------------------------------ lies

    def _submit(self) -> None:
        if len(self._shared.own(LIAR)) >= TASKS:
            return
        kinds: list[m.Kind] = self._chance.choice(KINDS)
        size = self._chance.choice((0, 0, 1 << 40, (1 << 63) - 1))
        task = m.TaskSpec("bad", type="bad", kinds=kinds, state_bytes=size)
        worker = self._name() if self._chance.random() < 0.2 else ""
        client = Peer(b"liar-client", LIAR, 1)
        self._say(client, m.Submit(1, [task], worker=worker))

    def _be_launcher(self) -> None:
        names = [self._name() for _ in range(self._chance.randint(0, 3))]
        self._say(self._peer(), m.Register("launcher", workers=names))

    def _be_worker(self) -> None:
        task, epoch = self._claim()
        resource = self._chance.choice(("", "", "cpu", "gpu0", "none"))
        own = self._chance.random() < 0.2
        hello = m.Register(
            "worker",
            worker=self._name(),
            task=task,
            epoch=epoch,
            resource=resource,
            own=own,
        )
        self._say(self._peer(), hello)

    def _report(self) -> None:
        task, epoch = self._claim()
        if task is None:
            return
        chance, wall = self._chance, self._shared.time.seconds
        record = m.CheckpointRecord(chance.randint(0, 3), 3)
        seconds = chance.choice((0.0, 0.1, 1e9, -5.0))
        when = chance.choice((0.0, wall, wall - 1e6, wall + 1e6))
        code = chance.choice(("device", "program", "task-failed"))
        message = chance.choice(
            (
                m.Ready(task, epoch),
                m.Progress(task, epoch, record, seconds, 1, started=when),
                m.Progress(task, epoch, record, seconds, 1, complete=True),
                m.Yielded(task, epoch, record, seconds=seconds, ended=when),
                m.Finished(task, epoch, result=1, seconds=seconds, ended=when),
                m.Failed(task, epoch, "it says", code, ended=when),
                m.Aborted(task, epoch),
                m.SnapshotTaken(task, epoch, record, at=when, bytes=1, seconds=seconds),
                m.Resumed(task, epoch, record),
                m.StripsGiven(
                    task, epoch, record.done, record.done + 9, record.done + 9
                ),
                m.Parked(task, epoch),
                m.Awaits(task, epoch, list(range(chance.randint(0, 2 * task + 2)))),
            )
        )
        self._say(self._holder(task) or self._peer(), message)

    def _holder(self, task: int) -> Peer | None:
        worker = self._shared.runtime.pool.worker_of(task)
        found = [peer for peer in self._peers if worker and peer.route == worker.route]
        return found[0] if found else None

    def _end_process(self) -> None:
        """End a process, with or without a listener."""
        if not self._peers:
            return
        gone = self._chance.choice(self._peers).pid
        self._peers = [peer for peer in self._peers if peer.pid != gone]
        self._shared.processes.end(gone)
        self._shared.turn()

    def _tell_of_exit(self) -> None:
        started = self._chance.random() < 0.7
        exited = m.WorkerExited(self._name(), -9, "it says", started=started)
        self._say(self._peer(), exited)

    def _leave(self) -> None:
        self._say(self._peer(), m.Leaving())

    def _steer(self) -> None:
        """Do what an owner may."""
        own = self._shared.own(LIAR)
        if not own:
            return
        task = self._chance.choice(own).id
        requests: list[m.Message] = [
            m.Control(1, "cancel", [task]),
            m.Control(1, "hold", [task]),
            m.Control(1, "release", [task]),
            m.Migrate(1, task, self._chance.choice(("cpu", "gpu0"))),
        ]
        client = Peer(b"liar-client", LIAR, 1)
        self._say(client, self._chance.choice(requests))

    def _let_time_pass(self) -> None:
        for _ in range(self._chance.randint(1, 5)):
            self._shared.time.seconds += self._chance.uniform(0.1, 20.0)
            self._shared.turn()


class Judge:
    """Looks the daemon over after each case."""

    def __init__(self, shared: SharedNode) -> None:
        self._shared = shared
        self._places: dict[tuple[int, int, int], Place] = {}
        self._held: Counter[int] = Counter()
        """Seconds for which a task has had places since it last got further."""
        self._furthest: dict[int, float] = {}
        self._looked = shared.time.seconds

    def look(self) -> list[str]:
        """Return what is wrong."""
        runtime = self._shared.runtime
        wrong = []
        for check in (runtime.scheduler.check, runtime.pool.check):
            try:
                check()
            except Exception as error:  # noqa: BLE001  whatever it is, it is a finding
                wrong.append(f"{type(error).__name__}: {error}")
        records = runtime.scheduler.system.tasks.values()
        wrong += runtime.watchdog.neglected(records)
        wrong += self._harm(self._shared.own(HONEST))
        bugs = self._shared.mail.answers["Error bug"]
        if bugs:
            wrong.append("the daemon called something its own bug; see its log")
        wrong += self._overstays()
        return wrong

    def _harm(self, pages: Iterable[TaskPage]) -> list[str]:
        """Report tasks of the honest user that have lost something."""
        return [
            f"honest task {page.id} lost a worker: {page.reason}"
            for page in pages
            if page.runtime.attempts or page.reason
        ]

    def _overstays(self) -> list[str]:
        """Report slots that are held too long without a worker, or a report."""
        now, before = self._shared.time.seconds, self._places
        passed, self._looked = now - self._looked, now
        self._places = {}
        wrong = []
        for record in self._shared.running(LIAR):
            key = (record.id, record.epoch, record.since)
            place = self._places[key] = before.get(key) or Place(now)
            served = self._shared.runtime.pool.worker_of(record.id) is not None
            if served:
                place.unserved = None
            elif place.unserved is None:
                place.unserved = now
            place.reported |= record.progress_at > record.since
            if not record.preempting and record.cancelling is None:
                wrong += self._overstay(record.id, place, now)
            wrong += self._fruitless(record, place, passed)
        return wrong

    def _fruitless(self, record: TaskRecord, place: Place, passed: float) -> list[str]:
        """Report a task that gets slot after slot without progress."""
        task, config = record.id, self._shared.parts.config.value
        if record.furthest > self._furthest.get(task, 0.0) or place.reported:
            self._furthest[task] = record.furthest
            self._held[task] = 0
        self._held[task] += round(passed)
        most = (config.attempts + 1) * (config.setup_limit_s + KILL_S + SLACK_S)
        if (
            self._held[task] > most
            and not self._shared.runtime.journal.live[task].spec.state_bytes
        ):
            return [f"task {task} has had slots for {self._held[task]} s for nothing"]
        return []

    def _overstay(self, task: int, place: Place, now: float) -> list[str]:
        limits = self._shared.parts.config.value
        if place.unserved is not None and now - place.unserved > WORKER_S + SLACK_S:
            return [f"task {task} has had a slot and no worker for too long"]
        page = self._shared.runtime.journal.live[task]
        most = limits.setup_limit_s + KILL_S + EXIT_S + WORKER_S + SLACK_S
        silent = not place.reported and not page.spec.state_bytes
        if silent and now - place.since > most:
            return [f"task {task} has had a slot without a report for too long"]
        return []


def fuzz(folder: Path, cases: int, seed: int) -> Findings:
    """Let a liar do its worst.

    Args:
        folder: an empty one, for the store.
        cases: how many lies.
        seed: makes the same lies again.

    """
    chance = random.Random(seed)
    shared = SharedNode(folder)
    found = Findings()
    try:
        honest, judge = HonestUser(shared), Judge(shared)
        liar = Liar(shared, chance)
        found.said = liar.said
        while found.cases < cases and not found.wrong:
            _round(liar, honest, judge, found)
            if not found.wrong:
                found.wrong += _silence(shared, honest, judge)
                liar.end()
    finally:
        shared.close()
    return found


def _round(liar: Liar, honest: HonestUser, judge: Judge, found: Findings) -> None:
    for number in range(ROUND):
        if number % TASKS == 0:
            honest.submit()
        liar.lie()
        honest.work()
        found.cases += 1
        found.wrong += judge.look()
        if found.wrong:
            return


def _silence(shared: SharedNode, honest: HonestUser, judge: Judge) -> list[str]:
    """Let the liar say nothing more: all places must become free, each in its time."""
    for _ in range(PATIENCE):
        shared.time.seconds += STEP_S
        shared.turn()
        honest.work()
        if _is_free(shared):
            return judge.look()
    tasks = [record.describe_story() for record in shared.running(LIAR)]
    return [f"places stay taken, of {tasks}; honest: {shared.own(HONEST)}"]


def _is_free(shared: SharedNode) -> bool:
    states = shared.runtime.scheduler.system.states.values()
    whole = all(s.up and s.slots == s.resource.slots for s in states)
    idle = not shared.running(LIAR)
    return whole and idle and not shared.own(HONEST)
