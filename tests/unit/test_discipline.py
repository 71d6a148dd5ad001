"""Discipline: deadlines of strips, processes that do not end, resources that fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hetd.clock import Clock
from hetd.core import events as e
from hetd.core.events import TaskId
from hetd.core.system import SECOND
from hetd.discipline import ASKS, KILL_S
from hetd.health import FIRST_PAUSE_S, TRIAL_S, Health
from hetd.vigil import Vigil
from libtask import messages as m
from unit.daemon_shell import DEVICES, USER, Shell, a_peer, a_spec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TASK = TaskId(1)
TWINS = [*DEVICES, m.DeviceInfo(m.DeviceSpec("gpu1", "gpu", "null"))]


class Hands:
    """The hands of a clock, which tests turn."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def clock(self) -> Clock:
        return Clock(lambda: int(self.seconds * SECOND), lambda: self.seconds)


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def shell(tmp_path: Path, hands: Hands) -> Iterator[Shell]:
    limits = {"strip_limit_s": 10.0, "setup_limit_s": 50.0}
    shell = Shell(tmp_path, hands.clock(), TWINS, **limits)
    yield shell
    shell.close()


# ---------------------------------------------------------------- the vigil


def _complaints(vigil: Vigil, seconds: float) -> list[str]:
    return [why for _, _, why in vigil.overdue(int(seconds * SECOND))]


def _vigil(state_bytes: int = 0) -> Vigil:
    vigil = Vigil(strip_s=10.0, setup_s=50.0)
    vigil.begin(TASK, 1, state_bytes, 0)
    return vigil


def _progress(vigil: Vigil, at: float, mean: float = 0.1, **how: bool) -> None:
    complete = how.get("complete", False)
    vigil.progressed(TASK, mean, complete=complete, now=int(at * SECOND))


def test_set_up_may_take_longer_than_a_strip() -> None:
    vigil = _vigil()
    assert _complaints(vigil, 49.0) == []
    assert _complaints(vigil, 51.0) == ["no strip was finished in 50 s"]

    _progress(vigil, at=45.0)  # what the next strips need may still be compiled
    assert _complaints(vigil, 94.0) == []
    _progress(vigil, at=60.0)
    assert _complaints(vigil, 71.0) == ["no checkpoint was reached in 10 s"]


def test_long_strips_and_large_states_have_their_time() -> None:
    vigil = _vigil(state_bytes=500_000_000)  # 10 s to copy at the worst
    for at in (1.0, 2.0):
        _progress(vigil, at, mean=2.0)

    assert _complaints(vigil, 51.0) == []
    assert _complaints(vigil, 53.0) == ["no checkpoint was reached in 50 s"]


def test_saving_may_take_as_long_as_set_up() -> None:
    vigil = _vigil()
    for at in (1.0, 2.0):
        _progress(vigil, at)

    _progress(vigil, at=3.0, complete=True)

    assert _complaints(vigil, 52.0) == []
    assert len(_complaints(vigil, 54.0)) == 1


def test_reports_put_nothing_off_for_a_task_that_is_to_yield() -> None:
    vigil = _vigil()
    for at in (1.0, 2.0):
        _progress(vigil, at)

    vigil.ordered(TASK, 3 * SECOND)
    _progress(vigil, at=12.0)

    assert _complaints(vigil, 12.9) == []
    assert _complaints(vigil, 13.1) == ["did not yield within 10 s"]
    vigil.forget(TASK)
    assert vigil.tasks() == []


# ---------------------------------------------------------------- hanging tasks


def _report(shell: Shell, name: str, run: m.Run, done: int) -> None:
    record = m.CheckpointRecord(done, 100)
    progress = m.Progress(run.task, run.epoch, record, 0.1, 1)
    shell.crew.report(a_peer(name), progress)


def _hanging(shell: Shell, hands: Hands, **fields: object) -> tuple[int, m.Run]:
    """Let a task run, report, and then be silent for too long."""
    shell.worker("w")
    (task,) = shell.submit(a_spec(**fields))
    run = shell.run_of("w")
    for done in (1, 2):
        _report(shell, "w", run, done)
    hands.seconds += 11.0
    shell.node.tick()
    return task, run


