"""`hetsim plan`: the document, the result, what is wrong with a document."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from hetpapers.zhao_2018.testbed import figure_2a, figure_2b
from hetsched.planning.batch.planners import PLANNERS, make_planner
from hetsim.batch import decode_batch, problem_of
from hetsim.batch_plan import plan_batch
from libtask.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from pathlib import Path


def a_document(**keys: Any) -> dict[str, Any]:
    return {
        "format": "hetsim/batch-1",
        "accelerators": [
            {"id": "f1a1", "responder": "f1", "free_at": 0.0},
            {"id": "f2a1", "responder": "f2"},
        ],
        "responders": [{"id": "f1", "ingress": 5000.0}, {"id": "f2", "ingress": None}],
        "requesters": [{"id": "q1", "egress": 1000.0}],
        "jobs": [
            {"id": "j1", "size": 200.0, "requester": "q1"},
            {"id": "j2", "size": 100.0, "requester": None},
        ],
        "seconds": [[0.21, None], [0.3, 0.2]],
        "unknown": 1,
        **keys,
    }


def planned(document: dict[str, Any], name: str) -> dict[str, Any]:
    batch = decode_batch(json.dumps(document))
    result = plan_batch(batch, name, make_planner(name, {}))
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(result))
    return decoded


@pytest.mark.parametrize("name", PLANNERS)
def test_a_result_can_be_recomputed_from_its_jobs(name: str) -> None:
    result = planned(a_document(), name)

    assert result["format"] == "hetsim/plan-1"
    assert result["planner"] == name
    assert 0 < result["lower_bound"] <= result["makespan"] * (1 + 1e-9)
    assert result["makespan"] == max(job["finish"] for job in result["jobs"])
    first = result["jobs"][0]
    assert first["accelerator"] == "f1a1"
    carried = sum((p["finish"] - p["start"]) * p["rate"] for p in first["transfer"])
    assert carried == pytest.approx(200.0)
    assert first["start"] >= first["transfer"][-1]["finish"] - 1e-9
    assert first["finish"] == pytest.approx(first["start"] + 0.21)


def test_a_batch_without_jobs_takes_no_time() -> None:
    for name in PLANNERS:
        result = planned(a_document(jobs=[], seconds=[]), name)

        assert (result["makespan"], result["lower_bound"]) == (0.0, 0.0)


def test_reconfiguration_is_part_of_each_job() -> None:
    accelerators = [{"id": 1, "responder": "f1", "reconfigure_s": 0.5}]
    document = a_document(accelerators=accelerators, seconds=[[1.0], [2.0]])

    result = planned(document, "cim")

    assert result["makespan"] >= 4.0
    assert result["lower_bound"] >= 4.0


def test_jobs_that_arise_in_a_responder_stay_there_unless_they_compute_long() -> None:
    jobs = [
        {"id": "net", "size": 500.0, "source": "f1"},
        {"id": "long", "size": 1.0, "source": "f1"},
    ]
    document = a_document(jobs=jobs, seconds=[[0.1, 0.01], [9.0, 5.0]])

    result = planned(document, "ncjm")

    assert [job["accelerator"] for job in result["jobs"]] == ["f1a1", "f2a1"]
    assert [job["transfer"] for job in result["jobs"]] == [[], []]


def test_promised_rates_are_not_given_again() -> None:
    promised = [{"responder": "f1", "requester": "q1", "finish": 1.0, "rate": 1000.0}]

    result = planned(a_document(promised=promised), "sjf")

    assert result["jobs"][0]["transfer"] == [
        {"start": 1.0, "finish": 1.2, "rate": 1000.0}
    ]


COMPLAINTS: list[tuple[dict[str, Any], str]] = [
    ({"format": "x"}, 'format: expected "hetsim/batch-1", got "x"'),
    ({"seconds": [[1, 2]]}, "seconds: expected 2 lists, one a job, got 1"),
    (
        {"seconds": [[1, 2], [3]]},
        "seconds[1]: expected 2 numbers, one an accelerator, got 1",
    ),
    ({"seconds": [[None, None], [1, 2]]}, 'seconds[0]: job "j1" can run nowhere'),
    ({"seconds": [[1, "x"], [1, 2]]}, 'seconds[0][1]: expected a number, got "x"'),
    ({"seconds": [[1, -1], [1, 2]]}, "seconds[0][1]: expected a number >= 0.0, got -1"),
    ({"accelerators": []}, "accelerators: expected a list of length >= 1"),
    (
        {"responders": [{"id": "f1", "ingress": 0}, {"id": "f2"}]},
        "responders[0].ingress: expected a number > 0.0, got 0",
    ),
    (
        {
            "promised": [
                {"responder": "f2", "requester": "q1", "finish": 1, "rate": 600}
            ]
            * 2
        },
        'promised: rates that add up to 1200 at "q1", whose link carries 1000',
    ),
    (
        {"promised": [{"responder": "f1", "finish": 1, "rate": 6000}]},
        'promised: rates that add up to 6000 at "f1", whose link carries 5000',
    ),
    ({"jobs": [{"id": "a"}, {"size": 1}]}, "jobs[1].id: is missing"),
    ({"jobs": [{"id": "a"}, {"id": "a"}]}, 'jobs[1].id: "a" is there already'),
    (
        {"jobs": [{"id": "a"}, {"id": "b", "requester": "q"}]},
        'jobs[1].requester: no requester "q"; there are: "q1"',
    ),
    (
        {"responders": [{"id": "f1"}]},
        'accelerators[1].responder: no responder "f2"; there are: "f1"',
    ),
    (
        {
            "jobs": [{"id": "a", "source": "f2", "size": 1e6}, {"id": "b"}],
            "responders": [{"id": "f1", "ingress": 1}, {"id": "f2", "ingress": 1}],
        },
        'jobs[0].source: job "a" must be computed where it arises, and no',
    ),
]


@pytest.mark.parametrize(("keys", "complaint"), COMPLAINTS)
def test_bad_documents_are_refused_with_the_place(
    keys: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InputError) as caught:
        problem_of(decode_batch(json.dumps(a_document(**keys))))

    assert str(caught.value).startswith(complaint)


def test_bad_planners_and_parameters_are_refused() -> None:
    with pytest.raises(NotFoundError, match="no planner 'x'; there are: sct, mmi"):
        make_planner("x", {})
    with pytest.raises(InputError, match="planner sjf has no parameter 'a'"):
        make_planner("sjf", {"a": "1"})
    with pytest.raises(InputError, match="planner cim"):
        make_planner("cim", {"way": "x"})


def test_the_command_prints_one_object_or_one_line_and_status_2(
    tmp_path: Path,
) -> None:
    path = tmp_path / "batch.json"
    path.write_text(json.dumps(a_document()))
    arguments = [sys.executable, "-m", "hetsim", "plan", str(path), "--planner"]
    good = subprocess.run(
        [*arguments, "ncjm", "--set", "search=false", "--json"],
        capture_output=True,
        check=True,
        text=True,
    )
    path.write_text(json.dumps(a_document(jobs="many")))
    bad = subprocess.run(
        [*arguments, "ncjm"], capture_output=True, check=False, text=True
    )

    assert json.loads(good.stdout)["makespan"] == pytest.approx(0.41)
    assert bad.returncode == 2
    assert bad.stdout == ""
    assert bad.stderr == f'{path}: jobs: expected a list, got "many"\n'


def test_the_testbed_comes_out_as_printed() -> None:
    network, neural = figure_2a(1), figure_2b(1)

    assert network.rows[0] == pytest.approx(
        {"sjf": 12.0, "ljf": 14.4, "paper": 9.6, "ours": 9.6}
    )
    assert neural.rows[0] == pytest.approx(
        {"sjf": 24.0, "ljf": 18.0, "paper": 18.0, "ours": 18.0}
    )
    for claim in network.claims + neural.claims:
        assert claim.ours is not None
        assert claim.paper is not None
        assert np.isclose(claim.ours, claim.paper, atol=1.0)
