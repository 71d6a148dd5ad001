"""What live strips teach, and which of them teach nothing."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from builders import a_resource, a_task
from hetd.clock import SYSTEM_CLOCK
from hetd.reports.calibration import Calibration
from hetd.store import Batch
from hetd.tasks.page import TaskPage
from hetd.tasks.stored_profiles import restore_profiles
from hetsched import events as e
from hetsched.contention import ContentionModel, Load, SharedResource
from hetsched.estimates.profile import BINS, CostProfiles
from hetsched.estimates.table import EstimateTable
from hetsched.ids import TaskId
from hetsched.policies import make_policy
from hetsched.scheduler import Scheduler
from hetsched.tasks import Yield
from libtask import messages as m

CPU = a_resource("cpu")


class Running:
    """A task that runs on the CPU, and the learner of its node."""

    def __init__(
        self,
        total: int | None = 100,
        policy: str = "affinity",
        contention: ContentionModel | None = None,
    ) -> None:
        self.table = EstimateTable()
        self.scheduler = Scheduler(
            [CPU], self.table, make_policy(policy, {}), contention=contention
        )
        self.batch = Batch()
        self.measured: list[tuple[str, int]] = []
        self.submitted = a_task(1, "heat/64", work=100.0)
        self.scheduler.handle(self.submitted, 0)
        self.task = self.scheduler.system.tasks[self.submitted.task]
        self.page = TaskPage(1, 0, m.TaskSpec("heat"), 0.0)
        self.page.checkpoint = m.CheckpointRecord(50, total)
        self.page.segments = (m.Segment("cpu", 0.0),)
        journal: Any = SimpleNamespace(
            batch=self.batch,
            measured=lambda *each: self.measured.append(each),
            forget_samples=lambda _keys: None,
        )
        self.learner = Calibration(SYSTEM_CLOCK, self.scheduler, self.table, journal)

    def progress(self, seconds: float, **fields: Any) -> None:
        report = m.Progress(1, 1, self.page.checkpoint, seconds, 10, **fields)
        self.learner.progressed(self.page, report)

    def finish(self, seconds: float, iterations: int = 100, **fields: Any) -> None:
        report = m.Finished(1, 1, seconds=seconds, iterations=iterations, **fields)
        self.learner.finished(self.page, report)

    def known(self) -> list[Any]:
        return [(each.seconds, each.setup) for each in self.table.figures()]


def test_strips_are_extrapolated_to_the_whole_task() -> None:
    running = Running()

    running.progress(0.1)

    # ten of a hundred iterations
    assert running.known() == [(pytest.approx(1.0), 0.0)]
    (kept,) = running.batch.samples.values()
    assert kept is not None
    assert kept.seconds == pytest.approx(1.0)
    assert running.measured == [("heat/64", 0)]


def test_compiling_is_no_part_of_the_set_up_that_is_expected() -> None:
    running = Running()

    running.finish(2.0, set_up=12.0, compiling=11.75, transfer_in=0.5)

    assert running.known() == [(2.75, 0.75)]


def test_set_up_and_transfers_stand_apart_from_strips() -> None:
    running = Running()

    running.finish(2.0, set_up=0.25, transfer_in=0.5, transfer_out=0.25)

    assert running.known() == [(3.0, 1.0)]


def test_the_last_stretch_of_a_moved_task_tells_of_its_own_share() -> None:
    running = Running()
    running.page.segments = (m.Segment("gpu0", 0.0), m.Segment("cpu", 1.0))

    running.finish(1.0, iterations=50)

    assert running.known() == [(2.0, 0.0)]


def test_what_is_cut_short_teaches_nothing() -> None:
    running = Running()
    running.task.intent = Yield()

    running.progress(0.1)

    assert running.known() == []


def test_the_first_report_may_hold_a_compilation() -> None:
    running = Running()

    running.progress(5.0, started=123.0)

    assert running.known() == []


def test_a_share_that_cannot_be_told_teaches_nothing() -> None:
    running = Running(total=None)
    running.page.segments = (m.Segment("gpu0", 0.0), m.Segment("cpu", 1.0))

    running.progress(0.1)
    running.finish(1.0)

    assert running.known() == []


def test_a_failed_task_teaches_nothing() -> None:
    running = Running()
    failed = e.TaskFailed(running.task.id, running.task.epoch, "broken")
    running.scheduler.handle(failed, 1)

    running.finish(1.0)

    assert running.known() == []


def test_of_well_known_short_tasks_one_in_sixteen_counts() -> None:
    running = Running()

    for number in range(1, 3233):
        running.task.id = TaskId(number)
        # the strips of a task that does next to nothing are not all that it takes
        running.finish(2e-6, set_up=1e-4)

    (known,) = running.table.figures()
    assert known.count - 32 == pytest.approx(3200 / 16, rel=0.02)


def test_a_short_last_part_of_a_task_does_not_count() -> None:
    running = Running()
    running.page.segments = (m.Segment("gpu0", 0.0), m.Segment("cpu", 1.0))

    running.finish(0.001, iterations=1)

    assert running.known() == []


def test_a_function_that_is_seldom_slow_is_expected_to_be_quick(
    caplog: pytest.LogCaptureFixture,
) -> None:
    running = Running()
    chance = random.Random(7)

    expected = []
    for number in range(1, 20_001):
        running.task.id = TaskId(number)
        running.finish(0.5 if chance.random() < 0.02 else chance.uniform(2e-4, 4e-4))
        expected.append(running.table.seconds(running.task.row, CPU))

    assert max(expected) < 0.005
    assert caplog.messages == []


def test_a_short_function_that_became_slow_is_noticed_soon() -> None:
    running = Running()
    for number in range(1, 1001):
        running.task.id = TaskId(number)
        running.finish(3e-4)

    for number in range(1001, 1009):
        running.task.id = TaskId(number)
        running.finish(2.0)

    assert running.known() == [(2.0, 0.0)]


def test_drift_is_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    running = Running()
    running.table.profiles.take("heat/64", [1.0] * BINS)
    for _ in range(20):
        running.progress(0.1)

    for _ in range(20):
        running.progress(0.2)

    assert caplog.messages == ["cpu: heat/64 now takes 2.00 times as long as before"]
    assert running.known() == [(pytest.approx(2.0), 0.0)]


def test_unequal_strips_of_a_first_run_are_no_drift(
    caplog: pytest.LogCaptureFixture,
) -> None:
    running = Running()

    for seconds in (0.1, 0.2):
        for _ in range(20):
            running.progress(seconds)

    assert caplog.messages == []


def test_noise_of_short_tasks_is_no_drift(caplog: pytest.LogCaptureFixture) -> None:
    running = Running()
    for seconds in (1e-3, 2e-3, 1e-3):
        for _ in range(500):
            running.finish(seconds)

    assert caplog.messages == []


def test_drift_of_tasks_without_strips_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    running = Running()
    for seconds in (1.0, 2.0):
        for _ in range(20):
            running.finish(seconds)

    assert caplog.messages == ["cpu: heat/64 now takes 2.00 times as long as before"]


@pytest.mark.parametrize(
    ("policy", "source", "seconds"),
    [
        ("affinity", "offered", 1.0),
        ("contention-aware", "offered", 0.5),
        ("contention-aware", None, 1.0),
    ],
)
def test_times_alone_do_not_follow_other_programs_that_counters_show(
    policy: str, source: str | None, seconds: float
) -> None:
    shared = [SharedResource("cores", "cores")]
    loads = {("heat/64", "cpu"): (Load("cores", 0.5, 1.0),)}
    model = ContentionModel(shared, {"cpu": {"cores": "cores"}}, loads)
    running = Running(policy=policy, contention=model)
    if source is not None:
        reading = e.CounterReading("cores", source, 2.0, 0.01, 8)
        running.scheduler.handle(e.CountersRead((reading,)), SYSTEM_CLOCK.now())

    running.progress(0.1)

    assert running.known() == [(pytest.approx(seconds, rel=0.01), 0.0)]


def run_a_hill(running: Running) -> None:
    """Report a run of 100 iterations whose middle third takes nearly all of the time."""
    running.page.checkpoint = m.CheckpointRecord(0, 100)
    for done in range(10, 110, 10):
        running.page.checkpoint = m.CheckpointRecord(done, 100)
        started = 1.0 if done == 10 else None
        running.progress(3.0 if 40 < done < 70 else 0.1, started=started)
    running.finish(6.8)


def test_strips_of_unequal_cost_are_weighed_by_what_whole_runs_have_shown() -> None:
    running = Running()
    run_a_hill(running)
    after_the_first = running.known()

    running.page.checkpoint = m.CheckpointRecord(0, 100)
    for done in range(10, 60, 10):
        running.page.checkpoint = m.CheckpointRecord(done, 100)
        running.progress(3.0 if done == 50 else 0.1)

    # its edge would make it a second, its middle half a minute
    assert after_the_first == [(pytest.approx(6.8), 0.0)]
    assert running.known() == [(pytest.approx(6.8, rel=0.3), 0.0)]
    assert running.learner.work_done(running.page, 0.4) < 0.2
    assert running.learner.work_done(running.page, 0.6) > 0.7


def test_profiles_are_stored_and_restored() -> None:
    running = Running()
    run_a_hill(running)
    profiles = CostProfiles()

    stored = {key: value for key, value in running.batch.settings.items() if value}
    restore_profiles(
        profiles, {**stored, ("profile", "bad"): b"?", ("policy", ""): b""}
    )

    known = running.table.profiles
    assert profiles.done("heat/64", 0.4) == known.done("heat/64", 0.4) < 0.2
    assert profiles.done("bad", 0.4) == 0.4


def test_a_run_that_moved_shows_no_profile() -> None:
    running = Running()
    running.page.segments += (m.Segment("cpu", 1.0),)

    run_a_hill(running)

    assert running.table.profiles.done("heat/64", 0.4) == 0.4
    assert not running.batch.settings
