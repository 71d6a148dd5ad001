"""One task on several resources at once: split live, and each strip counts once.

Whatever is killed, cancelled, held or moved meanwhile: the result is that of one worker.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from libtask.errors import HetError
from libtask.messages import ENDED
from system import divisible
from system.private_daemon import PATIENCE, eventually, opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from libtask.client.handles import TaskHandle
    from libtask.messages import TaskInfo
    from system.private_daemon import PrivateDaemon

CONFIG = """
policy = "finish-time"
cancel_grace_s = 0.3
restore_grace_s = 5.0

[[resource]]
name = "cpu"
kind = "cpu"
driver = "null"

[[resource]]
name = "gpu0"
kind = "gpu"
driver = "null"
"""
NUMBERS = 600
APP = f"{divisible.__file__}:Divisible"
LEAST_S = NUMBERS * divisible.STRIP_S
SQUARES = [number * number for number in range(NUMBERS)]


class Divided:
    """A task that two workers do at once by now."""

    def __init__(self, daemon: PrivateDaemon, folder: Path) -> None:
        self._daemon = daemon
        self._trace = folder / "trace"
        self.handle: TaskHandle = _submit(daemon, self._trace)
        self.id = self.handle.id
        # a worker that is killed before its first report counts against its resource
        eventually(self.reported, "reports of two workers", 10.0)

    def lines(self) -> list[tuple[int, str, int]]:
        """Return the (iteration, resource, worker) of each strip that was done."""
        if not self._trace.exists():
            return []
        rows = (line.split() for line in self._trace.read_text().splitlines())
        return [(int(row[0]), row[1], int(row[2])) for row in rows if len(row) == 3]

    def workers(self) -> dict[str, int]:
        """Return the last worker on each resource."""
        return {resource: pid for _, resource, pid in self.lines()}

    def reported(self) -> bool:
        """Whether the task and its part have both told of strips."""
        parts = self._daemon.info(self.id).parts
        return bool(parts) and all(
            self._daemon.info(task).checkpoint_at for task in (self.id, parts[0])
        )

    def part(self) -> TaskInfo:
        number = self._daemon.info(self.id).parts[0]
        return self._daemon.info(number)

    def often(self) -> Counter[int]:
        """Return how many iterations were done how often."""
        return Counter(Counter(number for number, _, _ in self.lines()).values())


def _submit(
    daemon: PrivateDaemon, trace: Path, resources: tuple[str, ...] = ()
) -> TaskHandle:
    parameters = {"trace": str(trace), "n": NUMBERS}
    return daemon.client.submit(APP, parameters, resources=list(resources), strip=1)


@pytest.fixture(scope="module")
def _shared_divider(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[PrivateDaemon]:
    with opened(CONFIG) as daemon:
        trace = tmp_path_factory.mktemp("measured") / "trace"
        measured = [_submit(daemon, trace, (name,)) for name in ("cpu", "gpu0")]
        for task in measured:
            task.result(PATIENCE)
        # on a busy machine one of them may have taken so long that no part is worth it
        usual = {"seconds": LEAST_S, "spread": 0.1, "count": 100}
        client = daemon.client
        client.learn([structs.replace(each, **usual) for each in client.models()])
        yield daemon


@pytest.fixture
def divider(_shared_divider: PrivateDaemon) -> Iterator[PrivateDaemon]:
    """A daemon that knows how long the task takes; it may crash and come back."""
    yield _shared_divider
    _shared_divider.give_up_tasks()


@pytest.fixture
def divided(divider: PrivateDaemon, tmp_path: Path) -> Divided:
    return Divided(divider, tmp_path)


def test_an_idle_resource_does_a_part(divider: PrivateDaemon, divided: Divided) -> None:
    assert divided.handle.result(PATIENCE) == SQUARES

    info, part = divider.info(divided.id), divided.part()
    assert divided.often() == {1: NUMBERS}
    assert part.part_of == divided.id
    assert {info.state, part.state} == {"completed"}
    assert part.name == f"part of {divided.id}"

    def removed() -> bool:
        return not list((divider.crew_folder / "snapshots").glob(f"{part.id}-*"))

    eventually(removed, "the removal of the piece")


@pytest.mark.parametrize("victim", ["whole", "part"])
def test_a_killed_worker_loses_nothing(
    divider: PrivateDaemon, divided: Divided, victim: str
) -> None:
    whole, part = divider.info(divided.id), divided.part()
    resource = (whole if victim == "whole" else part).resource
    assert resource is not None

    os.kill(divided.workers()[resource], signal.SIGKILL)

    assert divided.handle.result(PATIENCE) == SQUARES


def test_a_crash_of_the_daemon_loses_nothing(
    divider: PrivateDaemon, divided: Divided
) -> None:
    divider.restart()

    assert divided.handle.result(PATIENCE) == SQUARES
    assert divided.often() == {1: NUMBERS}


def test_a_crash_of_the_daemon_and_of_a_worker_loses_nothing(
    divider: PrivateDaemon, divided: Divided
) -> None:
    divider.kill9()
    os.kill(divided.workers()["cpu"], signal.SIGKILL)
    divider.start()

    assert divided.handle.result(PATIENCE) == SQUARES


@pytest.mark.parametrize("which", ["whole", "part"])
def test_a_cancelled_task_ends_with_its_parts(
    divider: PrivateDaemon, divided: Divided, which: str
) -> None:
    part = divided.part()

    divider.client.cancel(divided.id if which == "whole" else part.id)

    ends = [divider.await_state(task, *ENDED).state for task in (divided.id, part.id)]
    assert ends == ["cancelled", "cancelled"]


def test_a_held_task_waits_with_its_parts(
    divider: PrivateDaemon, divided: Divided
) -> None:
    part = divided.part()

    divider.client.hold(divided.id)
    for task in (divided.id, part.id):
        divider.await_state(task, "held")
    divider.client.release(divided.id)

    assert divided.handle.result(PATIENCE) == SQUARES
    assert divided.often() == {1: NUMBERS}


def test_a_moved_task_moves_with_its_parts(
    divider: PrivateDaemon, divided: Divided
) -> None:
    divider.client.migrate(divided.id, "gpu0")

    assert divided.handle.result(PATIENCE) == SQUARES
    assert divided.often() == {1: NUMBERS}
    assert divider.info(divided.id).resource == "gpu0"


def test_a_part_is_not_requeued_without_its_task(
    divider: PrivateDaemon, divided: Divided
) -> None:
    part = divided.part()
    divider.client.cancel(divided.id)
    divider.await_state(part.id, *ENDED)

    with pytest.raises(HetError, match=f"is a part of task {divided.id}"):
        divider.client.requeue(part.id)
