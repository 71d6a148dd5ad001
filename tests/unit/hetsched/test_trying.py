"""`finish-time` with probing: a task tries each resource on which it was never measured."""

from __future__ import annotations

import math
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from builders import Harness, a_resource, a_task
from hetsched import events as e
from hetsched.actions import Run
from hetsched.estimates.table import EstimateTable
from hetsched.ids import TaskId
from hetsched.planning.outlook import Outlook
from hetsched.system import Resource

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hetsched.actions import Action

NODE = (a_resource("cpu"), a_resource("gpu"), a_resource("fpga"))
STEP_S = 0.1
"""Between two reports of a task."""
TRUTH = {"cpu": 60.0, "fpga0": 20.0, "gpu0": 2.0}
GPUS = [f"gpu{n}" for n in range(7)]
DEAR = 10**9
"""Bytes of a state that takes a second over the slow link."""


class Trying:
    """Tasks that report their strips, and estimates that learn from all but the first.

    Args:
        truth: the seconds of a whole task on each resource, by type.
        known: type -> the resources on which it was measured before.
        measured: the resources on which strips are measured.

    """

    def __init__(
        self,
        truth: dict[str, dict[str, float]],
        resources: Iterable[Resource] = NODE,
        *,
        probing: float = 0.4,
        known: dict[str, list[str]] | None = None,
        measured: Sequence[str] = ("cpu", "gpu0", "fpga0", *GPUS, "host"),
        **parameters: Any,
    ) -> None:
        before = {
            kind: {name: truth[kind][name] for name in names}
            for kind, names in (known or {}).items()
        }
        self.node = Harness(list(resources), before, "finish-time", **parameters)
        self.system = self.node.scheduler.system
        table = self.system.estimates
        assert isinstance(table, EstimateTable)
        self.table = table
        table.curiosity = probing
        self.truth, self.measured = truth, measured
        self.now = 0.0
        self.visited: dict[int, list[str]] = {}
        """Where each task ran, in order."""

    def submit(self, *tasks: e.TaskSubmitted) -> None:
        self._note(self.node.handle_all(*tasks, at=self.now))

    def run(self, seconds: float | None = None) -> None:
        """Let all tasks go on for some seconds, or to their ends."""
        for step in count(1):
            if not self.system.tasks or step * STEP_S > (seconds or 1e3):
                return
            self.now += STEP_S
            for state in self.system.states.values():
                for task in list(state.running.values()):
                    self._go_on(task.id, state.resource)

    def _go_on(self, number: TaskId, resource: Resource) -> None:
        """Report the strips of a step, and follow the command to yield."""
        task = self.system.tasks[number]
        if task.since == self.system.now == int(self.now * 1e9):
            return  # it came in this step
        share = STEP_S / self.truth[task.row.type][resource.name]
        done = min(task.progress + share, 1.0)
        whole = self.truth[task.row.type][resource.name]
        if task.checkpointed and resource.name in self.measured:
            self.table.observe(task.row, resource, whole)
        epoch = task.epoch
        if done >= 1.0 - 1e-9:
            self._note(self.node.handle(e.TaskFinished(number, epoch), self.now))
            return
        actions = self.node.handle(e.StripsDone(number, epoch, done), self.now)
        self._note(actions)
        if task.preempting:
            self._note(self.node.handle(e.TaskYielded(number, epoch, done), self.now))

    def _note(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Run):
                self.visited.setdefault(action.task, []).append(action.resource)


def test_a_moved_task_goes_on_to_the_resource_that_is_still_unknown() -> None:
    trying = Trying({"t": TRUTH})
    trying.submit(a_task(1, "t"))
    trying.run()

    assert trying.visited == {1: ["cpu", "fpga0", "gpu0"]}
    assert trying.now < 4.0


def test_without_probing_nothing_is_tried() -> None:
    trying = Trying({"t": TRUTH}, probing=1.0)
    trying.submit(a_task(1, "t"))
    trying.run()

    assert trying.visited == {1: ["cpu"]}


def test_a_task_returns_at_once_from_a_resource_that_turns_out_slow() -> None:
    slow = {"cpu": 60.0, "fpga0": 100.0, "gpu0": 90.0}
    trying = Trying({"t": slow})
    trying.submit(a_task(1, "t"))
    trying.run()

    # each was tried once, and that it had been was no reason to stay
    assert trying.visited == {1: ["cpu", "fpga0", "gpu0", "cpu"]}
    assert trying.now < 60.5


def test_a_trial_that_fails_lasts_no_longer_than_its_measurement() -> None:
    trying = Trying({"t": {"cpu": 60.0, "gpu0": 300.0}}, NODE[:2])
    trying.submit(a_task(1, "t"))
    trying.run()

    assert trying.visited == {1: ["cpu", "gpu0", "cpu"]}
    assert trying.now < 60.5


