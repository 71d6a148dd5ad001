"""Counters that children read: made-up /sys trees, kernels and drivers; what fails is dropped.

No card, memory controller or `resctrl` of a real machine was there to read.
"""

from __future__ import annotations

import errno
import json
import os
import struct
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hetd.devices.child_lines import ChildLines
from hetd.devices.counters.child import GrowthRate, Readers, print_values
from hetd.devices.counters.events import EventGroup, KernelEvents, Unit, numbers_in
from hetd.devices.counters.find import LINK, SLICES, find_counters
from hetd.devices.counters.from_child import (
    FIRST_S,
    SILENT_S,
    ChildCounter,
    CounterChild,
)
from hetd.devices.counters.node_child import (
    CorePerformance,
    MemoryControllers,
    Power,
    ResourceControl,
)
from hetd.devices.counters.source import CounterError, CounterName
from hetsched.contention import ContentionModel, SharedResource
from hetsched.system import SECOND
from libtask.messages import DeviceInfo, DeviceSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = CounterName("made up", "memory", "bandwidth")
PATIENCE_S = 30.0


def a_tree(root: Path, files: Mapping[str, object]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return root


class MadeUpKernel(KernelEvents):
    """Counts what it is told, by type and config; half of the time."""

    def __init__(self, **refusals: int) -> None:
        self.counts: dict[tuple[int, int], int] = {}
        self.opened: list[tuple[int, int, int]] = []
        self._groups: dict[int, list[tuple[int, int]]] = {}
        self._refusal = refusals.get("refusal", 0)

    def open(self, attributes: bytes, cpu: int, group: int) -> int:
        kind, size, config = struct.unpack_from("=IIQ", attributes)
        if self._refusal:
            raise OSError(self._refusal, os.strerror(self._refusal))
        assert size == len(attributes)
        self.opened.append((kind, config, cpu))
        number = 100 + len(self.opened)
        self._groups.setdefault(number if group < 0 else group, []).append(
            (kind, config)
        )
        return number

    def read(self, descriptor: int, numbers: int) -> tuple[int, ...]:
        members = self._groups[descriptor]
        assert numbers == 3 + len(members)
        return len(members), 200, 100, *(self.counts.get(each, 0) for each in members)


# ---------------------------------------------------------------- the kernel's events


def test_terms_of_an_event_lie_where_the_unit_says(tmp_path: Path) -> None:
    unit = Unit(
        a_tree(
            tmp_path,
            {
                "type": 14,
                "cpumask": "0,24-25",
                "format/event": "config:0-7,32-35",
                "format/umask": "config:8-15",
                "format/edge": "config:18",
                "events/both": "event=0x1c2,umask=0x03,edge",
                "events/both.scale": "0.5",
            },
        )
    )

    assert (unit.kind, unit.cpus, unit.scale("both")) == (14, [0, 24, 25], 0.5)
    # 0x1c2: the upper bit of the event is bit 32 of the config
    assert unit.config("both") == 0xC2 | 1 << 32 | 0x03 << 8 | 1 << 18


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({"type": "many"}, "expected a number"),
        ({"type": 1, "cpumask": "0-99999999"}, "a short list"),
        ({"type": 1, "format/event": "config1:0-7"}, "event is in 'config1:0-7'"),
        ({"type": 1}, "format/event: No such file"),
    ],
)
def test_a_unit_of_an_unknown_form_is_refused(
    tmp_path: Path, files: dict[str, object], complaint: str
) -> None:
    a_tree(tmp_path, files)

    with pytest.raises(CounterError, match=complaint):
        Unit(tmp_path).config_of("event=1")


def test_a_count_is_scaled_by_the_time_in_which_it_counted() -> None:
    kernel = MadeUpKernel()
    group = EventGroup(kernel, 4, (1, 2), 0)
    kernel.counts = {(4, 1): 10, (4, 2): 20}

    assert group.counts() == [20.0, 40.0]


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        (errno.EACCES, "not permitted: needs CAP_PERFMON"),
        (errno.ENOENT, "this virtual machine, has no such counters"),
        (errno.EMFILE, "perf_event_open: Too many open files"),
    ],
)
def test_a_refusal_of_the_kernel_is_explained(code: int, complaint: str) -> None:
    with pytest.raises(CounterError, match=complaint):
        EventGroup(MadeUpKernel(refusal=code), 0, (0,), 0)


def test_the_real_kernel_counts_its_own_clock() -> None:
    """The system call and the format of what is read, with an event that needs no unit."""
    cpu = min(os.sched_getaffinity(0))
    software, clock = 1, 0
    try:
        group = EventGroup(KernelEvents(), software, (clock,), cpu)
    except CounterError as error:
        pytest.skip(str(error))

    before = group.counts()[0]
    end = time.monotonic() + 0.01
    while time.monotonic() < end:
        pass

    assert group.counts()[0] > before


