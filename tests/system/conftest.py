"""Private daemons, and tasks that can be stopped in the middle."""

from __future__ import annotations

import textwrap
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from system.private_daemon import NAMES, RESOURCES, SETTINGS, opened
from system.terminal import PRINTER, Terminal
from system.tracing import Tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from system.private_daemon import PrivateDaemon


@pytest.fixture(scope="session")
def _shared_daemon() -> Iterator[PrivateDaemon]:
    with ExitStack() as stack:
        yield stack.enter_context(opened(SETTINGS + RESOURCES))


@pytest.fixture
def daemon(_shared_daemon: PrivateDaemon) -> Iterator[PrivateDaemon]:
    """A daemon with a CPU of two slots, a GPU and an FPGA; shared, so do not harm it."""
    yield _shared_daemon
    _shared_daemon.give_up_tasks()
    for name in NAMES:
        _shared_daemon.client.resume(name)
    _shared_daemon.client.policy("affinity")
    if _shared_daemon.client.avoided():
        _shared_daemon.client.forget()


@pytest.fixture
def private_daemon() -> Iterator[Callable[..., PrivateDaemon]]:
    """Make daemons that a test may harm; of a given configuration."""
    with ExitStack() as stack:
        yield lambda config=SETTINGS + RESOURCES: stack.enter_context(opened(config))


@pytest.fixture
def trace(
    daemon: PrivateDaemon, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Tracing]:
    """Submit traced tasks to the shared daemon."""
    return lambda **fields: Tracing(daemon, tmp_path_factory.mktemp("task"), **fields)


@pytest.fixture
def hetctl(daemon: PrivateDaemon) -> Terminal:
    return Terminal(daemon)


@pytest.fixture
def printer(tmp_path: Path) -> tuple[str, ...]:
    """The words that submit a task which runs until its gate opens."""
    (tmp_path / "printer.py").write_text(textwrap.dedent(PRINTER))
    app = f"{tmp_path}/printer.py:Printer"
    return ("submit", app, "--strip", "1", "--gate", str(tmp_path / "gate"))
