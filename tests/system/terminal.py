"""What users type at terminals, and a task that prints and waits for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from system.private_daemon import PrivateDaemon

HETCTL = (sys.executable, "-m", "hetctl")
LONGEST_S = 100.0
"""Seconds that a command may take, waiting for tasks included."""

PRINTER = """
    import time
    from dataclasses import dataclass
    from pathlib import Path
    from libtask import Task

    @dataclass
    class Printer(Task):
        gate: str
        word: str = "hello"

        def total(self):
            return 10**9

        def save(self, checkpoint):
            return {"strips": checkpoint.done}

    def run(task, device, checkpoint):
        print(task.word, "on", device.spec.name, flush=True)
        for strip in checkpoint.strips():
            time.sleep(0.001)  # the work
            if Path(task.gate).exists():
                checkpoint.total = strip.stop
            yield

    Printer.on("cpu")(run)
    Printer.on("gpu")(run)
"""


class Terminal:
    """Runs commands against one daemon."""

    def __init__(self, daemon: PrivateDaemon) -> None:
        self._daemon = daemon
        self._environment = os.environ | {"HETD_SOCKET": str(daemon.socket)}

    def anew(self) -> Terminal:
        """Return one with the present environment."""
        return Terminal(self._daemon)

    def __call__(self, *words: str, status: int = 0) -> str:
        done = self.completed(*words)
        assert done.returncode == status, done.stderr
        return done.stdout

    def json(self, *words: str, status: int = 0) -> Any:
        before = (
            ("--json",) if "--" in words else ()
        )  # what follows that is a program's
        after = () if before else ("--json",)
        return json.loads(self(*before, *words, *after, status=status))

    def completed(
        self, *words: str, typed: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*HETCTL, *words],
            input=typed,
            capture_output=True,
            text=True,
            check=False,
            env=self._environment,
            timeout=LONGEST_S,
        )

    def redirected(
        self, redirection: str, *words: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command from a shell that redirects its output, e.g. with `>&-`."""
        return subprocess.run(
            ["/bin/sh", "-c", f'exec "$@" {redirection}', "sh", *HETCTL, *words],
            capture_output=True,
            text=True,
            check=False,
            env=self._environment,
            timeout=LONGEST_S,
        )

    def opened(
        self,
        *words: str,
        stdin: int | IO[str] | None = None,
        stdout: int = subprocess.PIPE,
        stderr: int | None = None,
    ) -> subprocess.Popen[str]:
        command = [*HETCTL, *words]
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            text=True,
            env=self._environment,
        )
