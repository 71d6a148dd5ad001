"""Discovery: what a report becomes, and that no driver can harm hetd."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest

from hetd.discovery import cpu, discover, fpgas, gpus
from libtask.devices.report import DeviceType, FoundDevice, Report

if TYPE_CHECKING:
    from pathlib import Path

    from libtask.messages import DeviceInfo

POCL = "Portable Computing Language"
EMULATION = "Intel(R) FPGA Emulation Platform for OpenCL(TM)"
BOARD = "Intel(R) FPGA SDK for OpenCL(TM)"


def found(
    platform: str, device: str, kind: DeviceType = "cpu", index: int = 0
) -> FoundDevice:
    return FoundDevice(platform, device, kind, index)


POCL_BASIC = found(POCL, "basic-Xeon")
POCL_THREADS = found(POCL, "pthread-Xeon")
EMULATOR = found(EMULATION, "Emulation Device", "accelerator")


def outline(infos: list[DeviceInfo]) -> list[tuple[str, str, int, bool]]:
    specs = [info.spec for info in infos]
    return [(spec.name, spec.device, spec.index, spec.emulated) for spec in specs]


def python(script: str) -> list[str]:
    return [sys.executable, "-c", script]


def test_a_report_becomes_resources() -> None:
    report = Report([POCL_BASIC, POCL_THREADS, EMULATOR])
    text = msgspec.json.encode(report).decode()

    devices = discover(60, python(f"print({text!r})"))

    assert outline(devices[1:]) == [
        ("gpu0", "pthread-Xeon", 0, True),
        ("fpga0", "Emulation Device", 0, True),
    ]
    assert outline(devices[:1]) == outline([cpu()])
    assert {device.spec.driver for device in devices[1:]} == {"opencl"}


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("import os; os.abort()", "Aborted: no message"),
        ("import os; os.kill(os.getpid(), 11)", "Segmentation fault"),
        ("import sys; sys.exit('driver broken')", "exit status 1: driver broken"),
        ("print('Loading driver...')", "JSON is malformed"),
        ("print('{}')", "missing required field `devices`"),
        ("pass", "truncated"),
    ],
)
def test_a_failing_probe_leaves_the_cpu_and_a_warning(
    script: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    devices = discover(60, python(script))

    assert outline(devices) == outline([cpu()])
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert "no OpenCL devices, only the CPU" in record.getMessage()
    assert reason in record.getMessage()


def test_a_hanging_probe_is_killed_with_its_children(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # The child of the probe keeps the write end of this pipe until it dies.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    script = f"import os, signal; os.open({str(pipe)!r}, 1); os.fork(); signal.pause()"

    devices = discover(1, python(script))

    assert outline(devices) == outline([cpu()])
    assert "timed out after 1 seconds" in caplog.text
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_a_missing_interpreter_leaves_the_cpu(caplog: pytest.LogCaptureFixture) -> None:
    assert outline(discover(1, ["/no/such/python"])) == outline([cpu()])
    assert "No such file" in caplog.text


def test_this_machines_drivers_answer(caplog: pytest.LogCaptureFixture) -> None:
    devices = discover(60)

    assert caplog.records == []
    assert devices[0].spec.kind == "cpu"
    names = [device.spec.name for device in devices]
    assert names == ["cpu", *sorted(names[1:], key=lambda name: (name[0] != "g", name))]


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


def test_real_gpus_take_the_place_of_the_emulated_one() -> None:
    cards = [found("NVIDIA CUDA", "H200", "gpu", index) for index in range(2)]
    again = found("rusticl", "H200", "gpu")

    infos = gpus([POCL_THREADS, *cards, again])

    assert outline(infos) == [("gpu0", "H200", 0, False), ("gpu1", "H200", 1, False)]
    assert {info.spec.platform for info in infos} == {"NVIDIA CUDA"}


def test_boards_take_the_place_of_the_emulator() -> None:
    boards = [found(BOARD, "pac_a10", "accelerator"), found("Xilinx", "u250")]
    boards[1] = found("Xilinx", "u250", "accelerator")

    infos = fpgas([EMULATOR, POCL_BASIC, *boards])

    assert outline(infos) == [
        ("fpga0", "pac_a10", 0, False),
        ("fpga1", "u250", 0, False),
    ]
    assert all(info.reconfigure_s > 0 for info in infos)


def test_without_an_emulator_pocl_stands_in_single_threaded_first() -> None:
    assert outline(fpgas([POCL_THREADS, POCL_BASIC])) == [
        ("fpga0", "basic-Xeon", 0, True)
    ]
    assert outline(fpgas([POCL_THREADS])) == [("fpga0", "pthread-Xeon", 0, True)]


def test_processors_and_strange_accelerators_are_neither_gpu_nor_fpga() -> None:
    others = [
        found("Intel(R) OpenCL", "Xeon"),
        found("TI", "C66x DSP", "accelerator"),
        found("Thing", "?", "other"),
    ]

    assert gpus(others) == []
    assert fpgas(others) == []


def test_emulated_devices_are_not_reconfigured() -> None:
    [gpu], [fpga] = gpus([POCL_THREADS]), fpgas([EMULATOR])

    assert (gpu.reconfigure_s, fpga.reconfigure_s) == (0, 0)
    assert gpu.link_bytes_per_s == fpga.link_bytes_per_s == 4e9
