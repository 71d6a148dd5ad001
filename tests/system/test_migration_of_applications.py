"""The real applications on real OpenCL drivers: moved in the middle, same results.

The devices are those that hetd discovers: here the CPU, PoCL as a GPU and the FPGA
vendor's emulator, or what stands in for them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hetapps.tables import generate_table
from hetkernels.correlation.reference import correlation
from system import gated
from system.private_daemon import NAMES, PATIENCE, eventually, opened
from system.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from libtask.client.handles import TaskHandle
    from libtask.messages import TaskInfo
    from system.private_daemon import PrivateDaemon

COMPILING = 100.0
"""Seconds for a first run, which may compile kernels for the first time."""
DELIVERY_S = 0.3
"""Time in which a command reaches a worker on a busy machine."""


@dataclass(frozen=True)
class Case:
    """An application, as it is run here.

    Attributes:
        app: class in `gated`.
        parameters: of a task of about 30 strips.
        strip: iterations of each strip.
        gates: iterations in the middle.
        tolerance: by which results of two kinds may differ; 0: not in a bit.

    """

    app: str
    parameters: dict[str, Any]
    strip: int
    gates: tuple[int, ...]
    tolerance: float = field(default=0.0)


CASES = {
    "heat": Case(
        "GatedHeat", {"n": 256, "steps": 960, "edges": "insulated"}, 32, (320, 480, 640)
    ),
    "gaussian-blur": Case("GatedBlur", {"n": 768, "sigma": 3.0}, 16, (256, 384, 512)),
    "markov": Case(
        "GatedMarkov",
        {"n": 384, "stay": 0.999, "tolerance": 1e-7, "iterations": 600},
        20,
        (200, 300, 400),
    ),
    "correlation": Case(
        "GatedCorrelation",
        {"rows": 40_960, "columns": 96},
        1,
        (6, 10, 14),
        tolerance=1e-5,
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
        self._unmoved: dict[str, NDArray[Any]] = {}

    def unmoved(self, case: Case) -> NDArray[Any]:
        """Return the result of a run that stays on the CPU."""
        if case.app not in self._unmoved:
            run = Run(self, case, "cpu")
            self._unmoved[case.app] = run.result()
        return self._unmoved[case.app]

    def next_folder(self) -> Path:
        self._runs += 1
        folder = self._folder / str(self._runs)
        folder.mkdir()
        return folder


class Run:
    """One run of a case.

    Args:
        moves: how many gates it has.

    """

    def __init__(self, bench: Bench, case: Case, start: str, moves: int = 0) -> None:
        self._daemon = bench.daemon
        self._gate = bench.next_folder()
        self._output = self._gate / "result.npy"
        self._gates = case.gates[:moves]
        files = {"gate": str(self._gate), "output": str(self._output)}
        self.handle: TaskHandle = bench.daemon.client.submit(
            f"{gated.__file__}:{case.app}",
            {**case.parameters, **files, "gates": self._gates},
            resources=[start],
            strip=case.strip,
        )

    def move(self, number: int, move: Callable[[int], object]) -> None:
        """Do something to the task while it waits at a gate."""
        gate = self._gate / str(self._gates[number])
        at = gate.with_suffix(".at")

        def arrived() -> bool:
            assert not self.handle.done(), self.handle.last
            return at.exists()

        eventually(arrived, "the task at its gate", COMPILING)
        move(self.handle.id)
        # the command is sent before the answer, but on a connection of its own
        time.sleep(DELIVERY_S)
        gate.touch()

    def result(self) -> NDArray[Any]:
        self.handle.result(COMPILING)
        result: NDArray[Any] = np.load(self._output)
        return result

    def info(self) -> TaskInfo:
        return self._daemon.info(self.handle.id)


@pytest.fixture(scope="module")
def bench(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Bench]:
    with opened('policy = "affinity"\n') as daemon:
        yield Bench(daemon, tmp_path_factory.mktemp("runs"))


@pytest.mark.timeout(2 * COMPILING + PATIENCE)
@pytest.mark.parametrize(("start", "destination"), [*permutations(NAMES, 2)])
@pytest.mark.parametrize("name", CASES)
def test_an_application_moves_in_the_middle(
    bench: Bench, name: str, start: str, destination: str
) -> None:
    case = CASES[name]
    expected = bench.unmoved(case)
    run = Run(bench, case, start, moves=1)

    run.move(0, lambda task: bench.daemon.client.migrate(task, destination))

    _check_equal(run.result(), expected, case.tolerance)
    _check_moved(run.info(), start, destination)


def _check_equal(
    result: NDArray[Any], expected: NDArray[Any], tolerance: float
) -> None:
    assert result.dtype == expected.dtype
    np.testing.assert_allclose(result, expected, rtol=0, atol=tolerance)


def _check_moved(info: TaskInfo, *places: str) -> None:
    """Demand that the task ran on each of these, in order, and computed there."""
    assert [segment.resource for segment in info.segments] == [*places]
    assert all(segment.strips > 0 for segment in info.segments)
    assert info.migrations == len(places) - 1
    for segment in info.segments:
        assert segment.computing is None or segment.start <= segment.computing
        assert segment.finish is not None


def test_correlations_are_those_of_the_reference(bench: Bench) -> None:
    case = CASES["correlation"]
    parameters = case.parameters
    table = generate_table(parameters["rows"], parameters["columns"], seed=0)

    result = bench.unmoved(case)

    _check_equal(result.astype(np.float64), correlation(table.values), case.tolerance)


@pytest.mark.timeout(2 * COMPILING + PATIENCE)
@pytest.mark.parametrize("name", CASES)
def test_an_application_moves_on_and_back(bench: Bench, name: str) -> None:
    case = CASES[name]
    expected = bench.unmoved(case)
    run = Run(bench, case, "cpu", moves=3)

    for number, place in enumerate(("gpu0", "fpga0", "cpu")):
        run.move(number, lambda task, to=place: bench.daemon.client.migrate(task, to))  # type: ignore[misc]  # bound on purpose

    _check_equal(run.result(), expected, case.tolerance)
    _check_moved(run.info(), "cpu", "gpu0", "fpga0", "cpu")


@pytest.mark.timeout(2 * COMPILING + PATIENCE)
def test_the_command_line_moves_an_application(bench: Bench) -> None:
    case = CASES["heat"]
    expected = bench.unmoved(case)
    run = Run(bench, case, "cpu", moves=1)

    hetctl = Terminal(bench.daemon)
    run.move(0, lambda task: hetctl("migrate", str(task), "--to", "fpga0"))

    _check_equal(run.result(), expected, case.tolerance)
    _check_moved(run.info(), "cpu", "fpga0")
