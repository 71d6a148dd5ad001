"""Barrier: threads of one loop wait for each other without the interpreter.

A hand-over between threads of Python takes some 50 µs, a step of a small kernel less. Here
threads that have met spin for a moment and then let others run, so that waiting for one that
has lost its processor costs no more than that.
"""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

SPINS = 10_000
"""Looks at the counter before a waiting thread lets others run: some 0.2 ms. A thread that
lets others run is away for milliseconds."""
X86 = frozenset({"x86_64", "AMD64"})
ARRIVED, ROUND = 0, 8
"""Places of the counters, in cache lines of their own."""

_ORDER = "seq_cst"


def _place(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    counters = context.make_array(signature.args[0])(context, builder, args[0])
    return builder.gep(counters.data, [args[1]])


def _add(_typing: Any, array: Any, _index: Any) -> tuple[Any, Any]:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _place(context, builder, signature, args)
        return builder.atomic_rmw("add", place, ir.Constant(ir.IntType(64), 1), _ORDER)

    return types.int64(array, types.intp), generate


def _get(_typing: Any, array: Any, _index: Any) -> tuple[Any, Any]:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _place(context, builder, signature, args)
        return builder.load_atomic(place, _ORDER, 8)

    return types.int64(array, types.intp), generate


def _set(_typing: Any, array: Any, _index: Any, _value: Any) -> tuple[Any, Any]:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _place(context, builder, signature, args)
        builder.store_atomic(args[2], place, _ORDER, 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.int64), generate


def _rest(_typing: Any) -> tuple[Any, Any]:
    def generate(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        if platform.machine() in X86:
            shape = ir.FunctionType(ir.VoidType(), [])
            declare: Any = cgutils.get_or_insert_function
            builder.call(declare(builder.module, shape, "llvm.x86.sse2.pause"), [])
        return context.get_dummy_value()

    return types.void(), generate


_pause: Any = intrinsic(_rest)
"""Let the other thread of this core have its units, where the processor can say so."""
_atomic_add: Any = intrinsic(_add)
_atomic_get: Any = intrinsic(_get)
_atomic_set: Any = intrinsic(_set)
_sched_yield: Any = types.ExternalFunction("sched_yield", types.int32())


def counters() -> NDArray[np.int64]:
    """Return the counters of a barrier that no thread has reached yet."""
    return np.zeros(2 * ROUND, np.int64)


@njit(cache=True, nogil=True)
def arrive(barrier: Any, parts: int) -> bool:
    """Arrive at the barrier; the last of `parts` threads gets True, and must `release` it.

    The others return when it has.
    """
    before = _atomic_get(barrier, ROUND)
    if _atomic_add(barrier, ARRIVED) == parts - 1:
        return True
    spins = 0
    while _atomic_get(barrier, ROUND) == before:
        spins += 1
        _pause()
        if spins > SPINS:
            _sched_yield()
    return False


@njit(cache=True, nogil=True)
def release(barrier: Any) -> None:
    """Let the threads go on that wait at the barrier."""
    _atomic_set(barrier, ARRIVED, 0)
    _atomic_add(barrier, ROUND)