def test_a_task_finds_its_best_of_eight_resources() -> None:
    node = [a_resource("cpu"), *(a_resource("gpu", name) for name in GPUS)]
    times = {"cpu": 90.0, "gpu0": 5.0} | {f"gpu{n}": 100.0 + n for n in range(1, 7)}
    trying = Trying({"t": times}, node)
    trying.submit(a_task(1, "t"))
    trying.run()

    # after more trials than the moves that it may make otherwise
    assert trying.visited == {1: ["cpu", *reversed(GPUS)]}


@pytest.mark.parametrize(
    "fields",
    [
        {"preemptible": False},
        {"strips": 2},
        {"state_bytes": 20 * DEAR},
        {"migration_s": 20.0},
    ],
)
def test_a_move_that_is_too_dear_for_a_trial_is_not_made(
    fields: dict[str, Any],
) -> None:
    node = [
        a_resource("cpu"),
        Resource("gpu0", "gpu", link_bytes_per_s=DEAR),
    ]
    trying = Trying({"t": {"cpu": 60.0, "gpu0": 2.0}}, node)
    trying.submit(a_task(1, "t", **fields))
    trying.run()

    assert trying.visited == {1: ["cpu"]}


def test_the_trial_of_a_cheap_move_over_the_link_is_made() -> None:
    node = [
        a_resource("cpu"),
        Resource("gpu0", "gpu", link_bytes_per_s=DEAR),
    ]
    trying = Trying({"t": {"cpu": 60.0, "gpu0": 2.0}}, node)
    trying.submit(a_task(1, "t", strips=600, state_bytes=DEAR))
    trying.run()

    assert trying.visited == {1: ["cpu", "gpu0"]}


@pytest.mark.parametrize("look_ahead", [0, 600])
@pytest.mark.parametrize(("left_s", "tried"), [(4.0, True), (0.5, False)])
def test_a_task_that_has_almost_ended_tries_nothing(
    look_ahead: int, left_s: float, *, tried: bool
) -> None:
    node = [a_resource("cpu"), a_resource("gpu")]
    trying = Trying(
        {"t": {"cpu": 60.0, "gpu0": 2.0}, "other": {"gpu0": 60.0 - left_s}},
        node,
        known={"other": ["gpu0"]},
        look_ahead=look_ahead,
    )
    trying.submit(a_task(2, "other", kinds=["gpu"]), a_task(1, "t"))
    trying.run()

    assert trying.visited == {1: ["cpu", "gpu0"] if tried else ["cpu"], 2: ["gpu0"]}


@pytest.mark.parametrize("look_ahead", [0, 600])
def test_a_trial_waits_for_an_idle_resource(look_ahead: int) -> None:
    trying = Trying(
        {"t": TRUTH, "other": {"gpu0": 8.0}},
        known={"other": ["gpu0"]},
        look_ahead=look_ahead,
    )
    trying.submit(a_task(2, "other", kinds=["gpu"]), a_task(1, "t"))
    trying.run(7.0)
    assert trying.visited == {1: ["cpu", "fpga0"], 2: ["gpu0"]}
    trying.run()

    assert trying.visited == {1: ["cpu", "fpga0", "gpu0"], 2: ["gpu0"]}


def test_a_shared_resource_on_which_a_task_runs_is_not_tried() -> None:
    node = [Resource("host", "cpu", slots=2, shared=True), a_resource("gpu")]
    trying = Trying(
        {"t": {"gpu0": 40.0, "host": 4.0}, "other": {"host": 10.0}},
        node,
        known={"other": ["host"]},
    )
    trying.submit(a_task(2, "other", kinds=["cpu"]), a_task(1, "t"))
    trying.run(9.0)
    assert trying.visited == {1: ["gpu0"], 2: ["host"]}
    trying.run()

    assert trying.visited == {1: ["gpu0", "host"], 2: ["host"]}


def test_one_task_at_a_time_tries_a_resource() -> None:
    node = [a_resource("cpu", slots=2), a_resource("gpu", slots=2)]
    trying = Trying({"t": {"cpu": 60.0, "gpu0": 200.0}}, node)
    trying.submit(a_task(1, "t"), a_task(2, "t"))
    trying.run()

    tried = [places for places in trying.visited.values() if "gpu0" in places]
    assert tried == [["cpu", "gpu0", "cpu"]]


def test_a_trial_that_is_not_measured_leads_to_no_other() -> None:
    trying = Trying({"t": TRUTH}, measured=["cpu"])
    trying.submit(a_task(1, "t"))
    trying.run()

    assert trying.visited == {1: ["cpu", "fpga0"]}


