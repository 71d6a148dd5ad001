"""Mapping policies: each arrival is a mapping event, also among those of one instant."""

from __future__ import annotations

import pytest

from builders import Harness, a_resource, a_task

LATE = 10**15
SECONDS = {"any": {"cpu": 1.0, "gpu0": 4.0}}


@pytest.mark.parametrize("policy", ["mm", "msd", "mmu", "elare", "felare"])
def test_tasks_that_arrive_together_are_mapped_as_if_one_by_one(policy: str) -> None:
    kept: dict[str, list[tuple[int, str | None]]] = {}
    for way in ("together", "one by one"):
        node = Harness(
            [a_resource("cpu"), a_resource("gpu")], SECONDS, policy, places=2
        )
        tasks = [a_task(number, deadline=LATE) for number in range(1, 9)]
        if way == "together":
            node.handle_all(*tasks)
        else:
            for task in tasks:
                node.handle(task)
        known = node.scheduler.system.tasks
        kept[way] = [(each.id, each.resource) for each in known.values()]

    assert kept["together"] == kept["one by one"]
    # a slot and two places each
    places = [resource for _, resource in kept["together"]]
    assert (places.count("cpu"), places.count("gpu0")) == (3, 3)
