"""Hostile messages: everything that a frame may hold, before the daemon's own desks.

`Desk` is a daemon without a socket and without processes: frames go into its decoder
and its loop, in this process, so that a million of them take minutes. Most cases are
well-formed messages with values that nobody sends in earnest; the rest are broken.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    get_args,
    get_origin,
    get_type_hints,
)
from unittest.mock import patch

import msgpack
import msgspec

from hetd.assembly import assemble, make_loop
from hetd.config import ActiveConfig, Config, ContentionTable
from hetd.store import Store
from hetd.tasks.journal import Journal
from hetd.transport.poller import Poller
from hetd.transport.router import Envelope, Peer, Router, frame_of
from hetd.workers.host_processes import HostProcesses
from hetd.workers.pool import WorkerPool
from hetsched.estimates.table import EstimateTable
from hetsched.policies import make_policy
from libtask import messages as m
from libtask.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from hetd.tasks.page import TaskPage
    from hetd.transport.poller import WatchedProcess

DEVICES = [
    m.DeviceInfo(m.DeviceSpec("cpu", "cpu", "null"), slots=2),
    m.DeviceInfo(m.DeviceSpec("gpu0", "gpu", "null")),
]
USERS = (1000, 2000)
ADMIN = 0
WORKERS = ("w1", "w2", "w3")
"""Names that the workers of the cases have; each user's launcher made them all."""
CHECKED_EACH = 50
"""Cases between two looks at the scheduler's invariants."""
PATIENCE_TASKS = 200
"""Tasks that may be there before they are cancelled: a long list slows every case."""

WHOLE = (0, 1, 2, 3, -1, -2, 7, 64, 2**31, 2**53, 2**63 - 1, 2**63, 2**64 - 1, -(2**63))
NUMBERS = (0.0, 1.0, -1.0, 0.5, 1e-300, 1e300, -1e300, math.nan, math.inf, -math.inf)
TEXTS = ("", "cpu", "gpu0", "app", "a/1", "w1", "w2", "é\0\n", "..", "k" * 200)
STRANGE: tuple[Any, ...] = (None, True, b"\xff", [], {}, "x", 1.5, -1, {"a": [None]})


class Inlet(Router):
    """Frames go in by `put`; what the daemon answers is counted."""

    def __init__(self) -> None:
        # not as a socket: what `Router` opens is not there
        self._arrived: list[Envelope] = []
        self._early = []
        self.dropped = 0
        self.full = set()
        self.answers: Counter[str] = Counter()
        self.largest = 0
        """Bytes of the largest message that the daemon sent."""
        self.last = ""
        """Its last answer to a request: its kind, or the error's code."""

    @property
    def strained(self) -> bool:
        return False

    def put(self, peer: Peer, frame: bytes) -> None:
        """Let a frame arrive, decoded as the router does."""
        try:
            message = m.decode_to_daemon(frame)
            self._arrived.append(Envelope(peer, message, len(frame)))
        except InputError as error:
            self._arrived.append(Envelope(peer, error))

    def receive(self, is_put_off: Callable[[int], bool] = bool) -> Iterator[Envelope]:
        del is_put_off
        while self._arrived:
            yield self._arrived.pop(0)

    def waiting(self) -> bool:
        return False

    def send(self, route: bytes, *messages: m.Message) -> bool:
        for message in messages:
            self.largest = max(self.largest, len(frame_of(message)))
            name = type(message).__name__
            if isinstance(message, m.Error):
                name = f"Error {message.code}"
            if isinstance(message, m.Request):
                self.last = name
            self.answers[name] += 1
        return True


class NoPoller(Poller):
    """No process is watched."""

    def __init__(self) -> None:
        # not as a poller
        pass

    def watch(self, _watched: WatchedProcess) -> bool:
        return True


class GoodTrial:
    """A trial of a device that computes right."""

    def __init__(self, _spec: m.DeviceSpec) -> None:
        pass

    def outcome(self) -> str | None:
        return ""

    def give_up(self) -> None:
        pass


