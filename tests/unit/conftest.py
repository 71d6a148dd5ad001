"""A shell of the daemon in a test's own process, with a store on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from unit.daemon_shell import Shell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def restart(tmp_path: Path) -> Iterator[Callable[..., Shell]]:
    """Start the shell, anew after what may have been a crash; with these settings."""
    shells: list[Shell] = []

    def start(**fields: Any) -> Shell:
        shells.append(Shell(tmp_path, **fields))
        return shells[-1]

    yield start
    for shell in shells:
        shell.close()


@pytest.fixture
def shell(restart: Callable[..., Shell]) -> Shell:
    return restart()
