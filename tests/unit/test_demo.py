"""Parts of the demo: inputs, arrivals, references and the report; no daemon."""

from __future__ import annotations

import io
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import cv2
import msgspec
import numpy as np
import pytest
import scipy.sparse
from rich.console import Console

from hetapps.correlation import Correlation
from hetapps.gaussian_blur import GaussianBlur
from hetapps.heat import Heat
from hetapps.markov import Markov
from hetdemo.__main__ import main
from hetdemo.batch import CALM, GAP_S, WAVE, Arrivals, Job, make_batch
from hetdemo.checks import Verdict, check, check_all, read_planes
from hetdemo.first_move import first_move
from hetdemo.inputs import enlarged, make_inputs, nudged, pixel_pairs
from hetdemo.machine import cpu_model, machine_lines, offered, resource_line
from hetdemo.pipeline import JOB, resembling, submit_pipeline
from hetdemo.progress import Followed, Names, bars
from hetdemo.report import (
    Outcome,
    makespan,
    resource_table,
    running_seconds,
    shortcomings,
    summary,
    task_table,
    waiting_seconds,
)
from hetdemo.spectral import blur, heat_after
from hetdemo.worth import worth_lines, worth_of
from hetkernels.gaussian_blur.reference import blur_float64
from hetkernels.heat.reference import heat_reference
from libtask.apps import size_of
from libtask.checkpoint import Checkpoint, StripSizer
from libtask.devices import open_device
from libtask.messages import (
    CheckpointRecord,
    DeviceInfo,
    DeviceSpec,
    Segment,
    TaskChanged,
    TaskInfo,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetdemo.inputs import Inputs
    from libtask.client.client import Client
    from libtask.task import Task


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    pytest.importorskip("sklearn", reason="the demo's inputs come with scikit-learn")
    return make_inputs(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="module")
def jobs(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> list[Job]:
    return make_batch(inputs, tmp_path_factory.mktemp("results"))


def run(task: Task) -> dict[str, Any]:
    """Run a task on one CPU thread, uncut, as a worker would."""
    task.load()
    total = task.total()
    record = CheckpointRecord(total=total)
    checkpoint = Checkpoint(record, StripSizer(0, fixed=total))
    device = open_device(DeviceSpec("cpu", "cpu"))
    for _ in task.implementations["cpu"](task, device, checkpoint):
        checkpoint.done = checkpoint.drawn
    result: dict[str, Any] = task.save(checkpoint)
    return result


# ---------------------------------------------------------------- inputs


def test_photographs_are_what_they_are_called(inputs: Inputs) -> None:
    shapes = {
        path.name: (planes.shape, planes.dtype.name)
        for path in (inputs.china, inputs.china_large, inputs.flower_large)
        for planes in [read_planes(path)]
    }

    assert shapes == {
        "china.png": ((3, 427, 640), "uint8"),
        "china-6x-16bit.tiff": ((3, 6 * 427, 6 * 640), "uint16"),
        "flower-10x-16bit-grey.png": ((1, 10 * 427, 10 * 640), "uint16"),
    }


def test_an_enlarged_image_uses_sixteen_bits() -> None:
    ramp = np.tile(np.arange(0, 250, 25, dtype=np.uint8), (4, 1))

    large = enlarged(ramp, 4)

    assert large.shape == (16, 40)
    assert (large % 257 != 0).any()  # 257 = 65535 / 255: more than the 8-bit levels
    assert large.max() > 50_000


def test_tables_hold_what_scikit_learn_ships(inputs: Inputs) -> None:
    from sklearn.datasets import load_breast_cancer

    header = inputs.cancer.read_text().splitlines()[0]
    table = np.loadtxt(inputs.cancer, delimiter=",", skiprows=1)

    assert header.startswith("mean radius,mean texture")
    assert np.array_equal(table, load_breast_cancer().data)


def test_pairs_are_products_of_two_pixels() -> None:
    pixels = np.array([[[1.0, 2.0], [3.0, 4.0]]], np.float32)

    assert pixel_pairs(pixels).tolist() == [
        [1, 2, 3, 4, 1, 2, 3, 4, 4, 6, 8, 9, 12, 16]
    ]
    assert len(nudged(np.ones((7, 8, 8)))) == 5 * 7


def test_chains_are_stochastic(inputs: Inputs) -> None:
    sparse = scipy.sparse.load_npz(inputs.sparse_chain)
    for chain in (np.load(inputs.dense_chain), sparse):
        assert np.allclose(np.asarray(chain.sum(axis=1)), 1.0)


# ---------------------------------------------------------------- batch


def test_the_batch_mixes_all_applications(jobs: list[Job]) -> None:
    assert {type(job.task) for job in jobs} == {GaussianBlur, Heat, Markov, Correlation}
    assert 16 <= len(jobs) <= 24
    assert len({job.name for job in jobs}) == len(jobs)
    for job in jobs:
        assert size_of(job.task).work > 0


def test_arrivals_come_in_waves_with_a_gap_between_tasks() -> None:
    arrivals = Arrivals(WAVE + 1)

    later = 100 * GAP_S
    first_wave = [arrivals.due(number * GAP_S, number) for number in range(WAVE)]
    asked = [(0.9 * GAP_S, 0), (later, CALM + 1), (later, CALM), (2 * later, 0)]

    assert first_wave == [True] * WAVE
    # too early, too busy, calm at last, none left
    assert [arrivals.due(*each) for each in asked] == [False, False, True, False]
    assert arrivals.over


# ---------------------------------------------------------------- checks


@pytest.mark.parametrize("edges", ["fixed", "insulated"])
@pytest.mark.parametrize("shape", [(1, 1), (2, 7), (3, 3), (17, 40)])
def test_the_closed_form_of_heat_is_what_stepping_gives(
    shape: tuple[int, int], edges: str
) -> None:
    grid = np.random.default_rng(7).random(shape) * 100
    insulated = edges == "insulated"

    closed = heat_after(grid, 0.2, insulated=insulated, steps=30)

    stepped = heat_reference(grid, 0.2, insulated=insulated, steps=30)
    np.testing.assert_allclose(closed, stepped, rtol=0, atol=1e-11)


@pytest.mark.parametrize("sigma", [0.1, 2.0, 11.0])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 30), (1, 64, 41)])
def test_the_closed_form_of_blur_is_what_summing_gives(
    shape: tuple[int, int, int], sigma: float
) -> None:
    planes = np.random.default_rng(7).integers(0, 65536, shape).astype(np.uint16)

    closed = blur(planes, sigma, 4.0)

    summed = blur_float64(planes, sigma, 4.0)
    np.testing.assert_allclose(closed, summed, rtol=0, atol=1e-9)


