"""Parts in the worker: what it gives up, and when it merges what others did."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from libtask.messages import (
    CheckpointRecord,
    Finished,
    PartOf,
    PartResult,
    Progress,
    Ready,
    Split,
    StripsGiven,
    Yielded,
)
from unit.libtask.worker.played_worker import Played, next_but_progress
from unit.scripted_daemon import cpu, run, stage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WHOLE, FIRST, SECOND = 1, 2, 3
CELLS = 100


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Played]:
    played = Played(tmp_path, snapshots=str(tmp_path / "snapshots"))
    yield played
    played.close()


def do_part(worker: Played, task: int, start: int, stop: int) -> PartResult:
    """Let the worker do a part; return what it leaves."""
    order = stage(
        task,
        worker.app("Sheet"),
        strip=1,
        parallel=True,
        part=PartOf(WHOLE, start, CELLS),
    )
    record = CheckpointRecord(start, CELLS)
    worker.say(structs.replace(order, checkpoint=record, snapshots=f"{task}-a"))
    worker.daemon.expect(Ready)
    worker.say(structs.replace(run(task, cpu()), limit=stop))
    assert isinstance(told(worker), Finished)
    return PartResult(f"{task}-a", start, stop)


def told(worker: Played) -> object:
    """Return the next message that is no report on the way."""
    while True:
        message = next_but_progress(worker)
        if isinstance(message, Finished | Yielded | StripsGiven):
            return message


def test_strips_given_up_after_a_part_was_done_are_waited_for(worker: Played) -> None:
    # as after the loss of a worker: it begins again when its part has been done
    first = do_part(worker, FIRST, 80, CELLS)
    order = stage(WHOLE, worker.app("Sheet"), strip=1, parallel=True)
    worker.say(structs.replace(order, snapshots=f"{WHOLE}-a"))
    worker.daemon.expect(Ready)
    worker.say(structs.replace(run(WHOLE, cpu()), limit=80, pieces=[first]))
    worker.daemon.expect(Progress)
    worker.say(Split(WHOLE, 1, 0.5))

    given = told(worker)
    assert isinstance(given, StripsGiven)
    assert (given.stop, given.total, given.granule) == (80, CELLS, 1)
    yielded = told(worker)
    assert isinstance(yielded, Yielded)
    assert yielded.checkpoint.done == given.start < 80
