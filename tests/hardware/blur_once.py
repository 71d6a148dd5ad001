"""Blurs a small picture on the device that the command line describes, and checks it.

Run under another CPU's identity, where compiling the CPU's own kernels would take long:
the reference is the one in float64.
"""

from __future__ import annotations

import sys

import msgspec
import numpy as np

from hardware.stretches import advance
from hetapps.gaussian_blur import GRANULE, GaussianBlur
from hetkernels.gaussian_blur.reference import blur_float64
from libtask.messages import DeviceSpec

spec = msgspec.json.decode(sys.argv[1], type=DeviceSpec)
task = GaussianBlur(sigma=1.9, n=1)
task.load()
task.image = (np.random.default_rng(7).random((2, 37, 41)) * 255).astype(np.uint8)
task.blurred = np.zeros_like(task.image)
task.dtype = task.image.dtype
advance(task, spec, 0, task.total(), GRANULE)
exact = blur_float64(task.image, task.sigma, task.truncate)
assert np.abs(task.blurred - exact).max() <= 0.5 + 1e-3
