"""Questions about a node and its tasks: from `hetctl pool`, by the broker, to the node.

The node answers from its hetd and its logs; nothing is kept anywhere for this. The broker
only passes questions on (`Relay`): clients have no connections to nodes.
"""

from __future__ import annotations

import asyncio
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol, TypeAlias

import msgspec
from msgspec import Meta

from hetpool.attempts import final_name, mark_of
from hetpool.messages import decode, encode
from libtask.client.client import Client, Selection
from libtask.errors import InputError, NotFoundError
from libtask.messages import DeviceInfo, Note, StatusInfo, TaskInfo
from libtask.worker.tasklog import before_running, last_lines, read_segment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

INQUIRE = "inquire"
"""Name of the message, to the broker and from it to the node."""
MOST_IDS = 10_000
MOST_TEXT = 4 << 20
"""Bytes of a task's output in one answer: its end."""
MOST_PIECE = 1 << 20
"""Bytes of a file in one answer."""
MOST_SHOWN = 20
"""Files of a folder that an error lists."""
SHOWN_PACKAGES = ("hetd", "distributed", "msgpack", "cloudpickle")
"""Packages whose versions must agree on all nodes."""

Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class Question(msgspec.Struct, frozen=True, tag=True):
    """A question to a node."""


class AskNode(Question, frozen=True):
    """Ask about the node itself; see `NodeFacts`."""


class AskTasks(Question, frozen=True):
    """Ask for tasks with all details; see `TaskFacts`.

    Attributes:
        ids: of hetd; empty: the pool's newest ones, up to `limit`.
        limit: the number of tasks.
        since: only those that ended after it, or have not ended; seconds since the epoch.

    """

    ids: Annotated[tuple[Number, ...], Meta(max_length=MOST_IDS)] = ()
    limit: Annotated[int, Meta(ge=1, le=MOST_IDS)] = MOST_IDS
    since: float | None = None


class AskExplanation(Question, frozen=True):
    """Ask why a task waits or runs where it does; the answer is `Explained`."""

    task: Number


class AskOutput(Question, frozen=True):
    """Ask for what a task printed; see `TaskOutput`.

    Attributes:
        task: its id in hetd.
        lines: only the last ones; None: all, up to `MOST_TEXT` bytes.

    """

    task: Number
    lines: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None


class AskFile(Question, frozen=True):
    """Ask for a part of a file that a task wrote; see `FilePart`.

    Attributes:
        task: its id in hetd.
        parameter: the task's parameter with the file's path.
        offset: where the part begins.
        name: of a file in the folder of a command instead; empty: the parameter says it.

    """

    task: Number
    parameter: Annotated[str, Meta(max_length=256)]
    offset: Number = 0
    name: Annotated[str, Meta(max_length=4096)] = ""


AnyQuestion: TypeAlias = AskNode | AskTasks | AskExplanation | AskOutput | AskFile


class Inquiry(msgspec.Struct, frozen=True):
    """A question with the node that it goes to."""

    node: Annotated[str, Meta(max_length=64)]
    question: AnyQuestion


class NodeFacts(msgspec.Struct, frozen=True):
    """A node's hetd, its devices, and the versions of what all nodes must have alike."""

    status: StatusInfo | None
    """None: its hetd does not answer, or it has none."""
    devices: list[DeviceInfo] = []
    versions: dict[str, str] = {}


class TransferRecord(msgspec.Struct, frozen=True):
    """A file that the node received. Times are seconds since the epoch."""

    content: str
    size: int
    start: float
    finish: float


class TaskFacts(msgspec.Struct, frozen=True):
    """Tasks, the devices that their segments name, and what happened meanwhile."""

    tasks: list[TaskInfo]
    devices: list[DeviceInfo] = []
    notes: list[Note] = []
    transfers: list[TransferRecord] = []


class TaskOutput(msgspec.Struct, frozen=True):
    """The output of a task."""

    text: str
    cut: bool = False
    """Whether its beginning was left out."""


class FilePart(msgspec.Struct, frozen=True):
    """A part of a file."""

    name: str
    size: int
    content: bytes


# ------------------------------------------------------------ on the node


