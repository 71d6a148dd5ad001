"""Scenarios of the paper: a task set, a delay, an order of arrival and a reading.

The live mode makes its submissions of the same releases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetpapers.loesch_2016.task_sets import COUNTS, releases
from hetsim.scenario import FORMAT, ResourceModel, Scenario, TaskModel, TypeModel

if TYPE_CHECKING:
    from hetpapers.loesch_2016.reading import Reading
    from hetpapers.loesch_2016.task_sets import Case

GPU_LINK = 6e9
"""Bytes a second over PCIe 2.0 x16 (Tesla K20c)."""
FPGA_LINK = 2e9
"""Bytes a second over PCIe 2.0 x8 (Maxeler Vectis)."""


def make_scenario(case: Case, reading: Reading) -> Scenario:
    """Make one of the paper's scenarios."""
    return Scenario(
        format=FORMAT,
        resources=make_resources(reading),
        types=[make_type(name, reading) for name in COUNTS[case.task_set]],
        tasks=[
            TaskModel(id=number, type=release.type, arrival=release.arrival)
            for number, release in enumerate(releases(case), 1)
        ],
    )


def make_resources(reading: Reading) -> list[ResourceModel]:
    """Describe the paper's node, the power of its other parts counted with the CPU.

    The accelerators' powers follow data sheets. The energy saved in Fig. 3 says that
    a busy CPU draws little more than one that only feeds the accelerators: about 20 W.
    """
    return [
        ResourceModel(
            name="cpu",
            kind="cpu",
            slots=reading.cpu_slots,
            sharing="processor",
            busy_watts=190.0,
            idle_watts=170.0,
        ),
        ResourceModel(
            name="gpu0",
            kind="gpu",
            busy_watts=150.0,
            idle_watts=30.0,
            link_bytes_per_s=GPU_LINK * reading.link_scale,
        ),
        ResourceModel(
            name="fpga0",
            kind="fpga",
            busy_watts=45.0,
            idle_watts=30.0,
            link_bytes_per_s=FPGA_LINK * reading.link_scale,
        ),
    ]


def make_type(name: str, reading: Reading) -> TypeModel:
    """Describe a task type under a reading."""
    return TypeModel(
        name=name,
        seconds=dict(reading.seconds(name)),
        strips=reading.strips(name),
        state_bytes=reading.state_bytes(name),
        migration_s=reading.migration_s,
    )
