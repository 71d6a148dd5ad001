"""Finds the counters of what a node's resources share, and says why others are not read."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hetd.devices.counters.cores import RunnableThreads, WaitingForCores
from hetd.devices.counters.from_child import ChildCounter, CounterChild
from hetd.devices.counters.source import CounterError, CounterName, MissingCounter
from hetd.devices.meters import maker_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetd.devices.counters.source import CounterSource
    from hetsched.contention import ContentionModel, SharedResource
    from libtask.messages import DeviceInfo

SAMPLES = 8
"""Samples that make up a reading."""
LEAST_INTERVAL_S = 0.1
"""A child prints no more often, whatever `every_s` is."""
MEMORY = {
    "uncore": "memory controllers (perf)",
    "resctrl": "/sys/fs/resctrl",
    "perf": "misses of the cache (perf)",
}
"""Values of the child for the traffic of the memory -> source, as users know it."""
NODE = {"ipc": "instructions per cycle (perf)", "rapl": "power (RAPL)"}
SHOWN = {"ipc": "ipc", "rapl": "watts"}
"""Values that are shown but not taken in -> counter."""
SLICES, LINK = "GPU utilisation (NVML)", "PCIe throughput (NVML)"


@dataclass(slots=True)
class FoundCounters:
    """The counters of a node.

    Attributes:
        sources: that may be read.
        missing: that are not there.

    """

    sources: list[CounterSource] = field(default_factory=list)
    missing: list[MissingCounter] = field(default_factory=list)

    def add(self, source: CounterSource) -> None:
        """Add a counter that hetd reads itself, if it can be read."""
        try:
            source.sample(0)
        except CounterError as error:
            self.missing.append(MissingCounter(source.name, str(error)))
        else:
            self.sources.append(source)

    def lack(self, source: str, shared: str, counter: str, reason: str) -> None:
        """Add a counter that is not there."""
        name = CounterName(source, shared, counter)
        self.missing.append(MissingCounter(name, reason))


def find_counters(
    model: ContentionModel,
    devices: Sequence[DeviceInfo],
    cores: int,
    every_s: float,
) -> FoundCounters:
    """Return the counters of the shared resources that this machine may have.

    Args:
        model: of contention.
        devices: the resources.
        cores: of the machine.
        every_s: seconds between two readings.

    """
    found = FoundCounters()
    interval = f"{max(every_s / SAMPLES, LEAST_INTERVAL_S):g}"
    for each in _of_kind(model, "cores"):
        found.add(RunnableThreads(each.name, cores))
        found.add(WaitingForCores(each.name))
    _add_node(found, model, interval)
    _add_cards(found, model, devices, interval)
    return found


def _of_kind(model: ContentionModel, kind: str) -> list[SharedResource]:
    return [each for each in model.shared.values() if each.kind == kind]


def _command(module: str, *words: str) -> tuple[str, ...]:
    return (sys.executable, "-P", "-m", f"hetd.devices.counters.{module}", *words)


def _add_node(found: FoundCounters, model: ContentionModel, interval: str) -> None:
    """Add what is read for the node as a whole, where it can be told what it belongs to."""
    child = CounterChild(_command("node_child", "--every", interval))
    memories, cores = _of_kind(model, "memory"), _of_kind(model, "cores")
    for value, source in MEMORY.items():
        reason = _unusable(memories)
        if reason:
            found.lack(source, "", "bandwidth", reason)
            continue
        name = CounterName(source, memories[0].name, "bandwidth")
        capacity = memories[0].bytes_per_s or 1.0
        found.sources.append(ChildCounter(child, value, name, capacity))
    for value, source in NODE.items():
        if len(cores) != 1:
            found.lack(source, "", SHOWN[value], _not_one("cores", cores))
            continue
        name = CounterName(source, cores[0].name, SHOWN[value])
        found.sources.append(ChildCounter(child, value, name))


def _unusable(memories: list[SharedResource]) -> str:
    """Return why the memory's traffic says nothing about its load; empty: it does."""
    if len(memories) != 1:
        return _not_one("memory", memories)
    if memories[0].bytes_per_s is None:
        name = memories[0].name
        return f"no bytes_per_s for {name!r} in [[contention.shared]]"
    return ""


def _not_one(kind: str, found: list[SharedResource]) -> str:
    if not found:
        return f"nothing of the kind {kind} is shared"
    return f"there are {len(found)} shared resources of the kind {kind}"


def _add_cards(
    found: FoundCounters,
    model: ContentionModel,
    devices: Sequence[DeviceInfo],
    interval: str,
) -> None:
    """Add the slices and links of NVIDIA cards, in the order in which the driver has them."""
    cards = [each.spec.name for each in devices if _is_nvidia(each)]
    if not cards:
        for source in (SLICES, LINK):
            found.lack(source, "", "bandwidth", "no NVIDIA card among the resources")
        return
    words = ("--every", interval, "--cards", str(len(cards)))
    child = CounterChild(_command("cards_child", *words))
    for number, card in enumerate(cards):
        uses = model.uses.get(card, {})
        if "slices" in uses:
            name = CounterName(SLICES, uses["slices"], "bandwidth")
            found.sources.append(ChildCounter(child, f"slices{number}", name))
        link = model.shared.get(uses.get("link", ""))
        if link is not None and link.bytes_per_s:
            name = CounterName(LINK, link.name, "bandwidth")
            counter = ChildCounter(child, f"link{number}", name, link.bytes_per_s)
            found.sources.append(counter)


def _is_nvidia(device: DeviceInfo) -> bool:
    spec = device.spec
    real = spec.driver == "opencl" and spec.kind == "gpu" and not spec.emulated
    return real and maker_of(spec.platform) == "nvml"
