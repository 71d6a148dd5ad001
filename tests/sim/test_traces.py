"""Schedules that one can check by hand, the whole trace asserted."""

from __future__ import annotations

from typing import Any

import pytest

from hetsim.simulate import simulate
from scenario_builders import a_node, a_scenario, a_type, run_trace

CPU_GPU = a_node("cpu", "gpu0")
FITS_CPU = a_type("c", cpu=10, gpu0=20)
FITS_GPU = a_type("g", cpu=20, gpu0=10)


def test_a_every_task_waits_for_the_resource_that_fits_it_best() -> None:
    scenario = a_scenario(
        CPU_GPU,
        [FITS_CPU, FITS_GPU],
        [("g1", "g", 0), ("g2", "g", 0), ("c1", "c", 3)],
    )

    assert run_trace(scenario, "affinity") == {
        "g1": "gpu0 0-10",
        "g2": "gpu0 10-20",
        "c1": "cpu 3-13",
    }


def test_b_an_idle_resource_takes_the_waiting_task_that_fits_it_best() -> None:
    scenario = a_scenario(
        CPU_GPU,
        [FITS_CPU, FITS_GPU, a_type("better", cpu=15, gpu0=10)],
        [("c1", "c", 0), ("g1", "g", 0), ("g2", "g", 0), ("b1", "better", 0)],
    )

    assert run_trace(scenario, "work-conserving") == {
        "c1": "cpu 0-10",
        "g1": "gpu0 0-10",
        "g2": "gpu0 10-20",
        "b1": "cpu 10-25",
    }


def test_c_a_task_makes_way_at_its_next_checkpoint_for_one_that_fits_better() -> None:
    # g2 helps out on the CPU in strips of 2 s; c1 arrives in the middle of the second
    scenario = a_scenario(
        CPU_GPU,
        [FITS_CPU, FITS_GPU],
        [("g1", "g", 0), ("g2", "g", 0), ("c1", "c", 3)],
    )

    assert run_trace(scenario, "migration") == {
        "g1": "gpu0 0-10",
        "g2": "cpu 0-4, gpu0 10-18",
        "c1": "cpu 4-14",
    }


def test_d_a_task_moves_to_a_better_resource_that_has_nothing_left() -> None:
    # half of g2 is done when the GPU falls idle; moving takes 0.5 s and 1 GB each way
    slow_link = a_node("cpu") + a_node("gpu0", link_bytes_per_s=1e9)
    scenario = a_scenario(
        slow_link,
        [a_type("g", cpu=20, gpu0=10, migration_s=0.5, state_bytes=1e9)],
        [("g1", "g", 0), ("g2", "g", 0)],
    )

    assert run_trace(scenario, "migration") == {
        "g1": "gpu0 0-10",
        "g2": "cpu 0-10, gpu0 11.5-16.5",
    }


def test_b_takes_what_waits_behind_a_task_that_leaves_by_d() -> None:
    # m was asked at 2 s to go to the FPGA, at its checkpoint: no slot was made for w
    scenario = a_scenario(
        a_node("cpu", "gpu0", "fpga0"),
        [
            a_type("blocks", strips=1, fpga0=2),
            a_type("m", strips=2, gpu0=20, fpga0=10),
            a_type("w", strips=1, cpu=12, gpu0=10),
        ],
        [("b", "blocks", 0), ("m", "m", 0), ("w", "w", 3)],
    )

    assert run_trace(scenario, "migration") == {
        "b": "fpga0 0-2",
        "m": "gpu0 0-10, fpga0 10-15",
        "w": "cpu 3-15",
    }


@pytest.mark.parametrize("sharing", [None, "processor"])
def test_copying_out_holds_the_source(sharing: str | None) -> None:
    # g2 makes way for c1 at 4 s; its slot is free when a GB is copied out, at 5 s
    linked = a_node("fpga0", link_bytes_per_s=1e9, sharing=sharing) + a_node("gpu0")
    scenario = a_scenario(
        linked,
        [
            a_type("g", fpga0=20, gpu0=10, migration_s=0.5, state_bytes=1e9),
            a_type("c", fpga0=10, gpu0=20),
        ],
        [("g1", "g", 0), ("g2", "g", 0), ("c1", "c", 3)],
    )

    assert run_trace(scenario, "migration") == {
        "g1": "gpu0 0-10",
        "g2": "fpga0 0-4, gpu0 10.5-18.5",
        "c1": "fpga0 5-15",
    }


def test_what_yielded_is_copied_in_again_where_it_was() -> None:
    # b1 makes way at 2 s, and again for 1 s of copying goes on where it was
    scenario = a_scenario(
        a_node("gpu0", link_bytes_per_s=1e9) + a_node("fpga0"),
        [
            a_type("both", fpga0=10, gpu0=20, state_bytes=1e9),
            a_type("only", strips=1, gpu0=4),
            a_type("blocks", strips=1, fpga0=50),
        ],
        [("x", "blocks", 0), ("b1", "both", 0), ("o1", "only", 2)],
    )

    assert run_trace(scenario, "migration") == {
        "x": "fpga0 0-50",
        "b1": "gpu0 0-2, gpu0 8-26",
        "o1": "gpu0 3-7",
    }