# ---------------------------------------------------------------- memory, cores, power


def test_traffic_of_intel_memory_controllers(tmp_path: Path) -> None:
    unit = {
        "type": 20,
        "cpumask": "0",
        "format/event": "config:0-7",
        "format/umask": "config:8-15",
        "events/cas_count_read": "event=0x04,umask=0x03",
        "events/cas_count_read.scale": "6.103515625e-5",
        "events/cas_count_write": "event=0x04,umask=0x0c",
        "events/cas_count_write.scale": "6.103515625e-5",
    }
    root = "bus/event_source/devices"
    free = {"type": 30, "events/data_read": "event=0xff", "format/event": "config:0-7"}
    for name, files in (("uncore_imc_0", unit), ("uncore_imc_free_running", free)):
        a_tree(tmp_path / root / name, files)
    kernel = MadeUpKernel()
    found = MemoryControllers(tmp_path, kernel)

    first = found.values(10.0)
    kernel.counts = {(20, 0x0304): 500_000, (20, 0x0C04): 250_000}

    # a count is 64 bytes; the kernel counted in half of the time
    assert first == {}
    assert found.values(12.0) == {"uncore": pytest.approx(750_000 * 2 * 64 / 2)}
    assert {kind for kind, _, _ in kernel.opened} == {20}


def test_traffic_of_amd_memory_controllers(tmp_path: Path) -> None:
    for number in (0, 1):
        a_tree(
            tmp_path / f"bus/event_source/devices/amd_umc_{number}",
            {"type": 40 + number, "cpumask": "0", "format/event": "config:0-7"},
        )
    kernel = MadeUpKernel()
    found = MemoryControllers(tmp_path, kernel)
    found.values(0.0)
    kernel.counts = {(40, 0x0A): 1000, (41, 0x0A): 3000}

    assert found.values(1.0) == {"uncore": 4000 * 2 * 64.0}


def test_traffic_of_all_groups_of_resctrl(tmp_path: Path) -> None:
    counters = {
        "mon_data/mon_L3_00/mbm_total_bytes": 10_000,
        "mon_data/mon_L3_01/mbm_total_bytes": 20_000,
        "batch/mon_data/mon_L3_00/mbm_total_bytes": 5_000,
    }
    root = a_tree(tmp_path / "fs/resctrl", counters)
    # part of its group's count
    a_tree(root, {"mon_groups/one/mon_data/mon_L3_00/mbm_total_bytes": 9_000})
    found = ResourceControl(tmp_path)
    found.values(0.0)
    a_tree(root, {name: value + 4_000 for name, value in counters.items()})

    assert found.values(2.0) == {"resctrl": 6_000.0}

    a_tree(root, {"mon_data/mon_L3_00/mbm_total_bytes": "Unavailable"})
    with pytest.raises(CounterError, match="expected a number, got 'Unavailable'"):
        found.values(3.0)


def test_instructions_and_misses_of_all_cores(tmp_path: Path) -> None:
    a_tree(tmp_path, {"devices/system/cpu/online": "0-3"})
    kernel = MadeUpKernel()
    found = CorePerformance(tmp_path, kernel)
    found.values(0.0)
    cycles, instructions, misses = (0, 0), (0, 1), (0, 3)
    kernel.counts = {cycles: 4000, instructions: 3000, misses: 10}

    # four cores, which counted in half of the time
    assert found.values(1.0) == {"perf": 10 * 4 * 2 * 64.0, "ipc": 0.75}


def test_power_by_powercap_else_by_events(tmp_path: Path) -> None:
    domain = {"name": "package-0", "max_energy_range_uj": 10**9, "energy_uj": 10**6}
    a_tree(tmp_path / "one/class/powercap/intel-rapl:0", domain)
    powercap = Power(tmp_path / "one")
    powercap.values(0.0)
    a_tree(tmp_path / "one/class/powercap/intel-rapl:0", {"energy_uj": 5 * 10**6})
    unit = {
        "type": 9,
        "cpumask": "0",
        "format/event": "config:0-7",
        "events/energy-pkg": "event=0x02",
        "events/energy-pkg.scale": "0.25",
    }
    a_tree(tmp_path / "two/bus/event_source/devices/power", unit)
    kernel = MadeUpKernel()
    events = Power(tmp_path / "two", kernel)
    events.values(0.0)
    kernel.counts = {(9, 2): 64}

    assert powercap.values(2.0) == {"rapl": pytest.approx(2.0)}
    assert events.values(2.0) == {"rapl": 64 * 2 * 0.25 / 2}
    with pytest.raises(CounterError, match="no RAPL domain; power events: "):
        Power(tmp_path / "three", kernel)


