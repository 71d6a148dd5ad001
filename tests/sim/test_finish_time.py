"""What `finish-time` does otherwise than the paper, in schedules one can check by hand."""

from __future__ import annotations

from scenario_builders import a_node, a_scenario, a_type, run_trace

CPU_GPU = a_node("cpu", "gpu0")


def test_the_longest_task_goes_first() -> None:
    scenario = a_scenario(
        a_node("gpu0"),
        [a_type("short", gpu0=2), a_type("long", gpu0=9)],
        [("s1", "short", 0), ("s2", "short", 0), ("l1", "long", 0)],
    )

    assert run_trace(scenario, "finish-time") == {
        "l1": "gpu0 0-9",
        "s1": "gpu0 9-11",
        "s2": "gpu0 11-13",
    }


def test_tasks_that_hardly_matter_do_not_wait_for_long_ones() -> None:
    scenario = a_scenario(
        a_node("gpu0"),
        [a_type("tiny", gpu0=0.5), a_type("long", gpu0=99)],
        [("l1", "long", 0), ("t1", "tiny", 0)],
    )

    assert run_trace(scenario, "finish-time") == {
        "t1": "gpu0 0-0.5",
        "l1": "gpu0 0.5-99.5",
    }


def test_no_task_is_taken_that_would_be_finished_later() -> None:
    # it cannot be taken back, and the CPU needs 30 s where the GPU is done after 20 s
    scenario = a_scenario(
        CPU_GPU,
        [a_type("g", strips=1, cpu=30, gpu0=10)],
        [("g1", "g", 0), ("g2", "g", 0)],
    )

    assert run_trace(scenario, "finish-time") == {"g1": "gpu0 0-10", "g2": "gpu0 10-20"}
    assert run_trace(scenario, "migration")["g2"] == "cpu 0-30"


def test_no_task_is_taken_when_moving_it_back_costs_more_than_it_saves() -> None:
    # until the GPU is free the CPU would save it 5 s; a move takes 4 s
    scenario = a_scenario(
        CPU_GPU,
        [a_type("g", cpu=20, gpu0=10, migration_s=4)],
        [("g1", "g", 0), ("g2", "g", 0)],
    )

    assert run_trace(scenario, "finish-time")["g2"] == "gpu0 10-20"


def test_an_idle_resource_helps_the_one_that_has_most_to_do() -> None:
    # the task of the FPGA fits the CPU better, but the GPU has more work
    scenario = a_scenario(
        a_node("cpu", "gpu0", "fpga0"),
        [a_type("g", cpu=20, gpu0=10), a_type("f", cpu=11, fpga0=10)],
        [
            ("g1", "g", 0),
            ("g2", "g", 0),
            ("g3", "g", 0),
            ("f1", "f", 0),
            ("f2", "f", 0),
        ],
    )

    trace = run_trace(scenario, "finish-time")

    assert trace["g2"] == "cpu 0-20"
    assert trace["f2"] == "fpga0 10-20"


def test_an_idle_resource_takes_a_running_task_when_another_one_waits() -> None:
    # only the running task can run on the FPGA, where it needs twice the time
    scenario = a_scenario(
        a_node("gpu0", "fpga0"),
        [a_type("both", strips=20, gpu0=20, fpga0=40), a_type("g", gpu0=20)],
        [("b1", "both", 0), ("g1", "g", 4.5)],
    )

    trace = run_trace(scenario, "finish-time")

    assert trace["g1"] == "gpu0 5-25"
    assert trace["b1"] == "gpu0 0-5, fpga0 5-25, gpu0 25-30"


def test_what_is_almost_done_is_not_moved() -> None:
    # when the GPU is free, at 10 or 19 s, the rest takes it half the time and a move
    def trace(busy: float) -> str:
        scenario = a_scenario(
            CPU_GPU,
            [
                a_type("blocks", strips=1, gpu0=busy),
                a_type("m", strips=200, cpu=20, gpu0=10, migration_s=1),
            ],
            [("b", "blocks", 0), ("m1", "m", 0.5)],
        )
        return run_trace(scenario, "finish-time")["m1"]

    assert trace(10).startswith("cpu 0.5-10")
    assert "gpu0" in trace(10)
    assert trace(19) == "cpu 0.5-20.5"


def test_the_task_that_loses_least_is_moved() -> None:
    cheap = a_type("cheap", strips=200, gpu0=10, migration_s=0.5)
    cheap["seconds"]["cpu1"] = 20
    scenario = a_scenario(
        a_node("cpu", "cpu1", "gpu0"),
        [
            a_type("blocks", strips=1, gpu0=8),
            a_type("dear", strips=200, cpu=20, gpu0=10, migration_s=3),
            cheap,
        ],
        [("b", "blocks", 0), ("d", "dear", 0.5), ("c", "cheap", 0.5)],
    )

    found = run_trace(scenario, "finish-time")

    assert found["d"] == "cpu 0.5-20.5"
    assert found["c"].startswith("cpu1 0.5-8")
