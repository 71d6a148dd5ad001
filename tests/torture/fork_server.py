"""A process that makes daemons and launchers by forking: the imports are done already.

A daemon that is killed hundreds of times must come back in milliseconds, or a run tests
little but Python's start-up. What is forked is the same program: its own `main`, with a
command line, in a process of its own. Orphans become children of the fork server, so
that no process is overlooked at the end.

Speaks one JSON object a line on its standard streams; `ForkServer` is the other end.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

import psutil

from libtask.faultpoints import VARIABLE, Fuse, reach
from torture import environment

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

PR_SET_CHILD_SUBREAPER = 36
DAEMON = "hetd.__main__"
LAUNCHER = "libtask.launcher.__main__"
PRELOADING = "libtask.launcher.preloading"
COMMAND = ""
END_S = 20.0


class ForkServer:
    """The harness' end: starts processes, waits for them, counts who is left."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "torture.fork_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # fuses are there, and set after a fork
            env={**environment(), VARIABLE: ""},
            # a Ctrl-C is the harness' business
            start_new_session=True,
        )
        self._ask({"order": "hello"})

    def start(
        self, module: str, words: Sequence[str], log: Path, fail: str = ""
    ) -> int:
        """Start a program; return its pid.

        Args:
            module: the module whose `main` it is; `COMMAND`: none, it is a command.
            words: its command line.
            log: what its standard output and error are added to.
            fail: a value of `HETD_FAIL`; empty: it fails nowhere.

        """
        order = {"order": "start", "module": module, "words": list(words)}
        answer = self._ask({**order, "log": str(log), "fail": fail})
        return int(answer["pid"])

    def status(self, pid: int) -> int | None:
        """Return how a started process ended, once; None: it has not."""
        status: int | None = self._ask({"order": "status", "pid": pid})["status"]
        return status

    def wait(self, pid: int) -> int:
        """Wait for the end of a started process; return how it ended."""
        return int(self._ask({"order": "wait", "pid": pid})["status"])

    def family(self) -> list[psutil.Process]:
        """Return everybody below; zombies among them, but for the fork_server's own."""
        self._ask({"order": "hello"})  # it reaps its own first
        return list(psutil.Process(self._process.pid).children(recursive=True))

    def close(self) -> None:
        """End the fork_server and everybody below."""
        for process in self.family():
            _kill(process)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.wait(END_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _ask(self, order: dict[str, Any]) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the fork_server has no streams")
        stdin.write(json.dumps(order) + "\n")
        stdin.flush()
        answer: dict[str, Any] = json.loads(stdout.readline())
        return answer


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return


# ---------------------------------------------------------------- in the fork_server


def main() -> None:
    """Serve until the harness closes its end or exits; then kill all descendants."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before = dict(os.environ)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a fork has one thread: ours
    for module in (DAEMON, LAUNCHER, *_preloaded()):
        importlib.import_module(module)
    os.environ.clear()
    os.environ.update(before)  # what a launcher is started with
    gc.collect()
    gc.freeze()
    ended: dict[int, int] = {}
    for line in sys.stdin:
        _reap(ended)
        answer = _obey(json.loads(line), ended)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    while family := psutil.Process().children(recursive=True):
        for process in family:
            _kill(process)
        _reap(ended)


def _preloaded() -> Sequence[str]:
    """Name what launchers import before they fork."""
    names: Sequence[str] = importlib.import_module(PRELOADING).PRELOADED
    return names


def _obey(order: dict[str, Any], ended: dict[int, int]) -> dict[str, Any]:
    if order["order"] == "start":
        return {"pid": _start(order)}
    if order["order"] == "hello":
        return {"pid": os.getpid()}
    pid = int(order["pid"])
    if order["order"] == "wait":
        while pid not in ended:
            _reap(ended, wait=True)
    return {"status": ended.pop(pid, None)}


def _start(order: dict[str, Any]) -> int:
    pid = os.fork()
    if pid == 0:
        _become(order)
    return pid


def _become(order: dict[str, Any]) -> NoReturn:
    """Be the program that was ordered; never return."""
    status = 1
    try:
        _redirect(Path(order["log"]))
        os.setsid()
        if order["module"] == COMMAND:
            os.execvp(order["words"][0], order["words"])  # noqa: S606  the harness' own order
        if isinstance(reach, Fuse):
            reach.arm(order["fail"])
        sys.argv = [order["module"], *order["words"]]
        status = importlib.import_module(order["module"]).main() or 0
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:  # noqa: BLE001  nothing may return into the fork_server's loop
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(status)


def _redirect(log: Path) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    output, nothing = os.open(log, flags, 0o600), os.open(os.devnull, os.O_RDONLY)
    for descriptor, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(descriptor, target)
        os.set_inheritable(target, True)  # noqa: FBT003  the standard streams are
    os.close(output)
    os.close(nothing)


def _reap(ended: dict[int, int], *, wait: bool = False) -> None:
    """Record children that have ended, adopted orphans among them."""
    flags = 0 if wait else os.WNOHANG
    while True:
        try:
            pid, status = os.waitpid(-1, flags)
        except ChildProcessError:
            return
        if pid == 0:
            return
        ended[pid] = os.waitstatus_to_exitcode(status)
        flags = os.WNOHANG


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main()
