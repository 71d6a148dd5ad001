"""`authors-code` of mokhtari-felare: what a mapper knows of a task is drawn once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builders import a_resource, a_task
from hetsched.events import TimerFired
from hetsched.ids import TaskId
from hetsched.planning.interpretation import MappingParameters
from hetsched.planning.mapper import input_of
from hetsched.policy import Place

if TYPE_CHECKING:
    from builders import Harness, Start

AS_THE_AUTHORS_CODE = MappingParameters(reading="authors-code").interpretation()
NODE = [a_resource("cpu"), a_resource("gpu")]
SECONDS = {"a": {"cpu": 4.0, "gpu0": 2.0}, "b": {"cpu": 3.0, "gpu0": 5.0}}


def waiting_times(node: Harness) -> dict[int, dict[str, int]]:
    """Times of the waiting tasks as the mapper sees them now."""
    given = input_of(node.scheduler.system, AS_THE_AUTHORS_CODE)
    return {
        task.id: dict(bucket.expected)
        for bucket in given.buckets
        for _, _, task in bucket.order.entries()
    }


def test_every_pass_sees_the_same_times(a_scheduler: Start) -> None:
    node = a_scheduler(NODE, SECONDS, "mm", places=1)
    node.handle_all(*(a_task(n, "ab"[n % 2]) for n in range(1, 12)))
    first = waiting_times(node)

    node.handle(TimerFired(), at=0.5)

    assert first
    assert waiting_times(node) == first
    assert len({times["cpu"] for times in first.values()}) == len(first)


def test_a_task_keeps_its_time_when_it_is_mapped(a_scheduler: Start) -> None:
    node = a_scheduler(NODE, SECONDS, "mm", places=1)
    for number in range(1, 8):
        node.handle(a_task(number, "a"))
    before = waiting_times(node)
    task = min(before)
    system, state = node.scheduler.system, node.scheduler.state

    place = Place(TaskId(task), "cpu", rank=9.0)
    state.place(place.task, place.resource, place.rank)

    cpu = next(
        m for m in input_of(system, AS_THE_AUTHORS_CODE).machines if m.name == "cpu"
    )
    assert [each.expected for each in cpu.queue if each.task.id == task] == [
        before[task]["cpu"]
    ]
