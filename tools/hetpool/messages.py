"""Messages between clients, the broker and the nodes of a pool, and their encoding.

The types say what is valid: a message is checked when it is decoded, sizes and counts
included. The answer to each is named beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from hetpool.jobs import (
    MAX_JOBS,
    MAX_NODES,
    Content,
    Identifier,
    JobStatus,
    NodeName,
    NodeSlot,
    PoolJob,
    PoolNode,
    Rate,
    Seconds,
    ShortText,
)
from libtask.errors import InputError

Ids = Annotated[tuple[Identifier, ...], Meta(max_length=MAX_JOBS)]
MOST_BYTES = 256 << 20
"""Of a message: thousands of jobs with their parameters."""


# ---------------------------------------------------------------- clients -> broker


@dataclass(frozen=True, slots=True)
class PlaceJobs:
    """Place jobs; the answer is a `PoolPlan`. Jobs are described without their calls.

    Attributes:
        jobs: the batch.
        planner: empty: the pool's.
        only_plan: return the plan and forget it.
        started: jobs that were started before the scheduler was lost: a node may have them.

    """

    jobs: Annotated[tuple[PoolJob, ...], Meta(max_length=MAX_JOBS)]
    planner: Annotated[str, Meta(max_length=32)] = ""
    only_plan: bool = False
    started: Ids = ()


@dataclass(frozen=True, slots=True)
class ListNodes:
    """List the nodes; the answer is a `NodeList`."""


@dataclass(frozen=True, slots=True)
class NodeList:
    """The nodes of a pool."""

    nodes: Annotated[tuple[PoolNode, ...], Meta(max_length=MAX_NODES)]


@dataclass(frozen=True, slots=True)
class ListJobs:
    """List jobs, none named: all unfinished ones; the answer is a `JobList`.

    The broker asks the nodes that have them; the same message goes from it to a node.

    Attributes:
        ids: of the jobs.
        ended: list also the newest ones that ended before any hetd had them.

    """

    ids: Ids = ()
    ended: bool = False


@dataclass(frozen=True, slots=True)
class JobList:
    """Jobs as their nodes see them."""

    jobs: tuple[JobStatus, ...]


@dataclass(frozen=True, slots=True)
class CancelJobs:
    """Cancel jobs; the answer is `NameList` of those that no node had begun.

    The others end when their nodes have ended them.
    """

    ids: Ids
    reason: Annotated[str, Meta(max_length=1000)] = ""


@dataclass(frozen=True, slots=True)
class MoveJob:
    """Move a job to a node; answered with `NameList` when it has left its present one."""

    id: Identifier
    node: NodeName


@dataclass(frozen=True, slots=True)
class DrainNode:
    """Move all jobs away from a node and give it no others, or end that; see `NameList`."""

    node: NodeName
    on: bool = True


@dataclass(frozen=True, slots=True)
class NameList:
    """Ids or names for which a request was carried out."""

    names: tuple[str, ...] = ()


# ---------------------------------------------------------------- nodes -> broker


@dataclass(frozen=True, slots=True)
class OpenJob:
    """A job that a node's hetd holds.

    Attributes:
        id: of the job; `generation`: see `JobTerms`.
        ended: its task has ended; a client that returns may still want the result.

    """

    id: Identifier
    generation: int
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Join:
    """Introduce a node after its agent has connected; the answer is `NameList`: jobs it lost.

    Attributes:
        node: the node with its slots.
        open: what its hetd has of the pool. Jobs in the answer run elsewhere by now.

    """

    node: PoolNode
    open: Annotated[tuple[OpenJob, ...], Meta(max_length=100_000)] = ()


@dataclass(frozen=True, slots=True)
class ChangeSlots:
    """Report the slots of the resources of a node that are up now; see `NameList`."""

    node: NodeName
    slots: Annotated[tuple[NodeSlot, ...], Meta(max_length=4096)]


@dataclass(frozen=True, slots=True)
class ClaimJobs:
    """Ask whether a node may run jobs, immediately before it does; see `Claimed`.

    Attributes:
        node: the node.
        ids: of the jobs.
        rate: bytes a second that reached the node lately; None: not known.
        given_up: attempts at them that the node cancelled for a move which was then lost with
            its scheduler: they need another one.

    """

    node: NodeName
    ids: Ids
    rate: Rate | None = None
    given_up: Annotated[tuple[OpenJob, ...], Meta(max_length=MAX_JOBS)] = ()


@dataclass(frozen=True, slots=True)
class EndedJob:
    """Report the end of a job that the node's hetd never had; see `NameList`."""

    status: JobStatus


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """A job's snapshot as a file that nodes pull.

    Attributes:
        content: its content id.
        size: bytes.
        node: that has it.
        starts: of a command, whose folder this is: how often it was started until then.

    """

    content: Content
    size: int
    node: NodeName
    starts: Annotated[int, Meta(ge=0)] = 0