class Desk:
    """A daemon without a socket and without processes.

    Args:
        folder: where its store lies.
        policy: that schedules.

    """

    def __init__(self, folder: Path, policy: str = "affinity") -> None:
        self.inlet = Inlet()
        # epochs that a seed repeats: a new store draws where they begin
        with patch("hetd.store.store.secrets.randbelow", return_value=0):
            self.store = Store(folder / "hetd.db")
        self.parts = assemble(
            ActiveConfig(
                Config(
                    policy=policy,
                    meters=False,
                    contention=ContentionTable(discover=True),
                )
            ),
            DEVICES,
            make_policy(policy, {}),
            EstimateTable(),
            Journal(self.store),
            WorkerPool(
                self.inlet.send,
                prefix="f",
                # a hostile message must not make the fuzzer kill processes
                processes=HostProcesses(kill=lambda _pid: None),
            ),
        )
        self.runtime = self.parts.runtime
        self.runtime.watchdog.health.try_device = GoodTrial
        self.loop = make_loop(self.parts, self.inlet, self.store, NoPoller())
        self.tidy()

    def tidy(self) -> None:
        """Let good launchers and workers come, and take the tasks away when they are many."""
        for uid in USERS:
            self.say(uid, m.Register("launcher"), "launcher")
            for name in WORKERS:
                self.say(uid, m.Register("worker", worker=name), name)
        live = self.runtime.journal.live
        if len(live) > PATIENCE_TASKS:
            self.say(ADMIN, m.Control(0, "cancel", list(live)[: m.MAX_IDS]))

    def say(self, uid: int, message: m.Message, role: str = "client") -> None:
        """Let a peer say something, and do the turn."""
        self.put(uid, role, m.encode(message))
        self.loop.turn([])

    def tasks_of(self, uid: int, role: str) -> list[TaskPage]:
        """Find the live tasks of a user; or those that one of the user's workers holds."""
        own = [each for each in self.runtime.journal.live.values() if each.owner == uid]
        if role not in WORKERS:
            return own
        route, pool = _route(uid, role), self.runtime.pool
        return [each for each in own if pool.held_at(each.id, route)]

    def put(self, uid: int, role: str, frame: bytes) -> None:
        self.inlet.put(Peer(_route(uid, role), uid, 1), frame)

    def close(self) -> None:
        self.loop.finish()
        self.store.close()


def _route(uid: int, role: str) -> bytes:
    return f"{uid}-{role}".encode()


@dataclass
class Findings:
    """The result of a run of the fuzzer."""

    cases: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    bugs: list[tuple[bytes, str]] = field(default_factory=list)
    """(frame, what it led to): each is a bug of the daemon."""


def fuzz(folder: Path, cases: int, seed: int) -> Findings:
    """Put hostile messages before a daemon.

    Args:
        folder: an empty one, for the store.
        cases: how many.
        seed: makes the same cases again.

    """
    chance = random.Random(seed)
    desk = Desk(folder)
    found = Findings(answers=desk.inlet.answers)
    try:
        while found.cases < cases:
            _some_cases(desk, chance, min(CHECKED_EACH, cases - found.cases), found)
    finally:
        desk.close()
    return found


def _some_cases(desk: Desk, chance: random.Random, count: int, found: Findings) -> None:
    for _ in range(count):
        uid = chance.choice((*USERS, ADMIN))
        role, frame = a_case(desk, chance, uid)
        desk.put(uid, role, frame)
        before = desk.inlet.answers["Error bug"]
        _judge(desk, frame, found)
        if desk.inlet.answers["Error bug"] > before:
            found.bugs.append((frame, "called a bug by the daemon"))
        found.cases += 1
    try:
        desk.runtime.scheduler.check()
    except Exception as error:  # noqa: BLE001  whatever it is, it is a finding
        found.bugs.append((b"", f"invariant: {error}"))
    desk.tidy()


def _judge(desk: Desk, frame: bytes, found: Findings) -> None:
    try:
        desk.loop.turn([])
    except Exception as error:  # noqa: BLE001  whatever it is, it is a finding
        found.bugs.append((frame, f"{type(error).__name__}: {error}"))


# ---------------------------------------------------------------- making cases

