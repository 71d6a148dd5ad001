"""Sides: how many rows and columns OpenCL kernels can count."""

from __future__ import annotations

from libtask.errors import ProgramError

LARGEST_SIDE = 1 << 30
"""Kernels count rows and columns in 32 bits, with some tiles more beyond the edges."""


def check_sides(rows: int, columns: int) -> None:
    """Refuse what is too long or wide for the OpenCL kernels; the CPU takes any size.

    Raises:
        ProgramError: more rows or columns than the kernels can count.

    """
    if max(rows, columns) > LARGEST_SIDE:
        raise ProgramError(
            f"{rows} rows x {columns} columns: the OpenCL kernels count up to "
            f"{LARGEST_SIDE} of each; the CPU has no such limit"
        )
