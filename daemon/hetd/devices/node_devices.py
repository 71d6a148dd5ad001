"""The devices of the node: their descriptions, and what the daemon knows of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hetd.devices.circuits import Circuits
    from hetd.devices.counters.reader import CounterReader
    from hetd.devices.health import Health
    from hetd.devices.measured_loads import MeasuredLoads
    from hetd.devices.metering import Metering
    from libtask.messages import DeviceInfo


@dataclass(frozen=True, slots=True)
class NodeDevices:
    """The devices, by the names of their resources.

    Attributes:
        infos: their descriptions, as configured or discovered at the start.
        health: which of them are out of service.
        metering: the energy that they draw, and which tasks they run for it.
        circuits: which applications avoid which of them.
        loads: the loads that programs put on what they share.
        counters: of what they share; None: nothing is declared to be shared.

    """

    infos: Mapping[str, DeviceInfo]
    health: Health
    metering: Metering
    circuits: Circuits
    loads: MeasuredLoads
    counters: CounterReader | None

    def close(self) -> None:
        """End what reads meters and counters."""
        self.metering.close()
        if self.counters is not None:
            self.counters.close()