def test_a_counter_that_went_backwards_has_no_rate() -> None:
    rate = GrowthRate()

    found = [rate.of(total, now) for now, total in enumerate([10.0, 30.0, 5.0, 6.0])]

    assert found == [None, 20.0, None, 1.0]


def test_lists_of_processors() -> None:
    assert numbers_in("0-2,8\n") == [0, 1, 2, 8]
    assert numbers_in("\n") == []


# ---------------------------------------------------------------- the children


class Failing:
    """A reader that works once."""

    def __init__(self) -> None:
        self._left = 1

    def values(self, now: float) -> dict[str, float]:
        self._left -= 1
        if self._left < 0:
            raise OSError("unplugged\nfor good")
        return {"one": 1.0}


class Steady:
    def values(self, now: float) -> dict[str, float]:
        return {"other": now}


def test_a_reader_that_fails_is_given_up_and_others_go_on() -> None:
    readers = Readers({("one",): Failing, ("other",): Steady, ("none",): _refuse})

    found = [readers.values(1.0), readers.values(2.0), readers.values(3.0)]

    assert found == [{"one": 1.0, "other": 1.0}, {"other": 2.0}, {"other": 3.0}]
    assert readers.problems == {"one": "unplugged for good", "none": "not here"}


def _refuse() -> Steady:
    raise CounterError("not here")


def a_child(script: str) -> CounterChild:
    return CounterChild((sys.executable, "-c", script))


