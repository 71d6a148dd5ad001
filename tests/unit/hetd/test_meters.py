"""Meters read counter files as machines have them; the book charges what they say."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from hetd.devices.energy import Charge, EnergyBook, Total
from hetd.devices.hwmon import Hwmon
from hetd.devices.meter import MeterError
from hetd.devices.meters import Finder
from hetd.devices.nvml import NvmlFeed
from hetd.devices.rapl import Rapl
from hetsched.system import SECOND, Resource
from libtask.messages import DeviceInfo, DeviceSpec

if TYPE_CHECKING:
    from pathlib import Path

# Made up, not recorded: two sockets in the kernel's format of /sys/class/powercap, with
# `energy_uj` before and after; package-1 wraps around in between.
RANGE = 262143328850
PACKAGES = {
    "intel-rapl:0": ("package-0", [152_881_733_412, 153_079_150_771]),
    "intel-rapl:0:0": ("core", [88_042_110_093, 88_151_274_005]),
    "intel-rapl:0:1": ("dram", [41_730_402_188, 41_751_988_214]),
    "intel-rapl:1": ("package-1", [262_143_100_000, 150_911_402]),
    "intel-rapl:2": ("psys", [1, 2]),
}
BEFORE, AFTER = 0, 1


def a_powercap(folder: Path, reading: int) -> Path:
    for domain, (name, energies) in PACKAGES.items():
        (folder / domain).mkdir(exist_ok=True)
        (folder / domain / "name").write_text(f"{name}\n")
        (folder / domain / "max_energy_range_uj").write_text(f"{RANGE}\n")
        (folder / domain / "energy_uj").write_text(f"{energies[reading]}\n")
    return folder


# ------------------------------------------------------------ RAPL


def test_packages_and_memory_add_up_and_wrap_around(tmp_path: Path) -> None:
    meter = Rapl(a_powercap(tmp_path, BEFORE))

    a_powercap(tmp_path, AFTER)

    package_0 = 153_079_150_771 - 152_881_733_412
    dram = 41_751_988_214 - 41_730_402_188
    package_1 = 150_911_402 + RANGE + 1 - 262_143_100_000
    assert meter.joules() == pytest.approx(1e-6 * (package_0 + dram + package_1))
    assert meter.joules() == pytest.approx(1e-6 * (package_0 + dram + package_1))


def test_a_machine_without_rapl_says_so(tmp_path: Path) -> None:
    with pytest.raises(MeterError, match="no RAPL domain"):
        Rapl(tmp_path)


def test_counters_that_may_not_be_read_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = a_powercap(tmp_path, BEFORE)
    readable = type(tmp_path).read_text

    def read_text(path: Path, encoding: str | None = None) -> str:
        if path.name == "energy_uj":
            raise PermissionError(13, "Permission denied")
        return readable(path, encoding=encoding)

    # modes keep nobody out where tests run as root
    monkeypatch.setattr(type(tmp_path), "read_text", read_text)

    with pytest.raises(MeterError, match="energy_uj: only root may read it"):
        Rapl(root)


@pytest.mark.parametrize("content", [None, "", "unavailable\n"])
def test_counters_that_vanish_lose_the_meter(
    tmp_path: Path, content: str | None
) -> None:
    meter = Rapl(a_powercap(tmp_path, BEFORE))
    file = tmp_path / "intel-rapl:0" / "energy_uj"
    if content is None:
        file.unlink()
    else:
        file.write_text(content)

    with pytest.raises(MeterError, match="energy_uj"):
        meter.joules()


# ------------------------------------------------------------ hwmon


def a_sensor(root: Path, number: int, name: str, **files: int) -> Path:
    folder = root / f"hwmon{number}"
    folder.mkdir()
    (folder / "name").write_text(f"{name}\n")
    for file, value in files.items():
        (folder / file).write_text(f"{value}\n")
    return folder


def test_power_is_integrated_over_time(tmp_path: Path) -> None:
    a_sensor(tmp_path, 0, "nvme", temp1_input=40_000)
    folder = a_sensor(tmp_path, 1, "amdgpu", power1_average=30_000_000)
    times = iter([10.0, 12.0])
    meter = Hwmon("amdgpu", root=tmp_path, clock=lambda: next(times))

    (folder / "power1_average").write_text("90000000\n")

    # two seconds from 30 to 90 W
    assert meter.joules() == pytest.approx(120.0)


def test_an_energy_counter_is_preferred(tmp_path: Path) -> None:
    folder = a_sensor(
        tmp_path, 0, "amdgpu", power1_input=30_000_000, energy1_input=5_000_000
    )
    meter = Hwmon("amdgpu", root=tmp_path)

    (folder / "energy1_input").write_text("7500000\n")

    assert meter.joules() == pytest.approx(2.5)


def test_a_sensor_that_is_not_there_says_so(tmp_path: Path) -> None:
    a_sensor(tmp_path, 0, "amdgpu", temp1_input=40_000)

    with pytest.raises(MeterError, match="no sensor amdgpu number 1"):
        Hwmon("amdgpu", 1, root=tmp_path)
    with pytest.raises(MeterError, match="neither energy nor power"):
        Hwmon("amdgpu", 0, root=tmp_path)


# ------------------------------------------------------------ NVML


def a_feed(*lines: str, then: str = "sys.stdin.read()") -> NvmlFeed:
    """Start a child that prints what `nvml_child` printed on a machine with two cards."""
    script = "import sys\n" + "".join(
        f"print({line!r}, flush=True)\nsys.stdin.readline()\n" for line in lines[:1]
    )
    script += "".join(f"print({line!r}, flush=True)\n" for line in lines[1:]) + then
    return NvmlFeed((sys.executable, "-c", script))


def test_cards_are_read_through_the_child() -> None:
    feed = a_feed('{"joules": [1000.0, 5.0]}', '{"joules": [1012.5, 5.0]}')
    first, second = feed.card(0), feed.card(1)
    assert (first.joules(), second.joules()) == (0.0, 0.0)

    _go_on(feed)
    while not first.joules():
        pass

    assert (first.joules(), second.joules()) == (12.5, 0.0)
    first.close()
    second.close()


def test_a_child_that_ends_loses_the_meter() -> None:
    feed = a_feed('{"joules": [1000.0]}', then="")
    card = feed.card(0)

    _go_on(feed)
    feed.lines.process.wait()
    with pytest.raises(MeterError, match="has ended"):
        card.joules()

    card.close()


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"problem": "nvidia-ml-py is not installed"}', "nvidia-ml-py is not"),
        ("segmentation fault", "NVML: "),
    ],
)
def test_what_keeps_the_child_from_reading_is_told(line: str, complaint: str) -> None:
    with pytest.raises(MeterError, match=complaint):
        a_feed(line)


def test_a_card_that_is_not_there_says_so() -> None:
    feed = a_feed('{"joules": [1000.0]}')

    with pytest.raises(MeterError, match="no card 1 of 1"):
        feed.card(1)

    feed.end()


def _go_on(feed: NvmlFeed) -> None:
    pipe = feed.lines.process.stdin
    assert pipe is not None
    pipe.write(b"\n")
    pipe.flush()


# ------------------------------------------------------------ the book


class Script:
    """A meter that reads what it is told; None: it is lost."""

    def __init__(self, *readings: float | None) -> None:
        self._readings = list(readings)
        self.closed = False

    def joules(self) -> float:
        value = self._readings.pop(0)
        if value is None:
            raise MeterError("gone")
        return value

    def close(self) -> None:
        self.closed = True


CPU = Resource("cpu", "cpu", slots=2, busy_watts=100.0, idle_watts=20.0)
GPU = Resource("gpu0", "gpu", busy_watts=250.0, idle_watts=30.0)


def a_book(**meters: Script) -> tuple[EnergyBook, list[str]]:
    lost: list[str] = []
    book = EnergyBook(
        [CPU, GPU], dict(meters), 0, lambda name, why: lost.append(f"{name}: {why}")
    )
    return book, lost


def test_the_model_is_busy_and_idle_watts_times_time() -> None:
    book, _ = a_book()

    book.begin(1, "gpu0", 2 * SECOND)
    charge = book.end(1, 5 * SECOND)

    assert charge == Charge(750.0, measured=False)
    assert book.total("gpu0", 9 * SECOND) == Total(
        750.0, 180.0, 9.0, busy_s=3.0, measured=False
    )


def test_a_failed_attempt_is_neither_busy_time_nor_energy_of_a_task() -> None:
    book, _ = a_book()
    book.begin(1, "gpu0", 0)
    assert book.total("gpu0", 2 * SECOND) == Total(
        0.0, 0.0, 2.0, busy_s=0.0, measured=False, starting_joules=500.0, starting_s=2.0
    )

    charge = book.end(1, 4 * SECOND, failed=True)

    assert charge is None
    # as if the GPU had been idle
    assert book.total("gpu0", 4 * SECOND) == Total(
        0.0, 120.0, 4.0, busy_s=0.0, measured=False
    )


def test_what_a_stretch_took_before_its_first_strip_counts_from_then_on() -> None:
    book, _ = a_book()
    book.begin(1, "gpu0", 0)
    book.total("gpu0", 2 * SECOND)

    book.used(1, 1.0)

    assert book.total("gpu0", 3 * SECOND) == Total(
        750.0, 0.0, 3.0, busy_s=3.0, measured=False
    )
    assert book.end(1, 4 * SECOND) == Charge(1000.0, measured=False)


def test_a_failed_attempt_beside_a_task_takes_nothing_from_the_busy_sum() -> None:
    book, _ = a_book()
    book.begin(1, "cpu", 0)
    book.used(1, 1.0)
    book.begin(2, "cpu", 0)

    assert book.end(2, 2 * SECOND, failed=True) is None

    total = book.total("cpu", 2 * SECOND)
    assert (total.busy_joules, total.idle_joules, total.busy_s) == (200.0, 0.0, 2.0)


def test_sums_never_shrink_whatever_fails() -> None:
    book, _ = a_book(gpu0=Script(*range(50, 5000, 50)))
    seen = [book.total("gpu0", 0)]
    for number in range(20):
        at = number * SECOND
        book.begin(number, "gpu0", at)
        seen.append(book.total("gpu0", at + SECOND // 2))
        if number % 3 == 0:
            book.used(number, 0.1)
        seen.append(book.total("gpu0", at + SECOND * 3 // 4))
        book.end(number, at + SECOND, failed=number % 3 != 0)
        seen.append(book.total("gpu0", at + SECOND))
    for before, after in pairwise(seen):
        assert after.busy_joules >= before.busy_joules
        assert after.idle_joules >= before.idle_joules
        assert after.busy_s >= before.busy_s
    last = seen[-1]
    # a meter's joules are all somewhere
    assert last.busy_joules + last.idle_joules == 50.0 * (len(seen) - 1)
    assert last.busy_s == 7.0


def test_tasks_share_the_cpu_by_processor_time() -> None:
    book, _ = a_book()
    book.begin(1, "cpu", 0)
    book.begin(2, "cpu", 0)
    book.used(1, 3.0)
    book.used(2, 1.0)

    first = book.end(1, 4 * SECOND)
    second = book.end(2, 6 * SECOND)

    # 400 J at 3 : 1, then 200 J for the second alone
    assert first == Charge(300.0, measured=False)
    assert second == Charge(300.0, measured=False)


def test_what_was_not_reported_yet_is_reckoned_at_the_pace_until_then() -> None:
    book, _ = a_book()
    book.begin(1, "cpu", 0)
    book.used(1, 2.0)
    book.begin(2, "cpu", 1 * SECOND)
    book.used_in_all(2, 2.0)

    second = book.end(2, 3 * SECOND)

    # in two seconds: 2 s of its own, 4 s of the first at two a second
    assert second is not None
    assert second.joules == pytest.approx(200.0 / 3)


def test_a_meter_replaces_the_model() -> None:
    book, _ = a_book(gpu0=Script(30.0, 330.0, 360.0))
    book.begin(1, "gpu0", 1 * SECOND)

    charge = book.end(1, 2 * SECOND)

    assert charge == Charge(300.0, measured=True)
    assert book.total("gpu0", 3 * SECOND) == Total(
        300.0, 60.0, 3.0, busy_s=1.0, measured=True
    )


def test_the_model_replaces_a_meter_that_is_lost() -> None:
    meter = Script(30.0, None)
    book, lost = a_book(gpu0=meter)
    book.begin(1, "gpu0", 1 * SECOND)

    charge = book.end(1, 2 * SECOND)

    assert charge == Charge(250.0, measured=False)
    assert lost == ["gpu0: gone"]
    assert meter.closed
    assert not book.total("gpu0", 3 * SECOND).measured


def test_nothing_is_charged_where_nothing_is_known() -> None:
    bare = EnergyBook([Resource("cpu", "cpu")], {}, 0, lambda *_: None)
    bare.begin(1, "cpu", 0)

    assert bare.end(1, SECOND) is None
    assert bare.end(2, SECOND) is None


# ------------------------------------------------------------ finding


def a_device(
    kind: str, platform: str, name: str | None = None, **fields: bool
) -> DeviceInfo:
    spec = DeviceSpec(name or f"{kind}0", kind, "opencl", platform, **fields)  # type: ignore[arg-type]  # kinds by name
    return DeviceInfo(spec)


REAL_CPU = DeviceInfo(DeviceSpec("cpu", "cpu"))


def test_each_kind_of_device_has_its_meter() -> None:
    opened: list[str] = []

    def hwmon(chip: str, number: int) -> Script:
        opened.append(f"{chip} {number}")
        return Script()

    finder = Finder(
        rapl=Script, nvml=lambda: a_feed('{"joules": [1.0, 2.0]}'), hwmon=hwmon
    )
    found = finder.find(
        [
            REAL_CPU,
            a_device("gpu", "NVIDIA CUDA", "gpu0"),
            a_device("gpu", "NVIDIA CUDA", "gpu1"),
            a_device("gpu", "AMD Accelerated Parallel Processing", "gpu2"),
            a_device("fpga", "Intel(R) FPGA SDK for OpenCL(TM)"),
            DeviceInfo(DeviceSpec("null", "gpu", "null")),
        ]
    )

    assert list(found) == ["cpu", "gpu0", "gpu1", "gpu2"]
    assert opened == ["amdgpu 0"]
    for meter in found.values():
        meter.close()


def test_what_emulations_compute_is_not_charged_to_tasks_on_the_cpu(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    emulated = a_device("gpu", "Portable Computing Language", emulated=True)

    assert Finder(rapl=Script).find([REAL_CPU, emulated]) == {}
    assert "power of cpu is modelled: emulated devices compute" in caplog.text


def test_a_meter_that_does_not_open_is_told_and_done_without(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level("INFO")

    assert Finder(rapl=lambda: Rapl(tmp_path)).find([REAL_CPU]) == {}
    assert "power of cpu is modelled" in caplog.text
