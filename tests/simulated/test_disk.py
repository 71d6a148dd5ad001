"""The simulated disk answers as the real store does, whatever it was given."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from hetd.store import Batch, Store
from hetsched.estimates.point import Figures, key_of
from torture.simulation.disk import Disk, SimulatedStore
from torture.simulation.world import World

if TYPE_CHECKING:
    from pathlib import Path


def a_batch(chance: random.Random, number: int) -> Batch:
    """Draw new and changed tasks, a key, and figures kept and forgotten."""
    tasks = sorted(chance.sample(range(1, 40), 5))
    batch = Batch(
        tasks=[
            (task, chance.choice((0, 0, 7)), b"%d" % number, 1 + task % 2)
            for task in tasks
        ],
        keys=[(chance.randint(1, 2), f"key {number}", b"digest", b"answer", 1)],
        replies=[(b"route", number)],
        marked=set(tasks[::2]),
    )
    known = [Figures(f"t/{n}", "cpu", 1.0, 1.0) for n in range(6)]
    for figures in chance.sample(known, 2):
        keep = chance.random() < 0.7
        batch.samples[key_of(figures)] = figures if keep else None
    for name in chance.sample(("cpu", "gpu0", "fpga0"), 2):
        keep = chance.random() < 0.7
        batch.settings["drained", name] = b"%d" % number if keep else None
    return batch


def answers(store: Store) -> list[Any]:
    """Ask a store everything that the daemon asks."""
    return [
        store.unfinished(),
        [
            list(store.ended(before, limit))
            for before in (1, 20, 99)
            for limit in (1, 50)
        ],
        [list(store.ended(99, 50, owner)) for owner in (1, 2, 3)],
        [list(store.ended(99, 50, owner, after=9)) for owner in (None, 1, 2)],
        [list(store.ended(99, 50, owner, marked=True)) for owner in (None, 1, 2)],
        [store.task(task) for task in range(40)],
        store.last_id(),
        [store.key(owner, f"key {n}") for owner in (1, 2) for n in range(8)],
        sorted(store.samples(), key=key_of),
        store.settings(),
        (store.idle, store.shortage, store.stuck),
    ]


@pytest.mark.parametrize("seed", range(3))
def test_the_model_answers_as_the_store(seed: int, tmp_path: Path) -> None:
    disk = Disk()
    before = None
    for start in range(2):
        real = Store(tmp_path / "hetd.db")
        model = SimulatedStore(disk, World(seed), lambda: None, lambda _: None)
        assert answers(model) == answers(real)
        starts = (model.incarnation, real.incarnation)
        assert before in (None, (starts[0] - 1, starts[1] - 1))
        before = starts
        for number in range(4):
            told = []
            for store in (real, model):
                batch = a_batch(random.Random(f"{seed} {number}"), 4 * start + number)
                store.submit(batch)
                told.append(store.flush())
            assert told[0] == told[1]
            assert answers(model) == answers(real)
        real.close()
