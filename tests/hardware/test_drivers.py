"""Every OpenCL driver of this machine: right on every kernel, or skipped with its words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hardware.drivers import Bits, Driver, alone, drivers, run_cases, usable
from hardware.run_cases import Request

if TYPE_CHECKING:
    from libtask.messages import DeviceSpec

DRIVERS = drivers()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.name)
def test_all_kernels_give_the_same_results_on_every_driver(
    driver: Driver, bits: Bits
) -> None:
    usable_specs, refusals = usable(alone(driver))
    if not usable_specs:
        pytest.skip(f"{driver.path}: {'; '.join(refusals)}")

    specs = _as_hetd_uses_them(usable_specs)
    outcomes = run_cases(Request(specs, extent="compiled"), alone(driver))

    ran = {name for outcome in outcomes for name in outcome.route.split("-")}
    assert ran == {"cpu", *(spec.name for spec in specs)}
    assert bits.differing(driver.name, outcomes) == []


def _as_hetd_uses_them(specs: list[DeviceSpec]) -> list[DeviceSpec]:
    """Leave out what takes as long to compile again: hetd takes PoCL's device of one thread
    for an FPGA, and the other one for a GPU."""
    single = {spec.name for spec in specs if spec.device.startswith("basic")}
    if not single or len(single) == len(specs):
        return specs
    return [spec for spec in specs if (spec.kind == "fpga") == (spec.name in single)]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["gpu", "fpga"])
def test_a_driver_stands_in_for_each_kind(kind: str) -> None:
    """The one test that fails where no driver is usable: all others are skipped."""
    told = []
    for driver in DRIVERS:
        specs, refusals = usable(alone(driver))
        if kind in {spec.kind for spec in specs}:
            return
        told.append(f"{driver.name}: {'; '.join(refusals)}")

    pytest.fail(f"no usable driver for an emulated {kind}: {' | '.join(told)}")