def test_a_task_that_hangs_costs_its_worker_and_goes_on_elsewhere(
    shell: Shell, hands: Hands
) -> None:
    launcher = shell.launcher()
    task, run = _hanging(shell, hands)

    (kill,) = shell.sent.to("launcher1000", m.KillWorker)
    assert kill == m.KillWorker("w", "no checkpoint was reached in 10 s")
    shell.worker("other")
    assert shell.sent.to("other", m.Run) == [], "not before the process is gone"
    exited = m.WorkerExited("w", -15, f"killed by signal 15: {kill.reason}")
    shell.crew.worker_exited(launcher, exited)

    anew = shell.run_of("other")
    assert (anew.task, run.device.name, anew.device.name) == (task, "cpu", "gpu0")
    assert anew.epoch > run.epoch


def test_a_task_that_can_run_nowhere_else_is_tried_there_again(
    shell: Shell, hands: Hands
) -> None:
    launcher = shell.launcher()
    _hanging(shell, hands, resources=["cpu"])
    shell.worker("other")

    shell.crew.worker_exited(launcher, m.WorkerExited("w", -15))

    assert shell.run_of("other").device.name == "cpu"


def test_a_program_of_the_users_own_may_hang(shell: Shell, hands: Hands) -> None:
    shell.launcher()
    shell.worker("own", own=True)
    shell.submit(a_spec(), worker="own")

    hands.seconds += 1000.0
    shell.node.tick()

    assert shell.sent.to("launcher1000", m.KillWorker) == []


@pytest.fixture
def stuck(shell: Shell, hands: Hands) -> m.Run:
    """Return what a worker runs on gpu0 that nothing ends."""
    shell.launcher()
    task, run = _hanging(shell, hands, kinds=["gpu"])
    assert run.device.name == "gpu0"
    shell.ask(m.Migrate(1, task, "gpu0"))  # it goes elsewhere all the same
    shell.worker("other")
    hands.seconds += KILL_S + 1
    shell.node.tick()
    assert _device(shell).reason == f"process 1 of task {task} cannot be ended"
    return run


def test_what_nothing_ends_takes_its_resource_out_of_use(
    shell: Shell, hands: Hands, stuck: m.Run
) -> None:
    trials = _give_trials(shell)
    assert (_device(shell).state, _device(shell).running) == ("lost", [])
    hands.seconds += 100.0
    shell.node.tick()
    assert trials.begun == [], "no trial while it holds on to the device"

    exited = m.WorkerExited("w", -9)
    shell.crew.worker_exited(a_peer(f"launcher{USER}"), exited)
    shell.node.tick()
    trials.outcomes = [""]
    hands.seconds += 1.0
    shell.node.tick()

    assert trials.begun == ["gpu0"]
    assert _device(shell).state == "up"


def test_what_a_stuck_worker_says_at_last_is_refused(
    shell: Shell, stuck: m.Run
) -> None:
    anew = shell.run_of("other")
    assert (anew.device.name, anew.task) == ("gpu1", stuck.task)

    shell.finish("w", stuck, result="of the old attempt")
    assert shell.state(stuck.task) == "running"
    shell.finish("other", anew, result="of the newest")

    entry = shell.journal.find(stuck.task)
    assert entry is not None
    assert entry.result == "of the newest"


def test_a_stuck_worker_that_obeys_at_last_is_trusted_again(
    shell: Shell, hands: Hands, stuck: m.Run
) -> None:
    trials = _give_trials(shell)

    shell.crew.report(a_peer("w"), m.Aborted(stuck.task, stuck.epoch))
    shell.node.tick()
    trials.outcomes = [""]
    hands.seconds += 1.0
    shell.node.tick()

    assert _device(shell).state == "up"


# ---------------------------------------------------------------- failing devices


