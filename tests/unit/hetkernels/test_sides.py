"""What is too long or wide for OpenCL kernels is refused, not computed wrong."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hetkernels.correlation import opencl as correlation
from hetkernels.correlation.plan import Plan
from hetkernels.gaussian_blur import opencl as blur
from hetkernels.heat import opencl as heat
from hetkernels.heat.plate import Plate
from hetkernels.sides import LARGEST_SIDE, check_sides
from libtask.errors import ProgramError

if TYPE_CHECKING:
    from collections.abc import Callable

LONG = LARGEST_SIDE + 1
PICTURE = blur.Picture((1, 1, LONG), "uint8", 3)
PLATE = Plate(LONG, 1, 0.2, insulated=True)
TABLE = Plan(LONG, 2, np.dtype(np.float32))
NOTHING = (None,) * 4
DEVICE: Any = None  # sizes are checked before it is looked at
REST: Any = ((None, None), range(1))

CALLS: dict[str, Callable[[], None]] = {
    "blur, GPU": partial(blur.gpu_rows, DEVICE, NOTHING, PICTURE, range(1)),
    "blur, FPGA": partial(blur.fpga_rows, DEVICE, NOTHING, PICTURE, range(1)),
    "heat, GPU": partial(heat.gpu_steps, DEVICE, (None, None), PLATE, 1, 4),
    "heat, FPGA": partial(heat.fpga_steps, DEVICE, None, None, PLATE, 1),
    "correlation, GPU": partial(correlation.multiply_gpu, DEVICE, TABLE, *REST),
    "correlation, FPGA": partial(correlation.multiply_fpga, DEVICE, TABLE, *REST),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_too_long_a_side_is_refused(call: Callable[[], None]) -> None:
    with pytest.raises(ProgramError, match=f"{LONG}.*count up to {LARGEST_SIDE}"):
        call()


def test_the_longest_sides_are_taken() -> None:
    check_sides(LARGEST_SIDE, LARGEST_SIDE)
