"""Programs that save their state and go on elsewhere."""

from __future__ import annotations

import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from libtask.messages import Sample
from libtask.worker.tasklog import last_lines
from system.private_daemon import PATIENCE, RESOURCES, eventually
from system.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from system.private_daemon import PrivateDaemon

TRAIN = Path(__file__).parents[2] / "docs" / "examples" / "train.py"
STEPS = 150_000
"""Some seconds of training."""
CASES = [
    ("--stop-signal TERM", 75, "completed"),
    ("--resumable", 3, "completed"),
    ("--stop-signal TERM", 3, "failed"),
]
"""Options, the exit status of who is asked to leave, and how the task ends."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _train(*more: str) -> str:
    return shlex.join([sys.executable, str(TRAIN), "--steps", str(STEPS), *more])


def _saving(status: int) -> str:
    """Return a shell's script that says where it runs, and leaves so when asked to."""
    loop = "while [ ! -e gate ]; do sleep 0.01; done"
    says = 'echo "$HETD_RESOURCE $HETD_ATTEMPT" >> places'
    return f"trap 'exit {status}' TERM; {says}; {loop}"


def _gets_on(daemon: PrivateDaemon, task: int, place: str, reached: float) -> bool:
    """Whether a task is where it is to be, and has got further there."""
    info = daemon.info(task)
    return info.resource == place and info.progress > reached


def _starts(daemon: PrivateDaemon, task: int) -> list[str]:
    """Return the lines of training, one for each start."""
    return last_lines(daemon.client.show(task), 100).splitlines()


def _has_begun(daemon: PrivateDaemon, task: int) -> bool:
    """Whether training has begun wherever it was started: it says so once it listens."""
    return len(_starts(daemon, task)) == len(daemon.info(task).segments)


def _places(folder: Path) -> list[str]:
    path = folder / "places"
    return path.read_text().splitlines() if path.exists() else []


def test_training_that_is_moved_gives_the_same_weights(
    hetctl: Terminal, daemon: PrivateDaemon, folder: Path
) -> None:
    alone = [*shlex.split(_train("--state", "s.npz", "--weights", "alone.npy"))]
    with subprocess.Popen(alone, stdout=subprocess.DEVNULL) as unmoved:
        words = ("--cpu", _train("--device", "cpu"), "--gpu", _train("--device", "gpu"))
        asked = hetctl.json(
            "submit", "--stop-signal", "TERM", "--name", "train", *words
        )
        (task,) = asked["ids"]
        # one that is moved before it listens is started again, and says nothing there
        daemon.await_state(task, "running")
        eventually(partial(_has_begun, daemon, task), "its first start")
        reached = 0.0
        for place in ("cpu", "gpu0", "cpu"):
            # no command, whose start takes time: training lasts some seconds
            daemon.client.migrate(task, place)
            eventually(partial(_gets_on, daemon, task, place, reached), place)
            eventually(partial(_has_begun, daemon, task), "its start there")
            reached = daemon.info(task).progress
        hetctl("wait", str(task))
        unmoved.wait(PATIENCE)

    info = daemon.info(task)
    on = [each.resource for each in info.segments]
    assert on[-3:] == ["cpu", "gpu0", "cpu"]
    assert 0.0 < reached < 1.0
    moved, expected = np.load(folder / "weights.npy"), np.load(folder / "alone.npy")
    assert np.array_equal(moved, expected)
    starts = _starts(daemon, task)
    assert len(starts) == len(on)
    steps = [int(line.split()[2]) for line in starts]
    assert steps == sorted(steps)


def test_training_moves_by_policy_and_gives_the_same_weights(
    private_daemon: Callable[..., PrivateDaemon], folder: Path
) -> None:
    daemon = private_daemon('policy = "finish-time"\n' + RESOURCES)
    terminal = Terminal(daemon)
    times = {"train": {"cpu": 100.0, "gpu0": 1.0}, "before": {"gpu0": 1000.0}}
    daemon.client.learn(
        [
            Sample(f"command/{name}", resource, seconds, count=9)
            for name, known in times.items()
            for resource, seconds in known.items()
        ]
    )
    waits = "while [ ! -e gate ]; do sleep 0.01; done"
    (before,) = terminal.json(
        "submit", "--name", "before", "--on", "gpu0", "--", "sh", "-c", waits
    )["ids"]
    daemon.await_state(before, "running")
    words = ("--cpu", _train("--device", "cpu"), "--gpu", _train("--device", "gpu"))
    (task,) = terminal.json("submit", "--resumable", "--name", "train", *words)["ids"]
    eventually(partial(_gets_on, daemon, task, "cpu", 0.0), "progress on the CPU")

    (folder / "gate").touch()  # the GPU is free: it would be done sooner there
    eventually(partial(_gets_on, daemon, task, "gpu0", 0.0), "progress on the GPU")
    daemon.client.drain("gpu0")
    terminal("wait", str(task))

    on = [each.resource for each in daemon.info(task).segments]
    # what it really takes is learned meanwhile, so it may move more often
    assert (on[:2], on[-1]) == (["cpu", "gpu0"], "cpu")
    alone = [*shlex.split(_train("--state", "s.npz", "--weights", "alone.npy"))]
    subprocess.run(alone, stdout=subprocess.DEVNULL, check=True)
    moved, expected = np.load(folder / "weights.npy"), np.load(folder / "alone.npy")
    assert np.array_equal(moved, expected)


