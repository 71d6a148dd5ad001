"""A pool: hetd on several machines, carried by Dask.distributed (docs/pool.md).

Jobs are placed and ordered by hetd's own planners; Dask carries jobs, inputs, results and
membership between the machines. Only `hetpool.engine` imports `distributed`.

`python -m hetpool scheduler`, `node` and `gateway` are its processes; `Pool` is its client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hetpool.client.pool import Input, Pool, PoolTask, as_completed

__all__ = ["Input", "Pool", "PoolTask", "as_completed"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from hetpool.client import pool
    except ModuleNotFoundError as error:
        from libtask.extras import how_to_install

        text = f"a pool needs the extra `pool` ({error}): {how_to_install('pool')}"
        raise ImportError(text) from error
    return getattr(pool, name)


def __dir__() -> list[str]:
    return __all__
