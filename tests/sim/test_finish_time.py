"""What `finish-time` does otherwise than the paper, in schedules one can check by hand."""

from __future__ import annotations

import msgspec
import pytest

from hetsim.arena.generator import draw, read_generator
from hetsim.simulate import simulate
from scenario_builders import a_node, a_scenario, a_type, run_trace, trace

CPU_GPU = a_node("cpu", "gpu0")


def test_the_longest_task_goes_first_where_slots_would_idle_at_the_end() -> None:
    scenario = a_scenario(
        a_node("gpu0", slots=2),
        [a_type("short", gpu0=3), a_type("long", gpu0=9)],
        [(f"s{n}", "short", 0) for n in (1, 2, 3)] + [("l1", "long", 0)],
    )

    assert run_trace(scenario, "finish-time") == {
        "l1": "gpu0 0-9",
        "s1": "gpu0 0-3",
        "s2": "gpu0 3-6",
        "s3": "gpu0 6-9",
    }


def test_short_tasks_go_first_where_the_end_is_the_same() -> None:
    scenario = a_scenario(
        a_node("gpu0"),
        [a_type("short", gpu0=2), a_type("long", gpu0=9)],
        [("l1", "long", 0), ("s1", "short", 0), ("s2", "short", 0)],
    )

    assert run_trace(scenario, "finish-time") == {
        "s1": "gpu0 0-2",
        "s2": "gpu0 2-4",
        "l1": "gpu0 4-13",
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


def test_a_guess_that_may_be_wrong_by_far_keeps_no_task_where_it_looks_slower() -> None:
    # the GPU's time is predicted from other sizes: a relative deviation of 2.9
    guessed = a_type("heat", 100, cpu=10, gpu0=142, spread={"cpu": 0.1, "gpu0": 2.9})
    scenario = a_scenario(
        CPU_GPU,
        [guessed, a_type("other", cpu=12)],
        [("o", "other", 0), ("h", "heat", 1)],
    )

    result = simulate(scenario, "finish-time")

    assert result.makespan < 25


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
    # until the GPU is free the CPU would save it 5 s; a move takes 4 s, or 6 s
    def trace(move: float) -> str:
        scenario = a_scenario(
            CPU_GPU,
            [a_type("g", cpu=20, gpu0=10, migration_s=move)],
            [("g1", "g", 0), ("g2", "g", 0)],
        )
        return str(run_trace(scenario, "finish-time")["g2"])

    assert trace(4) == "cpu 0-10, gpu0 14-19"
    assert trace(6) == "gpu0 10-20"


def test_an_idle_resource_takes_a_task_of_one_strip_that_ends_sooner_there() -> None:
    # the GPU would have done all four at 40 s
    scenario = a_scenario(
        CPU_GPU,
        [a_type("g", strips=1, cpu=25, gpu0=10)],
        [(f"g{n}", "g", 0) for n in (1, 2, 3, 4)],
    )

    assert run_trace(scenario, "finish-time") == {
        "g1": "gpu0 0-10",
        "g2": "cpu 0-25",
        "g3": "gpu0 10-20",
        "g4": "gpu0 20-30",
    }


def test_few_long_tasks_on_several_slots_take_as_long_as_the_longest() -> None:
    # five tasks, 125 s on three slots: one of them waits until 30 s, and ends at 60 s
    scenario = a_scenario(
        a_node("gpu0", slots=3) + a_node("fpga0"),
        [a_type("g", strips=1, gpu0=30, fpga0=45), a_type("s", strips=1, gpu0=5)],
        [("s1", "s", 0), *((f"g{n}", "g", 0) for n in (1, 2, 3, 4))],
    )

    assert run_trace(scenario, "finish-time") == {
        "s1": "gpu0 0-5",
        "g1": "gpu0 0-30",
        "g2": "gpu0 0-30",
        "g3": "fpga0 0-45",
        "g4": "gpu0 5-35",
    }


def test_what_would_cross_slow_links_stays() -> None:
    # 1 GB over 0.1 GB/s, twice: 20 s to save 13
    links = a_node("gpu0", "fpga0", link_bytes_per_s=1e8)
    scenario = a_scenario(
        links,
        [
            a_type("g", strips=100, gpu0=60, fpga0=40, state_bytes=1e9),
            a_type("f", strips=1, fpga0=5),
        ],
        [("f1", "f", 0), ("g1", "g", 0)],
    )

    assert run_trace(scenario, "finish-time") == {
        "f1": "fpga0 0-5",
        "g1": "fpga0 5-45",
    }
    assert run_trace(scenario, "migration")["g1"] == "gpu0 0-5.4, fpga0 25.4-61.8"


def test_a_helper_takes_what_it_is_good_at() -> None:
    # CPU and GPU have as much to do; the FPGA takes 12 s for what the CPU does in 10 s,
    # 28 s for what the GPU does in 10 s, which would end at 52 s
    scenario = a_scenario(
        a_node("cpu", "gpu0", "fpga0"),
        [
            a_type("g", strips=1, gpu0=10, fpga0=28),
            a_type("c", strips=1, cpu=10, fpga0=12),
        ],
        [(f"{kind}{n}", kind, 0) for kind in "gc" for n in (1, 2, 3, 4)],
    )

    assert run_trace(scenario, "finish-time") == {
        "g1": "gpu0 0-10",
        "g2": "gpu0 10-20",
        "g3": "gpu0 20-30",
        "g4": "gpu0 30-40",
        "c1": "cpu 0-10",
        "c2": "fpga0 0-12",
        "c3": "cpu 10-20",
        "c4": "fpga0 12-24",
    }
    assert run_trace(scenario, "migration")["g4"] == "fpga0 24-52"


def test_of_several_that_share_a_processor_all_but_one_leave_it() -> None:
    # no single move makes the last of them end sooner, as two would still share
    scenario = a_scenario(
        a_node("cpu", slots=3, sharing="processor") + a_node("gpu0", slots=3),
        [
            a_type("g", strips=200, cpu=20, gpu0=20, migration_s=0.5),
            a_type("blocks", strips=1, gpu0=10),
        ],
        [(f"{kind[0]}{n}", kind, 0) for kind in ("blocks", "g") for n in (1, 2, 3)],
    )

    assert run_trace(scenario, "finish-time") == {
        "b1": "gpu0 0-10",
        "b2": "gpu0 0-10",
        "b3": "gpu0 0-10",
        "g1": "cpu 0-26.8",
        "g2": "cpu 0-10.2, gpu0 10.7-27.3",
        "g3": "cpu 0-10.2, gpu0 10.7-27.3",
    }


@pytest.mark.parametrize("seed", [8, 19, 25, 1075])
def test_it_is_not_worse_than_the_rules_that_it_plays(seed: int) -> None:
    # all tasks are there at once: what it foresees is what happens
    everything_at_once = msgspec.structs.replace(read_generator(), arrivals=["static"])
    scenario = draw(seed, everything_at_once).scenario

    ends = {
        name: simulate(scenario, name).makespan
        for name in ("finish-time", "affinity", "work-conserving", "migration")
    }

    assert ends["finish-time"] <= 1.0001 * min(ends.values())


def test_whether_help_was_right_depends_on_what_arrives_later() -> None:
    # until 1 s both are the same for any policy: helping is right for one, waiting for the other
    types = [a_type("g", strips=1, cpu=15, gpu0=10), a_type("c", strips=1, cpu=20)]
    present = [("g1", "g", 0.0), ("g2", "g", 0.0)]
    nothing_more = a_scenario(CPU_GPU, types, present)
    one_more = a_scenario(CPU_GPU, types, [*present, ("c1", "c", 1.0)])
    helped = {"g1": "gpu0 0-10", "g2": "cpu 0-15"}
    waited = {"g1": "gpu0 0-10", "g2": "gpu0 10-20"}

    assert run_trace(nothing_more, "finish-time") == helped
    assert run_trace(nothing_more, "affinity") == waited
    assert run_trace(one_more, "finish-time") == {**helped, "c1": "cpu 15-35"}
    assert run_trace(one_more, "affinity") == {**waited, "c1": "cpu 1-21"}


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


def test_the_task_that_gains_most_is_moved() -> None:
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

    # the dear one gains more of the GPU, and would otherwise be last; the other one follows
    assert found == {
        "b": "gpu0 0-8",
        "d": "cpu 0.5-8, gpu0 11-17.25",
        "c": "cpu1 0.5-17.3, gpu0 17.8-19.4",
    }


def test_each_further_move_of_a_task_must_be_more_certain() -> None:
    # the FPGA would end it 7 s sooner, at 20 s, after its move from the CPU
    def trace(spread: float) -> dict[str | int, str]:
        everywhere = dict.fromkeys(("cpu", "gpu0", "fpga0"), spread)
        seconds = {"cpu": 100, "gpu0": 50, "fpga0": 40}
        scenario = a_scenario(
            a_node("cpu", "gpu0", "fpga0"),
            [
                a_type("m", strips=100, spread=everywhere, **seconds),
                a_type("short", strips=1, gpu0=10),
                a_type("long", strips=1, fpga0=20),
            ],
            [("s", "short", 0), ("l", "long", 0), ("m", "m", 0.5)],
        )
        return run_trace(scenario, "finish-time")

    others: dict[str | int, str] = {"s": "gpu0 0-10", "l": "fpga0 0-20"}
    assert trace(0.0) == {**others, "m": "cpu 0.5-10.5, gpu0 10.5-20, fpga0 20-48.4"}
    assert trace(0.2) == {**others, "m": "cpu 0.5-10.5, gpu0 10.5-55.5"}


def test_a_load_that_comes_and_goes_hardly_moves_tasks() -> None:
    # every other 10 s other programs make the CPU 2.2 times slower, slower than the GPU
    steps = [[10.0 * number, 1.6 * (number % 2)] for number in range(12)]
    scenario = a_scenario(
        a_node("cpu", uses={"memory": "host"}) + a_node("gpu0"),
        [
            a_type(
                "m",
                strips=200,
                cpu=30,
                gpu0=45,
                migration_s=0.2,
                load={"cpu": {"host": 0.6}},
                bound={"cpu": {"host": 1.0}},
            )
        ],
        [("m1", "m", 0), ("m2", "m", 25), ("m3", "m", 50)],
        shared=[{"name": "host", "kind": "memory"}],
        background=[{"shared": "host", "steps": steps}],
    )

    def run(policy: str, **parameters: float) -> dict[str | int, str]:
        return trace(simulate(scenario, policy, parameters, correct=True))

    # who does not know why tasks take longer leaves them where they are...
    assert run("finish-time", crowded_gain=0.0) == {
        "m1": "cpu 0-40.9091",
        "m2": "gpu0 25-70",
        "m3": "cpu 50-92",
    }
    # ...by what each move must save
    careless = {"caution": 0.0, "least_gain": 0.0, "crowded_gain": 0.0}
    assert run("finish-time", **careless) == {
        "m1": "cpu 0-25.1045, gpu0 25.3045-40.8295",
        "m2": "cpu 25.1045-50.13, gpu0 50.33-66.08",
        "m3": "cpu 50.13-76.74, gpu0 76.94-95.615",
    }
    # one that is known to be slowed down leaves once: 4 s sooner in all
    assert run("finish-time") == {
        "m1": "cpu 0-25.1045, gpu0 25.3045-40.8295",
        "m2": "cpu 25.1045-50.13, gpu0 50.33-66.08",
        "m3": "cpu 50.13-92.13",
    }
    assert run("migration")["m3"] == "gpu0 50-66.2, cpu 66.4-75.28, gpu0 75.48-95.28"
