"""The real applications on several devices at once: each part counts once, bit by bit.

The devices are those that hetd discovers: here the CPU, PoCL as a GPU and the FPGA
vendor's emulator, or what stands in for them. They do the parts at equal speed, as each
iteration takes them half a second longer.
"""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from system import gated
from system.private_daemon import NAMES, PATIENCE, eventually, opened
from system.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from libtask.client.handles import TaskHandle
    from libtask.messages import TaskInfo
    from system.private_daemon import PrivateDaemon

CONFIG = """
policy = "finish-time"
[policy_parameters]
caution = 0.0
"""
"""With one measured run on each resource, expected times are uncertain."""
SECOND_CPU = """
[[resource]]
name = "cpu1"
kind = "cpu"
"""
EXPECTED_S = 3.5
"""Seconds of each case, most of them pauses."""
COMPILING = 100.0
"""Seconds for a first run, which may compile kernels for the first time."""


@dataclass(frozen=True)
class Case:
    """An application, as it is run here.

    Attributes:
        app: class in `gated`.
        parameters: of a task of a few seconds.
        strip: iterations of each strip.
        gates: an iteration that the task itself does, and one that its part does.
        granule: rows of the result that one device computes.
        total: iterations.

    """

    app: str
    parameters: dict[str, Any]
    strip: int
    gates: tuple[int, int]
    granule: int
    total: int


ONE_CHUNK = Case(
    "GatedCorrelation",
    {"rows": 200, "columns": 3100, "pause_s": 0.75},
    strip=1,
    gates=(1, 3),
    granule=512,
    total=4,
)
"""Four pairs of blocks; it takes any device about as long, on a busy machine, too."""

CASES = {
    # four pairs of blocks of two chunks each
    "correlation": Case(
        "GatedCorrelation",
        {"rows": 1100, "columns": 3100, "pause_s": 0.375},
        strip=1,
        gates=(1, 7),
        granule=512,
        total=8,
    ),
    "gaussian-blur": Case(
        "GatedBlur",
        {"n": 768, "sigma": 3.0, "pause_s": 3.0 / 768},
        strip=64,
        gates=(64, 767),
        granule=64,
        total=768,
    ),
}


class Bench:
    """Runs cases on a daemon.

    Args:
        daemon: a daemon with real devices.
        folder: for what the tasks write.

    """

    def __init__(self, daemon: PrivateDaemon, folder: Path) -> None:
        self.daemon = daemon
        self._folder = folder
        self._runs = 0
        self._undivided: dict[tuple[str, str], NDArray[Any]] = {}

    def undivided(self, case: Case, resource: str) -> NDArray[Any]:
        """Return the result of a run on one resource."""
        key = f"{case.app} {case.total}", resource
        if key not in self._undivided:
            run = Run(self, case, (resource,))
            self._undivided[key] = run.result()
            self._even_out(run.info().type, resource)
        return self._undivided[key]

    def _even_out(self, kind: str, resource: str) -> None:
        """Let hetd expect what the pauses take, on each resource.

        One run beside other tests may have taken several times as long, and a task is not
        split with a resource that looks slow.
        """
        client = self.daemon.client
        (measured,) = (
            each
            for each in client.models()
            if (each.type, each.resource) == (kind, resource)
        )
        even = msgspec.structs.replace(
            measured, seconds=EXPECTED_S, setup=0.0, spread=0.0, count=99
        )
        client.learn([even])

    def next_folder(self) -> Path:
        self._runs += 1
        folder = self._folder / str(self._runs)
        folder.mkdir()
        return folder


