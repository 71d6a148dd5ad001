"""Environment variables of a command that restrict device runtimes to its device.

A command gets one device of the node; the others are hidden from it if its runtime
supports that.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from libtask.devices import icd

if TYPE_CHECKING:
    from collections.abc import Mapping

    from libtask.messages import DeviceSpec

THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)
"""Read by OpenMP, and by libraries that start threads without it."""
HIDDEN = {"CUDA_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": "-1"}
"""Values that hide all devices from CUDA and ROCm."""


def packed(environment: Mapping[bytes, bytes]) -> bytes:
    """Encode an environment for an attachment; equal ones have equal encodings."""
    return b"\0".join(b"%s=%s" % pair for pair in sorted(environment.items()))


def variables(device: DeviceSpec, threads: int = 0) -> dict[str, str]:
    """Return the variables that make a device the only visible one of its kind.

    Args:
        device: the one that the command gets.
        threads: the cores that it needs; 0: it gets those of its slot.

    """
    found = dict.fromkeys(THREADS, str(threads or device.threads))
    found |= HIDDEN
    if device.kind == "cpu":
        return found
    found |= _visible(device)
    if device.libraries:
        found["OCL_ICD_VENDORS"] = str(_drivers(device))
    return found


def cores(device: DeviceSpec, slot: int | None, needed: int = 0) -> set[int] | None:
    """Return the processors of a slot of the CPU; None: any.

    The processors that this process may use are divided among the slots; a slot beyond
    them may use any, as may a task that needs more cores than a slot has.
    """
    if device.kind != "cpu" or slot is None or needed > device.threads:
        return None
    allowed = sorted(os.sched_getaffinity(0))
    own = allowed[slot * device.threads : (slot + 1) * device.threads]
    return set(own) if len(own) == device.threads else None


def _visible(device: DeviceSpec) -> Mapping[str, str]:
    platform = device.platform.lower()
    if "cuda" in platform or "nvidia" in platform:
        return {"CUDA_VISIBLE_DEVICES": _cuda_name(device)}
    if "amd" in platform:
        return {"ROCR_VISIBLE_DEVICES": str(device.index)}
    if "intel" in platform and device.kind == "gpu":
        return {"ZE_AFFINITY_MASK": str(device.index)}
    return {}


def _cuda_name(device: DeviceSpec) -> str:
    """Name a device for CUDA by its UUID, as indexes depend on the visible devices."""
    each = device.uuid
    if not each:
        return str(device.index)
    parts = (each[:8], each[8:12], each[12:16], each[16:20], each[20:])
    return "GPU-" + "-".join(parts)


def _drivers(device: DeviceSpec) -> Path:
    """Return a folder with `.icd` files of only the device's OpenCL drivers."""
    chosen = {f"{number}.icd": path for number, path in enumerate(device.libraries)}
    return icd.write_folder(chosen, icd.cache_folder() / "icd")