class Trials:
    """Trials whose outcomes a test decides."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.given_up = 0
        self.outcomes: list[str | None] = []

    def begin(self, spec: m.DeviceSpec) -> Trials:
        self.begun.append(spec.name)
        return self

    def outcome(self) -> str | None:
        return self.outcomes.pop(0) if self.outcomes else None

    def give_up(self) -> None:
        self.given_up += 1


def _give_trials(shell: Shell) -> Trials:
    trials = Trials()
    shell.node.discipline.health._try = trials.begin
    return trials


def _device(shell: Shell, name: str = "gpu0") -> m.DeviceInfo:
    devices: list[m.DeviceInfo] = shell.ask(m.Devices(1)).devices
    (found,) = [each for each in devices if each.spec.name == name]
    return found


def _fail_on_gpu(shell: Shell, name: str, code: str = "device") -> None:
    """Run a task on the GPU, where it fails."""
    shell.submit(a_spec(resources=["gpu0"]))
    run = shell.sent.to(name, m.Run)[-1]
    assert run.device.name == "gpu0"
    shell.crew.report(a_peer(name), m.Failed(run.task, run.epoch, "boom", code))


def test_a_device_that_fails_again_and_again_is_tried_before_it_is_used_again(
    shell: Shell, hands: Hands
) -> None:
    trials = _give_trials(shell)
    shell.worker("w")
    for _ in range(3):
        assert _device(shell).state == "up"
        _fail_on_gpu(shell, "w")

    gpu = _device(shell)
    assert (gpu.state, gpu.reason) == (
        "lost",
        "3 device errors in a row, the last one: boom",
    )
    (waits,) = shell.submit(a_spec(resources=["gpu0"]))
    hands.seconds += FIRST_PAUSE_S
    shell.node.tick()
    trials.outcomes = [None, "wrong numbers"]
    for _ in range(2):
        hands.seconds += 0.5
        shell.node.tick()
    assert trials.begun == ["gpu0"]
    reason = "tried in vain: wrong numbers; the next trial is in 2 s"
    assert _device(shell).reason == reason
    assert shell.state(waits) == "queued"

    trials.outcomes = [""]
    for _ in range(2):
        hands.seconds += 2.1
        shell.node.tick()

    assert (_device(shell).state, _device(shell).reason) == ("up", "")
    assert shell.state(waits) == "running"


@pytest.mark.parametrize("code", ["program", "device-memory", "task-failed"])
def test_a_device_is_not_to_blame_for_everything(shell: Shell, code: str) -> None:
    shell.worker("w")

    for _ in range(4):
        _fail_on_gpu(shell, "w", code)

    assert _device(shell).state == "up"


def test_success_makes_errors_forgotten(shell: Shell) -> None:
    shell.worker("w")
    for _ in range(3):
        for _ in range(2):
            _fail_on_gpu(shell, "w")
        shell.submit(a_spec(resources=["gpu0"]))
        shell.finish("w", shell.sent.to("w", m.Run)[-1], strips=1)

    assert _device(shell).state == "up"


def test_an_administrator_may_know_better(shell: Shell) -> None:
    trials = _give_trials(shell)
    shell.worker("w")
    for _ in range(3):
        _fail_on_gpu(shell, "w")

    shell.ask(m.Occupy(1, "gpu0", drain=False), uid=0)

    assert (_device(shell).state, _device(shell).reason) == ("up", "")
    assert trials.begun == []


def test_a_trial_without_an_answer_is_given_up() -> None:
    trials = Trials()
    health = Health({d.spec.name: d.spec for d in DEVICES}, 1, trials.begin)
    (lost,) = health.failed("gpu0", "boom", 0)
    assert lost == e.ResourceLost(
        "gpu0", "1 device errors in a row, the last one: boom"
    )

    health.tick(2 * SECOND)
    assert health.tick(int((TRIAL_S + 3) * SECOND)) == []

    assert trials.given_up == 1
    assert "gave no answer in 60 s" in health.reason("gpu0")


def test_a_program_that_does_not_build_is_tried_on_no_other_of_the_kind(
    shell: Shell,
) -> None:
    shell.worker("w")
    (task,) = shell.submit(a_spec(resources=["gpu0", "gpu1"]))
    run = shell.run_of("w")

    failed = m.Failed(run.task, run.epoch, "does not compile: line 3", "program")
    shell.crew.report(a_peer("w"), failed)

    entry = shell.journal.find(task)
    assert entry is not None
    assert (entry.state, entry.reason) == ("failed", "does not compile: line 3")


# ---------------------------------------------------------------- processes


def test_a_machine_without_room_for_processes_is_asked_again_later(
    shell: Shell, hands: Hands
) -> None:
    launcher = shell.launcher()
    (task,) = shell.submit(a_spec())
    reason = "no process for a worker: Resource temporarily unavailable"

    for asked in range(1, ASKS):
        orders = shell.sent.to("launcher1000", m.StartWorkers)
        assert len(orders) == asked
        (name,) = orders[-1].names
        failed = m.WorkerExited(name, 1, reason, started=False)
        shell.crew.worker_exited(launcher, failed)
        shell.node.tick()
        assert len(shell.sent.to("launcher1000", m.StartWorkers)) == asked
        entry = shell.journal.find(task)
        assert entry is not None
        assert (entry.state, entry.reason, entry.attempts) == ("running", reason, 0)
        hands.seconds += 6.0
        shell.node.tick()

    (name,) = shell.sent.to("launcher1000", m.StartWorkers)[-1].names
    shell.crew.worker_exited(launcher, m.WorkerExited(name, 1, reason, started=False))
    entry = shell.journal.find(task)
    assert entry is not None
    assert entry.attempts == 1, "then it lets others have its place"


def test_a_worker_that_leaves_costs_its_next_task_no_attempt(shell: Shell) -> None:
    shell.launcher()
    shell.worker("w")
    (task,) = shell.submit(a_spec())
    run = shell.run_of("w")

    shell.crew.worker_leaves(a_peer("w"))
    shell.worker("next")

    again = shell.run_of("next")
    assert (again.task, again.epoch, again.spec) == (task, run.epoch, run.spec)
    shell.finish("next", again, result=1)
    entry = shell.journal.find(task)
    assert entry is not None
    assert (entry.state, entry.attempts, len(entry.segments)) == ("completed", 0, 1)


@pytest.mark.parametrize("leaves", [True, False])
def test_a_worker_that_stays_after_its_last_word_is_ended(
    shell: Shell,
    hands: Hands,
    leaves: bool,  # noqa: FBT001  drawn by name
) -> None:
    launcher = shell.launcher()
    shell.worker("w")
    shell.crew.worker_leaves(a_peer("w"))
    if leaves:
        shell.crew.worker_exited(launcher, m.WorkerExited("w", 0))

    hands.seconds += KILL_S
    shell.node.tick()

    reason = "stayed alive after its last word"
    kills = [] if leaves else [m.KillWorker("w", reason)]
    assert shell.sent.to("launcher1000", m.KillWorker) == kills


def test_a_task_cancelled_when_its_worker_leaves_has_ended(shell: Shell) -> None:
    shell.launcher()
    shell.worker("w")
    (task,) = shell.submit(a_spec())
    shell.ask(m.Control(1, "cancel", [task]))

    shell.crew.worker_leaves(a_peer("w"))

    assert shell.state(task) == "cancelled"


# ---------------------------------------------------------------- restarts


def _restarted(shell: Shell, tmp_path: Path, hands: Hands) -> Shell:
    shell.commit()
    return Shell(tmp_path, hands.clock(), TWINS, restore_grace_s=5.0)


def test_a_worker_in_a_long_strip_is_waited_for(
    shell: Shell, tmp_path: Path, hands: Hands
) -> None:
    shell.launcher()
    shell.worker("w")
    (task,) = shell.submit(a_spec())
    after = _restarted(shell, tmp_path, hands)
    after.node.restore()
    after.crew.launcher_came(a_peer(f"launcher{USER}"), ["w"])

    for _ in range(10):
        hands.seconds += 6.0
        after.node.tick()
    assert after.state(task) == "running"

    exited = m.WorkerExited("w", -9, "killed by signal 9 (SIGKILL)")
    after.crew.worker_exited(a_peer(f"launcher{USER}"), exited)
    entry = after.journal.find(task)
    assert entry is not None
    assert (entry.attempts, entry.reason) == (1, "killed by signal 9 (SIGKILL)")
    after.close()


@pytest.mark.parametrize(("started", "attempts"), [(1, 0), (4711, 1)])
def test_without_a_launcher_the_start_of_the_process_counts(
    shell: Shell, tmp_path: Path, started: int, attempts: int
) -> None:
    hands = Hands()
    shell.worker("w")
    (task,) = shell.submit(a_spec())
    after = _restarted(shell, tmp_path, hands)
    after.starts[1] = started  # another process may have its pid
    after.node.restore()

    hands.seconds += 6.0
    after.node.tick()

    entry = after.journal.find(task)
    assert entry is not None
    assert entry.attempts == attempts
    after.close()


def test_no_process_of_another_boot_is_waited_for(
    shell: Shell, tmp_path: Path, hands: Hands
) -> None:
    shell.worker("w")
    (task,) = shell.submit(a_spec())
    entry = shell.journal.live[task]
    assert entry.holder is not None
    entry.holder = type(entry.holder)("w", 1, 1, boot="another")
    shell.journal.save(entry)
    after = _restarted(shell, tmp_path, hands)
    after.node.restore()

    after.node.tick()

    entry = after.journal.live[task]
    assert entry.attempts == 1
    assert after.killed == []
    after.close()
