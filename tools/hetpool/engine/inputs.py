"""Input files that Dask carries: read on a node that has them, as arrays.

An array, as Dask copies `bytes` objects several times on their way.
"""

from __future__ import annotations

from typing import Any

from hetpool.engine.worker import agent_here

LOAD = "hetpool-load"
"""The beginning of the keys of such tasks."""


async def load(content: str) -> Any:
    """Read a file of this node's store, for nodes that gather it."""
    return await agent_here().read_input(content)
