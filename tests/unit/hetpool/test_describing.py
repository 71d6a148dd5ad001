"""Jobs from what users write, outcomes, leases, estimates: the pool's small parts."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
import threading
from concurrent.futures import CancelledError
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import cloudpickle
import pytest

from hetapps.heat import Heat
from hetpool import messages as m
from hetpool.broker.estimates import EstimateCache
from hetpool.client.describing import Input, described, zipped
from hetpool.jobs import MAX_CALL, InputFile, PoolJob
from hetpool.messages import decode, encode
from hetpool.node.lease import Lease
from hetpool.node.tasks import call_of, job_of, task_name
from hetpool.outcomes import JobOutcome, completed, result_of
from libtask.apps import goes_by_value
from libtask.errors import InputError, TaskFailedError
from libtask.parameters import FileRole, build, file_parameters, values_of
from libtask.task import Task
from unit.hetpool.fake_engine import a_job, a_node


def bring(path: Path) -> InputFile:
    return InputFile(f"{len(str(path)):064x}", 100, ("gate",), path.suffix)


def a_description(app: Any, *arguments: Any, **options: Any) -> PoolJob:
    return described(app, arguments, options, bring)


# ------------------------------------------------------------ describing


def test_an_application_by_name_has_plain_parameters() -> None:
    job = a_description("heat", {"n": 64, "input": Input("a.npy")}, priority=2)

    assert job.app == "heat"
    assert job.call == b""
    assert job.options == {"priority": 2}
    assert job.inputs[0].suffix == ".npy"
    assert job.params == {"n": 64, "input": job.inputs[0].mark}
    assert decode(PoolJob, encode(job)) == job


def test_inputs_are_found_in_lists_tuples_and_maps_and_become_paths() -> None:
    job = a_description(max, [Input("a.x"), {"deep": (Input("bb.y"), 3)}], Input("a.x"))
    assert len(job.inputs) == 2

    places = {file.mark: f"/here/{file.suffix}" for file in job.inputs}
    function, arguments = call_of(job, places)

    assert function is max
    assert arguments == (["/here/.x", {"deep": ("/here/.y", 3)}], "/here/.x")


def test_a_mark_that_is_not_an_input_stays_as_it_is() -> None:
    job = a_description("heat", {"label": "hetpool-input:" + "0" * 64})

    assert call_of(job, {}) == ("heat", ({"label": "hetpool-input:" + "0" * 64},))


def test_what_this_module_defines_travels_by_value() -> None:
    job = a_description(a_node, "n1")

    assert cloudpickle.loads(job.call)[1] == ("n1",)


def test_an_installed_application_goes_by_its_name() -> None:
    by_object = a_description(Heat(n=64, output="a.npy"))
    by_class = a_description(Heat, {"n": 64})

    assert (by_object.app, by_object.call, by_object.params["n"]) == ("heat", b"", 64)
    assert (by_class.app, by_class.params) == ("heat", {"n": 64})


@dataclass
class Own(Task):
    """An application of a module that nodes do not have."""

    n: int = 1
    input: Annotated[Path | None, FileRole.INPUT] = None


def test_a_class_of_ones_own_module_is_whole_where_the_module_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = a_description(Own(n=3))
    monkeypatch.delitem(sys.modules, __name__)

    task, arguments = call_of(job, {})

    assert arguments == ()
    assert goes_by_value(type(task))
    assert values_of(task) == {"n": 3, "input": None}
    assert file_parameters(type(task)) == {"input": FileRole.INPUT}
    with pytest.raises(InputError, match="parameter n: expected int"):
        build(type(task), {"n": "x"})


@pytest.mark.parametrize("seconds", [{"cpu": -1.0}, {"cpu": float("nan")}])
def test_senseless_expectations_are_refused_on_arrival(seconds: Any) -> None:
    with pytest.raises(InputError):
        decode(PoolJob, encode(a_job(seconds=seconds)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": "../../etc"},
        {"app": "x" * 2000},
        {"call": b"x" * (MAX_CALL + 1)},
        {"inputs": (InputFile("zz" * 32, 1),)},
        {"inputs": (InputFile("ab" * 32, -1),)},
        {"inputs": (InputFile("ab" * 32, 1, suffix=".so/../x"),)},
        {"nodes": ("a b",)},
    ],
)
def test_jobs_beyond_the_limits_are_refused(wrong: dict[str, Any]) -> None:
    fields = {"id": "ab" * 16, "app": "heat"} | wrong

    with pytest.raises(InputError):
        decode(PoolJob, encode(PoolJob(**fields)))


def test_a_value_without_plain_form_is_named() -> None:
    with pytest.raises(InputError, match="PoolJob"):
        a_description("heat", {"n": object()})


def test_an_unknown_option_is_named_with_the_one_that_may_be_meant() -> None:
    with pytest.raises(InputError, match=r"priority_.*priority"):
        a_description("heat", {"n": 64}, priority_=1)


def test_a_function_that_cannot_be_sent_is_named() -> None:
    with pytest.raises(InputError, match="cannot be sent"):
        a_description(max, threading.Lock())


def test_map_names_the_parameters_of_an_application() -> None:
    assert zipped("correlation", [["a.npy", "b.npy"]]) == [
        ({"input": "a.npy"},),
        ({"input": "b.npy"},),
    ]
    assert zipped(max, [[1, 2], [3, 4]]) == [(1, 3), (2, 4)]


# ------------------------------------------------------------ names and outcomes


def test_the_name_of_a_task_says_which_job_it_is() -> None:
    found = job_of(task_name("ab" * 16, 17))

    assert found == m.OpenJob("ab" * 16, 17)
    assert job_of("pool/../x.1") is None
    assert job_of("mine") is None


class Unreadable:
    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> None:
    raise ValueError("not here")


def test_results_and_errors_are_those_of_hetd() -> None:
    assert result_of(completed("n1", 3, {"a": 1}), "ab") == {"a": 1}
    with pytest.raises(CancelledError, match="n1:3"):
        result_of(JobOutcome("cancelled", "n1", 3, text="why"), "ab")
    failed = JobOutcome("failed", "n1", 3, text="why", lines=("x",), trace="T")
    with pytest.raises(TaskFailedError, match="task n1:3 failed: why") as caught:
        result_of(failed, "ab")
    assert caught.value.output == ("x",)
    assert "T" in str(caught.value.__cause__)


def test_a_result_that_cannot_be_read_is_an_error_of_its_job() -> None:
    outcome = JobOutcome("completed", "n1", 3, value=pickle.dumps(Unreadable()))

    with pytest.raises(InputError, match="cannot be read here: ValueError: not here"):
        result_of(outcome, "ab")


def test_a_result_that_cannot_be_sent_is_a_failure() -> None:
    outcome = completed("n1", 3, (each for each in "x"))

    assert outcome.state == "failed"
    assert "cannot be sent" in outcome.text


# ------------------------------------------------------------ the lease


def test_the_agent_renews_only_while_the_scheduler_is_heard() -> None:
    lease = Lease(10.0)

    assert lease.renews(104.0, 100.0, joined=True)
    assert not lease.renews(105.0, 100.0, joined=True)
    assert not lease.renews(101.0, 100.0, joined=False)


def test_tasks_are_held_in_time_whenever_the_scheduler_falls_silent() -> None:
    lease = Lease(10.0)
    # renewed last just before the agent stops: hetd holds them half a lease later
    assert 5.0 + lease.of_tasks_s <= lease.seconds


# ------------------------------------------------------------ estimates


class Answers:
    """Nodes that answer with scripted estimates."""

    def __init__(self, **nodes: m.NodeEstimate) -> None:
        self.nodes = nodes
        self.asked: list[str] = []

    async def __call__(self, node: str, name: str, message: Any, kind: Any) -> Any:
        self.asked.append(node)
        if node not in self.nodes:
            raise InputError(f"{node} does not answer")
        found = self.nodes[node]
        seconds = {"cpu": found} if found.confidence >= 0 else {}
        return m.JobEstimates((seconds,) * len(message.jobs))


def estimated(answers: Answers, jobs: list[PoolJob], times: int = 1) -> Any:
    now = [0.0]
    cache = EstimateCache(answers, lambda: now[0])
    nodes = [a_node("n1"), a_node("n2")]

    async def story() -> Any:
        for _ in range(times - 1):
            await cache.of(jobs, nodes)
        return await cache.of(jobs, nodes)

    return asyncio.run(story())


def test_a_guess_gives_way_to_a_measurement_elsewhere() -> None:
    answers = Answers(n1=m.NodeEstimate(1.0, 0.1), n2=m.NodeEstimate(0.01, 0.9))
    job = a_job(seconds={})

    found = estimated(answers, [job])

    assert found[job.id] == {"n1": {"cpu": 0.01}, "n2": {"cpu": 0.01}}


def test_two_measurements_stay_different() -> None:
    answers = Answers(n1=m.NodeEstimate(1.0, 0.8), n2=m.NodeEstimate(0.5, 0.9))
    job = a_job(seconds={})

    found = estimated(answers, [job])

    assert found[job.id] == {"n1": {"cpu": 1.0}, "n2": {"cpu": 0.5}}


def test_nodes_are_asked_once_for_jobs_that_are_alike() -> None:
    answers = Answers(n1=m.NodeEstimate(1.0, 0.8), n2=m.NodeEstimate(0.5, 0.9))

    estimated(answers, [a_job(n, seconds={}) for n in range(1, 50)], times=3)

    assert sorted(answers.asked) == ["n1", "n2"]


@pytest.mark.parametrize(("confidence", "asked"), [(0.1, 2), (0.9, 1)])
def test_a_guess_is_asked_for_again_soon(confidence: float, asked: int) -> None:
    answers = Answers(n1=m.NodeEstimate(1.0, confidence))
    now = [0.0]
    cache = EstimateCache(answers, lambda: now[0])

    async def story() -> None:
        for _ in range(2):
            await cache.of([a_job(seconds={})], [a_node("n1")])
            now[0] += 1.0

    asyncio.run(story())

    assert len(answers.asked) == asked


def test_jobs_that_say_how_long_they_take_need_no_estimate() -> None:
    answers = Answers()

    assert estimated(answers, [a_job()]) == {}
    assert answers.asked == []


def test_a_silent_node_does_not_stop_the_plan() -> None:
    answers = Answers(n1=m.NodeEstimate(1.0, 0.8))
    job = a_job(seconds={})

    assert estimated(answers, [job]) == {job.id: {"n1": {"cpu": 1.0}}}


def test_a_node_that_cannot_run_a_job_gets_none_if_another_can() -> None:
    answers = Answers(n1=m.NodeEstimate(0.0, -1.0), n2=m.NodeEstimate(2.0, 0.9))
    job = a_job(seconds={})

    assert estimated(answers, [job]) == {job.id: {"n1": {}, "n2": {"cpu": 2.0}}}


def test_a_job_that_no_node_can_run_is_left_to_the_node_that_refuses_it() -> None:
    nothing = m.NodeEstimate(0.0, -1.0)
    job = a_job(seconds={})

    assert estimated(Answers(n1=nothing, n2=nothing), [job]) == {job.id: {}}


# ------------------------------------------------------------ the extra


@pytest.mark.parametrize("module", ["hetpool", "libtask.pool"])
def test_without_its_extra_a_pool_says_what_to_install(module: str) -> None:
    hide = "import sys; sys.modules['distributed'] = sys.modules['dask'] = None; "
    program = [sys.executable, "-c", f"{hide}from {module} import Pool"]

    ended = subprocess.run(program, check=False, capture_output=True, text=True)

    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: a pool needs the extra `pool`")
    assert "pip install 'hetd[pool]'" in last