def sampled(counter: ChildCounter) -> float:
    """Wait for a value."""
    deadline = time.monotonic() + PATIENCE_S
    while (value := counter.sample(SECOND)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    return value


def refused(counter: ChildCounter) -> str:
    """Wait until a counter is given up; return the reason."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            counter.sample(SECOND)
        except CounterError as error:
            return str(error)
        time.sleep(0.002)
    raise AssertionError("it is not given up")


def test_the_nodes_own_counters_are_read_by_a_child(tmp_path: Path) -> None:
    domain = {"name": "package-0", "max_energy_range_uj": 10**9, "energy_uj": 10**6}
    folder = a_tree(tmp_path / "class/powercap/intel-rapl:0", domain)
    a_tree(tmp_path / "fs/resctrl", {"mon_data/mon_L3_00/mbm_total_bytes": 0})
    module = "hetd.devices.counters.node_child"
    words = ("--every", "0.02", "--sys", str(tmp_path))
    child = CounterChild((sys.executable, "-P", "-m", module, *words))
    traffic = ChildCounter(child, "resctrl", NAME, capacity=1e9)
    power, perf, controllers = (
        ChildCounter(child, value, NAME) for value in ("rapl", "perf", "uncore")
    )

    assert "online: No such file" in refused(perf)
    assert "no uncore_imc or amd_umc" in refused(controllers)
    sampled(power)
    a_tree(folder, {"energy_uj": 3 * 10**6})
    a_tree(tmp_path / "fs/resctrl", {"mon_data/mon_L3_00/mbm_total_bytes": 10**9})
    watts = bandwidth = 0.0
    while not (watts and bandwidth):
        watts = watts or sampled(power)
        bandwidth = bandwidth or sampled(traffic)
    child.rest()

    assert watts > 0.0
    assert bandwidth > 0.0


def test_only_the_best_counter_of_the_memory_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    readers = Readers({("one",): Failing, ("other",): Steady})

    with Path(os.devnull).open(encoding="ascii") as closed:
        monkeypatch.setattr("sys.stdin", closed)
        print_values(readers, 0.0, prefer=("uncore", "one", "other"))

    printed = json.loads(capsys.readouterr().out)
    assert printed == {
        "values": {"one": 1.0},
        "problems": {"other": "not needed: one shows the same"},
    }


PYNVML = """
NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = 0, 1

class NVMLError(Exception): pass
class Rates: gpu = 75

def nvmlInit(): {init}
def nvmlDeviceGetHandleByIndex(number):
    if number > 0: raise NVMLError("Invalid Argument")
    return number
def nvmlDeviceGetUtilizationRates(card): return Rates()
def nvmlDeviceGetPcieThroughput(card, which): return (3_000_000, 6_000_000)[which]
"""


def a_driver(folder: Path, monkeypatch: pytest.MonkeyPatch, init: str) -> None:
    (folder / "pynvml.py").write_text(PYNVML.format(init=init))
    monkeypatch.setenv("PYTHONPATH", str(folder))


def the_cards(cards: int) -> CounterChild:
    module = "hetd.devices.counters.cards_child"
    words = ("--every", "0.02", "--cards", str(cards))
    return CounterChild((sys.executable, "-P", "-m", module, *words))


def test_cards_are_read_through_the_drivers_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_driver(tmp_path, monkeypatch, "pass")
    child = the_cards(2)
    slices, link, other = (
        ChildCounter(child, value, NAME, capacity)
        for value, capacity in (("slices0", 1.0), ("link0", 12e9), ("slices1", 1.0))
    )

    found = sampled(slices), sampled(link), refused(other)
    child.rest()

    # the busier direction of the link
    assert found == (0.75, 0.5, "Invalid Argument")


def test_a_driver_that_fails_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_driver(tmp_path, monkeypatch, 'raise NVMLError("Driver Not Loaded")')

    assert refused(ChildCounter(the_cards(1), "link0", NAME)) == "Driver Not Loaded"


def test_a_driver_that_crashes_or_hangs_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_driver(tmp_path, monkeypatch, "import os; os.abort()")
    crashes = ChildCounter(the_cards(1), "link0", NAME)
    hangs = ChildCounter(a_child("import time; time.sleep(1000)"), "link0", NAME)

    hangs.sample(0)
    with pytest.raises(CounterError, match=f"no reading in {FIRST_S:g} s"):
        hangs.sample(int((FIRST_S + 1) * SECOND))

    assert refused(crashes) == "the child that reads it has ended"


def test_a_child_that_falls_silent_is_dropped() -> None:
    script = """print('{"values": {"one": 2.0}}', flush=True); input()"""
    counter = ChildCounter(a_child(script), "one", NAME)

    assert sampled(counter) == 2.0
    assert counter.sample(SECOND) is None
    with pytest.raises(CounterError, match=f"no reading in {SILENT_S:g} s"):
        counter.sample(int((SILENT_S + 2) * SECOND))


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("print('segmentation fault')", "JSON is malformed"),
        ("print('x' * 200_000, end='', flush=True); input()", "prints no lines"),
        ("""print('{"problems": {"one": "\\\\u001b[2J"}}')""", r"\x1b[2J"),
        ("""print('{"values": {"one": "many"}}')""", "Expected `float`"),
    ],
)
def test_a_child_that_prints_anything_is_dropped(script: str, complaint: str) -> None:
    assert complaint in refused(ChildCounter(a_child(script), "one", NAME))


def test_a_program_that_is_not_there_is_no_counter() -> None:
    counter = ChildCounter(CounterChild(("/nowhere/python",)), "one", NAME)

    assert "/nowhere/python: No such file" in refused(counter)


def test_a_child_that_rests_is_started_again() -> None:
    script = """print('{"values": {"one": 2.0}}', flush=True); input()"""
    counter = ChildCounter(a_child(script), "one", NAME)

    first = sampled(counter)
    counter.rest()

    assert (first, sampled(counter)) == (2.0, 2.0)
    counter.rest()


def test_a_child_ends_with_its_parent() -> None:
    lines = ChildLines(
        (sys.executable, "-P", "-m", "hetd.devices.counters.cards_child")
    )
    assert lines.process.stdin is not None

    lines.process.stdin.close()

    assert lines.process.wait(PATIENCE_S) == 0
    lines.end()


# ---------------------------------------------------------------- what a node has

CPU = DeviceInfo(DeviceSpec("cpu", "cpu"))
CARD = DeviceInfo(DeviceSpec("gpu0", "gpu", "opencl", "NVIDIA CUDA"))


def a_model(memories: list[float | None], *, card: bool = False) -> ContentionModel:
    shared = [SharedResource("cores", "cores")]
    shared += [
        SharedResource(f"memory{number}", "memory", rate)
        for number, rate in enumerate(memories)
    ]
    uses = {}
    if card:
        shared += [SharedResource("s", "slices"), SharedResource("l", "link", 12e9)]
        uses["gpu0"] = {"slices": "s", "link": "l"}
    return ContentionModel(shared, uses, {})


@pytest.mark.parametrize(
    ("memories", "reason"),
    [
        ([], "nothing of the kind memory is shared"),
        ([None], "no bytes_per_s for 'memory0' in [[contention.shared]]"),
        ([1e9, 1e9], "there are 2 shared resources of the kind memory"),
    ],
)
def test_traffic_of_the_memory_needs_its_bandwidth(
    memories: list[float | None], reason: str
) -> None:
    found = find_counters(a_model(memories), [CPU], 4, 2.0)

    assert [each.reason for each in found.missing if each.name.shared == ""] == [
        *[reason] * 3,
        *["no NVIDIA card among the resources"] * 2,
    ]
    assert [source.name.counter for source in found.sources][-2:] == ["ipc", "watts"]


def test_counters_of_memory_and_cards_are_found() -> None:
    found = find_counters(a_model([1e9], card=True), [CPU, CARD], 4, 2.0)

    names = [source.name for source in found.sources]
    assert [each.shared for each in names if each.counter == "bandwidth"] == [
        *["memory0"] * 3,
        "s",
        "l",
    ]
    assert {SLICES, LINK} < {each.source for each in names}
