"""Every OpenCL driver of this machine: right on every kernel, or skipped with its words."""

from __future__ import annotations

import pytest

from hardware.drivers import Bits, Driver, alone, drivers, run_cases, usable
from hardware.run_cases import Request

DRIVERS = drivers()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.name)
def test_all_kernels_give_the_same_results_on_every_driver(
    driver: Driver, bits: Bits
) -> None:
    specs, refusals = usable(alone(driver))
    if not specs:
        pytest.skip(f"{driver.path}: {'; '.join(refusals)}")

    outcomes = run_cases(Request(specs, extent="compiled"), alone(driver))

    ran = {name for outcome in outcomes for name in outcome.route.split("-")}
    assert ran == {"cpu", *(spec.name for spec in specs)}
    assert bits.differing(driver.name, outcomes) == []


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
