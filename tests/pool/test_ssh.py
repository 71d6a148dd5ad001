"""`hetctl pool up --hosts`: a second machine joins over ssh, which here is this machine again.

A private sshd listens on loopback, with keys of the test's own.
"""

from __future__ import annotations

import getpass
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hetpool.setup.supervisor import pid_of
from libtask.daemon.launcher_processes import processes_of
from libtask.processes import kill_with_descendants

if TYPE_CHECKING:
    from collections.abc import Iterator

SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
PATIENCE_S = 180.0


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port: int = trial.getsockname()[1]
        return port


class Shell:
    """A private sshd on loopback."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.folder = folder
        for name in ("host", "own"):
            words = ["-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(["ssh-keygen", *words], check=True)
        shutil.copy(folder / "own.pub", folder / "authorized")
        (folder / "sshd").write_text(
            f"ListenAddress 127.0.0.1\nPort {self.port}\nHostKey {folder}/host\n"
            f"AuthorizedKeysFile {folder}/authorized\nPidFile none\nStrictModes no\n"
            "UsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n"
        )
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [str(SSHD), "-D", "-e", "-f", str(folder / "sshd")], stderr=log
            )

    @property
    def command(self) -> str:
        options = {
            "UserKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "no",
            "IdentitiesOnly": "yes",
            "LogLevel": "ERROR",
        }
        words = " ".join(f"-o {key}={value}" for key, value in options.items())
        return f"ssh -F /dev/null -i {self.folder}/own {words}"

    def obstacle(self) -> str:
        """Return why commands cannot be run over it; empty: they can."""
        deadline = time.monotonic() + 30.0
        words = [*self.command.split(), "-o", "BatchMode=yes", "-p", str(self.port)]
        while True:
            done = subprocess.run(
                [*words, "127.0.0.1", "true"],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode == 0:
                return ""
            if self.process.poll() is not None or time.monotonic() > deadline:
                return done.stderr.strip() + (self.folder / "log").read_text()[-300:]
            select.select([], [], [], 0.1)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    if SSHD is None or not shutil.which("ssh"):
        pytest.skip("no sshd here: apt-get install openssh-server")
    made = Shell(tmp_path)
    try:
        why = made.obstacle()
        if why:
            pytest.skip(f"no ssh to this machine: {why}")
        yield made
    finally:
        made.close()


class Home:
    """The files of one machine."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.socket = folder / "h.sock"
        self.variables = {
            f"XDG_{name.upper()}_HOME": str(folder / name)
            for name in ("config", "state", "data")
        } | {"HETD_SOCKET": str(self.socket), "XDG_RUNTIME_DIR": str(folder)}

    @property
    def state(self) -> Path:
        return self.folder / "state" / "hetd" / "pool"

    @property
    def command(self) -> str:
        """The command that calls hetctl with these files."""
        pairs = " ".join(f"{key}={value}" for key, value in self.variables.items())
        return f"env {pairs} {sys.executable} -m hetctl"

    def __call__(
        self, *words: str, status: int = 0
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "hetctl", "pool", *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
            cwd=self.folder,
            env=os.environ | self.variables,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done

    def end(self) -> None:
        self("down", "--here")
        kill_with_descendants(processes_of(self.socket))


@pytest.fixture
def homes() -> Iterator[tuple[Home, Home]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ssh-")))
        made = Home(folder / "head"), Home(folder / "other")
        for each in made:
            stack.callback(each.end)
        yield made


@pytest.mark.timeout(900)
def test_a_host_joins_runs_a_task_and_leaves(
    shell: Shell, homes: tuple[Home, Home]
) -> None:
    head, other = homes
    port = free_port()
    hosts = head.folder / "hosts"
    hosts.write_text(f"# one\n{getpass.getuser()}@127.0.0.1:{shell.port} n2 {port}\n")
    root = ["--allow-root"] if os.geteuid() == 0 else []
    words = ["--hosts", str(hosts), "--ssh", shell.command, "--hetctl", other.command]

    up = head("up", "--name", "n1", "--timeout", "150s", *words, *root)
    assert "nodes n1, n2" in up.stdout
    key = other.folder / "config" / "hetd" / "pool" / "this.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert not (key.parent / "ca.key").exists()
    own = head.folder / "config" / "hetd" / "pool"
    assert key.read_bytes() == (own / "nodes" / "n2.key").read_bytes()
    done = head(
        *("submit", "synthetic", "--set", 'seconds={"cpu": 0.05}', "--node", "n2"),
        "--wait",
    )
    assert "task n2:1 completed" in done.stdout
    assert pid_of(other.state) is not None
    head("down")
    assert pid_of(other.state) is None
    assert pid_of(head.state) is None


@pytest.mark.timeout(300)
def test_a_host_that_cannot_be_reached_is_named_and_not_waited_for(
    homes: tuple[Home, Home], tmp_path: Path
) -> None:
    head, _ = homes
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 n2 9999\n")
    root = ["--allow-root"] if os.geteuid() == 0 else []
    failing = f"{sys.executable} -c \"import sys; sys.exit('no way there')\""
    words = ["--hosts", str(hosts), "--ssh", failing, "--timeout", "1000s"]

    done = head("up", "--name", "n1", *words, *root, status=1)
    assert done.stderr == "hetctl: n2 (127.0.0.1): no way there\n"
    assert "nodes n1" in done.stdout
    # one that may be on its way is waited for
    done = head("up", "--timeout", "1s", *root, status=1)
    assert "hetctl: n2 has not come after 1 s" in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no hosts"),
        ("a b c d", ":1: expected [USER@]HOST"),
        ("-oProxyCommand=x", ":1: expected [USER@]HOST"),
        ("ok\n-x@b", ":2: expected [USER@]HOST"),
        ("a; b", ":1: expected [USER@]HOST"),
        ("a n1\nb n1", "two hosts have the name 'n1'"),
        ("a x:y", ":1: 'x:y' is not a name"),
        ("a:70000 n1", ":1: expected ports up to 65535"),
    ],
)
def test_files_of_hosts_are_checked(tmp_path: Path, text: str, said: str) -> None:
    from hetctl.pool.hosts import read_hosts
    from libtask.errors import InputError

    path = tmp_path / "hosts"
    path.write_text(text)

    with pytest.raises(InputError) as caught:
        read_hosts(path)
    assert said in str(caught.value)


def test_hosts_are_read(tmp_path: Path) -> None:
    from hetctl.pool.hosts import Host, read_hosts

    path = tmp_path / "hosts"
    path.write_text(
        "alice@a.example:2222 n1 9100 # the first\n\n10.0.0.7\n[fd00::1] six\nb.example\n"
    )

    assert read_hosts(path) == [
        Host("alice@a.example", "a.example", "n1", 9100, 2222),
        Host("10.0.0.7", "10.0.0.7", "10.0.0.7"),
        Host("fd00::1", "fd00::1", "six"),
        Host("b.example", "b.example", "b"),
    ]
