"""Pools that tests share or may harm; machines that are network namespaces, if there are any."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from hetpool.setup.namespaces import LinkedMachines, obstacle
from pool.private_pool import private_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hetpool import Pool
    from pool.private_pool import PrivatePool


@pytest.fixture(scope="session")
def _obstacle() -> str:
    return obstacle()


@pytest.fixture
def linked_machines(_obstacle: str) -> Iterator[Callable[..., LinkedMachines]]:
    """Make machines with links; skip where the kernel does not allow it."""
    if _obstacle:
        refuse = (
            pytest.fail if os.environ.get("HETD_REQUIRE_NAMESPACES") else pytest.skip
        )
        refuse(f"no network namespaces: {_obstacle}")
    with ExitStack() as stack:
        yield lambda *args, **kwargs: stack.enter_context(
            LinkedMachines.make(*args, **kwargs)
        )


@pytest.fixture(scope="session")
def shared_pool() -> Iterator[PrivatePool]:
    with private_pool(gateway=True) as made:
        yield made


@pytest.fixture(scope="session")
def _shared_client(shared_pool: PrivatePool) -> Iterator[Pool]:
    with shared_pool.pool() as client:
        shared_pool.await_nodes(client, "n1", "n2", "gate")
        yield client


@pytest.fixture
def pool(_shared_client: Pool) -> Iterator[Pool]:
    """A client of the shared pool, which is not to be harmed."""
    yield _shared_client
    left = [each.id for each in _shared_client.tasks()]
    if left:
        _shared_client.cancel(*left)


@pytest.fixture
def own_pool() -> Iterator[Callable[..., PrivatePool]]:
    """Make pools that a test may harm."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(private_pool(**options))
