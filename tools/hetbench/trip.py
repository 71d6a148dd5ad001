"""One no-op task, counted: the calls and files that it runs through in every process.

`sys.setprofile` in the client, hetd and the worker, from `submit` to the result; what
the standard library and other packages do is left out. The leanest of some complete trips
is shown, as ticks of hetd's clock may fall into one. `python -m hetbench trip --calls`
prints every call of it, indented by depth.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from hetbench.noop import Noop
from hetbench.resources import CPU_ONLY
from libtask.apps import Options, describe, name_of
from libtask.daemon.private import private_daemon
from libtask.errors import BugError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from libtask.client.client import Client
    from libtask.messages import TaskSpec

TRIPS = 9
WARM_UP = 50
PATIENCE_S = 10.0
OFF, ON, WRITE = b"\0", b"\1", b"\2"
VARIABLE = "HETD_TRIP"
PACKAGES = ("hetd", "hetsched", "libtask")
DAEMON, WORKER = "hetd", "worker and launcher"
MILESTONES = {
    "SubmitRequests.submit",
    "WorkerReports._on_ends",
    "Publication._send_durable",
}
"""Functions that hetd calls in each complete trip."""
Calls: TypeAlias = "dict[str, list[tuple[str, str, int]]]"
"""Process -> file, function and depth of each call."""

COUNTER = """
import json, mmap, os, sys, threading
from pathlib import Path

folder = Path(os.environ["HETD_TRIP"])
with open(folder / "flag", "rb") as file:
    flag = mmap.mmap(file.fileno(), 1, prot=mmap.PROT_READ)
calls = []

def depth_of(frame):
    depth = 0
    while (frame := frame.f_back) is not None:
        depth += 1
    return depth

def profile(frame, event, _):
    if flag[0] == 1:
        if event == "call":
            calls.append((frame.f_code, depth_of(frame)))
    elif flag[0] == 2 and calls:
        told = [(code.co_filename, code.co_qualname, depth) for code, depth in calls]
        calls.clear()
        new = folder / f"{os.getpid()}.new"
        new.write_text(json.dumps(told))
        new.rename(folder / f"{os.getpid()}.json")

os.register_at_fork(after_in_child=calls.clear)
threading.setprofile(profile)
sys.setprofile(profile)
"""
"""Run by every interpreter that starts with the folder on its path."""


def run() -> list[dict[str, Any]]:
    """Count; return one row for each process, and one for all of them."""
    return _rows(_leanest())


def show() -> None:
    """Print the calls of each process, in order."""
    for process, calls in _leanest().items():
        print(f"{process}:")
        least = min(depth for _, _, depth in calls)
        for file, function, depth in calls:
            print(f"{'  ' * (depth - least + 1)}{function}  ({file})")


def _leanest() -> Calls:
    """Run some trips; return the calls of the complete one that has fewest."""
    with tempfile.TemporaryDirectory(prefix="hetbench-") as made:
        folder = Path(made)
        (folder / "flag").write_bytes(OFF)
        (folder / "sitecustomize.py").write_text(COUNTER)
        with _counted(folder), private_daemon(CPU_ONLY) as client:
            spec = describe(Noop(), name_of(Noop), Options())
            client.submit_specs([spec] * WARM_UP)[-1].result(60)
            trips = [_trip(client, spec, folder) for _ in range(TRIPS)]
    complete = [calls for calls in trips if _is_complete(calls)]
    if not complete:
        raise BugError("no trip was counted in every process")
    return min(complete, key=lambda calls: sum(map(len, calls.values())))


@contextmanager
def _counted(folder: Path) -> Iterator[None]:
    """Let the processes that are started meanwhile count their calls."""
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", VARIABLE)}
    os.environ |= {"PYTHONPATH": str(folder), VARIABLE: str(folder)}
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _trip(client: Client, spec: TaskSpec, folder: Path) -> Calls:
    """Run a task; return the calls of each process, in order."""
    own: list[Any] = []

    def profile(frame: Any, event: str, _: object) -> None:
        if event == "call":
            code = frame.f_code
            own.append((code.co_filename, code.co_qualname, _depth(frame)))

    time.sleep(0.2)  # until what came before has been written and told
    _set(folder, ON)
    sys.setprofile(profile)
    try:
        client.submit_specs([spec])[0].result(60)
    finally:
        sys.setprofile(None)
        _set(folder, WRITE)
    counts = {"client": own, **_written(client, spec, folder)}
    _set(folder, OFF)
    return {name: _ours(calls) for name, calls in counts.items()}


def _depth(frame: FrameType) -> int:
    depth = 0
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    return depth


def _is_complete(calls: Calls) -> bool:
    """Whether all is there from the acceptance of the submit to the sending of the result."""
    functions = {function for _, function, _ in calls.get(DAEMON, [])}
    return functions >= MILESTONES and WORKER in calls


def _set(folder: Path, state: bytes) -> None:
    """Switch all processes; they map the file, so it keeps its size."""
    with (folder / "flag").open("r+b") as flag:
        flag.write(state)


def _written(client: Client, spec: TaskSpec, folder: Path) -> dict[str, list[Any]]:
    """Wait for what hetd and the worker have counted; another task has them write it."""
    found: dict[str, list[Any]] = {}
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < 2 and time.monotonic() < deadline:
        client.submit_specs([spec])[0].result(60)
        time.sleep(0.01)
        for path in folder.glob("*.json"):
            calls = json.loads(path.read_text())
            path.unlink()
            found.setdefault(_process(calls), []).extend(calls)
    return found


def _process(calls: list[Any]) -> str:
    files = {Path(name).parts[-2:] for name, _, _ in calls}
    return DAEMON if ("hetd", "loop.py") in files else WORKER


def _ours(calls: list[Any]) -> list[tuple[str, str, int]]:
    """Keep the calls of our own code; name files from the package on."""
    found = []
    for name, function, depth in calls:
        parts = Path(name).parts
        package = next((p for p in PACKAGES if p in parts[:-1]), None)
        if package is not None and "site-packages" not in parts:
            start = len(parts) - 1 - parts[::-1].index(package)
            found.append(("/".join(parts[start:]), function, depth))
    return found


def _rows(processes: Calls) -> list[dict[str, Any]]:
    counted = {
        name: [(file, function) for file, function, _ in calls]
        for name, calls in processes.items()
    }
    together = [(f"{n} {f}", c) for n, calls in counted.items() for f, c in calls]
    rows = [_row(name, calls) for name, calls in counted.items()]
    return [*rows, _row("all", together)]


def _row(name: str, calls: list[tuple[str, str]]) -> dict[str, Any]:
    files = [file for file, _ in calls]
    return {
        "process": name,
        "calls": len(calls),
        "functions": len(set(calls)),
        "files": len(set(files)),
        "changes_of_file": sum(a != b for a, b in pairwise(files)),
    }