def test_a_resource_that_was_forgotten_is_not_tried_again_by_the_same_task() -> None:
    node = [a_resource("cpu"), a_resource("gpu")]
    trying = Trying({"t": {"cpu": 60.0, "gpu0": 300.0}}, node)
    trying.submit(a_task(1, "t"))
    trying.run(5.0)
    assert trying.visited == {1: ["cpu", "gpu0", "cpu"]}
    trying.table.forget(
        [key for key in trying.table.keys_after(None, 9) if key[1] == "gpu0"]
    )
    trying.run()

    assert trying.visited == {1: ["cpu", "gpu0", "cpu"]}


def test_several_tasks_at_once_each_end_on_their_best_resource() -> None:
    kinds = {"a": TRUTH, "b": {"cpu": 30.0, "fpga0": 3.0, "gpu0": 25.0}}
    trying = Trying({**kinds, "own": {"gpu0": 4.0}}, known={"own": ["gpu0"]})
    trying.submit(a_task(1, "own", kinds=["gpu"]), a_task(2, "a"), a_task(3, "b"))
    trying.run()

    # the task that has the GPU keeps it, and the other one on the FPGA as well
    assert trying.visited == {1: ["gpu0"], 2: ["cpu", "fpga0", "gpu0"], 3: ["fpga0"]}


class Price:
    """The price of a trial of `gpu0` by a task that runs on the CPU, measured there.

    Attributes:
        caution: `Outlook.caution`.
    """

    def __init__(
        self, gpu: Resource = NODE[1], measured: str = "cpu", **task: Any
    ) -> None:
        self.caution = 2.0
        # a policy that moves nothing by itself
        self.node = Harness([NODE[0], gpu, NODE[2]], {}, "affinity")
        self.node.handle(a_task(1, "t", **task))
        self.system = self.node.scheduler.system
        self.task = self.system.tasks[TaskId(1)]
        table = self.system.estimates
        assert isinstance(table, EstimateTable)
        self.table = table
        table.curiosity = 0.4
        table.learn("t", measured, 60.0, 1.0)

    def of(self, name: str = "gpu0") -> float:
        return Outlook(self.system, self.caution, 1.0).trying(self.task, name)


def test_a_trial_costs_twice_its_measurement_and_the_way_back() -> None:
    far = Resource("gpu0", "gpu", link_bytes_per_s=DEAR, reconfigure_s=3.0)
    state: dict[str, Any] = {"state_bytes": DEAR, "migration_s": 0.5}

    # a report, and two strips of 0.05 s or of a sixtieth of 24 s
    assert Price().of() == pytest.approx(0.4)
    assert Price(strips=60).of() == pytest.approx(1.8)
    assert Price(far, **state).of() == pytest.approx(0.4 + 2 * (1.0 + 0.5 + 3.0))


def test_what_is_known_or_where_it_runs_is_no_trial() -> None:
    price = Price()
    waits = a_task(2, "t", kinds=["cpu"])
    price.node.handle(waits)

    assert price.of("cpu") == 0.0
    price.table.curiosity = 1.0
    assert price.of() == 0.0
    price.table.curiosity = 0.4
    price.table.learn("t", "gpu0", 30.0, 1.0)
    assert price.of() == 0.0
    price.task = price.system.tasks[TaskId(2)]
    assert price.of("fpga0") == 0.0


def test_where_another_task_runs_no_trial_is_made() -> None:
    busy = Price()
    busy.node.handle(a_task(2, "other", kinds=["gpu"]))
    shared = Price(Resource("gpu0", "gpu", slots=2, shared=True))
    roomy = Price(Resource("gpu0", "gpu", slots=2))
    for price in (shared, roomy):
        price.node.handle(a_task(2, "other", kinds=["gpu"]))
    tried = Price(Resource("gpu0", "gpu", slots=2))
    tried.node.handle(a_task(2, "t", kinds=["gpu"]))

    assert busy.of() == shared.of() == tried.of() == math.inf
    assert roomy.of() == pytest.approx(0.4)


def test_a_task_that_could_not_come_back_or_was_there_makes_no_trial() -> None:
    again, elsewhere = Price(), Price(measured="fpga0")
    again.task.tried = ("gpu0",)

    assert Price(preemptible=False).of() == again.of() == math.inf
    # it is being tried itself where it runs
    assert elsewhere.of() == math.inf


def test_without_caution_what_must_not_be_tried_is_not_tried_either() -> None:
    free, busy = Price(), Price()
    busy.node.handle(a_task(2, "other", kinds=["gpu"]))
    free.caution = busy.caution = 0.0

    assert (free.of(), busy.of()) == (0.0, math.inf)