_PLAIN: dict[Any, tuple[Any, ...]] = {
    int: WHOLE,
    float: NUMBERS,
    str: TEXTS,
    bool: (True, False),
    type(None): (None,),
}
_KINDS: tuple[type[m.Message], ...] = get_args(m.ToDaemon)
_OF_WORKERS = tuple(kind for kind in _KINDS if "epoch" in kind.__struct_fields__)


def a_case(desk: Desk, chance: random.Random, uid: int) -> tuple[str, bytes]:
    """Make a frame, and say who sends it."""
    role = chance.choice(("client", "client", "launcher", *WORKERS))
    kinds = _OF_WORKERS if role in WORKERS and chance.random() < 0.8 else _KINDS
    kind: Any = chance.choice((*kinds, m.Submit, m.Submit))
    plain = {"t": kind.__name__} | _fields(kind, chance)
    if chance.random() < 0.7:
        _aim(plain, chance, desk.tasks_of(uid, role))
    if chance.random() < 0.9:
        plain.pop("key", None)
        plain.pop("expires", None)
    packed: bytes = msgpack.packb(plain)
    return role, _broken(packed, chance) if chance.random() < 0.1 else packed


def _aim(plain: dict[str, Any], chance: random.Random, own: list[TaskPage]) -> None:
    """Let a message be of tasks that there are, and of their present epochs."""
    if not own:
        return
    page = chance.choice(own)
    for name in ("task", "id"):
        if name in plain:
            plain[name] = page.id
    if "epoch" in plain:
        plain["epoch"] = page.runtime.epoch
    if plain.get("ids"):
        plain["ids"] = [chance.choice(own).id for _ in range(chance.randint(1, 4))]


def _fields(kind: Any, chance: random.Random) -> dict[str, Any]:
    """Make the fields of a message or part; some are left out, few are of no such type."""
    made = {}
    left_out = 0.4 if issubclass(kind, m.Message) else 0.85
    for name, hint in _hints(kind).items():
        if chance.random() < left_out and name not in _required(kind):
            continue
        strange = chance.random() < 0.01
        made[name] = chance.choice(STRANGE) if strange else _value(hint, chance)
    return made


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {name: hints[name] for name in kind.__struct_fields__}


@cache
def _required(kind: Any) -> set[str]:
    return {each.encode_name for each in msgspec.structs.fields(kind) if each.required}


def _value(hint: Any, chance: random.Random) -> Any:
    """Make a value of a type, as far from the usual as the type lets it be."""
    origin, arguments = get_origin(hint), get_args(hint)
    made: Any
    if origin is None:
        made = _plain_value(hint, chance)
    elif origin is Annotated:
        limited = arguments[1].extra is None
        made = (
            _bounded(arguments[0], arguments[1], chance)
            if limited
            else _value(arguments[0], chance)
        )
    elif origin is Literal:
        made = chance.choice(arguments)
    elif origin is list:
        made = [_value(arguments[0], chance) for _ in range(chance.randint(0, 3))]
    elif origin is dict:
        keys = (chance.choice(TEXTS) for _ in range(chance.randint(0, 2)))
        made = {key: _value(arguments[1], chance) for key in keys}
    else:
        made = _value(chance.choice(arguments), chance)
    return made


def _bounded(kind: Any, limits: msgspec.Meta, chance: random.Random) -> Any:
    """Make a number that is within its limits, mostly; the limits are."""
    least, most = limits.ge, limits.le
    if least is None or most is None or chance.random() < 0.05:
        return _plain_value(kind, chance)
    inside = [each for each in _PLAIN[kind] if least <= each <= most]
    return chance.choice((*inside, least, most))


def _plain_value(hint: Any, chance: random.Random) -> Any:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _fields(hint, chance)
    return chance.choice(_PLAIN.get(hint, STRANGE))


def _broken(packed: bytes, chance: random.Random) -> bytes:
    """Change some bytes, or cut them off."""
    made = bytearray(packed)
    for _ in range(chance.randint(1, 5)):
        made[chance.randrange(len(made))] = chance.randrange(256)
    return bytes(made[: chance.randint(1, len(made))])
