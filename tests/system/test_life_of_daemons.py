"""Daemons that users start, configure, restart and stop with `hetctl`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hetctl.waiting import Manner, wait_for
from system.private_daemon import (
    PATIENCE,
    RESOURCES,
    SETTINGS,
    PrivateDaemon,
    eventually,
)
from system.terminal import HETCTL, Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path, as sockets need one."""
    with tempfile.TemporaryDirectory(prefix="hetctl-") as name:
        yield Path(name)


def test_start_status_and_stop(folder: Path) -> None:
    config = folder / "hetd.toml"
    config.write_text(SETTINGS + RESOURCES)
    place = ("--socket", str(folder / "s"), "--json")

    def hetctl(*words: str) -> Any:
        done = subprocess.run(
            [*HETCTL, *words, *place],
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
        )
        return done.returncode, json.loads(done.stdout or "null")

    # a relative path of the configuration means the one here
    status, started = hetctl("daemon", "start", "--config", "hetd.toml")
    assert (status, started["running"], started["policy"]) == (0, True, "affinity")
    assert hetctl("daemon", "start")[1]["pid"] == started["pid"]
    again = ("daemon", "start", "--config", "hetd.toml")
    assert hetctl(*again)[1]["pid"] == started["pid"]
    assert hetctl(*again, "--policy", "nope") == (1, None)
    assert hetctl("daemon", "status")[1]["resources"] == ["cpu", "gpu0", "fpga0"]

    assert hetctl("daemon", "stop") == (
        0,
        {
            "format": "hetctl/daemon-1",
            "running": False,
            "pid": started["pid"],
            "socket": place[1],
        },
    )
    assert hetctl("daemon", "status") == (3, None)


def test_a_mistake_in_the_configuration_does_not_stop_a_daemon(folder: Path) -> None:
    config = folder / "hetd.toml"
    config.write_text(SETTINGS + RESOURCES)

    def hetctl(*words: str) -> subprocess.CompletedProcess[str]:
        command = [*HETCTL, "daemon", *words, "--socket", str(folder / "s")]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    hetctl("start", "--config", str(config))
    before = hetctl("status").stdout
    try:
        config.write_text("polcy = 'affinity'\n" + SETTINGS + RESOURCES)
        refused = hetctl("restart")
        after = hetctl("status").stdout
        config.write_text(SETTINGS + RESOURCES)
        restarted = hetctl("restart")
    finally:
        hetctl("stop")

    assert (refused.returncode, refused.stdout) == (2, "")
    complaint = "polcy: unknown key (did you mean policy?)"
    assert refused.stderr == f"hetctl: {config}: {complaint}\n"
    assert after.splitlines()[:2] == before.splitlines()[:2]
    assert restarted.returncode == 0, restarted.stderr


def test_submit_starts_a_daemon_where_that_is_asked_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ("--socket", str(folder / "s"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))

    def hetctl(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*HETCTL, *place, *words], capture_output=True, text=True, check=False
        )

    task = ("submit", "synthetic", "--seconds", '{"cpu": 0.01}', "--wait")
    refused = hetctl(*task)
    try:
        started = hetctl(*task, "--start")
        again = hetctl(*task, "--start")
    finally:
        stopped = hetctl("daemon", "stop")

    assert (refused.returncode, refused.stdout) == (3, "")
    assert (started.returncode, again.returncode) == (0, 0), started.stderr
    assert started.stderr.startswith(f"started a daemon at {folder / 's'}")
    assert "task 2 completed" in again.stdout
    assert (again.stderr, stopped.returncode) == ("", 0)


def test_written_configuration_can_be_read_again(
    folder: Path, private_daemon: Callable[..., PrivateDaemon]
) -> None:
    first = Terminal(private_daemon())
    written = folder / "hetd.toml"
    first("devices", "--write-config", str(written))

    second = Terminal(private_daemon(written.read_text()))

    assert _figures_of(second) == _figures_of(first)


def _figures_of(terminal: Terminal) -> list[dict[str, Any]]:
    """List the devices without what they have drawn: that goes on all the time."""
    drawn = {"busy_joules", "idle_joules", "metered_s", "busy_s"}
    devices = terminal.json("devices")["devices"]
    return [{k: v for k, v in each.items() if k not in drawn} for each in devices]


def test_wait_survives_a_restart(
    private_daemon: Callable[..., PrivateDaemon],
    printer: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    daemon = private_daemon()
    (task,) = Terminal(daemon).json(*printer)["ids"]
    # before its worker is there, a restart costs the patience with workers
    eventually(lambda: daemon.info(task).progress > 0, "the first strips")
    client = daemon.connect()
    handle = client.handle(task)

    with ThreadPoolExecutor(1) as pool:
        status = pool.submit(wait_for, client, [handle], Manner(timeout=PATIENCE))
        daemon.restart()
        daemon.await_state(task, "running")
        (tmp_path / "gate").touch()
        assert status.result() == 0
    where = daemon.info(task).resource
    said = capsys.readouterr().out
    assert said.startswith(f"task {task} completed on {where}: {{")
    assert said.count("\n") == 1


def test_a_launcher_that_does_not_know_the_new_daemon_yet_ends_with_it(
    private_daemon: Callable[..., PrivateDaemon],
) -> None:
    daemon = private_daemon()
    daemon.client.submit("synthetic", {"seconds": {"cpu": 0.0}}).result(PATIENCE)
    launcher = daemon.launcher()

    os.kill(launcher, signal.SIGSTOP)
    try:
        daemon.restart()
        place = ("--socket", str(daemon.socket))
        stop = subprocess.Popen([*HETCTL, "daemon", "stop", *place])
        eventually(lambda: _has_connected(stop), "the connection of the command")
    finally:
        os.kill(launcher, signal.SIGCONT)
    assert stop.wait(PATIENCE) == 0

    eventually(lambda: not daemon.processes(), "the end of launcher and worker")


def _has_connected(process: subprocess.Popen[bytes]) -> bool:
    for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
        with suppress(OSError):  # it is closed by now
            if descriptor.readlink().name.startswith("socket:"):
                return True
    return False


STRANGER = ("unshare", "--user", "--map-user=12345", "--map-group=12345")
"""Starts a command under a uid without an entry in the list of users."""


def _can_be_a_stranger() -> bool:
    with suppress(OSError):
        return subprocess.run([*STRANGER, "true"], check=False).returncode == 0
    return False


@pytest.mark.skipif(not _can_be_a_stranger(), reason="needs user namespaces")
def test_a_user_without_a_home_directory_needs_none_but_for_state(
    folder: Path,
) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*STRANGER, sys.executable, "-P", "-m", *words],
            env={"PATH": os.environ["PATH"], "TMPDIR": str(folder)},
            capture_output=True,
            text=True,
            check=False,
        )

    place = ("--socket", str(folder / "s"))
    refused, pool = run("hetd", *place), run("hetctl", "pool", "nodes")
    started = run("hetctl", "daemon", "start", *place)
    stopped = run("hetctl", "daemon", "stop", *place)

    lack = "no home directory for {0} files: set HOME, or XDG_{1}_HOME, to an absolute"
    state = lack.format("state", "STATE")
    config = lack.format("config", "CONFIG")
    assert (refused.returncode, pool.returncode) == (2, 2)
    assert refused.stderr == f"hetd: {state} path, or give --state FOLDER\n"
    assert pool.stderr == f"hetctl: {config} path\n"
    assert (started.returncode, stopped.returncode) == (0, 0), started.stderr
    assert "unusable" not in started.stdout
