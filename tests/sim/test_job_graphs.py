"""Jobs whose tasks read each other's results, in the simulator."""

from __future__ import annotations

import msgspec
import pytest

from hetsim.report import print_result
from hetsim.result import JobResult
from hetsim.scenario import Crash, Scenario, decode_scenario
from hetsim.simulate import simulate
from libtask.errors import InputError
from scenario_builders import a_node, a_scenario, a_type, run_trace


def two_steps(**second: object) -> Scenario:
    node = a_node("cpu") + a_node("gpu0", link_bytes_per_s=100.0)
    return a_scenario(
        node,
        [
            a_type("first", cpu=1.0, output_bytes=200),
            a_type("second", gpu0=2.0),
        ],
        [
            {"id": "a", "type": "first", "job": "j"},
            {"id": "b", "type": "second", "job": "j", **second},
        ],
    )


def test_an_input_is_copied_over_the_link_before_its_task_computes() -> None:
    scenario = two_steps(inputs=[{"from": "a"}])

    assert run_trace(scenario, "affinity") == {"a": "cpu 0-1", "b": "gpu0 3-5"}


def test_an_input_may_have_a_size_of_its_own() -> None:
    scenario = two_steps(inputs=[{"from": "a", "bytes": 50}])

    assert run_trace(scenario, "affinity") == {"a": "cpu 0-1", "b": "gpu0 1.5-3.5"}


def test_a_result_that_is_on_the_resource_already_is_not_copied() -> None:
    scenario = a_scenario(
        a_node("gpu0", link_bytes_per_s=100.0),
        [a_type("only", gpu0=1.0, output_bytes=500)],
        [
            {"id": "a", "type": "only"},
            {"id": "b", "type": "only", "inputs": [{"from": "a"}]},
        ],
    )

    assert run_trace(scenario, "affinity") == {"a": "gpu0 0-1", "b": "gpu0 1-2"}


def test_the_result_tells_completion_and_slowdown_of_each_job(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = simulate(two_steps(inputs=[{"from": "a"}]), "affinity")

    assert result.jobs == [JobResult("j", 0.0, 5.0, 5.0, 3.0, 5.0 / 3.0)]
    print_result(result, ["cpu", "gpu0"])
    assert "slowdown" in capsys.readouterr().out


def test_a_job_with_a_task_that_failed_has_no_completion() -> None:
    scenario = msgspec.structs.replace(
        two_steps(after=["a"]), crashes=[Crash("first", "cpu")]
    )

    result = simulate(scenario, "affinity")

    assert result.counts["completed"] == 0
    assert result.jobs == [JobResult("j", 0.0, None, None, 3.0, None)]


def test_an_input_of_an_unknown_task_is_refused() -> None:
    text = """{"format": "hetsim/scenario-1", "resources": [{"name": "cpu"}],
      "types": [{"name": "t", "seconds": {"cpu": 1}}],
      "tasks": [{"id": "a", "type": "t", "inputs": [{"from": "z"}]}]}"""

    with pytest.raises(InputError, match=r'tasks\[0\].inputs\[0\].from: no task "z"'):
        decode_scenario(text)


def test_tasks_that_read_each_other_are_refused() -> None:
    with pytest.raises(InputError, match="a circle"):
        a_scenario(
            a_node("cpu"),
            [a_type("t", cpu=1.0)],
            [
                {"id": "a", "type": "t", "inputs": [{"from": "b"}]},
                {"id": "b", "type": "t", "after": ["a"]},
            ],
        )