class NodeInquiry:
    """Answers questions on a node.

    Args:
        client: the node's connection to its hetd; None: it is a gateway.
        belongs: whether a task's name says that it is the pool's.
        transfers: returns the newest transfers to this node.
        folders: returns the folder of a command by the name of its task.

    """

    def __init__(
        self,
        client: Client | None,
        belongs: Callable[[str], bool],
        transfers: Callable[[], list[TransferRecord]] = list,
        folders: Callable[[str], Path | None] = lambda _name: None,
    ) -> None:
        self._client = client
        self._belongs = belongs
        self._transfers = transfers
        self._folders = folders

    async def answer(self, message: bytes) -> bytes:
        """Answer a message of the name `INQUIRE`.

        Raises:
            HetError: there is no answer; the text says why.

        """
        question = decode(Inquiry, message).question
        return encode(await asyncio.to_thread(self._answer, question))

    def _answer(self, question: AnyQuestion) -> object:
        if isinstance(question, AskNode):
            return self._facts()
        if self._client is None:
            raise InputError("this node is a gateway: it has no tasks")
        match question:
            case AskTasks():
                return self._tasks(self._client, question)
            case AskExplanation():
                return self._client.explain(self._own(question.task).id)
            case AskOutput():
                return _output(self._own(question.task), question.lines)
            case AskFile():
                info = self._own(question.task)
                return _part(info, question, self._folders(info.name))

    def _facts(self) -> NodeFacts:
        client = self._client
        if client is None:
            return NodeFacts(None, [], versions())
        return NodeFacts(client.status(), client.devices(), versions())

    def _tasks(self, client: Client, question: AskTasks) -> TaskFacts:
        chosen = Selection(
            ids=question.ids or None,
            mine=True,
            detail=True,
            limit=question.limit,
            since=question.since,
        )
        found = [info for info in client.tasks(chosen) if self._belongs(info.name)]
        begin = min((info.submitted for info in found), default=None)
        notes = [] if begin is None else client.notes(begin)
        return TaskFacts(found, client.devices(), notes, self._transfers())

    def _own(self, task: int) -> TaskInfo:
        """Return a task of the pool; others of the user are not the pool's business."""
        if self._client is None:
            raise NotFoundError("this node is a gateway: it has no tasks")
        info = self._client.show(task)
        if not self._belongs(info.name):
            raise NotFoundError(f"task {task} of this node is not the pool's")
        return info


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that all nodes need alike."""
    found = {"python": platform.python_version()}
    for name in SHOWN_PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "-"
    return found


def _output(info: TaskInfo, lines: int | None) -> TaskOutput:
    if lines is not None:
        text = last_lines(info, lines)
        return TaskOutput(text + "\n" * bool(text))
    last = before_running(info)
    segments = [each for each in info.segments if each.log]
    segments += [last] if last is not None else []
    data = b"".join(
        read_segment(info.owner, each, 0)[0]
        for each in segments
        if each.log_end != each.log_start
    )
    kept = data[-MOST_TEXT:]
    return TaskOutput(kept.decode("utf-8", "replace"), cut=len(kept) < len(data))


def _part(info: TaskInfo, question: AskFile, folder: Path | None) -> FilePart:
    """Read a part of a file that a task wrote, as its task did: by its own user."""
    path = _file_of(info, question, folder)
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(min(question.offset, size))
            name = final_name(path.name, mark_of(info.name))
            return FilePart(name, size, file.read(MOST_PIECE))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def _file_of(info: TaskInfo, question: AskFile, folder: Path | None) -> Path:
    """Return the path of a file: a parameter of the task names it, or it is in its folder."""
    if question.name:
        if folder is None or not folder.is_dir():
            raise NotFoundError(f"task {info.id} has no folder of its own here")
        path = (folder / question.name).resolve()
        if not path.is_relative_to(folder.resolve()) or not path.is_file():
            listing = ", ".join(_names_in(folder)) or "none"
            raise NotFoundError(f"no file {question.name}; there are: {listing}")
        return path
    params = info.params or {}
    value = params.get(question.parameter)
    if isinstance(value, str) and value:
        path = folder / value if folder is not None else Path(value)
        # while it runs, an attempt writes under a name of its own
        final = path.with_name(final_name(path.name, mark_of(info.name)))
        return path if path.exists() else final
    known = [key for key, each in params.items() if isinstance(each, str) and each]
    raise NotFoundError(
        f"task {info.id} has no file in a parameter {question.parameter!r}; its "
        f"texts are: {', '.join(known) or 'none'}"
    )


def _names_in(folder: Path) -> list[str]:
    """Return some names of the files in a folder."""
    with os.scandir(folder) as entries:
        found = [entry.name for entry in islice(entries, MOST_SHOWN)]
    return sorted(found)


# ------------------------------------------------------------ in the broker


class Asked(Protocol):
    """The part of `seam.SchedulerEngine` that passes questions on."""

    async def ask(self, node: str, name: str, message: bytes) -> bytes: ...


class Relay:
    """Passes the questions of clients on to nodes.

    Args:
        engine: the way to nodes.
        addresses: the nodes that are present: name -> address; looked at each time.

    """

    def __init__(
        self, engine: Asked, addresses: Callable[[], Mapping[str, str]]
    ) -> None:
        self._engine = engine
        self._addresses = addresses

    async def answer(self, message: bytes) -> bytes:
        """Pass a message of the name `INQUIRE` on.

        Raises:
            NotFoundError: the node is not present.
            HetError: the node has no answer.

        """
        inquiry = decode(Inquiry, message)
        address = self._addresses().get(inquiry.node)
        if address is None:
            raise NotFoundError(f"node {inquiry.node!r} is not in the pool now")
        return await self._engine.ask(address, INQUIRE, message)
