"""Kernels compiled for other processors than this one: the same bits on each.

A setting is skipped where this processor lacks the instructions that it allows. The suite
compiles for one of them, as each takes up to a minute; HETD_KERNEL_CASES=all for all.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import pytest

from hardware.drivers import (
    Bits,
    Driver,
    Environment,
    alone,
    drivers,
    run_cases,
    usable,
)
from hardware.run_cases import Request

AVX2 = frozenset({"avx2", "fma", "bmi1", "bmi2", "movbe", "f16c", "abm"})
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
ZEN4 = AVX512 | {
    *("avx512_bf16", "avx512_bitalg", "avx512_vbmi2", "avx512_vnni", "avx512ifma"),
    *("avx512_vpopcntdq", "avx512vbmi", "gfni", "vaes", "vpclmulqdq", "sha_ni"),
    *("sse4a", "clzero", "rdpid"),
}


class Processor(NamedTuple):
    """A processor to compile for.

    Attributes:
        name: what tests call it.
        numba: its name for LLVM, and so for Numba.
        blas: its name for OpenBLAS; empty: it chooses.
        needs: instructions that this machine must have, as /proc/cpuinfo names them.

    """

    name: str
    numba: str
    blas: str
    needs: frozenset[str]

    @property
    def settings(self) -> Environment:
        numba = (("NUMBA_CPU_NAME", self.numba), ("NUMBA_CPU_FEATURES", ""))
        return (*numba, ("OPENBLAS_CORETYPE", self.blas)) if self.blas else numba


PROCESSORS = [
    Processor("sse4.2", "nehalem", "Nehalem", frozenset({"sse4_2", "popcnt"})),
    Processor("avx2", "haswell", "Haswell", AVX2),
    Processor("avx512-intel", "skylake-avx512", "SkylakeX", AVX512),
    Processor("avx512-amd", "znver4", "Zen", ZEN4),
    Processor("unknown", "generic", "", frozenset()),
]

TARGETS = {
    "corei7": frozenset({"sse4_2", "popcnt"}),
    "corei7-avx": frozenset({"avx"}),
    "core-avx2": AVX2,
    "skx": AVX512,
    "unknown": frozenset[str](),
}
"""Values of CL_CONFIG_CPU_TARGET_ARCH, and the instructions that each allows."""

IN_SUITE = "unknown"
"""The setting of the suite: compilers assume least about it."""
LARGE = os.environ.get("HETD_KERNEL_CASES") == "all"

VENDORS = [
    driver
    for driver in drivers()
    if "libintelocl" in driver.path and Path(driver.path).exists()
]


def skip_without(needs: frozenset[str], name: str) -> None:
    if not LARGE and name != IN_SUITE:
        pytest.skip("takes up to a minute; HETD_KERNEL_CASES=all runs it")
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            missing = sorted(needs - set(line.split()))
            if missing:
                pytest.skip(f"this processor lacks {', '.join(missing)}")
            return


@pytest.mark.timeout(600)
@pytest.mark.parametrize("processor", PROCESSORS, ids=lambda processor: processor.name)
def test_cpu_kernels_on_any_processor(
    processor: Processor, bits: Bits, pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    skip_without(processor.needs, processor.name)
    # Compiling takes most of the time, and the package's own cache is for users.
    kept = getattr(pytestconfig, "cache", None)  # pytest may run without one
    folder = kept.mkdir("numba") if kept is not None else tmp_path
    cache = ("NUMBA_CACHE_DIR", str(folder))

    outcomes = run_cases(Request([], extent="brief"), (*processor.settings, cache))

    assert {outcome.route for outcome in outcomes} == {"cpu"}
    assert bits.differing(processor.name, outcomes) == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("driver", VENDORS, ids=lambda driver: driver.name)
def test_opencl_kernels_on_any_processor(
    driver: Driver, target: str, bits: Bits, tmp_path: Path
) -> None:
    skip_without(TARGETS[target], target)
    chosen = (("CL_CONFIG_CPU_TARGET_ARCH", target), ("XDG_CACHE_HOME", str(tmp_path)))
    settings = (*alone(driver), *chosen)
    # As hetd uses them: both have one compiler, so each kind's kernels once are enough.
    specs, refusals = usable(settings, ["fpga" if "_emu" in driver.path else "gpu"])
    if not specs:
        pytest.skip("; ".join(refusals))

    outcomes = run_cases(Request(specs, extent="brief"), settings)

    assert bits.differing(f"{driver.name} for {target}", outcomes) == []
