"""Jobs, nodes and plans of a pool: the words that all of its parts share.

Plain values, checked when they arrive from the network (`hetpool.messages`). The planners'
side of them is in `hetpool.placing`.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NewType, TypeAlias

from msgspec import Meta

from libtask.messages import COMMAND

JobId = NewType("JobId", str)
"""Name of a job in the pool, chosen by its client; the same job has the same id for ever."""

MAX_JOBS = 10_000
"""Jobs in one request."""
MAX_INPUTS = 100
"""Input files of a job."""
MAX_CALL = 4 << 20
"""Bytes of a pickled function with its arguments; larger data belongs into an `Input`."""
MAX_NODES = 10_000
CANCELLED = "cancelled by its owner"
"""Reason of a cancellation that its user gave no reason for, in the words of hetd."""
LONGEST_REASON = 4096
"""Characters of the reason of an end."""
BY_ENGINE = 64 << 20
"""Bytes of an input that Dask may hold in memory; the intake pulls larger ones into files."""

JobState = Literal[
    "waiting",  # no node can run it now
    "placed",  # on a node; its inputs are on their way
    "staged",  # in the queue of the node's hetd
    "running",
    "moving",
    "completed",
    "failed",
    "cancelled",
]
ENDED: frozenset[str] = frozenset({"completed", "failed", "cancelled"})

Identifier = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}$")]
Content = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
"""BLAKE2b digest (32 bytes, hexadecimal) of a file's bytes: its name on every node."""
NodeName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
ShortText = Annotated[str, Meta(max_length=1024)]
FileName = Annotated[str, Meta(pattern=r"^(?!\.{1,2}$)[^/\x00]{1,255}$")]
"""Name of a file in a folder, without the folder."""
Bytes = Annotated[int, Meta(ge=0, le=1 << 60)]
Seconds = Annotated[float, Meta(ge=0, le=1e12)]
Rate: TypeAlias = Annotated[float, Meta(gt=0, le=1e15)]
"""Bytes a second."""

OPTIONS = frozenset(
    [
        "priority",
        "resources",
        "strip",
        "deadline_s",
        "overrun",
        "cores",
        "memory_bytes",
        "device_bytes",
        "time_limit_s",
        "job",
        "retries",
        "env",
        "export",
        "cwd",
    ]
)
"""Options of `Client.submit` that a job may have; the rest are the pool's own."""
MARK = "hetpool-input:"
"""Start of the text that stands for an input file in a job's parameters."""


def new_id() -> JobId:
    """Return an id for a job that no other job has.

    Its first half is random, as users name jobs by their first digits. Its second half is
    the time, which grows from each job of a client to its next one: see `described_at`.
    """
    return JobId(f"{os.urandom(8).hex()}{_TIMES.next():016x}")


class _GrowingTimes:
    """Gives the time in nanoseconds since the epoch, greater each time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def next(self) -> int:
        with self._lock:
            self._last = max(self._last + 1, time.time_ns())
            return self._last


_TIMES = _GrowingTimes()


def described_at(job: str) -> int:
    """Return when a client described a job, in nanoseconds since the epoch.

    It means nothing for an id that `new_id` did not make.
    """
    return int(job[16:], 16)


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file that a job reads.

    Attributes:
        content: digest of its bytes.
        size: its length in bytes.
        sources: nodes that have it, the best one first.
        suffix: the ending of its name, for applications that look at it (`.npy`).

    """

    content: Content
    size: Bytes
    sources: Annotated[tuple[NodeName, ...], Meta(max_length=16)] = ()
    suffix: Annotated[str, Meta(pattern=r"^(\.[A-Za-z0-9]{1,15})?$")] = ""

    @property
    def mark(self) -> str:
        """Text that stands for it in parameters."""
        return f"{MARK}{self.content}{self.suffix}"


@dataclass(frozen=True, slots=True)
class SentFile:
    """An input file that a command finds in its folder.

    Attributes:
        name: its name there.
        mark: of the input.
        executable: whether it may be executed.

    """

    name: FileName
    mark: ShortText
    executable: bool = False


