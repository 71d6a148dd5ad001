"""Machines that are network namespaces, or the reason why there are none here."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from hetpool.namespaces import LinkedMachines, obstacle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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
