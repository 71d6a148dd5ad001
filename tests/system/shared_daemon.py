"""A daemon of several users with real uids: root only, as only root can become them.

The daemon runs as one user, its tasks as others; they share the socket's group.
"""

from __future__ import annotations

import grp
import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from libtask.endpoint import probe
from libtask.errors import DaemonUnreachableError
from libtask.messages import ENDED
from system.private_daemon import PATIENCE, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

DAEMON, ANN, BEN, EVE = 4100, 4101, 4102, 4103
GROUP = grp.getgrgid(min(g.gr_gid for g in grp.getgrall() if g.gr_gid > 0))
"""Any group that there is, but root's, serves to share the socket."""
SOCKET = f'socket_group = "{GROUP.gr_name}"\n'


def missing() -> str:
    """Return what such a daemon needs and this machine lacks; empty: nothing."""
    if os.getuid() != 0:
        return "needs root: it becomes several users"
    absent = [tool for tool in ("setpriv", "unshare") if shutil.which(tool) is None]
    return f"needs {', '.join(absent)}" if absent else ""


class SharedDaemon:
    """A daemon, and its users with a home each.

    Args:
        folder: that all can enter.
        config: text of its configuration.

    """

    def __init__(self, folder: Path, config: str) -> None:
        self.folder = folder
        self.socket = folder / "run" / "s"
        self.python = folder / "python"
        self.python.mkdir()
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        self.interpreter = self.python / "bin" / f"python{version}"
        for uid in (DAEMON, ANN, BEN, EVE):
            self.home(uid).mkdir(mode=0o700)
            os.chown(self.home(uid), uid, uid)
        self.socket.parent.mkdir(mode=0o755)
        os.chown(self.socket.parent, DAEMON, GROUP.gr_gid)
        (folder / "hetd.toml").write_text(SOCKET + config, encoding="utf-8")
        self._daemon = self._start()

    def home(self, uid: int) -> Path:
        return self.folder / str(uid)

    def command(self, uid: int, *words: str) -> list[str]:
        """Run Python as a user who may not enter where it is installed.

        Each command sees the installation in our folder too, and nobody else does.
        """
        become = ["setpriv", f"--reuid={uid}", f"--regid={GROUP.gr_gid}"]
        if uid == EVE:
            become[-1] = f"--regid={EVE}"
        base = str(Path(sys.base_prefix).resolve())
        return [
            *("unshare", "--mount", "--propagation", "private"),
            *("bash", "-c", 'mount --bind "$0" "$1" && shift && exec "$@"'),
            *(base, str(self.python), *become, "--clear-groups"),
            *(str(self.interpreter), "-m", *words),
        ]

    def environment(self, uid: int) -> dict[str, str]:
        base = str(Path(sys.base_prefix).resolve())
        path = [each for each in sys.path if each and not each.startswith(base)]
        home = str(self.home(uid))
        return {
            "PATH": "/usr/bin:/bin",
            "HOME": home,
            "TMPDIR": home,
            "PYTHONPATH": ":".join(path),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def _start(self) -> subprocess.Popen[bytes]:
        config = str(self.folder / "hetd.toml")
        state = str(self.home(DAEMON) / "state")
        words = ["--socket", str(self.socket), "--state", state, "--config", config]
        with (self.folder / "hetd.log").open("wb") as log:
            daemon = subprocess.Popen(
                self.command(DAEMON, "hetd", *words),
                env=self.environment(DAEMON),
                stdout=log,
                stderr=log,
            )
        eventually(lambda: self._answers(daemon), "a daemon")
        return daemon

    def _answers(self, daemon: subprocess.Popen[bytes]) -> bool:
        assert daemon.poll() is None, (self.folder / "hetd.log").read_text()
        with suppress(DaemonUnreachableError):
            probe(self.socket)
            return True
        return False

    def hetctl(self, uid: int, verb: str, *words: str) -> tuple[int, Any, str]:
        """Ask as a user; return the status, the document and the complaint."""
        words = (verb, "--socket", str(self.socket), "--json", *words)
        done = subprocess.run(
            self.command(uid, "hetctl", *words),
            env=self.environment(uid),
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        document = json.loads(done.stdout) if done.stdout else None
        return done.returncode, document, done.stderr

    def seen(self, uid: int) -> dict[int, str]:
        """List what a user sees: id -> state."""
        status, document, complaint = self.hetctl(uid, "list")
        assert status == 0, complaint
        return {task["id"]: task["state"] for task in document["tasks"]}

    def _idle(self) -> bool:
        states = {*self.seen(ANN).values(), *self.seen(BEN).values()}
        return states <= ENDED

    def processes(self) -> dict[int, int]:
        """Find the launchers and workers: pid -> uid."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().decode().split("\0")
                if str(self.socket) in words and "libtask.launcher" in words:
                    found[int(entry.name)] = entry.stat().st_uid
        return found

    def close(self) -> None:
        for uid in (ANN, BEN):
            assert self.hetctl(uid, "cancel", "all")[0] == 0
        eventually(self._idle, "the end of all tasks")
        self._daemon.terminate()
        status = self._daemon.wait(PATIENCE)
        eventually(lambda: not self.processes(), "the end of all processes")
        assert status == 0


@contextmanager
def shared_daemon(config: str) -> Iterator[SharedDaemon]:
    """Run a daemon for several users in a folder that all of them can enter."""
    folder = Path(tempfile.mkdtemp(prefix="hetd-users-"))
    folder.chmod(0o755)
    shared = SharedDaemon(folder, config)
    try:
        yield shared
    finally:
        shared.close()
        shutil.rmtree(folder)
