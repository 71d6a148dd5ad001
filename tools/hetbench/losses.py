"""Losses: the time until a dead or a hanging worker is noticed, and the cost of a flood.

`noticed` and `restarted` count from the kill: until hetd has published that the task runs
again, and until its first strip in another worker. `gone`: from the last checkpoint of a
task that hangs, until its process has ended. `hydra`: processes that replace
themselves all the time, until none is left. `flood`: a task that prints as fast as it
can; CPU shares are of one core.
"""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from hetbench.resources import CPU_ONLY
from libtask.daemon.private import private_daemon
from libtask.processes import descendants_of, is_alive

if TYPE_CHECKING:
    from collections.abc import Callable

    from libtask.client.client import Client
    from libtask.client.handles import TaskHandle

KILLS = 30
FLOOD_S = 5.0
PATIENCE_S = 60.0
LIMIT_S = 1.0
CAP_MIB = 64
SETTINGS = f"strip_limit_s = {LIMIT_S}\nlog_mb = {CAP_MIB}\nattempts = 1000\n"

APP = """
import os, time
from dataclasses import dataclass
from pathlib import Path
from libtask import Task

@dataclass
class Deed(Task):
    folder: str
    deed: str = ""

    def total(self):
        return 1_000_000

@Deed.on("cpu")
def deed(task, device, checkpoint):
    begun = Path(task.folder, "begun")
    for strip in checkpoint.strips():
        if strip.start == 0:
            with begun.open("a") as file:
                file.write(f"{os.getpid()} {time.monotonic()}\\n")
            began = time.monotonic()
        time.sleep(0.02)
        if task.deed == "flood":
            text = "y" * 65536
            while not Path(task.folder, "enough").exists():
                os.write(1, text.encode())
            return
        if task.deed == "hydra" and strip.start == 0:
            hydra()
        yield
        if task.deed == "hang" and time.monotonic() - began > 0.5:
            Path(task.folder, "hangs").write_text(str(time.monotonic()))
            time.sleep(600)

def hydra():
    if os.fork():
        return
    for _ in range(3):
        if os.fork() == 0:
            break
    while True:
        if os.fork():
            os._exit(0)
        time.sleep(0.001)
"""


def run() -> list[dict[str, Any]]:
    """Measure kills, a task that hangs, a hydra, and a flood."""
    return [_kills(), _hang(), _hydra(), _flood()]


class Deed:
    """A task of the application above, in a folder of its own."""

    def __init__(self, client: Client, folder: str, deed: str = "") -> None:
        self.folder = Path(folder)
        app = self.folder / "deed.py"
        app.write_text(APP)
        params = {"folder": folder, "deed": deed}
        self.handle: TaskHandle = client.submit(f"{app}:Deed", params, strip=1)

    def attempts(self) -> list[tuple[int, float]]:
        """Return (pid, when its first strip began) of each attempt so far."""
        begun = self.folder / "begun"
        lines = begun.read_text().split("\n")[:-1] if begun.exists() else []
        return [(int(pid), float(at)) for pid, at in map(str.split, lines)]


def _until(condition: Callable[[], object]) -> float:
    """Return when (`time.monotonic`) a condition came true."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("it takes longer than a minute")
        time.sleep(0.0005)
    return time.monotonic()


def _kills() -> dict[str, Any]:
    noticed, restarted = [], []
    with private_daemon(SETTINGS + CPU_ONLY) as client, _folder() as folder:
        task = Deed(client, folder)
        for number in range(KILLS):
            lost, again = _kill(task, number)
            noticed.append(lost)
            restarted.append(again)
        task.handle.cancel()
    return {
        "kill": "worker, SIGKILL",
        "kills": KILLS,
        "noticed": _spread(noticed),
        "restarted": _spread(restarted),
    }


def _kill(task: Deed, number: int) -> tuple[float, float]:
    """Kill the worker of an attempt; return seconds to the note of it, and the next."""
    _until(lambda: len(task.attempts()) > number)
    pid, _ = task.attempts()[-1]
    at = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    lost = _until(lambda: len(task.handle.info().segments) > number + 1)
    _until(lambda: len(task.attempts()) > number + 1)
    return lost - at, task.attempts()[-1][1] - at


def _hang() -> dict[str, Any]:
    with private_daemon(SETTINGS + CPU_ONLY) as client, _folder() as folder:
        task = Deed(client, folder, "hang")
        hangs = Path(folder, "hangs")
        _until(lambda: hangs.exists() and hangs.read_text())
        since, (pid, _) = float(hangs.read_text()), task.attempts()[0]
        gone = _until(lambda: not is_alive(pid)) - since
        task.handle.cancel()
    return {"hang": "strip limit in s", "limit_s": LIMIT_S, "gone_s": round(gone, 3)}


def _hydra() -> dict[str, Any]:
    with private_daemon(SETTINGS + CPU_ONLY) as client, _folder() as folder:
        task = Deed(client, folder, "hydra")
        _until(task.attempts)
        pid, _ = task.attempts()[0]
        _until(lambda: len([*descendants_of([pid])]) >= 4)
        launcher = psutil.Process(pid).parent()
        at = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        _until(lambda: len(task.attempts()) > 1)
        others = {each.pid for each in launcher.children()} if launcher else set()
        left = others - {task.attempts()[-1][0]}
        told = task.attempts()[-1][1] - at
        task.handle.cancel()
    return {"hydra": "4 at once", "left": len(left), "next_attempt_s": round(told, 3)}


def _flood() -> dict[str, Any]:
    with private_daemon(SETTINGS + CPU_ONLY) as client, _folder() as folder:
        task = Deed(client, folder, "flood")
        _until(task.attempts)
        worker = psutil.Process(task.attempts()[0][0])
        launcher, daemon = worker.parent(), psutil.Process(client.welcome.pid)
        before = [_cpu_s(each) for each in (launcher, daemon)]
        log = Path(f"/proc/{worker.pid}/fd/1").resolve()
        peak, began = 0, time.monotonic()
        while time.monotonic() - began < FLOOD_S:
            peak = max(peak, log.stat().st_blocks * 512)
            time.sleep(0.005)
        shares = [_cpu_s(each) for each in (launcher, daemon)]
        written = log.stat().st_size
        Path(folder, "enough").touch()
        _until(lambda: log.stat().st_blocks * 512 <= CAP_MIB << 20)
        task.handle.cancel()
    used = [100 * (b - a) / FLOOD_S for a, b in zip(before, shares, strict=True)]
    return {
        "flood": f"{FLOOD_S:g} s, cap {CAP_MIB} MiB",
        "written_mib": written >> 20,
        "peak_on_disk_mib": peak >> 20,
        "left_on_disk_mib_at_most": CAP_MIB,
        "launcher_cpu_percent": round(used[0], 2),
        "daemon_cpu_percent": round(used[1], 2),
    }


def _cpu_s(process: psutil.Process | None) -> float:
    if process is None:
        return 0.0
    times = process.cpu_times()
    return float(times.user + times.system)


def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="hetbench-")


def _spread(seconds: list[float]) -> dict[str, float]:
    milliseconds = [1e3 * each for each in seconds]
    return {
        "median_ms": round(statistics.median(milliseconds), 1),
        "most_ms": round(max(milliseconds), 1),
    }
