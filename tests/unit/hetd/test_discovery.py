"""Discovery: what drivers offer, which of them is used, and that none can harm hetd."""

from __future__ import annotations

import os
import stat
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest

from hetd.devices.discovery import cpu, discover, with_verdicts
from libtask.devices import cache as verdict_cache
from libtask.devices import discovery
from libtask.devices.discovery import (
    Discovery,
    Listing,
    Verdict,
    alternatives,
    describe_failure,
    discover_devices,
    telling_line,
)
from libtask.devices.icd import cache_folder
from libtask.devices.report import DeviceType, FoundDevice, Report
from libtask.messages import DeviceInfo, DeviceSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

POCL = "Portable Computing Language"
EMULATION = "Intel(R) FPGA Emulation Platform for OpenCL(TM)"
BOARD = "Intel(R) FPGA SDK for OpenCL(TM)"
VENDOR = "Intel(R) OpenCL"
MEMORY = 4 << 30


def found(
    platform: str, device: str, kind: DeviceType = "cpu", index: int = 0
) -> FoundDevice:
    return FoundDevice(platform, device, kind, index, memory_bytes=MEMORY)


POCL_BASIC = found(POCL, "basic-Xeon")
POCL_THREADS = found(POCL, "pthread-Xeon")
VENDOR_CPU = found(VENDOR, "Xeon")
EMULATOR = found(EMULATION, "Emulation Device", "accelerator")


def outline(infos: list[DeviceInfo]) -> list[tuple[str, str, int, bool]]:
    specs = [info.spec for info in infos]
    return [(spec.name, spec.device, spec.index, spec.emulated) for spec in specs]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


class Drivers:
    """Drivers that are scripts: what probe and self-test do with each "library"."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._probes = folder / "probes"
        self._tests = folder / "tests"
        self.calls = folder / "calls"
        self.calls.touch()
        for scripts in (self._probes, self._tests):
            scripts.mkdir()
        wrapper = folder / "python"
        wrapper.write_text(f"#!{sys.executable}\n{CHILD}")
        wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(sys, "executable", str(wrapper))

    def add(
        self, name: str, devices: list[FoundDevice], test: str = "", probe: str = ""
    ) -> str:
        """Add a driver; `test` and `probe` are scripts in place of what goes well."""
        library = str(self.folder / name)
        found = [msgspec.structs.replace(each, driver=library) for each in devices]
        report = msgspec.json.encode(Report(found)).decode()
        (self.folder / name).write_text("a driver")
        (self._probes / name).write_text(probe or f"print({report!r})")
        (self._tests / name).write_text(test)
        return library

    def called(self) -> list[str]:
        """List the children that ran, and forget them."""
        lines = sorted(self.calls.read_text().split())
        self.calls.write_text("")
        return lines


CHILD = """
import json, sys
from pathlib import Path
here = Path(sys.argv[0]).parent
module, argument = sys.argv[2:4]
if module.endswith("probe"):
    what, name = "probes", Path(argument).name
else:
    what, name = "tests", Path(json.loads(argument)["libraries"][0]).name
with (here / "calls").open("a") as calls:
    calls.write(f"{what}:{name} ")