def test_a_task_that_is_copied_out_can_be_lost() -> None:
    # the GPU fails at 4.5 s, while g2 is copied out: it begins again
    scenario = a_scenario(
        a_node("gpu0", link_bytes_per_s=1e9) + a_node("cpu"),
        [
            a_type("g", gpu0=20, cpu=10, state_bytes=1e9),
            a_type("c", gpu0=10, cpu=200),
        ],
        [("g1", "g", 0), ("g2", "g", 0), ("c1", "c", 3)],
        outages=[{"resource": "gpu0", "start": 4.5, "finish": 30}],
    )

    assert run_trace(scenario, "migration") == {
        "g1": "cpu 0-10",
        "g2": "gpu0 0-4, cpu 10-20",
        "c1": "cpu 20-40, gpu0 40-49",
    }


def test_strips_of_one_run_to_completion() -> None:
    scenario = a_scenario(
        CPU_GPU,
        [a_type("g", strips=1, cpu=20, gpu0=10)],
        [("g1", "g", 0), ("g2", "g", 0)],
    )

    assert run_trace(scenario, "migration") == {"g1": "gpu0 0-10", "g2": "cpu 0-20"}


def test_slots_run_at_full_speed_and_a_shared_processor_divides_it() -> None:
    tasks = [("a", "c", 0), ("b", "c", 0), ("d", "c", 6)]
    types = [a_type("c", cpu=10)]

    slots = a_scenario(a_node("cpu", slots=3), types, tasks)
    shared = a_scenario(a_node("cpu", slots=3, sharing="processor"), types, tasks)

    assert run_trace(slots, "affinity") == {
        "a": "cpu 0-10",
        "b": "cpu 0-10",
        "d": "cpu 6-16",
    }
    # each has done 3 s at 6 s; a third of the speed for 21 s; then d alone for 3 s
    assert run_trace(shared, "affinity") == {
        "a": "cpu 0-27",
        "b": "cpu 0-27",
        "d": "cpu 6-30",
    }


def test_what_happens_may_differ_from_what_is_expected() -> None:
    scenario = a_scenario(
        CPU_GPU,
        [FITS_GPU],
        [{"id": "g1", "type": "g", "actual_seconds": {"gpu0": 12.5, "cpu": None}}],
    )

    assert run_trace(scenario, "affinity") == {"g1": "gpu0 0-12.5"}


def test_a_task_goes_elsewhere_when_it_fails_where_it_was_expected_to_run() -> None:
    scenario = a_scenario(
        CPU_GPU,
        [FITS_GPU],
        [{"id": "g1", "type": "g", "actual_seconds": {"gpu0": None}}],
    )

    assert run_trace(scenario, "affinity") == {"g1": "cpu 0-20"}


def test_tasks_come_after_others_and_not_after_failed_ones() -> None:
    nowhere: dict[str, Any] = {
        "id": "bad",
        "type": "c",
        "actual_seconds": {"cpu": None},
    }
    tasks: list[dict[str, Any]] = [
        {"id": "last", "type": "c", "after": ["first"]},
        {"id": "first", "type": "c", "arrival": 5},
        nowhere,
        {"id": "lost", "type": "c", "after": ["bad"]},
    ]
    scenario = a_scenario(a_node("cpu"), [a_type("c", cpu=10)], tasks)

    assert run_trace(scenario, "affinity") == {
        "first": "cpu 5-15",
        "last": "cpu 15-25",
        "bad": "- failed",
        "lost": "- cancelled",
    }


def test_priorities_order_a_queue() -> None:
    tasks = [
        {"id": name, "type": "c", "priority": priority}
        for name, priority in (("a", 0), ("b", 0), ("urgent", 5))
    ]
    scenario = a_scenario(a_node("cpu"), [a_type("c", cpu=10)], tasks)

    assert run_trace(scenario, "affinity") == {
        "urgent": "cpu 0-10",
        "a": "cpu 10-20",
        "b": "cpu 20-30",
    }


@pytest.mark.parametrize(
    ("overrun", "expected"),
    [
        ("continue", {"a": "cpu 0-10", "b": "cpu 10-20 missed", "c": "cpu 20-30"}),
        (
            "stop_at_deadline",
            {"a": "cpu 0-10", "b": "cpu 10-15 missed", "c": "cpu 15-25"},
        ),
    ],
)
def test_overrun_decides_what_a_deadline_does(
    overrun: str, expected: dict[str, str]
) -> None:
    tasks: list[dict[str, Any]] = [
        {"id": "a", "type": "t", "deadline": 10},
        {"id": "b", "type": "t", "deadline": 15},
        {"id": "c", "type": "t", "deadline": None},
    ]
    types = [a_type("t", cpu=10, overrun=overrun)]

    assert run_trace(a_scenario(a_node("cpu"), types, tasks), "affinity") == expected