@dataclass(frozen=True, slots=True)
class JobTerms:
    """How a node may run a job.

    Attributes:
        id: the job.
        owned: whether the job is the node's at all.
        elsewhere: it is another node's; else nobody claimed it since the broker began.
        generation: number of times that it was placed elsewhere; with the id it is the
            idempotency key on the node.
        order: of its transfers.
        cap: bytes a second for them; None: no limit.
        sources: addresses of the nodes in its inputs and snapshot: name -> address.
        snapshot: to continue from; None: from the beginning.
        reported: whether the node itself has reported it: it has a task in hetd already.
        cancelled: why it is not to run; empty: it is.

    """

    id: Identifier
    owned: bool = True
    generation: int = 0
    order: int = 0
    cap: float | None = None
    sources: dict[str, str] = field(default_factory=dict)
    snapshot: SnapshotFile | None = None
    reported: bool = False
    cancelled: str = ""
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Claimed:
    """The terms of the claimed jobs, in their order."""

    terms: tuple[JobTerms, ...]


# ---------------------------------------------------------------- broker -> nodes


@dataclass(frozen=True, slots=True)
class EstimateJobs:
    """Estimate jobs; the answer is `JobEstimates`."""

    jobs: Annotated[tuple[PoolJob, ...], Meta(max_length=MAX_JOBS)]


@dataclass(frozen=True, slots=True)
class NodeEstimate:
    """Seconds of a job on a resource of a node; confidence 1: measured often, 0: a guess."""

    seconds: Seconds
    confidence: float


@dataclass(frozen=True, slots=True)
class JobEstimates:
    """Of each job by resource of the node; a resource that cannot run it is absent."""

    jobs: tuple[dict[ShortText, NodeEstimate], ...]


@dataclass(frozen=True, slots=True)
class ParkJob:
    """Hold a job that is to move, with its snapshot; the answer is `ParkedJob`."""

    id: Identifier
    snapshot: bool = True


@dataclass(frozen=True, slots=True)
class ParkedJob:
    """A job at rest, or not here.

    Attributes:
        here: whether the node has it at all.
        ended: it ended before it could be held.
        snapshot: what it had computed; None: it had not begun, or keeps no snapshots.

    """

    here: bool = True
    ended: bool = False
    snapshot: SnapshotFile | None = None


@dataclass(frozen=True, slots=True)
class LeaveJob:
    """Give a parked job up: cancel it in hetd and return its errand; see `NameList`."""

    id: Identifier


@dataclass(frozen=True, slots=True)
class UnparkJob:
    """Let a parked job go on here after all; see `NameList`."""

    id: Identifier


@dataclass(frozen=True, slots=True)
class SaveJob:
    """Have a running job write a snapshot and export it; the answer is `Saved`."""

    id: Identifier


@dataclass(frozen=True, slots=True)
class Saved:
    """A snapshot that a node exported; None: the job does not run or keeps none."""

    snapshot: SnapshotFile | None = None


@dataclass(frozen=True, slots=True)
class KeepSnapshot:
    """Pull a snapshot of a job that runs elsewhere, in place of an older one; see `Saved`."""

    snapshot: SnapshotFile
    source: ShortText
    instead_of: Annotated[str, Meta(max_length=64)] = ""


@dataclass(frozen=True, slots=True)
class ReceiveFile:
    """Take over a file that a client left on this machine; see `NameList`.

    A client's message names its machine, which the broker resolves to nodes.
    """

    content: Content
    machine: ShortText = ""


Message = TypeVar("Message")


def encode(message: Any) -> bytes:
    """Encode a message.

    Raises:
        InputError: a value of it has no plain form.

    """
    try:
        return msgspec.msgpack.encode(message)
    except (TypeError, OverflowError, RecursionError) as error:
        raise InputError(f"{type(message).__name__}: {error}") from error


def decode(kind: type[Message], content: bytes) -> Message:
    """Decode and check a message.

    Raises:
        InputError: malformed, or a limit is exceeded; names the place.

    """
    if len(content) > MOST_BYTES:
        raise InputError(f"{kind.__name__}: {len(content)} bytes, at most {MOST_BYTES}")
    try:
        return msgspec.msgpack.decode(content, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InputError(f"{kind.__name__}: {error}") from error