exec((here / what / name).read_text())
"""
COMPILER = "import sys; sys.exit('line 1\\nerror: unknown target CPU')"
ABORT = (
    "import os, sys; sys.stderr.write('**Internal compiler error** x\\n\\nreport it')"
)
ABORT += "; sys.stderr.flush(); os.abort()"


@pytest.fixture
def drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Drivers:
    folder = tmp_path / "drivers"
    folder.mkdir()
    return Drivers(folder, monkeypatch)


# ---------------------------------------------------------------- what is offered


def test_real_gpus_take_the_place_of_the_emulated_one() -> None:
    cards = [found("NVIDIA CUDA", "H200", "gpu", index) for index in range(2)]
    again = found("rusticl", "H200", "gpu")

    offered = alternatives("gpu", [POCL_THREADS, *cards, again])

    # a second driver of the same card comes after the first
    assert offered == [[cards[0], again], [cards[1]]]


def test_boards_take_the_place_of_the_emulator() -> None:
    boards = [
        found(BOARD, "pac_a10", "accelerator"),
        found("Xilinx", "u250", "accelerator"),
    ]

    offered = alternatives("fpga", [EMULATOR, POCL_BASIC, *boards])

    assert offered == [[boards[0]], [boards[1]]]


def test_emulations_are_tried_in_order() -> None:
    other = found("Thing", "Xeon")
    every = [other, VENDOR_CPU, EMULATOR, POCL_BASIC, POCL_THREADS]

    (for_gpu,) = alternatives("gpu", every)
    (for_fpga,) = alternatives("fpga", every)

    assert for_gpu == [POCL_THREADS, VENDOR_CPU, other]
    assert for_fpga == [EMULATOR, POCL_BASIC, POCL_THREADS, VENDOR_CPU, other]


def test_strange_accelerators_are_neither_gpu_nor_fpga() -> None:
    others = [found("TI", "C66x DSP", "accelerator"), found("Thing", "?", "other")]

    assert alternatives("gpu", others) == []
    assert alternatives("fpga", others) == []


@pytest.mark.parametrize(
    ("cores", "slots", "threads"),
    [(1, 2, 1), (2, 2, 1), (3, 2, 1), (16, 8, 2), (128, 16, 8)],
)
def test_cpu_slots_share_the_cores(
    cores: int, slots: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = set(range(cores))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: allowed)

    info = cpu()

    assert (info.slots, info.spec.threads) == (slots, threads)
    assert info.busy_watts == 10 * cores


# ---------------------------------------------------------------- drivers that work


def test_reports_become_resources(drivers: Drivers) -> None:
    pocl = drivers.add("libpocl.so", [POCL_BASIC, POCL_THREADS])
    emulator = drivers.add("libemu.so", [EMULATOR])

    devices = discover(60, [pocl, emulator])

    assert outline(devices) == [
        *outline([cpu()]),
        ("gpu0", "pthread-Xeon", 0, True),
        ("fpga0", "Emulation Device", 0, True),
    ]
    assert {device.spec.driver for device in devices[1:]} == {"opencl"}
    assert {device.state for device in devices} == {"up"}
    assert [device.spec.memory_bytes for device in devices] == [0, MEMORY, MEMORY]
    # a task may move between them: a process loads both
    assert {tuple(device.spec.libraries) for device in devices[1:]} == {
        (pocl, emulator)
    }
    assert [device.reconfigure_s for device in devices] == [0, 0, 0]
    assert [device.link_bytes_per_s for device in devices] == [None, 4e9, 4e9]


def test_what_passed_is_not_asked_again_until_the_driver_changes(
    drivers: Drivers,
) -> None:
    pocl = drivers.add("libpocl.so", [POCL_THREADS])
    first = discover(60, [pocl])
    assert drivers.called() == ["probes:libpocl.so", *["tests:libpocl.so"] * 2]

    assert discover(60, [pocl]) == first
    assert drivers.called() == []

    os.utime(pocl, (1, 1))
    assert discover(60, [pocl]) == first
    assert drivers.called() == ["probes:libpocl.so", *["tests:libpocl.so"] * 2]


def test_cards_are_asked_at_each_start_and_tested_once_a_boot(
    drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = found("NVIDIA CUDA", "H200", "gpu")
    nvidia = drivers.add("libnvidia.so", [card], COMPILER)
    for called in (
        ["probes:libnvidia.so", "tests:libnvidia.so"],
        ["probes:libnvidia.so"],
    ):
        (offer,) = discover_devices(60, [nvidia])
        assert offer.verdict.fault == "NVIDIA CUDA: unknown target CPU"
        assert drivers.called() == called

    monkeypatch.setattr(discovery, "boot_id", lambda: "the next one")
    drivers.add("libnvidia.so", [card])
    (offer,) = discover_devices(60, [nvidia])

    assert offer.verdict.fault == ""


def test_a_forgotten_verdict_is_made_again(drivers: Drivers) -> None:
    pocl = drivers.add("libpocl.so", [POCL_THREADS])
    discover(60, [pocl])
    drivers.called()

    discovery.forget()

    discover(60, [pocl])
    assert "tests:libpocl.so" in drivers.called()


def test_a_damaged_verdict_is_made_again(drivers: Drivers) -> None:
    pocl = drivers.add("libpocl.so", [POCL_THREADS])
    first = discover(60, [pocl])
    for entry in (cache_folder() / "drivers").iterdir():
        entry.write_bytes(entry.read_bytes()[:-3])

    assert discover(60, [pocl]) == first


# ---------------------------------------------------------------- drivers that do not


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (COMPILER, "unknown target CPU"),
        (ABORT, "Aborted: **Internal compiler error** x"),
        ("import os; os.kill(os.getpid(), 11)", "Segmentation fault"),
        ("import sys; sys.exit(3)", "exit status 3"),
    ],
)
def test_the_next_driver_emulates_where_one_fails(
    drivers: Drivers, script: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "hetd")
    pocl = drivers.add("libpocl.so", [POCL_THREADS], script)
    vendor = drivers.add("libvendor.so", [VENDOR_CPU])

    _, gpu, fpga = discover(60, [pocl, vendor])

    assert (gpu.spec.platform, gpu.state) == (VENDOR, "up")
    assert gpu.rejected == fpga.rejected == [f"{POCL}: {said}"]
    assert gpu.spec.libraries == [vendor]
    assert f"gpu0: driver not used: {POCL}: {said}" in caplog.messages


def test_where_every_driver_fails_the_resource_is_unusable_with_their_words(
    drivers: Drivers, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "has_vendor_runtimes", lambda: True)
    pocl = drivers.add("libpocl.so", [POCL_THREADS], COMPILER)
    vendor = drivers.add("libvendor.so", [VENDOR_CPU], ABORT)

    _, gpu, fpga = discover(60, [pocl, vendor])

    assert (gpu.state, fpga.state) == ("unusable", "unusable")
    assert gpu.reason == (
        f"{POCL}: unknown target CPU; {VENDOR}: Aborted: **Internal compiler error** x"
    )
    assert f"gpu0 is unusable: {gpu.reason}" in caplog.messages


@pytest.mark.parametrize("installed", [True, False])
def test_an_extra_with_other_emulators_is_named_where_it_lacks(
    drivers: Drivers, monkeypatch: pytest.MonkeyPatch, *, installed: bool
) -> None:
    monkeypatch.setattr(discovery, "has_vendor_runtimes", lambda: installed)
    pocl = drivers.add("libpocl.so", [POCL_THREADS], COMPILER)

    _, gpu, fpga = discover(60, [pocl])

    hint = (
        ""
        if installed
        else "; the extra hetd[fpga-emulator] has emulators for more CPUs"
    )
    assert gpu.reason == fpga.reason == f"{POCL}: unknown target CPU{hint}"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("import os; os.abort()", "Aborted"),
        ("import sys; sys.exit('driver broken')", "driver broken"),
        ("print('Loading driver...')", "JSON is malformed"),
        ("print('{}')", "missing required field `devices`"),
        ("pass", "truncated"),
    ],
)
def test_a_driver_that_cannot_be_asked_costs_its_own_devices_only(
    drivers: Drivers, script: str, reason: str
) -> None:
    broken = drivers.add("libbroken.so", [], probe=script)
    pocl = drivers.add("libpocl.so", [POCL_THREADS])

    _, gpu, _ = discover(60, [broken, pocl])
    alone = discover(60, [broken])

    assert (gpu.state, gpu.spec.libraries) == ("up", [pocl])
    assert gpu.rejected[0].startswith("libbroken.so: ")
    assert reason in gpu.rejected[0]
    assert [each.spec.name for each in alone] == ["cpu", "gpu0", "fpga0"]
    assert [each.state for each in alone] == ["up", "unusable", "unusable"]
    assert reason in alone[1].reason


def test_a_driver_that_hangs_is_killed_with_its_children(
    drivers: Drivers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The child keeps the write end of this pipe until it dies.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    script = f"import os, signal; os.open({str(pipe)!r}, 1); os.fork(); signal.pause()"
    pocl = drivers.add("libpocl.so", [POCL_THREADS], script)
    monkeypatch.setattr(discovery, "DRIVER_S", 1.0)

    (gpu, _) = discover_devices(60, [pocl])

    assert gpu.verdict.hung
    assert gpu.verdict.fault == f"{POCL}: no answer in 1 s"
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b""
    os.close(reader)
    # it may have been the machine: that is believed for a day
    kept = Verdict("no answer", gpu.verdict.at, hung=True)
    assert not msgspec.structs.replace(kept, at=1.0).holds


def test_no_process_for_a_driver_leaves_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")

    devices = discover(60, [str(tmp_path / "libpocl.so")])

    assert [device.state for device in devices] == ["up", "unusable", "unusable"]
    assert "No such file" in devices[1].reason


def test_configured_devices_are_tested_too(drivers: Drivers) -> None:
    library = drivers.add("libpocl.so", [POCL_THREADS], COMPILER)
    spec = DeviceSpec("gpu7", "gpu", "opencl", POCL, "pthread-Xeon")
    device = DeviceInfo(msgspec.structs.replace(spec, libraries=[library]))
    null = DeviceInfo(DeviceSpec("gpu8", "gpu", "null"))

    assert with_verdicts([device, null], 60) == [
        msgspec.structs.replace(device, state="unusable", reason="unknown target CPU"),
        null,
    ]


def test_the_cache_does_not_grow_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict_cache, "ENTRIES", 3)
    cache = Discovery(1, tmp_path / "verdicts")._cache

    for number in range(9):
        cache.put(f"key{number}", Listing())

    assert len(list((tmp_path / "verdicts").iterdir())) == 3
    assert cache.get("key8", msgspec.json.Decoder(Listing)) == Listing()


@pytest.mark.parametrize(
    ("status", "text", "told"),
    [
        (-6, "\n**Internal compiler error** a  b\n\nreport it\n", "Aborted: **Inter"),
        (-9, "", "Killed"),
        (1, "error: does not compile", "does not compile"),
        (1, "first\nlast\n\n", "last"),
        (7, "", "exit status 7"),
    ],
)
def test_the_most_telling_line_is_told(status: int, text: str, told: str) -> None:
    assert describe_failure(status, text.encode()).startswith(told)


def test_a_long_line_is_cut() -> None:
    assert len(telling_line("error: " + 5000 * "x")) == 300


# ---------------------------------------------------------------- this machine


def test_this_machines_drivers_answer(slow_tests: Callable[[], None]) -> None:
    slow_tests()
    devices = discover(100)

    assert devices[0].spec.kind == "cpu"
    names = [device.spec.name for device in devices]
    assert names == ["cpu", *sorted(names[1:], key=lambda name: (name[0] != "g", name))]
    assert all(device.state in ("up", "unusable") for device in devices)


@pytest.fixture
def slow_tests(request: pytest.FixtureRequest) -> Callable[[], None]:
    """Give drivers more time than a test has: they compile."""
    return lambda: request.node.add_marker(pytest.mark.timeout(150))