def small_tasks(inputs: Inputs, folder: Path) -> list[Task]:
    out = {name: str(folder / name) for name in ("a.png", "b.npy", "c.npy", "d.npy")}
    return [
        GaussianBlur(input=str(inputs.china), output=out["a.png"], sigma=2.0),
        Heat(n=40, steps=50, output=out["b.npy"]),
        Markov(n=50, stay=0.5, output=out["c.npy"]),
        Correlation(input=str(inputs.digits), output=out["d.npy"]),
    ]


def test_right_results_pass(inputs: Inputs, tmp_path: Path) -> None:
    tasks = small_tasks(inputs, tmp_path)
    results = [run(task) for task in tasks]

    done = zip(small_tasks(inputs, tmp_path), results, strict=True)
    verdicts = list(check_all(list(done)))

    assert len(verdicts) == len(tasks)
    for verdict in verdicts:
        assert verdict.passed, verdict
        assert verdict.error > 0


def test_wrong_results_fail(inputs: Inputs, tmp_path: Path) -> None:
    blur, heat, markov, correlation = small_tasks(inputs, tmp_path)
    results = [run(task) for task in (blur, heat, markov, correlation)]
    (tmp_path / "a.png").write_bytes(inputs.china.read_bytes())
    for name in ("b.npy", "c.npy", "d.npy"):
        array = np.load(tmp_path / name)
        array.flat[array.size // 4 + 5] += 0.1
        np.save(tmp_path / name, array)

    for task, result in zip((blur, heat, markov, correlation), results, strict=True):
        assert not check(task, result).passed, task


def test_other_undefined_values_fail(inputs: Inputs, tmp_path: Path) -> None:
    correlation = small_tasks(inputs, tmp_path)[-1]
    result = run(correlation)
    matrix = np.load(tmp_path / "d.npy")
    assert np.isnan(matrix).any()  # a digit's corner is always empty
    np.save(tmp_path / "d.npy", np.nan_to_num(matrix))

    assert check(correlation, result).error == np.inf


# ---------------------------------------------------------------- the graph of tasks


class RecordingClient:
    """Takes submissions; a handle is a number."""

    def __init__(self) -> None:
        self.submitted: list[tuple[str, Any, tuple[Any, ...]]] = []

    @contextmanager
    def graph(self, name: str) -> Iterator[None]:
        assert name == JOB
        yield

    def submit(self, what: Any, *arguments: Any, name: str) -> SimpleNamespace:
        self.submitted.append((name, what, arguments))
        return SimpleNamespace(id=len(self.submitted))


def test_the_graph_goes_from_a_photograph_to_a_steady_state(
    inputs: Inputs, tmp_path: Path
) -> None:
    client = RecordingClient()
    large = cv2.imread(str(inputs.flower), cv2.IMREAD_GRAYSCALE)
    assert large is not None
    small = tmp_path / "small.png"
    cv2.imwrite(str(small), large[::3, ::3])

    pipeline = submit_pipeline(cast("Client", client), small, tmp_path)
    results: dict[int, Any] = {}
    for number, (_, what, arguments) in enumerate(client.submitted, 1):
        known = pipeline.jobs.get(number)
        if known is None:
            ready = [results.get(getattr(a, "id", 0), a) for a in arguments]
            results[number] = what(*ready)
        else:
            results[number] = run(known.task)

    assert [name for name, *_ in client.submitted] == [
        "blur",
        *("cut-left", "correlate-left", "cut-right", "correlate-right"),
        *("make-chain", "markov"),
    ]
    for number, job in pipeline.jobs.items():
        assert check(job.task, results[number]).passed, job.name
    assert len(set(resembling(tmp_path / "steady.npy"))) == 3


# ---------------------------------------------------------------- report

DEVICES = [
    DeviceInfo(DeviceSpec("cpu", "cpu"), slots=2),
    DeviceInfo(DeviceSpec("gpu0", "gpu", "opencl", "PoCL", "pthread", emulated=True)),
]
MOVED = TaskInfo(
    id=1,
    app="heat",
    type="heat/64",
    state="completed",
    owner="uid:1",
    name="heat-small",
    submitted=100.0,
    started=101.0,
    finished=110.0,
    migrations=1,
    segments=[
        Segment("gpu0", 101.0, 104.0),
        Segment("gpu0", 104.0, 105.0),
        Segment("cpu", 107.0, 110.0),
    ],
)


def test_waiting_is_the_time_without_a_resource() -> None:
    assert running_seconds(MOVED) == pytest.approx(7.0)
    assert waiting_seconds(MOVED) == pytest.approx(3.0)
    assert makespan([MOVED]) == pytest.approx(10.0)


def test_tables_mark_what_is_emulated() -> None:
    names = Names(DEVICES)
    outcome = Outcome(MOVED, None)

    where = list(task_table([outcome], names).columns[1].cells)
    resources = resource_table(DEVICES, [MOVED], names)

    assert where == ["gpu0 (emulated) 4.0\ncpu 3.0"]
    assert list(resources.columns[0].cells) == ["cpu", "gpu0 (emulated)"]
    assert list(resources.columns[6].cells) == ["15%", "40%"]


def test_a_task_without_a_checked_result_is_not_good() -> None:
    assert not Outcome(MOVED, None).good
    assert str(Verdict(0.5, 0.1)) == "wrong: deviates by 5.0e-01, of 0.1 allowed"
    assert summary([Outcome(MOVED, None)]).startswith("0 of 1 tasks")


# ---------------------------------------------------------------- the machine


GPU_LOST = DeviceInfo(
    DeviceSpec("gpu0", "gpu", "opencl", "PoCL", "pthread", emulated=True),
    state="lost",
    reason="error: unknown target CPU 'generic'\n[bold]",
)
CPUINFO = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 26
model\t\t: 2
model name\t: AMD EPYC

processor\t: 1
model name\t: another
"""


def test_the_first_lines_name_cpu_drivers_and_what_is_missing() -> None:
    cpu, emulated = DEVICES
    spec = msgspec.structs.replace(emulated.spec, version="3.0-rc2", driver="opencl")
    known = msgspec.structs.replace(emulated, spec=spec, rejected=["PoCL: aborts"])

    lines = list(machine_lines([cpu, known], Names(DEVICES)))

    assert lines[0].startswith("CPU: ")
    assert lines[0].endswith(f"{os.cpu_count()} processors")
    assert lines[2].startswith("gpu0 (emulated): ")
    assert lines[2].endswith("version 3.0-rc2")
    assert "emulated by" in lines[2]
    assert lines[3] == "gpu0 (emulated): not used for it: PoCL: aborts"
    assert lines[4] == "no FPGA: neither one nor a driver that emulates one was found"


def test_a_resource_out_of_use_is_told_in_one_line_and_not_offered() -> None:
    line = resource_line(GPU_LOST, Names([GPU_LOST]))

    assert line == (
        "gpu0 (emulated): pthread, emulated by PoCL, version not known: "
        r"not in use, lost: error: unknown target CPU 'generic'\n[bold]"
    )
    assert offered([DEVICES[0], GPU_LOST]) == [DEVICES[0]]


def test_the_cpu_is_named_with_the_numbers_that_drivers_go_by() -> None:
    assert cpu_model(CPUINFO) == "AMD EPYC (family 26, model 2)"
    assert cpu_model("") == "unknown"


# ---------------------------------------------------------------- the verdict

GOOD = Verdict(0.0, 1.0)
COMPUTED = msgspec.structs.replace(
    MOVED,
    segments=[
        Segment("gpu0", 101.0, 104.0, error="gpu0: a.cl does not compile"),
        Segment("gpu0", 104.0, 105.0, strips=2),
        Segment("cpu", 107.0, 110.0, strips=3),
    ],
)


def test_resources_are_tabulated_by_what_they_computed() -> None:
    table = resource_table(DEVICES, [COMPUTED], Names(DEVICES))

    columns = {str(each.header): list(each.cells) for each in table.columns}
    assert columns["strips"] == ["3", "2"]
    assert columns["segments"] == ["1", "1"]
    assert columns["failed attempts"] == ["0", "1"]
    assert columns["busy s"] == ["3.0", "1.0"]


def test_a_failed_attempt_is_told_where_a_task_ran() -> None:
    (where,) = task_table([Outcome(COMPUTED, GOOD)], Names(DEVICES)).columns[1].cells

    assert where == (
        "[red]failed on[/] gpu0 (emulated) 3.0\ngpu0 (emulated) 1.0\ncpu 3.0"
    )


def test_all_is_well_where_all_computed_and_all_is_right() -> None:
    assert shortcomings(DEVICES, [Outcome(COMPUTED, GOOD)], Names(DEVICES)) == []


def test_a_resource_that_computed_nothing_fails_the_demo() -> None:
    failed = msgspec.structs.replace(
        COMPUTED, segments=[COMPUTED.segments[0], COMPUTED.segments[2]]
    )
    never = msgspec.structs.replace(COMPUTED, segments=COMPUTED.segments[2:])
    names = Names(DEVICES)

    assert shortcomings(DEVICES, [Outcome(failed, GOOD)], names) == [
        "gpu0 (emulated) computed nothing: gpu0: a.cl does not compile"
    ]
    assert shortcomings(DEVICES, [Outcome(never, GOOD)], names) == [
        "gpu0 (emulated) computed nothing: no task was given to it"
    ]


def test_an_emulated_resource_may_idle_beside_a_real_accelerator() -> None:
    card = DeviceInfo(DeviceSpec("gpu1", "gpu", "opencl", "NVIDIA CUDA"), 1)
    segments = [COMPUTED.segments[2], Segment("gpu1", 104.0, 106.0, strips=1)]
    elsewhere = msgspec.structs.replace(COMPUTED, segments=segments)
    failed = msgspec.structs.replace(
        COMPUTED, segments=[COMPUTED.segments[0], *segments]
    )
    devices = [*DEVICES, card]
    names = Names(devices)

    assert shortcomings(devices, [Outcome(elsewhere, GOOD)], names) == []
    assert shortcomings(devices, [Outcome(failed, GOOD)], names) == [
        "gpu0 (emulated) computed nothing: gpu0: a.cl does not compile"
    ]
    assert shortcomings(devices, [Outcome(COMPUTED, GOOD)], names) == [
        "gpu1 computed nothing: no task was given to it"
    ]


def test_a_wrong_result_fails_the_demo() -> None:
    wrong = Outcome(COMPUTED, Verdict(2.0, 1.0))

    assert shortcomings(DEVICES, [wrong], Names(DEVICES)) == [
        "no right result: heat-small"
    ]


def test_a_failed_attempt_is_told_as_it_happens_and_is_no_move() -> None:
    console = Console(file=io.StringIO(), width=200)
    with bars(console) as progress:
        shown = Followed(console, progress, Names(DEVICES), clock=lambda: 0.0)
        shown.arrived(1, "heat-small")
        for state, what, resource, reason in (
            ("running", "dispatched", "gpu0", None),
            ("queued", "retried", None, "does not compile: [/x]"),
            ("running", "dispatched", "cpu", None),
        ):
            shown.changed(
                TaskChanged(1, state, 1.0, resource, reason=reason, what=what)  # type: ignore[arg-type]  # plain words
            )

    told = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    assert "heat-small failed on gpu0 (emulated), and is tried again" in told
    assert "does not compile: [/x]" in told
    assert "heat-small starts on cpu" in told
    assert "moves" not in told


# ---------------------------------------------------------------- what it was worth


SCENARIO = {
    "format": "hetsim/scenario-1",
    "policy": "finish-time",
    "policy_parameters": {},
    "measured_makespan": 8.0,
    "resources": [
        {"name": "cpu", "kind": "cpu", "slots": 1},
        {"name": "gpu0", "kind": "gpu", "slots": 1},
    ],
    "types": [{"name": "a", "seconds": {"cpu": 16.0, "gpu0": 4.0}, "strips": 400}],
    "tasks": [{"id": str(n), "type": "a", "arrival": 0.0} for n in range(4)],
}


def test_what_migration_was_worth_is_simulated(tmp_path: Path) -> None:
    path = tmp_path / "scenario.json"
    path.write_bytes(msgspec.json.encode(SCENARIO))

    worth = worth_of(path)

    # affinity: all four on the GPU, one after the other; the CPU takes some of it else
    assert (worth.policy, worth.real, worth.without) == ("finish-time", 8.0, 16.0)
    assert 12.0 < worth.simulated < 15.0
    first, second = worth_lines(worth)
    assert first.startswith("makespan under 'finish-time': 8.0 s; simulated")
    assert "under 'affinity', without migration, simulated: 16.0 s" in second
    assert "less" in second


# ---------------------------------------------------------------- the first move


class MovingClient:
    """Runs one task, a strip at each look at it, where it was last sent."""

    def __init__(self, *, stuck: bool = False) -> None:
        self.orders: list[tuple[str, object]] = []
        self._strips: dict[str, int] = {}
        self._stuck = stuck

    def submit(self, _task: Task, name: str, resources: list[str]) -> MovingClient:
        self.orders.append((name, resources))
        self._strips[resources[0]] = 0
        return self

    id = 7

    def migrate(self, _task: int, resource: str) -> None:
        self.orders.append(("migrate", resource))
        self._strips[resource] = 0

    def cancel(self, _task: int, reason: str) -> None:
        self.orders.append(("cancel", reason))

    def show(self, task: int) -> TaskInfo:
        last = list(self._strips)[-1]
        self._strips[last] += not self._stuck
        segments = [
            Segment(name, 0.0, strips=strips) for name, strips in self._strips.items()
        ]
        return TaskInfo(task, "heat", "heat/9", "running", "uid:1", segments=segments)


def test_a_first_task_moves_between_the_resources_that_compile_fastest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hetdemo.first_move.LOOK_S", 0.0)
    client: Any = MovingClient()
    said: list[str] = []

    first_move(client, DEVICES, Names(DEVICES), said.append)

    assert client.orders == [
        ("first-move", ["gpu0"]),
        ("migrate", "cpu"),
        ("cancel", "it has moved"),
    ]
    assert "it moved to cpu after 5 strips" in said[-1]


def test_a_task_that_does_not_move_does_not_stop_the_demo(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hetdemo.first_move.PATIENCE_S", 0.0)
    client: Any = MovingClient(stuck=True)
    said: list[str] = []

    first_move(client, DEVICES, Names(DEVICES), said.append)

    assert [order for order, _ in client.orders] == ["first-move", "cancel"]
    assert "it has not moved" in said[-1]


def test_on_one_resource_nothing_moves() -> None:
    client: Any = MovingClient()
    said: list[str] = []

    first_move(client, DEVICES[:1], Names(DEVICES), said.append)

    assert (client.orders, said) == ([], [])


def test_a_demo_without_its_packages_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["hetdemo"])
    monkeypatch.setattr("hetdemo.__main__.find_spec", lambda _: None)
    monkeypatch.setattr("signal.signal", lambda *_: None)

    status = main()

    assert status == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("hetdemo: the demo needs sklearn and matplotlib: ")
    assert line.endswith("pip install 'hetd[demo]'")
    assert not list(tmp_path.iterdir())