class Run:
    """One run of a case.

    Args:
        resources: where it may run.
        gates: iterations before which it waits.

    """

    def __init__(
        self,
        bench: Bench,
        case: Case,
        resources: tuple[str, ...],
        gates: tuple[int, ...] = (),
    ) -> None:
        self.daemon = bench.daemon
        self._gate = bench.next_folder()
        self._gates = gates
        self._output = self._gate / "result.npy"
        files = {"gate": str(self._gate), "output": str(self._output)}
        self.handle: TaskHandle = bench.daemon.client.submit(
            f"{gated.__file__}:{case.app}",
            {**case.parameters, **files, "gates": gates},
            resources=list(resources),
            strip=case.strip,
        )

    def await_gates(self) -> None:
        """Wait until the task and its part are at their gates."""

        def came() -> bool:
            assert not self.handle.done(), self.handle.last
            gates = all(self._at(number).exists() for number in self._gates)
            return gates and bool(self.info().parts)

        eventually(came, "the task and its part at their gates", COMPILING)

    def await_reports(self) -> None:
        """Wait until both have told of strips.

        A worker that is killed before its first report counts against its resource.
        """

        def reported() -> bool:
            return bool(self.info().checkpoint_at and self.part().checkpoint_at)

        eventually(reported, "reports of two workers")

    def kill(self, gate: int) -> None:
        """Kill the worker that waits at a gate."""
        os.kill(int(self._at(gate).read_text()), signal.SIGKILL)

    def _at(self, gate: int) -> Path:
        return self._gate / f"{gate}.at"

    def open_gates(self) -> None:
        for number in self._gates:
            (self._gate / str(number)).touch()

    def often(self) -> Counter[int]:
        """Return how many iterations were done how often."""
        lines = (self._gate / "strips").read_text().splitlines()
        strips = [range(*map(int, line.split())) for line in lines]
        done = Counter(number for strip in strips for number in strip)
        return Counter(done.values())

    def result(self) -> NDArray[Any]:
        self.handle.result(COMPILING)
        result: NDArray[Any] = np.load(self._output)
        return result

    def info(self) -> TaskInfo:
        return self.daemon.info(self.handle.id)

    def part(self) -> TaskInfo:
        return self.daemon.info(self.info().parts[0])


ON_TWO = [
    *((name, ("cpu", "cpu1"), case) for name, case in CASES.items()),
    *(("correlation", pair, ONE_CHUNK) for pair in combinations(NAMES, 2)),
    *(("blur", pair, CASES["gaussian-blur"]) for pair in combinations(NAMES, 2)),
]
TIMEOUT = 4 * COMPILING + PATIENCE


@pytest.fixture(scope="module")
def _bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A node with one slot on each device, and with half of the CPU twice."""
    folder = tmp_path_factory.mktemp("runs")
    found = folder / "devices.toml"
    with opened('policy = "affinity"\n') as daemon:
        Terminal(daemon)("devices", "--write-config", str(found))
    tables = re.sub("(?m)^slots = .*", "slots = 1", found.read_text())
    with opened(CONFIG + tables + SECOND_CPU) as daemon:
        yield Bench(daemon, folder)


@pytest.fixture
def bench(_bench: Bench) -> Iterator[Bench]:
    """The node, on which a test that fails leaves no tasks to the next one."""
    yield _bench
    _bench.daemon.give_up_tasks()


def _check(result: NDArray[Any], parts: list[NDArray[Any]], granule: int) -> None:
    """Demand that each block of rows has the bits of an undivided run on some resource.

    A correlation is compared on and right of the diagonal; the rest mirrors it.
    """
    for first in range(0, len(result), granule):
        rows = slice(first, first + granule)
        block = np.triu(result[rows], k=first)
        same = [np.array_equal(block, np.triu(p[rows], k=first)) for p in parts]
        assert any(same), f"rows from {first} are those of no resource"


@pytest.mark.timeout(TIMEOUT)
@pytest.mark.parametrize(
    ("resources", "case"),
    [(resources, case) for _, resources, case in ON_TWO],
    ids=[f"{name}-{'-'.join(resources)}" for name, resources, _ in ON_TWO],
)
def test_two_devices_do_one_task(
    bench: Bench, resources: tuple[str, str], case: Case
) -> None:
    whole = [bench.undivided(case, resource) for resource in resources]

    run = Run(bench, case, resources, case.gates)
    run.await_gates()
    run.open_gates()
    result = run.result()

    _check(result, whole, case.granule)
    segments = [*run.info().segments, *run.part().segments]
    assert {each.resource for each in segments if each.strips} == {*resources}
    assert run.often() == {1: case.total}


@pytest.mark.timeout(TIMEOUT)
@pytest.mark.parametrize("victim", ["whole", "part"])
@pytest.mark.parametrize("name", CASES)
def test_a_killed_worker_loses_nothing(bench: Bench, name: str, victim: str) -> None:
    # if it is that of the whole task, it begins again when its part is done, and is split again
    case = CASES[name]
    resources = ("cpu", "cpu1")
    whole = [bench.undivided(case, resource) for resource in resources]

    run = Run(bench, case, resources, case.gates)
    run.await_gates()
    run.await_reports()
    run.kill(case.gates[victim == "part"])
    run.open_gates()

    _check(run.result(), whole, case.granule)
