"""Prefetch: asks for a cache line before the loop reaches it.

Processors do so by themselves, but start again in each page of 4 KiB: a loop that streams
through several rows of a matrix at once waits at each page of each row.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

READ, KEEP, DATA = 0, 3, 1
"""LLVM's words: to be read, to be kept in all caches, data and not instructions."""


def _prefetch(_typing: Any, array: Any, _index: Any) -> tuple[Any, Any]:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values = context.make_array(signature.args[0])(context, builder, args[0])
        address = builder.gep(values.data, [args[1]])
        pointer = builder.bitcast(address, ir.IntType(8).as_pointer())
        word = ir.IntType(32)
        shape = ir.FunctionType(ir.VoidType(), [pointer.type, word, word, word])
        name = "llvm.prefetch.p0i8"
        declare: Any = cgutils.get_or_insert_function
        call = declare(builder.module, shape, name)
        builder.call(call, [pointer, word(READ), word(KEEP), word(DATA)])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


prefetch: Any = intrinsic(_prefetch)
"""Ask for the cache line of `array[index]`; one beyond the array's end costs nothing."""