@dataclass(frozen=True, slots=True)
class PoolJob:
    """A job: an application with parameters, or a pickled call, and what it needs.

    Attributes:
        id: its name in the pool; hetd's idempotency key on each node derives from it.
        app: an application's name; for a call, the function's name, for listings.
        params: an application's parameters, plain, with marks in place of input files.
        call: pickled (function or task, arguments); empty: `app` and `params` say all.
        options: scheduling options of `libtask.Client.submit`: priority, resources, cores…
        inputs: files that it reads.
        seconds: expected time by resource (`gpu0`), node and resource (`n1/gpu0`) or kind
            (`gpu`); empty: the nodes estimate it.
        nodes: the only nodes that may run it; empty: any.
        sent: inputs of a command that lie in its folder.
        left_out: bytes of its call and its environment that a description for the broker
            leaves out. The engine keeps them with a job that waits.

    """

    id: Identifier
    app: ShortText
    params: dict[str, Any] = field(default_factory=dict)
    call: Annotated[bytes, Meta(max_length=MAX_CALL)] = b""
    options: dict[str, Any] = field(default_factory=dict)
    inputs: Annotated[tuple[InputFile, ...], Meta(max_length=MAX_INPUTS)] = ()
    seconds: dict[ShortText, Seconds] = field(default_factory=dict)
    nodes: Annotated[tuple[NodeName, ...], Meta(max_length=MAX_NODES)] = ()
    sent: Annotated[tuple[SentFile, ...], Meta(max_length=MAX_INPUTS)] = ()
    left_out: Bytes = 0

    @property
    def cores(self) -> int:
        """Cores that it needs."""
        return int(self.options.get("cores") or 0)

    @property
    def memory_bytes(self) -> int:
        """Memory that it needs."""
        return int(self.options.get("memory_bytes") or 0)

    @property
    def is_command(self) -> bool:
        """Whether it is a program of the user's."""
        return self.app == COMMAND and not self.call

    def seconds_at(self, node: str) -> dict[str, float]:
        """Return the expected time by resource or kind on a node."""
        anywhere = {key: s for key, s in self.seconds.items() if "/" not in key}
        own = {
            key.removeprefix(f"{node}/"): seconds
            for key, seconds in self.seconds.items()
            if key.startswith(f"{node}/")
        }
        return anywhere | own

    @property
    def size(self) -> int:
        """Bytes of its inputs."""
        return sum(each.size for each in self.inputs)


@dataclass(frozen=True, slots=True)
class NodeSlot:
    """A place on a node where one job computes: a slot of a resource of its hetd.

    Attributes:
        resource: name of the resource, `gpu0`.
        kind: `cpu`, `gpu` or `fpga`.

    """

    resource: ShortText
    kind: ShortText


@dataclass(frozen=True, slots=True)
class PoolNode:
    """A machine of the pool.

    Attributes:
        name: its name, the same over restarts.
        address: where its agent listens; fixed, as jobs are pinned to it.
        slots: of the resources of its hetd that are up.
        ingress: bytes a second that may reach it, as configured; None: as many as can.
        egress: bytes a second that leave it.
        machine: name of the machine, which clients on the same one recognise.
        draining: it takes no further jobs.
        present: whether its agent is connected.
        measured: bytes a second that reached it lately; None: nothing did.
        gateway: it has no hetd and only holds files.
        cores, memory_bytes: most that a job may need there; 0: not known.

    """

    name: NodeName
    address: ShortText
    slots: Annotated[tuple[NodeSlot, ...], Meta(max_length=4096)] = ()
    ingress: Rate | None = None
    egress: Rate | None = None
    machine: ShortText = ""
    draining: bool = False
    present: bool = True
    measured: Rate | None = None
    gateway: bool = False
    cores: Annotated[int, Meta(ge=0)] = 0
    memory_bytes: Bytes = 0

    @property
    def inward(self) -> float | None:
        """Bytes a second that plans expect to reach it; None: no limit is known."""
        return self.ingress or self.measured


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """The place of one job in a plan; times are seconds from the plan's start.

    Attributes:
        job: the job.
        node: name of its node.
        resource: on which the plan counts; hetd may choose another one of the node.
        errand: the job with which it travels, itself unless it is short: they are carried
            together and moved together.
        order: position among all jobs of the plan: the order of transfers and of starts.
        start: when it starts to compute; `finish`: when it ends.
        pieces: of its transfer: (start, end, bytes a second).

    """

    job: Identifier
    node: NodeName
    resource: ShortText
    order: int
    errand: str = ""
    start: float = 0.0
    finish: float = 0.0
    pieces: tuple[tuple[float, float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """The place and the order of each job of a batch.

    Attributes:
        planner: that made it.
        entries: one for each job, in the order of the jobs.
        makespan: seconds from now to the end of the last job, as planned.
        bound: no plan is shorter, seconds.
        notes: remarks for users.
        waiting: jobs that no node can run now and that the pool keeps until one can:
            job -> its order among all jobs.

    """

    planner: ShortText
    entries: tuple[PlanEntry, ...]
    makespan: float = 0.0
    bound: float = 0.0
    notes: tuple[str, ...] = ()
    waiting: dict[Identifier, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job as its node sees it, for listings.

    Attributes:
        id: of the job; `app`: its application.
        state: see `JobState`.
        node: its node; empty: it has none.
        task: id of its task in the node's hetd; 0: it has none yet.
        resource: on which it runs; empty: none.
        progress: share done, 0 to 1.
        reason: of a failure, or why it waits, in one line.
        snapshot: when its newest snapshot was copied to another node (seconds since the
            epoch); 0: never.
        order: position among all jobs of the pool; newer jobs have higher ones.
        finished: when it ended (seconds since the epoch), if no hetd ever had it: it was
            cancelled before, or refused; 0: else.

    """

    id: Identifier
    app: ShortText
    state: JobState
    node: ShortText = ""
    task: int = 0
    resource: ShortText = ""
    progress: float = 0.0
    reason: Annotated[str, Meta(max_length=LONGEST_REASON)] = ""
    snapshot: float = 0.0
    order: int = 0
    finished: float = 0.0