def test_a_drained_resource_is_left_by_what_can_save_its_state(
    hetctl: Terminal, daemon: PrivateDaemon, folder: Path
) -> None:
    script = shlex.join(["sh", "-c", _saving(75)])
    words = ("--on", "cpu,gpu0", "--cpu", script, "--gpu", script)
    daemon.client.drain("gpu0")
    (stays,) = hetctl.json("submit", *words)["ids"]
    (moves,) = hetctl.json("submit", "--stop-signal", "TERM", *words)["ids"]
    eventually(lambda: len(_places(folder)) == 2, "both starts")
    daemon.client.resume("gpu0")

    daemon.client.drain("cpu")
    eventually(lambda: len(_places(folder)) == 3, "the move")
    (folder / "gate").touch()
    hetctl("wait", str(stays), str(moves))

    assert sorted(_places(folder)) == ["cpu 1", "cpu 1", "gpu0 2"]
    on = {
        task: [s.resource for s in daemon.info(task).segments]
        for task in (stays, moves)
    }
    assert on == {stays: ["cpu"], moves: ["cpu", "gpu0"]}


def test_a_program_that_moves_before_it_listens_for_the_signal_goes_on(
    hetctl: Terminal, daemon: PrivateDaemon, folder: Path
) -> None:
    # as an interpreter that has not come to the program's handler yet
    script = shlex.join(["sh", "-c", f"touch begun; sleep 1; {_saving(75)}"])
    words = ("--on", "cpu,gpu0", "--cpu", script, "--gpu", script)
    (task,) = hetctl.json("submit", "--stop-signal", "TERM", *words)["ids"]
    eventually((folder / "begun").exists, "its start")
    start = daemon.info(task).resource
    other = "gpu0" if start == "cpu" else "cpu"

    hetctl("migrate", str(task), "--to", other)
    eventually(lambda: _places(folder), "its second start")
    (folder / "gate").touch()
    daemon.await_state(task, "completed")

    assert _places(folder) == [f"{other} 2"]


def test_a_program_without_a_handler_for_the_signal_loses_its_state(
    hetctl: Terminal, daemon: PrivateDaemon, folder: Path
) -> None:
    loop = "while [ ! -e gate ]; do sleep 0.01; done"
    does = f'echo 0.5 > "$HETD_PROGRESS"; touch begun; {loop}'
    script = shlex.join(["sh", "-c", does])
    words = ("--on", "cpu,gpu0", "--cpu", script, "--gpu", script)
    (task,) = hetctl.json("submit", "--stop-signal", "TERM", *words)["ids"]
    eventually((folder / "begun").exists, "its progress")
    start = daemon.info(task).resource

    hetctl("migrate", str(task), "--to", "gpu0" if start == "cpu" else "cpu")
    daemon.await_state(task, "failed")

    assert daemon.info(task).reason == (
        "killed by signal 15 (SIGTERM) after SIGTERM: not 75, so its state is not saved"
    )


@pytest.mark.parametrize("case", CASES)
def test_what_a_program_leaves_with_says_whether_it_goes_on(
    hetctl: Terminal, daemon: PrivateDaemon, folder: Path, case: tuple[str, int, str]
) -> None:
    option, status, state = case
    script = shlex.join(["sh", "-c", _saving(status)])
    words = ("--on", "cpu,gpu0", *option.split(), "--cpu", script, "--gpu", script)
    (task,) = hetctl.json("submit", *words)["ids"]
    eventually(lambda: len(_places(folder)) == 1, "its start")
    start = daemon.info(task).resource
    other = "gpu0" if start == "cpu" else "cpu"

    hetctl("migrate", str(task), "--to", other)
    if state == "completed":
        eventually(lambda: len(_places(folder)) == 2, "its second start")
        (folder / "gate").touch()
    daemon.await_state(task, state)

    expected = [f"{start} 1", f"{other} 2"][: 2 if state == "completed" else 1]
    assert _places(folder) == expected
    if state == "failed":
        reason = "exit status 3 after SIGTERM: not 75, so its state is not saved"
        assert daemon.info(task).reason == reason


def test_a_program_that_ignores_its_signal_is_killed_after_the_grace(
    hetctl: Terminal, daemon: PrivateDaemon, folder: Path
) -> None:
    script = 'trap "" USR1; touch ready; while :; do sleep 0.01; done'
    options = ("--stop-signal", "USR1", "--grace", "50ms")
    (task,) = hetctl.json("submit", *options, "--", "sh", "-c", script)["ids"]
    eventually((folder / "ready").exists, "its start")

    hetctl("hold", str(task))

    daemon.await_state(task, "failed")
    assert daemon.info(task).reason == "did not leave in 0.05 s after SIGUSR1: killed"


def test_a_program_that_was_done_when_it_was_asked_to_leave_is_done(
    hetctl: Terminal, daemon: PrivateDaemon, folder: Path
) -> None:
    script = _saving(0)
    options = ("--stop-signal", "TERM")
    (task,) = hetctl.json("submit", *options, "--", "sh", "-c", script)["ids"]
    eventually(lambda: len(_places(folder)) == 1, "its start")

    hetctl("hold", str(task))

    daemon.await_state(task, "completed")
    assert len(_places(folder)) == 1


def test_times_are_learned_by_name_and_kind(
    hetctl: Terminal, daemon: PrivateDaemon
) -> None:
    for place in ("cpu", "gpu0"):
        hetctl(
            *("submit", "--name", "naps", "--on", place, "--wait"),
            *("--", "sleep", "0.02"),
        )

    known = hetctl("models", "show", "command/naps")
    assert "cpu" in known
    assert "gpu0" in known
