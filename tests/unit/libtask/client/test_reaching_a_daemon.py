"""Where the client looks for a daemon, and what it says when none can be reached."""

from __future__ import annotations

import math
import os
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from libtask.client.client import Client
from libtask.endpoint import (
    SYSTEM_SOCKET,
    default_socket,
    is_same_socket,
    probe,
    run_directory,
)
from libtask.errors import DaemonUnreachableError, HetError, InputError
from unit.fake_daemon import FakeDaemon

if TYPE_CHECKING:
    from pathlib import Path


def test_socket_is_the_named_one_then_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("HETD_SOCKET", "/x/y")
    assert str(default_socket()) == "/x/y"

    monkeypatch.delenv("HETD_SOCKET")
    run_directory().mkdir()
    own = run_directory() / "hetd.sock"
    own.touch()
    assert default_socket() == own

    own.unlink()
    assert default_socket() == (SYSTEM_SOCKET if SYSTEM_SOCKET.exists() else own)


def test_a_runtime_directory_of_somebody_else_is_not_used(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # a socket in there could be anybody's, and a launcher obeys whoever it reaches
    (tmp_path / "his").mkdir()
    (tmp_path / f"runtime-{os.getuid()}").symlink_to(tmp_path / "his")
    for name in ("XDG_RUNTIME_DIR", "HETD_SOCKET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)  # kept from before TMPDIR was set
    monkeypatch.setattr(
        "platformdirs.unix.Unix._default_runtime_dir",
        lambda unix: unix._temp_runtime_dir(),
    )

    absent, system = tmp_path / "none", tmp_path / "system.sock"
    system.touch()

    monkeypatch.setattr("libtask.endpoint.SYSTEM_SOCKET", absent)
    with pytest.raises(InputError, match="runtime directory"):
        default_socket()
    # another account's folder keeps nobody from the system's daemon
    monkeypatch.setattr("libtask.endpoint.SYSTEM_SOCKET", system)
    assert [default_socket(), default_socket()] == [system, system]
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert told.endswith(f"; using {system}\n")


def test_a_socket_has_several_names(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "hetd.sock")

    assert is_same_socket(tmp_path / "link", tmp_path / "hetd.sock")
    assert not is_same_socket(tmp_path / "other", tmp_path / "hetd.sock")


def test_absent_daemon(tmp_path: Path) -> None:
    with pytest.raises(DaemonUnreachableError, match=r"absent.*hetctl daemon start"):
        Client(tmp_path / "none")


@pytest.mark.parametrize(
    ("options", "waited"),
    [
        ({"timeout": 0.05, "patience": 0.2}, "0.2 s"),
        ({"timeout": 0.1, "patience": 0.0}, "0.1 s"),
        ({"timeout": 0.05, "patience": math.inf}, "0.3 s"),
    ],
    ids=["patient", "not", "for-ever"],
)
def test_one_that_listens_and_is_mute_is_waited_for_as_for_a_restart(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    options: dict[str, float],
    waited: str,
) -> None:
    # as systemd's socket does until the daemon that it starts has found its devices
    path = tmp_path / "hetd.sock"
    monkeypatch.setattr("libtask.client.session.HELLO_SECONDS", 0.3)
    monkeypatch.setattr("libtask.client.connection.QUIET_SECONDS", 0.02)
    refused = pytest.raises(DaemonUnreachableError, match=f"no answer in {waited};")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        with refused:
            Client(path, **options)

    assert caplog.messages == [f"{path}: no answer yet; waiting {waited} for it"]


def test_daemon_that_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "old"
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(path))

    with pytest.raises(DaemonUnreachableError, match="refused"):
        probe(path)


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("socket.socket.connect", refuse)

    with pytest.raises(DaemonUnreachableError, match="no permission"):
        probe(tmp_path / "s")


def test_daemon_that_lets_nobody_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("libtask.endpoint.PATIENCE_S", 0.01)
    with ExitStack() as stack:
        hung = stack.enter_context(socket.socket(socket.AF_UNIX))
        hung.bind(str(tmp_path / "s"))
        hung.listen(0)
        waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
        waiting.connect(str(tmp_path / "s"))

        with pytest.raises(DaemonUnreachableError, match=r"no answer: .* lets nobody"):
            probe(tmp_path / "s")


def test_path_too_long(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="too long"):
        Client(tmp_path / ("x" * 120))


def test_other_protocol(tmp_path: Path) -> None:
    fake = FakeDaemon(tmp_path / "s", protocol=99)

    with pytest.raises(HetError, match=r"hetd 9\.9 speaks protocol 99"):
        Client(fake.path)
    fake.close()
