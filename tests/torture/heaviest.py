"""The heaviest messages: of every kind that hetd accepts, with the most that each may hold.

The kinds are those of the protocol itself, and their content is made up from their
fields, so that a new kind of request is measured without being named here. `Load` fills
a daemon with what makes requests heavy, and measures what a request costs it: the
longest turn of the loop, the memory beyond what is sent.
"""

from __future__ import annotations

import gc
import math
import select
import tempfile
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    get_args,
    get_origin,
    get_type_hints,
)

import msgpack
import msgspec

from hetd.daemon import GarbageCollector
from hetd.requests.notes import MOST_NOTES
from libtask import messages as m
from libtask.errors import InputError
from torture.bodies import ADMIN, USERS, WORKERS, Desk

if TYPE_CHECKING:
    import argparse

    from hetd.tasks.page import TaskPage

USER = USERS[0]
KINDS: tuple[type[m.Message], ...] = get_args(m.ToDaemon)
REQUESTS = [kind for kind in KINDS if issubclass(kind, m.Request)]
LARGE = 900_000
"""Bytes of the parameters, or the result, of a large task."""
MEASURED = 10_000
"""Measured task types, with long names."""
NARROWEST = 1e-4
"""Share of the bounds below which a message is given up: something else is wrong."""
STEP = 1.3
"""By which the share of each bound is made smaller until a message fits."""
MOST_TURNS = 20_000
WAITING = 100_000
"""Tasks that wait where it is measured."""
MEMORY = Path("/dev/shm")  # noqa: S108  a file system in memory: nothing here is to last


@dataclass(frozen=True, slots=True)
class Tasks:
    """Ids of tasks that requests may name."""

    waiting: list[int]
    ended: list[int]
    large: list[int]
    """Some with parameters of `LARGE` bytes."""


