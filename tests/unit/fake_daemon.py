"""A daemon that answers from a script: the client side's tests run against it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import zmq

from libtask.messages import (
    PROTOCOL,
    ConfigInfo,
    ConfigValue,
    Control,
    CounterState,
    DeletedSamples,
    DeleteSamples,
    DeleteTasks,
    DeviceInfo,
    DeviceList,
    Devices,
    DeviceSpec,
    Done,
    Error,
    Explain,
    Explained,
    Lagged,
    ListTasks,
    LoadEvidence,
    Message,
    Migrate,
    ModelList,
    Models,
    NoteList,
    Notes,
    Policies,
    PolicyInfo,
    Register,
    Registered,
    Requeue,
    ResourceChanged,
    Sample,
    SharedLoad,
    ShowConfig,
    Status,
    StatusInfo,
    Submit,
    Submitted,
    TaskChanged,
    TaskInfo,
    TaskList,
    TaskSpec,
    TypeLoad,
    Usage,
    UsageInfo,
    decode_to_daemon,
    encode,
)
from libtask.names import bears

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Answer = Callable[[Any], list[Message]]


class FakeDaemon:
    """Answers every request; `answers[kind]` replaces what it says to one kind.

    Attributes:
        seen: the requests, in order of arrival.
        tasks: what it lists; tests put `TaskInfo` there.
        peers: identities of those who said hello.

    """

    def __init__(
        self,
        path: Path,
        *,
        protocol: int = PROTOCOL,
        launcher: bool = True,
        answers: dict[type, Answer] | None = None,
        tasks: dict[int, TaskInfo] | None = None,
    ) -> None:
        self.path = path
        self.seen: list[Any] = []
        self.tasks: dict[int, TaskInfo] = dict(tasks or {})
        self.keys: dict[str, list[int]] = {}
        self.peers: list[bytes] = []
        self.mute: set[type] = set()
        self.answers: dict[type, Answer] = dict(answers or {})
        self.together = False
        """Whether all that answers a request is sent in one message."""
        self._welcome = Registered(
            protocol=protocol, version="9.9", pid=42, launcher=launcher
        )
        self._stop = threading.Event()
        self._outbox: list[tuple[bytes, list[bytes]]] = []
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.bind(f"ipc://{path}")
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._router.close(linger=0)
        self._context.term()

    def push(
        self, *changes: TaskChanged | ResourceChanged | Lagged, together: bool = False
    ) -> None:
        """Send changes to everybody who said hello."""
        frames = [encode(change) for change in changes]
        parts = [frames] if together else [[frame] for frame in frames]
        for peer in self.peers:
            self._outbox.extend((peer, part) for part in parts)

    def requests(self, kind: type) -> list[Any]:
        return [message for message in self.seen if isinstance(message, kind)]

    def _serve(self) -> None:
        while not self._stop.is_set():
            while self._outbox:
                peer, frames = self._outbox.pop(0)
                self._router.send_multipart([peer, *frames])
            if self._router.poll(5):
                peer, frame = self._router.recv_multipart()
                self._take(peer, decode_to_daemon(frame))

    def _take(self, peer: bytes, message: Any) -> None:
        self.seen.append(message)
        if isinstance(message, Register):
            self.peers.append(peer)
        kind = type(message)
        if kind in self.mute:
            self.mute.discard(kind)  # silent once
            return
        frames = [
            encode(reply) for reply in self.answers.get(kind, self._answer)(message)
        ]
        for part in [frames] if self.together else [[frame] for frame in frames]:
            self._router.send_multipart([peer, *part])

    def _answer(self, message: Any) -> list[Message]:
        number = getattr(message, "request", 0)
        match message:
            case Register():
                return [self._welcome]
            case Requeue():
                return [Submitted(number, [each + 100 for each in message.ids])]
            case Submit():
                return [Submitted(number, self._submitted(message))]
            case ListTasks():
                return [self._asked(message) or self._listed(message)]
            case _:
                return [_plain_answer(message)]

    def _submitted(self, message: Submit) -> list[int]:
        if message.key not in self.keys:
            first = max(self.tasks, default=0) + 1
            ids = list(range(first, first + len(message.tasks)))
            for task_id, spec in zip(ids, message.tasks, strict=True):
                self.tasks[task_id] = a_task(task_id, app=spec.app, type=spec.type)
            self.keys[message.key] = ids
        return self.keys[message.key]

    def _asked(self, message: ListTasks) -> Message | None:
        missing = sorted(set(message.ids or ()) - set(self.tasks))
        if missing:
            return Error(message.request, "not-found", f"no task {missing[0]}")
        return None

    def _listed(self, message: ListTasks) -> TaskList:
        chosen = [
            self.tasks[number]
            for number in sorted(self.tasks, reverse=True)
            if (message.ids is None or number in message.ids)
            and (message.before is None or number < message.before)
            and not (message.mine and self.tasks[number].owner == ANOTHER_USER)
            and (not message.states or self.tasks[number].state in message.states)
            and _is_since(self.tasks[number], message.since)
            and (not message.name or bears(self.tasks[number].name, message.name))
            and (not message.job or bears(self.tasks[number].job, message.job))
            and (
                message.user is None
                or f"uid:{message.user}" == self.tasks[number].owner
            )
        ]
        if message.count:
            return TaskList(message.request, [], count=len(chosen))
        page = chosen[: message.limit]
        following = page[-1].id if len(chosen) > len(page) else None
        return TaskList(message.request, page, len(chosen), following)


def _is_since(info: TaskInfo, since: float | None) -> bool:
    """Whether a task has not ended, or not before a time; those without an end pass."""
    return since is None or info.finished is None or info.finished >= since


def _plain_answer(message: Any) -> Message:
    number = message.request
    if isinstance(message, Migrate) and message.resource == "nowhere":
        return Error(number, "not-found", "no resource 'nowhere'")
    answers: dict[type, Message] = {
        Explain: Explained(number, getattr(message, "id", 0), "running", "runs"),
        Devices: DeviceList(
            number,
            a_node(),
            [A_LOAD],
            counters=SOME_COUNTERS,
            loads=[
                TypeLoad(each, "cpu", "cores", 0.8, 1.0)
                for each in getattr(message, "types", [])
            ],
        ),
        Notes: NoteList(number, []),
        Models: ModelList(number, [Sample("heat/64", "cpu", 1.5)]),
        Usage: UsageInfo(
            number, 7, 2, None, 3000, 256 << 20, 1500, 20, 2048 << 20, 10**6, 0, 1000
        ),
        DeleteSamples: DeletedSamples(number, 1),
        Policies: _policy(number, getattr(message, "set", None)),
        Control: Done(number, getattr(message, "ids", [])),
        DeleteTasks: Done(number, getattr(message, "ids", [])),
        Status: StatusInfo(number, "9.9", 42, "migration", 0.0, {}, {}, *NOTHING_YET),
        ShowConfig: ConfigInfo(
            number,
            [
                ConfigValue("policy", "migration", "file"),
                ConfigValue("stage", 1, "default"),
            ],
            "/etc/hetd/hetd.toml",
        ),
    }
    return answers.get(type(message), Done(number))


def _policy(number: int, name: str | None) -> PolicyInfo:
    """Tell of a policy that was just set, or of the configured one."""
    told = "by uid 7 on 2026-01-02 03:04 UTC" if name else ""
    return PolicyInfo(
        number, name or "migration", {}, POLICIES, set=told, configured="migration"
    )


NOTHING_YET = (0,) * 10


POLICIES = {"migration": "moves running tasks", "affinity": "runs each on its best"}


ANOTHER_USER = "uid:4001"


def a_task(number: int, **fields: Any) -> TaskInfo:
    known: dict[str, Any] = {
        "app": "heat",
        "type": "heat/64",
        "state": "queued",
        "owner": "uid:0",
    }
    return TaskInfo(id=number, **(known | fields))


def a_change(number: int, state: Any, **fields: Any) -> TaskChanged:
    return TaskChanged(id=number, state=state, at=1.0, **fields)


def specs(count: int, **fields: Any) -> list[TaskSpec]:
    return [TaskSpec("heat", **fields) for _ in range(count)]


A_LOAD = SharedLoad(
    name="cores",
    kind="cores",
    used_by=["cpu", "gpu0"],
    own=0.5,
    levels=[0.0, 1.0],
    probabilities=[0.02, 0.98],
    others=0.98,
    slowdown=1.48,
    evidence=[LoadEvidence("offered", 1.5, 3, 2.0)],
)


SOME_COUNTERS = [
    CounterState("/proc/stat", "cores", "offered", "unused"),
    CounterState("/sys/fs/resctrl", "memory", "bandwidth", "missing", "not mounted"),
]


def a_node() -> list[DeviceInfo]:
    return [
        DeviceInfo(DeviceSpec("cpu", "cpu", threads=2), slots=2),
        DeviceInfo(
            DeviceSpec("gpu0", "gpu", "opencl", "Portable", "pthread", emulated=True)
        ),
    ]
