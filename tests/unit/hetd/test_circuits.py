"""What is known against applications, as the daemon keeps it, tells it and forgets it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import hetd
from hetd.devices.circuits import cause_of_exit, programs_of_the_box
from hetd.devices.health import FIRST_PAUSE_S
from libtask import messages as m
from unit.daemon_shell import DEVICES, OTHER, USER, Shell, a_peer, a_spec
from unit.hetd.watchdog.devices_on_trial import device_of, give_trials
from unit.turned_clock import Hands

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ABORTED = "killed by signal 6 (SIGABRT)"
ON_GPU: dict[str, Any] = {"app": "heat", "kinds": ["gpu"], "version": "v1"}


@pytest.fixture
def hands() -> Hands:
    turned = Hands()
    turned.seconds = 1e9
    return turned


@pytest.fixture
def shell(tmp_path: Path, hands: Hands) -> Iterator[Shell]:
    """Run a daemon whose clock the test turns."""
    shell = Shell(tmp_path, hands.clock(), setup_limit_s=50.0)
    yield shell
    shell.close()


@pytest.fixture
def running(shell: Shell) -> Shell:
    """Give two users launchers."""
    shell.launcher()
    shell.launcher(OTHER, 78)
    return shell


def _crash(
    shell: Shell, name: str, uid: int = USER, status: int = -6, **fields: Any
) -> int:
    """Let a task's worker die at once; return the task."""
    shell.worker(name, uid)
    (task,) = shell.submit(a_spec(**{**ON_GPU, **fields}), uid=uid)
    assert shell.run_of(name).device.name == "gpu0"
    exited = m.WorkerExited(name, status, ABORTED)
    shell.reports.worker_exited(a_peer(f"launcher{uid}", uid), exited)
    return task


def _avoided(shell: Shell, uid: int = USER) -> list[m.AvoidedPair]:
    known: list[m.AvoidedPair] = shell.ask(m.Models(1), uid).avoided
    (gpu,) = [d for d in shell.ask(m.Devices(1), uid).devices if d.spec.name == "gpu0"]
    assert gpu.avoided == known
    return known


def _reason(shell: Shell, task: int) -> str:
    page = shell.journal.find(task)
    assert page is not None
    return page.reason or ""


@pytest.mark.parametrize(
    ("status", "cause"),
    [(-6, "crash"), (-11, "crash"), (1, "crash"), (0, None), (-9, "killed"), (-15, "killed")],
)  # fmt: skip
def test_exits_are_told_apart(status: int, cause: str | None) -> None:
    assert cause_of_exit(status) == cause


def test_the_programs_of_the_box_are_known_without_loading_them() -> None:
    known = programs_of_the_box()

    assert {"gaussian-blur", "heat", "markov", "correlation"} <= known
    assert not {"call", "synthetic"} & known


def test_a_crash_on_the_only_resource_fails_after_one_attempt(running: Shell) -> None:
    task = _crash(running, "w")

    assert (running.state(task), _reason(running, task)) == ("failed", ABORTED)
    (pair,) = _avoided(running)
    assert (pair.app, pair.resource, pair.owner) == ("heat", "gpu0", f"uid:{USER}")
    assert (pair.failures, pair.cause, pair.reason) == (1, "crash", ABORTED)
    assert pair.until == pytest.approx(running.runtime.clock.wall() + 60, rel=1e-9)


def test_the_next_task_of_that_user_goes_elsewhere_and_another_users_does_not(
    running: Shell,
) -> None:
    _crash(running, "w")
    both = {**ON_GPU, "kinds": ["gpu", "cpu"], "resources": []}
    for uid, name in ((USER, "mine"), (OTHER, "theirs")):
        running.worker(name, uid)
    learn = [m.Sample("app", "gpu0", 1.0), m.Sample("app", "cpu", 9.0)]
    running.ask(m.AddSamples(1, learn), uid=0)

    (mine,) = running.submit(a_spec(**both, type="app"))
    running.submit(a_spec(**both, type="app"), uid=OTHER)

    assert running.run_of("mine").device.name == "cpu"
    assert running.run_of("theirs").device.name == "gpu0"
    explained = running.ask(m.Explain(1, mine))
    (gpu,) = [each for each in explained.prospects if each.resource == "gpu0"]
    assert gpu.note.startswith("avoided for another ")
    assert gpu.note.endswith(f"1 failure in a row, the last: {ABORTED}")


def test_an_estimate_says_what_would_be_avoided(running: Shell) -> None:
    _crash(running, "w")
    both = {**ON_GPU, "kinds": ["gpu", "cpu"], "resources": []}

    mine = running.ask(m.Estimate(1, a_spec(**both, type="app")))
    theirs = running.ask(m.Estimate(1, a_spec(**both, type="app")), uid=OTHER)

    notes = [
        {each.resource: each.note for each in found.prospects}
        for found in (mine, theirs)
    ]
    assert notes[0]["gpu0"].endswith(f"1 failure in a row, the last: {ABORTED}")
    assert (notes[0]["cpu"], notes[1]["gpu0"], notes[1]["cpu"]) == ("", "", "")


