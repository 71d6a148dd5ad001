"""What the service manager is told, and what it hands over: over real sockets."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from hetd.systemd import Notifier

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Manager:
    """A service manager's end of the notification socket."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address.replace("@", "\0", 1))
        self._socket.settimeout(0)
        self._notifiers: list[Notifier] = []

    def notifier(self, environment: dict[str, str] | None = None) -> Notifier:
        """Start a daemon's end."""
        environment = {} if environment is None else environment
        environment["NOTIFY_SOCKET"] = self.address
        self._notifiers.append(Notifier(environment))
        return self._notifiers[-1]

    def told(self) -> list[list[str]]:
        messages = []
        while True:
            try:
                messages.append(self._socket.recv(4096).decode().split("\n"))
            except BlockingIOError:
                return messages

    def leave(self) -> None:
        self._socket.close()

    def close(self) -> None:
        self.leave()
        for notifier in self._notifiers:
            notifier.close()


@pytest.fixture(params=["file", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    file = request.param == "file"
    manager = Manager(str(tmp_path / "n") if file else f"@hetd-test-{os.getpid()}")
    yield manager
    manager.close()


def test_it_is_told_all_that_it_needs_to_know(manager: Manager) -> None:
    environment = {"WATCHDOG_USEC": "10000000"}
    notifier = manager.notifier(environment)

    notifier.starting(2.5)
    notifier.ready("serving")
    notifier.alive(lambda: "3 tasks")
    notifier.draining(9.0, "draining")
    notifier.stopping(5.0, "stopping")

    assert manager.told() == [
        ["EXTEND_TIMEOUT_USEC=2500000"],
        ["READY=1", "STATUS=serving"],
        ["WATCHDOG=1", "STATUS=3 tasks"],
        ["EXTEND_TIMEOUT_USEC=9000000", "WATCHDOG=1", "STATUS=draining"],
        ["STOPPING=1", "EXTEND_TIMEOUT_USEC=5000000", "STATUS=stopping"],
    ]
    assert environment == {}


def test_a_reload_says_when_it_began(manager: Manager) -> None:
    manager.notifier().reloading()

    ((reloading, at),) = manager.told()

    assert reloading == "RELOADING=1"
    assert int(at.removeprefix("MONOTONIC_USEC=")) > 0


def test_signs_of_life_come_no_oftener_than_needed(manager: Manager) -> None:
    notifier = manager.notifier({"WATCHDOG_USEC": "9" * 12})

    for _ in range(5):
        notifier.alive(lambda: "alive")

    assert len(manager.told()) == 1


def test_without_a_service_manager_nothing_is_asked_or_sent() -> None:
    notifier = Notifier({})

    def never() -> str:
        raise AssertionError

    notifier.ready("serving")
    notifier.alive(never)


def test_a_service_manager_that_is_gone_holds_nothing_up(manager: Manager) -> None:
    notifier = manager.notifier()
    manager.leave()

    notifier.ready("serving")
    notifier.alive(lambda: "alive")


# ---------------------------------------------------------------- passed sockets

ASK = "from hetd.systemd import *; fd = passed_socket(); print(fd, fd and path_of(fd))"


def ask(descriptor: int, count: str = "1", program: str = ASK) -> str:
    """Start a process as a service manager does, and let it look at what it got."""
    shell = f'exec env LISTEN_PID=$$ LISTEN_FDS={count} "$0" -c "$1" 3<&{descriptor}'
    done = subprocess.run(
        ["bash", "-c", shell, sys.executable, program],
        pass_fds=[descriptor],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
    )
    return (done.stdout or done.stderr).strip().splitlines()[-1]


def test_a_listening_socket_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        assert ask(listener.fileno()) == f"3 {path}"
        assert ask(listener.fileno(), count="0") == "None None"
        assert ask(listener.fileno(), count="2").endswith("2 sockets; hetd serves one")


def test_anything_else_is_refused(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as mute, (tmp_path / "f").open("w") as file:
        mute.bind(str(tmp_path / "s"))

        assert ask(mute.fileno()).endswith("is not a listening UNIX stream socket")
        assert "inherited socket: " in ask(file.fileno())
