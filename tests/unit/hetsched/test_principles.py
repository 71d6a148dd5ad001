"""The principles A to D of loesch-2016, section III-D, in schedules checked by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builders import a_resource, a_task
from hetsched import events as e
from hetsched.actions import Preempt, Record, Run, SetTimer
from hetsched.ids import TaskId
from hetsched.system import SECOND
from hetsched.tasks import State

if TYPE_CHECKING:
    from builders import Harness, Start
    from hetsched.actions import Action

CPU, GPU, FPGA = a_resource("cpu"), a_resource("gpu"), a_resource("fpga")
NODE = [CPU, GPU, FPGA]
SECONDS = {
    "C": {"cpu": 1.0, "gpu0": 2.0, "fpga0": 4.0},
    "G": {"cpu": 8.0, "gpu0": 2.0, "fpga0": 4.0},
    "F": {"cpu": 9.0, "gpu0": 6.0, "fpga0": 3.0},
    "g": {"cpu": 20.0, "gpu0": 1.0, "fpga0": 5.0},
}
"""Capital letter: where it runs best. `g` fits the GPU, and all others worse than `G`."""


def came(task: int, resource: str) -> Record:
    """Expect it to wait where it fits best at once (principle A)."""
    return Record(TaskId(task), State.QUEUED, "submitted", resource)


def ran(task: int, epoch: int, resource: str) -> list[Action]:
    return [
        Run(TaskId(task), epoch, resource),
        Record(TaskId(task), State.RUNNING, "dispatched", resource),
    ]


def finished(task: int, resource: str) -> Record:
    return Record(TaskId(task), State.COMPLETED, "completed", resource)


# ---------------------------------------------------------------- A


def test_a_each_task_goes_to_the_resource_with_the_highest_affinity(
    a_scheduler: Start,
) -> None:
    node = a_scheduler(NODE, SECONDS, "affinity")

    actions = [node.handle(a_task(n, t)) for n, t in enumerate("CGFG", start=1)]

    assert actions == [
        [came(1, "cpu"), *ran(1, 1, "cpu")],
        [came(2, "gpu0"), *ran(2, 2, "gpu0")],
        [came(3, "fpga0"), *ran(3, 3, "fpga0")],
        [came(4, "gpu0")],
    ]


def test_a_alone_leaves_resources_idle(a_scheduler: Start) -> None:
    node = a_scheduler(NODE, SECONDS, "affinity")
    node.handle_all(a_task(1, "G"), a_task(2, "G"), a_task(3, "C"))

    assert node.handle(e.TaskFinished(TaskId(3), 1)) == [finished(3, "cpu")]


def test_a_chooses_among_what_the_task_may_use(a_scheduler: Start) -> None:
    node = a_scheduler(NODE, SECONDS, "affinity")

    assert node.handle(a_task(1, "G", resources=["cpu", "fpga0"])) == [
        came(1, "fpga0"),
        *ran(1, 1, "fpga0"),
    ]
    assert node.handle(a_task(2, "G", kinds=["cpu"])) == [
        came(2, "cpu"),
        *ran(2, 2, "cpu"),
    ]


# ---------------------------------------------------------------- B


def test_b_an_idle_resource_takes_the_waiting_task_that_fits_it_best(
    a_scheduler: Start,
) -> None:
    # Affinities to the FPGA: C 1/4, G 1/2, g 1/5.
    node = a_scheduler([*NODE], SECONDS, "work-conserving")
    node.handle(a_task(1, "F"))
    node.handle(a_task(2, "G"))
    node.handle(a_task(3, "C"))
    node.handle_all(a_task(4, "g"), a_task(5, "C"), a_task(6, "G"))

    actions = node.handle(e.TaskFinished(TaskId(1), 1))

    assert actions == [finished(1, "fpga0"), *ran(6, 4, "fpga0")]


def test_b_takes_the_first_to_arrive_among_equals(a_scheduler: Start) -> None:
    node = a_scheduler(NODE, SECONDS, "work-conserving")
    for number, task_type in enumerate("FCGGG", start=1):
        node.handle(a_task(number, task_type))

    actions = node.handle(e.TaskFinished(TaskId(1), 1))

    assert actions == [finished(1, "fpga0"), *ran(4, 4, "fpga0")]


def test_b_of_several_idle_resources_the_best_fitting_takes_the_task(
    a_scheduler: Start,
) -> None:
    node = a_scheduler(NODE, SECONDS, "work-conserving")
    node.handle(a_task(1, "G"))

    # Affinities of G: CPU 1/4, FPGA 1/2.
    assert node.handle(a_task(2, "G")) == [came(2, "gpu0"), *ran(2, 2, "fpga0")]
    assert node.handle(a_task(3, "G")) == [came(3, "gpu0"), *ran(3, 3, "cpu")]
    assert node.handle(a_task(4, "G")) == [came(4, "gpu0")]


def test_b_leaves_a_task_for_the_slot_that_is_free_for_it(a_scheduler: Start) -> None:
    node = a_scheduler(NODE, SECONDS, "work-conserving")

    assert node.handle(a_task(1, "G")) == [came(1, "gpu0"), *ran(1, 1, "gpu0")]


def test_b_takes_what_waits_behind_a_task_that_leaves_by_d(a_scheduler: Start) -> None:
    node = a_scheduler(NODE, SECONDS, "migration")
    node.handle_all(a_task(1, "G"), a_task(2, "G"), a_task(3, "G"))

    left = node.handle(e.TaskFinished(TaskId(1), 2), at=1.0)
    idle = node.handle(e.TaskFinished(TaskId(2), 3), at=1.1)
    taken = node.handle(a_task(4, "C"), at=1.2)

    # 3 is on its way from the CPU to the GPU; the FPGA need not stand idle until then
    assert left == [finished(1, "gpu0"), Preempt(TaskId(3), 1)]
    assert idle == [finished(2, "fpga0")]
    assert taken == [came(4, "cpu"), *ran(4, 4, "fpga0")]


def test_b_never_takes_what_cannot_run_there(a_scheduler: Start) -> None:
    node = a_scheduler(NODE, SECONDS, "work-conserving")
    node.handle(a_task(1, "G", kinds=["gpu"]))

    assert node.handle(a_task(2, "G", kinds=["gpu"])) == [came(2, "gpu0")]


# ---------------------------------------------------------------- C


def a_misplaced_task(a_scheduler: Start, **parameters: float) -> Harness:
    """Two G at 0 s: one on the GPU, and one that had to go to the CPU; FPGA drained."""
    node = a_scheduler(NODE, SECONDS, "migration", **parameters)
    node.handle(e.ResourceDrained("fpga0"))
    node.handle(a_task(1, "G"))
    node.handle(a_task(2, "G"))
    return node


def test_c_a_task_makes_way_for_one_that_fits_better(a_scheduler: Start) -> None:
    node = a_misplaced_task(a_scheduler)

    asked = node.handle(a_task(3, "C"), at=1.0)
    yielded = node.handle(e.TaskYielded(TaskId(2), 2, 0.1), at=1.1)

    assert asked == [came(3, "cpu"), Preempt(TaskId(2), 2)]
    assert yielded == [
        Record(TaskId(2), State.PREEMPTED, "preempted", "gpu0"),
        *ran(3, 3, "cpu"),
    ]


def test_c_a_preempted_task_goes_first_where_it_fits_best(a_scheduler: Start) -> None:
    node = a_misplaced_task(a_scheduler)
    node.handle(a_task(3, "G"), at=0.5)
    node.handle(a_task(4, "C"), at=1.0)
    node.handle(e.TaskYielded(TaskId(2), 2, 0.1), at=1.1)

    actions = node.handle(e.TaskFinished(TaskId(1), 1), at=2.0)

    assert actions == [finished(1, "gpu0"), *ran(2, 2, "gpu0")]


def test_c_spares_a_task_where_it_fits_best(a_scheduler: Start) -> None:
    node = a_scheduler([GPU], SECONDS, "migration")
    node.handle(a_task(1, "F"))

    # The GPU is the best that is left for F, so its affinity is 1.
    assert node.handle(a_task(2, "G")) == [came(2, "gpu0")]


def test_c_one_task_makes_way_for_one_task(a_scheduler: Start) -> None:
    node = a_scheduler([a_resource("cpu", slots=2), GPU], SECONDS, "migration")
    for number in (1, 2, 3):
        node.handle(a_task(number, "G"))

    first = node.handle(a_task(4, "C"), at=1.0)
    second = node.handle(a_task(5, "C"), at=1.1)
    third = node.handle(a_task(6, "C"), at=1.2)

    assert first == [came(4, "cpu"), Preempt(TaskId(2), 2)]
    assert second == [came(5, "cpu"), Preempt(TaskId(3), 3)]
    assert third == [came(6, "cpu")]


def test_c_each_victim_is_weighed_against_the_task_that_replaces_it(
    a_scheduler: Start,
) -> None:
    node = a_scheduler([a_resource("cpu", slots=2), GPU], SECONDS, "migration")
    node.handle(e.ResourceLost("gpu0"))
    for number, task_type in enumerate("ggCg", start=1):
        node.handle(a_task(number, task_type))

    # Affinities to the CPU from now on: C 1, g 1/20. Task 3 is better than task 1, but
    # task 4 no better than task 2.
    asked = node.handle(e.ResourceReturned("gpu0"), at=1.0)

    assert asked == [Preempt(TaskId(1), 1)]


def test_c_a_cancelled_task_makes_way_already(a_scheduler: Start) -> None:
    node = a_scheduler([a_resource("cpu", slots=2), GPU], SECONDS, "migration")
    for number in (1, 2, 3):
        node.handle(a_task(number, "G"))
    node.handle(e.TaskCancelled(TaskId(2)), at=0.9)

    assert node.handle(a_task(4, "C"), at=1.0) == [came(4, "cpu")]


# ---------------------------------------------------------------- D


def test_d_a_running_task_moves_to_an_idle_resource_that_fits_better(
    a_scheduler: Start,
) -> None:
    node = a_misplaced_task(a_scheduler)

    asked = node.handle(e.TaskFinished(TaskId(1), 1), at=2.0)
    moved = node.handle(e.TaskYielded(TaskId(2), 2, 0.25), at=2.1)

    assert asked == [finished(1, "gpu0"), Preempt(TaskId(2), 2)]
    assert moved == [
        Record(TaskId(2), State.PREEMPTED, "preempted", "gpu0"),
        *ran(2, 2, "gpu0"),
    ]


def test_d_moves_to_any_better_resource_where_the_best_is_busy(
    a_scheduler: Start,
) -> None:
    node = a_misplaced_task(a_scheduler)

    # Affinities of G: CPU 1/4, FPGA 1/2.
    asked = node.handle(e.ResourceReturned("fpga0"), at=1.0)
    moved = node.handle(e.TaskYielded(TaskId(2), 2, 0.1), at=1.1)
    # The CPU, where it came from, is worse: there is nothing to look at again.
    started = node.handle(e.TaskStarted(TaskId(2), 2), at=1.2)

    assert asked == [Preempt(TaskId(2), 2)]
    assert moved == [
        Record(TaskId(2), State.PREEMPTED, "preempted", "fpga0"),
        *ran(2, 2, "fpga0"),
    ]
    assert started == []


def test_d_the_task_that_gains_most_moves(a_scheduler: Start) -> None:
    node = a_scheduler([a_resource("cpu", slots=2), GPU], SECONDS, "migration")
    for number, task_type in enumerate("GGg", start=1):
        node.handle(a_task(number, task_type))

    # On the GPU instead of the CPU, G gains 3/4 and g 19/20.
    asked = node.handle(e.TaskFinished(TaskId(1), 1), at=1.0)

    assert asked == [finished(1, "gpu0"), Preempt(TaskId(3), 3)]


def test_d_waiting_tasks_go_first(a_scheduler: Start) -> None:
    node = a_misplaced_task(a_scheduler)
    node.handle(a_task(3, "G"), at=0.5)

    actions = node.handle(e.TaskFinished(TaskId(1), 1), at=2.0)

    assert actions == [finished(1, "gpu0"), *ran(3, 3, "gpu0")]


def test_d_an_idle_resource_is_kept_for_the_task_that_comes(a_scheduler: Start) -> None:
    node = a_scheduler([a_resource("cpu", slots=2), GPU], SECONDS, "migration")
    for number in (1, 2, 3):
        node.handle(a_task(number, "G"))
    node.handle(e.TaskFinished(TaskId(1), 1), at=1.0)

    # Task 2 was asked to move to the GPU, so task 3 stays.
    assert node.handle(e.StripsDone(TaskId(3), 3, 0.1), at=1.1) == []


# ---------------------------------------------------------------- the heuristic


def test_a_task_with_little_left_is_not_moved(a_scheduler: Start) -> None:
    node = a_misplaced_task(a_scheduler, minimum_remaining_s=1.0)

    # 8 s on the CPU: at 7.5 s half a second is left.
    assert node.handle(e.TaskFinished(TaskId(1), 1), at=7.5) == [finished(1, "gpu0")]


def moved_by_a_drain(a_scheduler: Start) -> Harness:
    """One G that ran on the GPU, and since 1 s on the CPU, as the GPU was drained."""
    node = a_scheduler([CPU, GPU], SECONDS, "migration", minimum_run_s=2.0)
    node.handle(a_task(1, "G"))
    node.handle(e.ResourceDrained("gpu0"), at=1.0)
    node.handle(e.TaskYielded(TaskId(1), 1, 0.1), at=1.0)
    return node


def test_a_task_just_moved_is_moved_back_when_it_has_settled(
    a_scheduler: Start,
) -> None:
    node = moved_by_a_drain(a_scheduler)

    returned = node.handle(e.ResourceReturned("gpu0"), at=1.5)
    progressed = node.handle(e.StripsDone(TaskId(1), 1, 0.2), at=2.999)
    settled = node.handle(e.TimerFired(), at=3.0)

    assert returned == [SetTimer(3 * SECOND)]
    assert progressed == [SetTimer(3 * SECOND)]
    assert settled == [Preempt(TaskId(1), 1)]


def test_a_task_just_moved_does_not_make_way_before_it_has_settled(
    a_scheduler: Start,
) -> None:
    node = moved_by_a_drain(a_scheduler)
    node.handle(e.ResourceReturned("gpu0"), at=1.5)
    node.handle(a_task(2, "G"), at=1.6)

    early = node.handle(a_task(3, "C"), at=2.0)
    late = node.handle(e.TimerFired(), at=3.0)

    assert early == [came(3, "cpu"), SetTimer(3 * SECOND)]
    assert late == [Preempt(TaskId(1), 1)]


def test_a_task_just_moved_may_move_on_to_a_third_resource(
    a_scheduler: Start,
) -> None:
    node = a_scheduler(NODE, SECONDS, "migration", minimum_run_s=9.0)
    node.handle(e.ResourceDrained("fpga0"))
    node.handle(a_task(1, "G"))
    node.handle(e.ResourceDrained("gpu0"), at=1.0)
    node.handle(e.TaskYielded(TaskId(1), 1, 0.1), at=1.0)

    # It came from the GPU, 1 s ago; the FPGA is free to take it.
    assert node.handle(e.ResourceReturned("fpga0"), at=2.0) == [Preempt(TaskId(1), 1)]