def test_a_failed_compile_keeps_the_next_task_away(running: Shell) -> None:
    running.worker("w")
    running.submit(a_spec(**ON_GPU))
    run = running.run_of("w")
    failed = m.Failed(run.task, run.epoch, "does not compile: line 3", "program")

    running.reports.report(a_peer("w"), failed)

    (pair,) = _avoided(running)
    assert (pair.cause, pair.reason) == ("program", "does not compile: line 3")


def test_failures_of_the_input_say_nothing_of_the_resource(running: Shell) -> None:
    running.worker("w")
    running.submit(a_spec(**ON_GPU))
    run = running.run_of("w")

    running.reports.report(a_peer("w"), m.Failed(run.task, run.epoch, "no such file"))

    assert _avoided(running) == []


def test_calls_are_known_by_their_function(running: Shell) -> None:
    _crash(running, "w", app="call", type="call/solve")

    assert [pair.app for pair in _avoided(running)] == ["call/solve"]


# ---------------------------------------------------------------- who sees and forgets


def test_users_see_their_own_and_rulers_all(running: Shell) -> None:
    _crash(running, "w")
    _crash(running, "v", OTHER)

    assert [pair.owner for pair in _avoided(running, USER)] == [f"uid:{USER}"]
    assert [pair.owner for pair in _avoided(running, OTHER)] == [f"uid:{OTHER}"]
    assert len(_avoided(running, 0)) == 2


def test_users_forget_their_own_failures_and_no_measured_times(running: Shell) -> None:
    running.ask(m.AddSamples(1, [m.Sample("heat/1", "gpu0", 1.0)]), uid=0)
    _crash(running, "w")
    _crash(running, "v", OTHER)

    gone = running.ask(m.DeleteSamples(1, names=["heat"], key="a"))

    assert gone.count == 0
    assert [pair.owner for pair in gone.avoided] == [f"uid:{USER}"]
    assert [pair.owner for pair in _avoided(running, 0)] == [f"uid:{OTHER}"]
    assert len(running.ask(m.Models(1)).samples) == 1
    assert (
        running.error(m.DeleteSamples(1, names=["heat"], key="b")).code == "not-allowed"
    )


def test_a_ruler_forgets_by_application_and_resource(running: Shell) -> None:
    _crash(running, "w")
    _crash(running, "v", OTHER, app="/home/them/blur.py:Blur")

    none = running.ask(m.DeleteSamples(1, resources=["cpu"], key="a"), uid=0)
    one = running.ask(m.DeleteSamples(1, names=["blur:Blur"], key="b"), uid=0)

    assert none.avoided == []
    assert [pair.app for pair in one.avoided] == ["/home/them/blur.py:Blur"]
    assert [pair.app for pair in _avoided(running, 0)] == ["heat"]


def test_a_new_version_clears_what_was_known_of_the_old(running: Shell) -> None:
    _crash(running, "w")
    running.worker("again")

    running.submit(a_spec(**{**ON_GPU, "version": "v2"}))

    assert running.run_of("again").device.name == "gpu0"
    assert _avoided(running) == []


# ---------------------------------------------------------------- trials, restarts


def test_one_task_tries_it_in_time(shell: Shell, hands: Hands) -> None:
    shell.launcher()
    _crash(shell, "w")
    both = {**ON_GPU, "kinds": ["gpu", "cpu"]}
    learn = [m.Sample("app", "gpu0", 1.0), m.Sample("app", "cpu", 9.0)]
    shell.ask(m.AddSamples(1, learn), uid=0)
    shell.submit(*(a_spec(**both, type="app") for _ in "three"))
    assert device_of(shell).running == []

    hands.seconds += 61.0
    shell.runtime.tick()

    (pair,) = _avoided(shell)
    assert pair.on_trial
    assert device_of(shell).running == [pair.task]
    assert device_of(shell).queued == 0


@pytest.fixture
def after(tmp_path: Path, hands: Hands) -> Iterator[Callable[[], Shell]]:
    """Let a task crash, stop the daemon; return what starts it on the same store."""
    shells = [Shell(tmp_path, hands.clock())]
    shells[0].launcher()
    _crash(shells[0], "w")

    def start() -> Shell:
        shells[-1].commit()
        shells[-1].close()
        hands.seconds += 10.0
        shells.append(Shell(tmp_path, hands.clock()))
        shells[-1].runtime.restore()
        return shells[-1]

    yield start
    shells[-1].close()


def test_it_is_known_after_a_restart(after: Callable[[], Shell]) -> None:
    shell = after()

    (pair,) = _avoided(shell)
    assert (pair.app, pair.failures, pair.reason) == ("heat", 1, ABORTED)
    assert pair.until == pytest.approx(shell.runtime.clock.wall() + 50, rel=1e-9)
    shell.ask(m.DeleteSamples(1, key="k"), uid=0)
    assert _avoided(after()) == []


