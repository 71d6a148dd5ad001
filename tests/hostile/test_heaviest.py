"""The heaviest messages of every kind: no turn is long, no memory is taken in vain.

The kinds and their content come from the protocol's own declarations, so that a new kind
of request is tested without being named here.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from torture.heaviest import KINDS, Load, cases

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torture.heaviest import Case, Cost

WAITING = int(os.environ.get("HETD_HOSTILE_WAITING", "1000"))
MEMORY = Path("/dev/shm")  # noqa: S108  a file system in memory: nothing here is to last
TURN_S = 0.020
"""Processor time that a turn may take, on a processor that does `calibrated` in `USUAL_S`."""
USUAL_S = 0.010
BEYOND = 12 << 20
"""Bytes in use at once beyond the answer: of a commit of large pages, and copies of some."""
TRIES = 4


def calibrated() -> float:
    """Seconds of processor time that some work of the interpreter's takes here, now."""
    begin = time.thread_time()
    found: dict[int, tuple[int, int]] = {}
    for number in range(100_000):
        found[number % 1000] = (number, number)
    return time.thread_time() - begin


@pytest.fixture
def load() -> Iterator[Load]:
    where = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=where) as folder:
        made = Load(Path(folder), WAITING)
        yield made
        made.close()


def limit_s() -> float:
    """Return the processor time that a turn may take here, now."""
    return TURN_S * max(1.0, calibrated() / USUAL_S)


def least_of(load: Load, case: Case, least: Cost, limit: float) -> Cost:
    """Measure the longest turn again while it is too long: others may have run meanwhile."""
    for number in range(TRIES - 1):
        if least.turn_s <= limit:
            break
        again = load.cost(case.again(number))
        least = min(least, again, key=lambda cost: cost.turn_s)
    return least


@pytest.mark.timeout(300 + WAITING // 50)
def test_no_message_holds_the_loop_for_long(load: Load) -> None:
    too_long, answered, named = {}, set(), set()
    for case in cases(load.tasks):
        named.add(case.name.partition(" ")[0])
        cost = load.cost(case)
        answered.add(cost.answer)
        if cost.turn_s <= TURN_S:
            continue  # calibration takes longer than most turns
        limit = limit_s()
        cost = least_of(load, case, cost, limit)
        if cost.turn_s > limit:
            took = f"{1e3 * cost.turn_s:.1f} ms"
            too_long[case.name] = f"{took}, {limit / TURN_S:.1f} times as slow"

    assert too_long == {}
    assert named == {kind.__name__ for kind in KINDS}
    load.desk.runtime.scheduler.check()
    # and most of them were carried out
    assert answered >= {
        "Submitted",
        "TaskList",
        "Done",
        "Explained",
        "ModelList",
        "UsageInfo",
        "StatusInfo",
        "DeletedSamples",
        "PolicyInfo",
        "NoteList",
        "DeviceList",
    }


@pytest.mark.timeout(300)
def test_no_message_takes_much_more_memory_than_its_answer() -> None:
    where = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=where) as folder:
        load = Load(Path(folder), 300)
        too_much = {}
        for case in cases(load.tasks):
            cost = load.cost(case, memory=True)
            if cost.beyond > BEYOND:
                too_much[case.name] = f"{cost.beyond / 2**20:.1f} MiB"
        load.close()

    assert too_much == {}
