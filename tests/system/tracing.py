"""Traced tasks, as tests submit, stop and judge them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from system import traced
from system.private_daemon import PATIENCE, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from libtask.client.handles import TaskHandle
    from system.private_daemon import PrivateDaemon

OPTIONS = {
    "client", "priority", "after", "hold", "resources", "strip", "name",
    "deadline_s", "overrun", "lease", "lease_s",
}  # fmt: skip


class Tracing:
    """A traced task: submitted with a gate in its middle.

    Attributes:
        handle: the submitted task.

    """

    def __init__(self, daemon: PrivateDaemon, folder: Path, **fields: Any) -> None:
        self._daemon = daemon
        folder.mkdir(exist_ok=True)
        self._trace = folder / "trace"
        self._gate = folder / "gate"
        options = {name: fields.pop(name) for name in list(fields) if name in OPTIONS}
        parameters = {"trace": str(self._trace), "gate": str(self._gate), **fields}
        app = f"{traced.__file__}:Traced"
        client = options.pop("client", None) or daemon.client
        # where two fit, unless a test says otherwise: a stopped one blocks a slot
        options = {"strip": 1, "resources": ["cpu"], **options}
        self.handle: TaskHandle = client.submit(app, parameters, **options)
        self.id = self.handle.id
        self._gate_at = fields.get("gate_at", -1)

    def lines(self) -> list[list[str]]:
        """Return (start, stop, resource, pid) of each strip so far."""
        if not self._trace.exists():
            return []
        return [line.split() for line in self._trace.read_text().splitlines()]

    def strips(self) -> list[int]:
        """Return the iterations in the order in which they ran."""
        return [i for row in self.lines() for i in range(int(row[0]), int(row[1]))]

    def await_gate(self) -> None:
        """Wait until the task waits before its gate."""
        eventually(lambda: self._gate_at in self.strips(), "the task at its gate")

    def open_gate(self) -> None:
        self._gate.touch()

    def pids(self) -> list[int]:
        """Return the processes in which strips ran, in order, without repeats."""
        return list(dict.fromkeys(int(row[3]) for row in self.lines()))

    def resources(self) -> list[str]:
        """Return the resources on which strips ran, in order, without repeats."""
        return list(dict.fromkeys(row[2] for row in self.lines()))

    def check_completed(self, total: int = 20) -> None:
        """Demand the right result, of strips that ran once each and in order."""
        result = self.handle.result(PATIENCE)
        assert result["sum"] == sum(range(total))
        assert result["counted"] == total
        assert self.strips() == list(range(total))