def test_a_clock_that_was_put_back_prolongs_nothing(
    after: Callable[[], Shell], hands: Hands
) -> None:
    hands.seconds -= 1e6

    shell = after()

    (pair,) = _avoided(shell)
    assert pair.until == pytest.approx(shell.runtime.clock.wall() + 86_400, rel=1e-9)


def test_another_release_of_hetd_brings_other_programs(
    after: Callable[[], Shell], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hetd, "__version__", "99")

    assert _avoided(after()) == []


def test_what_is_damaged_of_it_is_dropped(
    after: Callable[[], Shell], tmp_path: Path
) -> None:
    after()
    with closing(sqlite3.connect(tmp_path / "hetd.db")) as database, database:
        database.execute("UPDATE circuits SET resource = 'cpu'")

    assert _avoided(after()) == []


# ---------------------------------------------------------------- the device's fault


def test_two_programs_of_the_box_take_a_device_out_of_use(
    shell: Shell, hands: Hands
) -> None:
    trials = give_trials(shell)
    shell.launcher()
    _crash(shell, "w")
    _crash(shell, "v")
    assert device_of(shell).state == "up", "one program only"

    _crash(shell, "u", app="markov")

    gpu = device_of(shell)
    reason = f"2 programs of hetd failed on it: heat: {ABORTED}; markov: {ABORTED}"
    assert (gpu.state, gpu.reason) == ("lost", reason)
    trials.outcomes = [""]
    for _ in range(2):
        hands.seconds += FIRST_PAUSE_S
        shell.runtime.tick()
    assert device_of(shell).state == "up"
    assert {pair.on_trial for pair in _avoided(shell)} == {False}
    shell.runtime.tick()
    assert {pair.on_trial for pair in _avoided(shell)} == {True}


def test_programs_of_a_user_do_not_take_a_device_out_of_use_that_passed_its_test(
    shell: Shell, hands: Hands
) -> None:
    """A user who kills their own workers would keep it from all others."""
    trials = give_trials(shell)
    shell.launcher()
    shell.launcher(OTHER, 78)
    _crash(shell, "w")
    _crash(shell, "v", app="markov")
    assert device_of(shell).state == "lost"
    trials.outcomes = [""]
    for _ in range(2):
        hands.seconds += FIRST_PAUSE_S
        shell.runtime.tick()
    assert device_of(shell).state == "up"

    for number, app in enumerate(("heat", "markov", "correlation")):
        _crash(shell, f"u{number}", app=app, resources=["gpu0"])
    assert device_of(shell).state == "up"

    _crash(shell, "x", OTHER)
    _crash(shell, "y", OTHER, app="markov")
    assert device_of(shell).state == "lost", "another user's count"


def test_programs_of_a_user_take_no_device_out_of_use_on_which_others_compute(
    tmp_path: Path,
) -> None:
    gpu = m.DeviceInfo(m.DeviceSpec("gpu0", "gpu", "null"), slots=2)
    shell = Shell(tmp_path, devices=[DEVICES[0], gpu])
    shell.launcher()
    shell.launcher(OTHER, 78)
    shell.worker("o", OTHER)
    (task,) = shell.submit(a_spec(**ON_GPU), uid=OTHER)

    _crash(shell, "w")
    _crash(shell, "v", app="markov")

    assert device_of(shell).state == "up"
    assert shell.state(task) == "running"
    assert shell.sent.to("o", m.Preempt) == []
    shell.close()


@pytest.mark.parametrize("app", ["/home/me/mine.py:", "mine-", "call"])
def test_users_own_programs_never_take_a_device_from_others(
    running: Shell, app: str
) -> None:
    for number in range(6):
        _crash(running, f"w{number}", app=f"{app}{number}" if app != "call" else app)

    assert device_of(running).state == "up"


def test_programs_that_are_killed_say_nothing_of_the_device(running: Shell) -> None:
    for number, app in enumerate(("heat", "markov", "correlation")):
        _crash(running, f"w{number}", app=app, status=-9)
        running.ask(m.Control(1, "cancel", [number + 1]))

    assert device_of(running).state == "up"
    assert {pair.cause for pair in _avoided(running)} == {"killed"}


@pytest.mark.parametrize(("app", "state"), [("heat", "lost"), ("/me/x.py:Mine", "up")])
def test_hangs_of_users_own_programs_say_nothing_of_the_device(
    shell: Shell, hands: Hands, app: str, state: str
) -> None:
    give_trials(shell)
    shell.launcher()
    for number in range(3):
        name = f"w{number}"
        shell.worker(name)
        shell.submit(a_spec(**{**ON_GPU, "app": app}))
        hands.seconds += 1000.0
        shell.runtime.tick()
        exited = m.WorkerExited(name, -15, "killed by signal 15: no strip was finished")
        shell.reports.worker_exited(a_peer(f"launcher{USER}"), exited)

    assert device_of(shell).state == state
    assert msgspec.structs.asdict(_avoided(shell)[0])["cause"] == "hang"
