"""Private daemons, and tasks that can be stopped in the middle."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from system.private_daemon import NAMES, RESOURCES, SETTINGS, PrivateDaemon
from system.tracing import Tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOM = tempfile.gettempdir()
"""Where short paths are to be had; asked before any test changes TMPDIR."""

KEPT = {"hetd.toml", "hetd.log", "state", "s.launcher", "tmp", "run"}
"""What a daemon and its launcher leave in a private daemon's folder."""


@pytest.fixture(scope="session")
def _shared_daemon() -> Iterator[PrivateDaemon]:
    with ExitStack() as stack:
        yield stack.enter_context(_opened(SETTINGS + RESOURCES))


@pytest.fixture
def daemon(_shared_daemon: PrivateDaemon) -> Iterator[PrivateDaemon]:
    """A daemon with a CPU of two slots, a GPU and an FPGA; shared, so do not harm it."""
    yield _shared_daemon
    _shared_daemon.give_up_tasks()
    for name in NAMES:
        _shared_daemon.client.resume(name)
    _shared_daemon.client.policy("affinity")


@pytest.fixture
def private_daemon() -> Iterator[Callable[..., PrivateDaemon]]:
    """Make daemons that a test may harm; of a given configuration."""
    with ExitStack() as stack:
        yield lambda config=SETTINGS + RESOURCES: stack.enter_context(_opened(config))


@pytest.fixture
def trace(
    daemon: PrivateDaemon, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Tracing]:
    """Submit traced tasks to the shared daemon."""
    return lambda **fields: Tracing(daemon, tmp_path_factory.mktemp("task"), **fields)


@contextmanager
def _opened(config: str) -> Iterator[PrivateDaemon]:
    """Run a daemon; complain of what it leaves behind."""
    folder = Path(tempfile.mkdtemp(prefix="hetd-", dir=ROOM))
    with pytest.MonkeyPatch.context() as patch:
        for name, variable in (("tmp", "TMPDIR"), ("run", "XDG_RUNTIME_DIR")):
            (folder / name).mkdir(mode=0o700)
            patch.setenv(variable, str(folder / name))
        daemon = PrivateDaemon(folder, config)
        daemon.start()
        try:
            yield daemon
        finally:
            complaints = daemon.close() + _left_behind(folder)
    assert not complaints, f"{complaints}\n{daemon.log.read_text()}"
    shutil.rmtree(folder)


def _left_behind(folder: Path) -> list[str]:
    unknown = [path for path in folder.iterdir() if path.name not in KEPT]
    unknown += [path for path in (folder / "tmp").rglob("*") if not path.is_dir()]
    unknown += [path for path in (folder / "run").rglob("*") if not path.is_dir()]
    return [f"{path} is left" for path in unknown]