@dataclass(frozen=True, slots=True)
class Case:
    """A message to be measured."""

    name: str
    uid: int
    role: str
    frame: bytes

    def again(self, number: int) -> Case:
        """Return the same message with a key of its own."""
        return replace(self, frame=_keyed(self.frame, f"{self.name} {number}"[-200:]))


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a message.

    Attributes:
        turn_s: processor time of the longest turn, seconds; `all_s`: of all of them.
        turns: how many there were until all was done and told.
        beyond: bytes of memory in use at once, at most, beyond the largest answer.
        answer: what it was answered, as its kind or its error.

    """

    name: str
    turn_s: float
    all_s: float
    turns: int
    beyond: int
    answer: str


# ---------------------------------------------------------------- content


@dataclass(frozen=True, slots=True)
class Style:
    """How to fill a message.

    Attributes:
        share: of each bound; halved until the message fits into a frame.
        long: whether texts are as long as they may be; else lists are.
        ids: tasks to name.

    """

    share: float
    long: bool
    ids: tuple[int, ...]


def cases(tasks: Tasks) -> list[Case]:
    """Make the heaviest messages of every kind; those that end tasks come last."""
    made = {(case.frame, case.uid): case for case in _all_cases(tasks)}
    return sorted(made.values(), key=lambda case: "cancel" in case.name)


def _all_cases(tasks: Tasks) -> Iterator[Case]:
    choices = {
        "distinct": tasks.waiting,
        "repeated": tasks.large[:1] * m.MAX_IDS,
        "ended": tasks.ended,
        "large": tasks.large,
    }
    for kind in KINDS:
        names_tasks = "ids" in kind.__struct_fields__
        for named, long in product(choices if names_tasks else ["-"], (False, True)):
            style = Style(1.0, long, tuple(choices.get(named, tasks.waiting)))
            yield from _of_kind(kind, style, named)


def _of_kind(kind: type[m.Message], style: Style, named: str) -> Iterator[Case]:
    share = style.share
    for number, chosen in enumerate(_variants(kind)):
        # variants differ little in what fits: not from the beginning each time
        share = min(style.share, STEP * share)
        frame, share = _fitting(kind, replace(style, share=share), chosen)
        length = "long" if style.long else "many"
        words = [kind.__name__, named, length, *map(_word, chosen.values())]
        role = "client" if issubclass(kind, m.Request) else _role(kind)
        for uid in (USER, ADMIN) if issubclass(kind, m.Request) else (USER,):
            user = "administrator" if uid == ADMIN else "user"
            yield Case(
                " ".join([*words, user]),
                uid,
                role,
                _keyed(frame, f"{kind.__name__}{named}{number}{length}{uid}"),
            )


def _word(value: Any) -> str:
    return str(value)[:24]


def _role(kind: type[m.Message]) -> str:
    return WORKERS[0] if "epoch" in kind.__struct_fields__ else "launcher"


def _keyed(frame: bytes, key: str) -> bytes:
    """Give a change a key of its own: the same again would only be looked up."""
    plain = msgpack.unpackb(frame)
    if "key" in plain:
        plain["key"] = key
    packed: bytes = msgpack.packb(plain)
    return packed


def _fitting(
    kind: type[m.Message], style: Style, chosen: dict[str, Any]
) -> tuple[bytes, float]:
    """Make a message as heavy as a frame, and hetd's bounds, let it be.

    Returns:
        The message, and the share of each bound that it has.

    """
    while style.share > NARROWEST:
        plain = {"t": kind.__name__, **_fields(kind, style), **chosen}
        frame: bytes = msgpack.packb(plain)
        try:
            if len(frame) <= m.MAX_FRAME:
                m.decode_to_daemon(frame)
                return frame, style.share
        except InputError:
            pass
        style = replace(style, share=style.share / STEP)
    raise AssertionError(f"no {kind.__name__} fits into a frame")


KNOWN: dict[str, tuple[Any, ...]] = {
    "resource": ("cpu", "gpu0"),
    "set": ("migration", "finish-time"),
    "role": ("client", "launcher", "worker"),
    "protocol": (m.PROTOCOL,),
    "after": (None,),
    "before": (None,),
    "expires": (None,),
    "user": (None, USERS[1]),
    "since": (0.0,),
    "priority": (5,),
    "deadline_s": (1e6,),
    "worker": ("",),
    "parameters": ({},),
}
"""Values of fields that have to make sense for the message to be more than refused."""


def _variants(kind: type[m.Message]) -> Iterator[dict[str, Any]]:
    """Choose in every way what a message has a choice of."""
    hints = _hints(kind)
    chosen: dict[str, tuple[Any, ...]] = {}
    limits = {m.ListTasks: m.MAX_IDS, m.Models: m.MAX_SAMPLES, m.Notes: MOST_NOTES}
    for name in kind.__struct_fields__:
        if name == "limit":
            chosen[name] = (limits.get(kind, 1000),)
        elif name in KNOWN:
            chosen[name] = KNOWN[name]
        elif hints[name] is bool:
            chosen[name] = (False, True)
        elif get_origin(hints[name]) is Literal:
            chosen[name] = get_args(hints[name])
    for values in product(*chosen.values()):
        yield dict(zip(chosen, values, strict=True))


DEPENDENCIES = frozenset({"after", "after_any", "after_notok", "inputs"})
DEPENDENCIES_EACH = 20
"""Dependencies of each task of a submit: a submit has many tasks."""
PLACES: list[list[str | int]] = [["data", 0]] * (m.MAX_PLACES // DEPENDENCIES_EACH)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {name: hints[name] for name in kind.__struct_fields__}


def _fields(kind: Any, style: Style) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, hint in _hints(kind).items():
        if name in ("id", "task"):
            made[name] = style.ids[-1]
        elif kind is m.TaskSpec and name in DEPENDENCIES:
            made[name] = []
        elif name == "ids":
            made[name] = list(style.ids[: max(1, int(style.share * m.MAX_IDS))])
        else:
            made[name] = _value(hint, style)
    if kind is m.TaskSpec:
        made |= {"kinds": ["cpu", "gpu"], "resources": [], "overrun": "stop"}
        made |= {"deadline_s": 1e6, "priority": 1, "hold": False, "work": 1.0}
        made |= {"resumes": "", "part": None}  # only hetd sets them
        made |= {"caller": None}  # a run that is not there would be refused
        made |= {"seconds": {"cpu": 1.0, "gpu": 1.0}, "strip": 1}
        few = list(style.ids[: int(style.share * DEPENDENCIES_EACH)])
        made["after"] = few
        made["inputs"] = [{"task": task, "places": PLACES} for task in few]
    if kind in (m.Sample, m.LearnedLoad):
        made["resource"] = "cpu"
        made |= {"shared": "memory"} if "shared" in made else {}
    return made


def _value(hint: Any, style: Style) -> Any:
    """Make the heaviest value of a type."""
    origin, arguments = get_origin(hint), get_args(hint)
    made: Any
    if origin is Annotated:
        made = _bounded(arguments[0], arguments[1].extra or {}, style)
    elif origin is Literal:
        made = arguments[-1]
    elif origin is list:
        made = [_value(arguments[0], style)]
    elif origin is not None and origin is not dict:  # one of several
        made = _value(arguments[0], style)
    elif isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        made = _fields(hint, style)
    else:
        made = _PLAIN[hint] if hint in _PLAIN else _anything(style)
    return made


_PLAIN: dict[Any, Any] = {int: 1, float: 1.0, str: "x" * 200, bool: True}


def _anything(style: Style) -> dict[str, Any]:
    """Make a value that may be anything: one long text, or very many numbers."""
    if style.long:
        return {"data": "x" * int(style.share * LARGE)}
    return {"data": list(range(int(style.share * 60_000)))}


def _bounded(kind: Any, extra: dict[str, int], style: Style) -> Any:
    if "bytes" in extra:
        size = extra["bytes"] * style.share if style.long else 8
        return "x" * max(1, int(size))
    if "packed" in extra and get_args(kind)[1] is not Any:  # numbers by name
        return {str(n): 1.0 for n in range(int(style.share * extra["packed"] / 16))}
    if "packed" in extra:
        return {"data": "x" * int(style.share * extra["packed"] * 0.9)}
    if "most" in extra:
        count = extra["most"] * style.share * (0.02 if style.long else 1.0)
        (inner,) = get_args(kind)
        return [_value(inner, style) for _ in range(max(1, math.ceil(count)))]
    return _value(kind, style)


# ---------------------------------------------------------------- a daemon under load


class Load:
    """A daemon without processes, with tasks that make requests heavy.

    Args:
        folder: where its store lies; in memory, as it is not about the disk.
        waiting: tasks that wait, of `USER`.
        large: tasks with large parameters, as many that have ended.
        policy: that places them.

    """

    def __init__(
        self,
        folder: Path,
        waiting: int,
        large: int = 20,
        policy: str = "finish-time",
    ) -> None:
        self.desk = Desk(folder, policy)
        self._collector = GarbageCollector(self.desk.runtime.clock.now())
        self._submit([m.TaskSpec("app", {"data": "x" * LARGE}, hold=True)] * 2 * large)
        first = list(self._live)
        self.settle(USER, m.Control(0, "cancel", first[large:]))
        kinds: list[m.Kind] = ["cpu", "gpu"]
        chain = [m.TaskSpec("app", kinds=kinds, hold=True)]
        chain += [m.TaskSpec("app", kinds=kinds, after=[-1])] * min(waiting, 400)
        self._submit(chain)
        specs = [
            m.TaskSpec("app", type=f"app/{n % 20}", kinds=kinds) for n in range(waiting)
        ]
        self._submit(specs)
        for start in range(0, MEASURED, m.MAX_SAMPLES):
            ends = range(start, start + m.MAX_SAMPLES)
            samples = [
                m.Sample(f"app{n % 50}/{n}" + "x" * 900, "cpu", 1.0) for n in ends
            ]
            self.settle(ADMIN, m.AddSamples(0, samples))
        beside = {f"app{n}" + "x" * 100: 1.0 for n in range(30)}
        loads = [
            m.LearnedLoad(f"app{n}" + "x" * 900, "cpu", "memory", 0.5, 0.5, beside)
            for n in range(m.MAX_LOADS)
        ]
        for start in range(0, m.MAX_LOADS, 64):
            self.settle(ADMIN, m.AddSamples(0, [], loads[start : start + 64]))
        live = list(self._live)
        self.tasks = Tasks(live[large:], first[large:], first[:large])
        self._forget_recent()
        gc.collect()
        gc.freeze()

    def close(self) -> None:
        self.desk.close()
        self._collector.end()

    def _submit(self, specs: list[m.TaskSpec]) -> None:
        chunk: list[m.TaskSpec] = []
        filled = 0
        for spec in specs:
            size = len(msgspec.msgpack.encode(spec))
            if chunk and (filled + size > LARGE or len(chunk) == m.MAX_TASKS):
                self.settle(USER, m.Submit(0, chunk))
                chunk, filled = [], 0
            chunk.append(spec)
            filled += size
        self.settle(USER, m.Submit(0, chunk))

    @property
    def _live(self) -> dict[int, TaskPage]:
        return self.desk.runtime.journal.live

    def _forget_recent(self) -> None:
        """Let what has ended be on disk alone."""
        self.desk.runtime.journal._recent.clear()

    def settle(self, uid: int, request: m.Request) -> None:
        """Ask, and turn until all is done."""
        self.desk.put(uid, "client", m.encode(request))
        self._turn_until_done()

    def _turn_until_done(self) -> list[float]:
        """Turn until nothing is left to do; return what each turn took, in seconds."""
        took: list[float] = []
        loop, store = self.desk.loop, self.desk.store
        while len(took) < MOST_TURNS:
            begin = time.thread_time()
            loop.turn([])
            self._collector.look(self.desk.runtime.clock.now(), len(self._live))
            took.append(time.thread_time() - begin)
            if not store.idle:  # the disk is not what is measured
                select.select([store.wake_fd], [], [], 1.0)
            elif loop.timeout_ms() > 0 and not loop.busy:
                return took
            else:  # a user may have had their share for now
                time.sleep(min(loop.timeout_ms(), 100) / 1000)
        raise AssertionError("it never comes to an end")

    # ------------------------------------------------------------ measuring

    def cost(self, case: Case, *, memory: bool = False) -> Cost:
        """Put a message before the daemon; return what it cost.

        Args:
            case: the message.
            memory: whether to count memory, which makes everything slow.

        """
        desk = self.desk
        desk.inlet.largest = 0
        desk.inlet.last = ""
        desk.put(case.uid, case.role, case.frame)
        if memory:
            tracemalloc.start()
        took = self._turn_until_done()
        peak = tracemalloc.get_traced_memory()[1] if memory else 0
        if memory:
            tracemalloc.stop()
        beyond = max(0, peak - desk.inlet.largest)
        answer = desk.inlet.last
        desk.runtime.lifecycle.stop_requested = False  # whatever was asked
        return Cost(case.name, max(took), sum(took), len(took), beyond, answer)


# ---------------------------------------------------------------- the measurement


def run(_chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure each kind of message; return one row each. The store lies in memory."""
    where = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=where) as folder:
        load = Load(Path(folder), WAITING)
        found: dict[str, list[Cost]] = defaultdict(list)
        for case in cases(load.tasks):
            cost = load.cost(case)
            found[cost.name.partition(" ")[0]].append(cost)
        load.close()
    return [_row(kind, costs) for kind, costs in sorted(found.items())]


def _row(kind: str, costs: list[Cost]) -> dict[str, Any]:
    worst = max(costs, key=lambda cost: cost.turn_s)
    longest = max(costs, key=lambda cost: cost.all_s)
    return {
        "case": kind,
        "messages": len(costs),
        "longest_turn_ms": round(1e3 * worst.turn_s, 2),
        "in": worst.name,
        "longest_in_all_ms": round(1e3 * longest.all_s, 1),
        "turns": longest.turns,
    }
