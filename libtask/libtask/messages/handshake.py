"""The handshake: the first message of every peer, and hetd's reply."""

from __future__ import annotations

from typing import Annotated, Literal

from libtask.messages.base import (
    MAX_NAMES,
    MAX_REPORTS,
    PROTOCOL,
    Amount,
    Message,
    Name,
    NameText,
    Whole,
    entries,
)
from libtask.messages.records import SnapshotSettings, TaskEpoch


class Register(Message, frozen=True):
    """First message of every peer."""

    role: Literal["client", "launcher", "worker"]
    protocol: Whole = PROTOCOL
    pid: Whole = 0
    worker: Name = ""
    """Worker's name, given by its launcher (`libtask.main`: by itself)."""
    task: Whole | None = None
    """Worker: the task that it still holds after a reconnect."""
    epoch: Whole = 0
    own: bool = False
    """Worker: it is the user's own program and runs only the task that it submits."""
    resource: NameText = ""
    """Worker: the resource on which its task runs; empty: the task waits or is ending."""
    ended: Annotated[list[TaskEpoch], entries(MAX_REPORTS)] = []
    """Worker: tasks of a batch whose ends hetd may not know; their reports follow."""
    workers: Annotated[list[NameText], entries(MAX_NAMES)] = []
    """Launcher: its workers of which a process still exists."""
    yields: bool = False
    """Launcher: another one waits until this one has no workers; said when it is known."""
    origin: Name = ""
    """Worker: the origin that it was started for; empty: that of its launcher."""


class Registered(Message, frozen=True):
    """hetd's reply to `Register`."""

    protocol: int
    version: str
    pid: int
    launcher: bool
    """Whether the caller's launcher is connected."""
    interval_ns: int = 50_000_000
    """Target interval between checkpoints."""
    snapshots: SnapshotSettings = SnapshotSettings()
    """Worker: when to write snapshots."""
    resident_share: Amount = 0.0
    """Worker: share of a device's memory for what stays there for the next task."""
    log_bytes: int = 64 << 20
    """Launcher: maximum bytes of a worker's log on disk; 0: unlimited."""
    processes: int = 0
    """Launcher: maximum processes and threads of its user; 0: unlimited."""
    hung_launcher: int = 0
    """Pid of the caller's launcher if it does not respond; 0: it responds or is absent."""
