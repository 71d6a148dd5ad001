"""The handshake: the first message of every peer, and hetd's reply."""

from __future__ import annotations

from typing import Annotated, Literal

from libtask.messages.base import (
    MAX_NAMES,
    MAX_REPORTS,
    PROTOCOL,
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
    """Worker: the task it still holds, after a reconnect."""
    epoch: Whole = 0
    own: bool = False
    """Worker started by the user's own program: it runs just the task it submits."""
    resource: NameText = ""
    """Worker: where the task that it holds runs; empty: it waits, or is about to end."""
    ended: Annotated[list[TaskEpoch], entries(MAX_REPORTS)] = []
    """Worker: the tasks ordered together of whose ends hetd may not know; they follow."""
    workers: Annotated[list[NameText], entries(MAX_NAMES)] = []
    """Launcher: its workers of whom anything is there."""


class Registered(Message, frozen=True):
    """hetd's answer to Hello."""

    protocol: int
    version: str
    pid: int
    launcher: bool
    """Whether the caller's launcher is connected."""
    interval_ns: int = 50_000_000
    """Target interval between checkpoints."""
    snapshots: SnapshotSettings = SnapshotSettings()
    """Worker: when to write them."""
    log_bytes: int = 64 << 20
    """Launcher: the disk that a worker's log may take; 0: any."""
    processes: int = 0
    """Launcher: processes and threads that its user may have; 0: any number."""
    hung_launcher: int = 0
    """Process of the caller's launcher if it does not answer; 0: it does, or is none."""