def test_tasks_never_mapped_are_cancelled() -> None:
    scenario = a_scenario(
        a_node("cpu"), [a_type("t", gpu0=10)], [("a", "t", 0), ("b", "t", 1)]
    )

    assert run_trace(scenario, "affinity") == {"a": "- cancelled", "b": "- cancelled"}


def test_a_lost_resource_loses_what_ran_there_and_a_drained_one_hands_it_on() -> None:
    task = [("g1", "g", 0)]
    away = {"resource": "gpu0", "start": 4.5}

    lost = a_scenario(CPU_GPU, [FITS_GPU], task, outages=[away])
    drained = a_scenario(CPU_GPU, [FITS_GPU], task, outages=[{**away, "drain": True}])

    assert run_trace(lost, "affinity") == {"g1": "gpu0 0-4.5, cpu 4.5-24.5"}
    assert run_trace(drained, "affinity") == {"g1": "gpu0 0-5, cpu 5-15"}


def test_a_resource_that_returns_is_used_again() -> None:
    away = {"resource": "gpu0", "start": 5, "finish": 8}
    scenario = a_scenario(
        a_node("gpu0"), [a_type("g", gpu0=10)], [("g1", "g", 0)], outages=[away]
    )

    assert run_trace(scenario, "affinity") == {"g1": "gpu0 0-5, gpu0 8-18"}


def test_bursts_are_tasks() -> None:
    burst = {"type": "g", "count": 2, "at": 3, "every": 1, "prefix": "b"}
    scenario = a_scenario(a_node("gpu0"), [a_type("g", gpu0=10)], [], bursts=[burst])

    assert run_trace(scenario, "affinity") == {"b1": "gpu0 3-13", "b2": "gpu0 13-23"}


def test_another_program_is_loaded_first() -> None:
    scenario = a_scenario(
        a_node("fpga0", reconfigure_s=2),
        [
            a_type("heat/1", fpga0=5),
            a_type("heat/2", fpga0=6),
            a_type("blur/1", fpga0=7),
        ],
        [("a", "heat/1", 0), ("b", "heat/2", 0), ("c", "blur/1", 0)],
    )

    assert run_trace(scenario, "affinity") == {
        "a": "fpga0 2-7",
        "b": "fpga0 7-13",
        "c": "fpga0 15-22",
    }


def test_energy_adds_up() -> None:
    node = a_node("cpu", "gpu0", busy_watts=100, idle_watts=10)
    scenario = a_scenario(
        node,
        [a_type("g", gpu0=10, overrun="stop_at_deadline")],
        [
            {"id": "g1", "type": "g"},
            {"id": "g2", "type": "g", "deadline": 15},
        ],
    )

    result = simulate(scenario, "affinity")

    assert result.makespan == 15
    assert result.rates == {"g": 0.5}
    assert result.counts["missed"] == 1
    assert (result.energy.busy, result.energy.wasted) == (1500, 500)
    assert (result.energy.idle, result.energy.total) == (150, 1650)


def test_energy_of_slots_counts_a_busy_resource_once() -> None:
    node = a_node("cpu", slots=2, busy_watts=100, idle_watts=10)
    scenario = a_scenario(
        node, [a_type("c", cpu=10)], [("a", "c", 0), ("b", "c", 5), ("d", "c", 20)]
    )

    energy = simulate(scenario, "affinity").energy

    assert (energy.busy, energy.idle) == (2500, 50)


def test_a_trace_is_compared_with_what_was_measured() -> None:
    scenario = a_scenario(
        a_node("cpu"), [a_type("c", cpu=10)], [("a", "c", 0)], measured_makespan=8.0
    )

    result = simulate(scenario, "affinity")

    assert (result.measured_makespan, result.makespan_error) == (8.0, 0.25)


@pytest.mark.parametrize("sharing", [None, "processor"])
def test_strips_that_vary_add_up_to_the_time_of_the_task(sharing: str | None) -> None:
    def stop(variation: float) -> tuple[float, float]:
        """Return when the task leaves the CPU, which is drained at 3.3 s, and ends."""
        scenario = a_scenario(
            a_node("cpu", sharing=sharing) + a_node("gpu0"),
            [a_type("a", cpu=10, gpu0=11, strip_variation=variation)],
            [("a", "a", 0)],
            outages=[{"resource": "cpu", "start": 3.3, "drain": True}],
        )
        (first, second) = simulate(scenario, "affinity").tasks[0].segments
        done = first.finish / 10
        assert second.finish - second.start == pytest.approx(11 * (1 - done))
        return first.finish, second.finish

    equal, varying = stop(0.0), stop(1.0)

    assert equal[0] == pytest.approx(4.0)
    assert varying[0] != pytest.approx(round(varying[0]), abs=1e-3)
    assert stop(1.0) == varying
