"""Nodes with drivers that fail: some later than at their self-tests, some in the demo."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hardware.faulty_drivers import EMULATOR, POCL, FaultyDrivers, driver_of, offered
from hetctl.waiting import EXIT_SOME_FAILED
from libtask.devices.discovery import discover_devices
from system.private_daemon import PATIENCE, SETTINGS, opened
from system.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from system.private_daemon import PrivateDaemon

pytestmark = pytest.mark.timeout(900)

ABORTS = "**Internal compiler error** Cannot select: v4f32 = X86ISD::VRNDSCALE"
BLUR = ("gaussian-blur", {"n": 64, "sigma": 1.9})


def use(libraries: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this machine have these drivers only, and no verdicts yet."""
    vendors = folder / "vendors"
    vendors.mkdir()
    for number, library in enumerate(libraries):
        (vendors / f"{number}.icd").write_text(f"{library}\n")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(vendors))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PrivateDaemon]:
    """A node whose FPGA passes its self-test, and aborts when it compiles the blur."""
    # PoCL, which may stand in for an FPGA, would be a GPU as well
    emulator = driver_of(offered("fpga", lambda each: "FPGA" in each.platform))
    faulty = FaultyDrivers(tmp_path)
    names = (EMULATOR, "Emulator")
    broken = faulty.make(emulator.driver, "some-abort", *names, text="blur_rows")
    use([broken], tmp_path, monkeypatch)
    discover_devices()  # so that the daemon's start is a quick one on a busy machine, too
    with opened(SETTINGS) as node:
        yield node


def test_a_task_that_may_run_nowhere_else_fails_at_once_with_the_drivers_words(
    node: PrivateDaemon,
) -> None:
    states = {each.spec.name: each.state for each in node.client.devices()}
    assert states == {"cpu": "up", "fpga0": "up"}
    hetctl = Terminal(node)

    asked = ("submit", "gaussian-blur", "--n", "64", "--on", "fpga0", "--wait")
    done = hetctl.completed(*asked)

    assert done.returncode == EXIT_SOME_FAILED
    assert "SIGABRT" in done.stderr + done.stdout
    assert ABORTS in done.stderr + done.stdout
    info = node.info(1)
    assert [each.resource for each in info.segments] == ["fpga0"]
    for verb in ("show", "logs"):
        assert ABORTS in hetctl(verb, str(info.id))
    assert "fpga0" in hetctl("devices")


def test_a_task_goes_on_elsewhere_and_the_next_ones_stay_away(
    node: PrivateDaemon,
) -> None:
    first = node.client.submit(*BLUR, hold=True)
    node.client.migrate(first.id, "fpga0")
    node.client.release(first.id)
    first.result(PATIENCE)

    places = [each.resource for each in node.info(first.id).segments]
    assert places[0] == "fpga0"
    assert places[-1] != "fpga0"
    assert node.info(first.id).migrations == 0
    later = [node.client.submit(*BLUR) for _ in range(3)]
    for task in later:
        task.result(PATIENCE)
        assert "fpga0" not in [each.resource for each in node.info(task.id).segments]


FAULTS = {
    "gpu": {"gpu": "build-fails"},
    "fpga": {"fpga": "build-aborts"},
    "both": {"gpu": "build-fails", "fpga": "build-aborts"},
}
SAID = {
    "gpu": "unknown target CPU 'generic'",
    "fpga": "Internal compiler error",
}


@pytest.mark.skipif(
    "HETD_DEMOS" not in os.environ, reason="minutes each: part of make torture"
)
@pytest.mark.parametrize("failing", FAULTS)
def test_the_demo_completes_with_drivers_that_fail(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sklearn", reason="the demo's inputs come with scikit-learn")
    faults = FAULTS[failing]
    gpu, fpga = driver_of(offered("gpu", emulated=True)), driver_of(offered("fpga"))
    faulty = FaultyDrivers(tmp_path)
    libraries = [fpga.driver]
    if "gpu" in faults:
        libraries.insert(0, faulty.make(gpu.driver, faults["gpu"], POCL))
    if failing != "both":
        libraries.append(gpu.driver)
    if "fpga" in faults:
        libraries.remove(fpga.driver)
        libraries.append(faulty.make(fpga.driver, faults["fpga"], EMULATOR, "Emu"))
    use(libraries, tmp_path, monkeypatch)

    ended = subprocess.run(
        [sys.executable, "-m", "hetdemo"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-2000:]
    assert "24 of 24" in ended.stdout
    for kind in faults:
        assert SAID[kind] in ended.stdout
