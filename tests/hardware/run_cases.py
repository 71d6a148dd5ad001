"""Runs cases in this process, one line of JSON for each run of one.

    python -m hardware.run_cases REQUEST

Drivers crash, and Oclgrind's and the drivers' settings hold for a whole process, so each
driver and setting has a process of its own. REQUEST is a `Request` as JSON; the lines are
`Outcome`s.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING

import msgspec

from hardware.kernel_cases import APPS, Case, Extent, SmallTiles, cases
from hardware.stretches import CPU, compute
from libtask.devices import open_device
from libtask.messages import DeviceSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from libtask.task import Task


class Request(msgspec.Struct, frozen=True):
    """What to run.

    Attributes:
        specs: devices, besides the CPU.
        apps: applications.
        extent: how many cases; in a trial, and in brief, tasks do not move.

    """

    specs: list[DeviceSpec]
    apps: tuple[str, ...] = APPS
    extent: Extent = "usual"


class Outcome(msgspec.Struct, frozen=True):
    """What came of one case on one route.

    Attributes:
        case: application and name of the case.
        route: names of devices, in the order in which the task went over them.
        error: how it differs from the reference; empty: it is right.
        digest: of the results' bits; empty where they may differ between devices.
        seconds: processor time that it took.

    """

    case: str
    route: str
    error: str
    digest: str
    seconds: float


def main() -> None:
    """Run what the command line asks for."""
    request = msgspec.json.decode(sys.argv[1], type=Request)
    # Drivers print to standard output: the lines go to what it was at first.
    output = os.dup(1)
    os.dup2(2, 1)
    with os.fdopen(output, "wb") as file:
        for app in request.apps:
            _run_app(app, request, file)


def _run_app(app: str, request: Request, file: IO[bytes]) -> None:
    for case in cases(app, request.extent):
        for route in _routes(case, request):
            file.write(msgspec.json.encode(run(case, route)) + b"\n")
            file.flush()


def _routes(case: Case, request: Request) -> Iterator[list[DeviceSpec]]:
    """Yield each device by itself, and all of them in both orders."""
    specs = request.specs
    yield from ([spec] for spec in specs)
    if request.extent != "trial":
        yield [CPU]
    if case.move_every and specs and request.extent not in ("trial", "brief"):
        yield [CPU, *specs]
        yield [*reversed(specs), CPU]


def run(case: Case, route: list[DeviceSpec]) -> Outcome:
    """Run a case over the devices of a route, each in turn."""
    start = time.process_time()
    with ExitStack() as stack:
        if case.small_tiles:
            stack.enter_context(SmallTiles())
        task = case.make()
        travel(task, case, route)
        error = _difference(case, task)
    spent = time.process_time() - start
    name = f"{case.app} {case.name}"
    names = "-".join(spec.name for spec in route)
    return Outcome(name, names, error, case.digest(task), round(spent, 3))


def travel(task: Task, case: Case, route: list[DeviceSpec]) -> None:
    """Compute on one device after the other until the task is done.

    A device is opened for each stretch, as in a new worker. (Oclgrind would also take what a
    new buffer holds for what an older one at the same address held.)
    """
    done = 0
    for spec in itertools.cycle(route):
        step = case.move_every if len(route) > 1 else 10**9
        device = open_device(spec)
        before, done = done, compute(task, device, case.strip, done, done + step)
        device.close()
        if done < before + step or done == task.total():
            return


def _difference(case: Case, task: Task) -> str:
    try:
        case.verify(task)
    except AssertionError as error:
        return " ".join(str(error).split()) or "differs from the reference"
    return ""


if __name__ == "__main__":
    main()
