"""What a worker wrote before it died is what its user sees, with the phase."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from libtask.errors import TaskFailedError
from libtask.messages import migrations
from system import crashing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from libtask.client.handles import TaskHandle
    from system.private_daemon import PrivateDaemon
    from system.terminal import Terminal

    Start = Callable[..., PrivateDaemon]


def _failed(handle: TaskHandle) -> TaskFailedError:
    """Wait for a failure, and return it."""
    with pytest.raises(TaskFailedError) as raised:
        handle.result(60)
    return raised.value


def _submit(daemon: PrivateDaemon, *resources: str, **fields: Any) -> TaskHandle:
    return daemon.client.submit(crashing.NAME, fields, resources=resources or ("cpu",))


def test_a_task_that_aborts_in_its_first_strip_says_so_everywhere(
    daemon: PrivateDaemon, hetctl: Terminal
) -> None:
    said = "a first line\nInternal compiler error: cannot select X86ISD::VRNDSCALE"
    handle = _submit(daemon, say=said, at="strip")

    error = _failed(handle)

    signature = "killed by signal 6 (SIGABRT) in its first strip on cpu: Internal compiler error"
    assert signature in str(error)
    assert "\n" not in str(error)
    assert error.output[:2] == tuple(said.split("\n"))
    assert f"  {said.splitlines()[1]}" in error.__notes__
    shown = hetctl("show", str(handle.id))
    assert signature in shown
    assert "in its first strip on cpu:\n" in shown
    assert f"              {said.splitlines()[0]}\n" in shown
    assert said in hetctl("logs", str(handle.id))
    document = hetctl.json("show", str(handle.id))
    assert document["last_output"]["phase"] == "in its first strip on cpu"
    assert [each["failed_attempt"] for each in document["segments"]] == [True]


def test_a_crash_in_c_names_the_place_in_python(daemon: PrivateDaemon) -> None:
    error = _failed(_submit(daemon, at="strip", how="segfault"))

    assert "killed by signal 11 (SIGSEGV) in its first strip on cpu" in str(error)
    assert "string_at() at " in str(error)
    assert "Fatal Python error: Segmentation fault" in error.output


def test_of_much_output_the_end_is_kept(
    daemon: PrivateDaemon, hetctl: Terminal
) -> None:
    handle = _submit(daemon, fill=10_000_000, say="fatal: no room", at="strip")

    error = _failed(handle)

    assert "in its first strip on cpu: fatal: no room" in str(error)
    assert len(error.output) <= 20
    assert sum(len(line) + 1 for line in error.output) <= 4096
    assert len(hetctl("logs", str(handle.id))) > 10_000_000


def test_control_characters_are_escaped(
    daemon: PrivateDaemon, hetctl: Terminal
) -> None:
    handle = _submit(daemon, say="error: \x1b[31mred\x07 \x9b2J", at="strip")

    error = _failed(handle)

    assert r"error: \x1b[31mred\x07 \x9b2J" in str(error)
    assert r"error: \x1b[31mred\x07 \x9b2J" in error.output
    assert "\x1b" not in hetctl("show", str(handle.id))


@pytest.mark.parametrize(
    ("at", "phase"),
    [
        ("load", "in `load()`"),
        ("second", "after its first strip on cpu"),
        ("save", "in `save()`"),
    ],
)
def test_the_phase_is_told(daemon: PrivateDaemon, at: str, phase: str) -> None:
    handle = _submit(daemon, say="error: so it ends", at=at)

    error = _failed(handle)

    assert f"(SIGABRT) {phase}: error: so it ends" in str(error)


def test_who_is_killed_from_outside_is_not_explained_by_its_output(
    daemon: PrivateDaemon,
) -> None:
    error = _failed(_submit(daemon, say="a step", at="strip", how="kill"))

    assert (
        "killed by signal 9 (SIGKILL) in its first strip on cpu, which hetd did not send"
        in str(error)
    )
    assert "a step" not in str(error)
    assert error.output == ("a step",)


def test_an_exit_is_told_with_the_last_line(daemon: PrivateDaemon) -> None:
    error = _failed(_submit(daemon, say="out of luck", at="strip", how="exit"))

    assert "exit status 3 in its first strip on cpu: out of luck" in str(error)


def test_an_exception_is_kept_with_its_traceback(
    daemon: PrivateDaemon, hetctl: Terminal
) -> None:
    handle = _submit(daemon, say="before it", at="strip", how="raise")

    error = _failed(handle)

    assert str(error).endswith("ArithmeticError: on purpose")
    assert "before it" in error.output
    assert error.output[-1] == "ArithmeticError: on purpose"
    assert "worker.py" not in str(error.__cause__)
    shown = hetctl("show", str(handle.id))
    assert "in its first strip on cpu:" in shown
    assert shown.count("Traceback (most recent call last)") == 1


def test_a_program_that_does_not_compile_shows_its_build_log(
    daemon: PrivateDaemon, hetctl: Terminal
) -> None:
    handle = _submit(daemon, "gpu0", at="strip", how="program")

    error = _failed(handle)

    assert "a.cl does not compile: error: no such thing" in str(error)
    assert "line 1:2: error: no such thing" in error.output
    assert "line 1:2: error: no such thing" in hetctl("logs", str(handle.id))


def test_a_task_that_crashes_while_it_is_loaded_ahead_has_a_log(
    daemon: PrivateDaemon, hetctl: Terminal, trace: Callable[..., Any]
) -> None:
    tenant = trace(gate_at=5, resources=["gpu0"])
    tenant.await_gate()

    handle = _submit(daemon, "gpu0", say="error: no such file", at="load")

    assert "in `load()`: error: no such file" in str(_failed(handle))
    assert "error: no such file" in hetctl("logs", str(handle.id))
    tenant.open_gate()
    tenant.check_completed()


def test_a_failed_attempt_is_no_migration_no_busy_time_and_no_energy(
    private_daemon: Start, tmp_path: Path
) -> None:
    daemon = private_daemon(POWERED)
    marker = str(tmp_path / "crashed")
    handle = daemon.client.submit(
        crashing.NAME, {"at": "strip", "how": "program", "once": marker}
    )

    assert handle.result(60) == {"done": 3}

    info = daemon.info(handle.id)
    failed, done = info.segments
    assert failed.resource != done.resource
    assert failed.failed_attempt
    assert failed.joules is None
    assert not done.failed_attempt
    assert (info.migrations, migrations(info.segments)) == (0, [])
    assert info.joules == done.joules
    assert daemon.client.status().migrations == 0
    first, second = (_device(daemon, each.resource) for each in (failed, done))
    assert (first.busy_s, first.busy_joules, first.starting_s) == (0.0, 0.0, 0.0)
    assert second.busy_s > 0


def test_what_was_told_of_a_loss_outlives_a_restart(daemon: PrivateDaemon) -> None:
    handle = _submit(daemon, say="error: gone", at="strip")
    _failed(handle)

    daemon.restart()

    last = daemon.info(handle.id).last_output
    assert last is not None
    assert last.lines[0] == "error: gone"


def _device(daemon: PrivateDaemon, name: str) -> Any:
    return next(each for each in daemon.client.devices() if each.spec.name == name)


POWERED = """
policy = "affinity"

[[resource]]
name = "cpu"
kind = "cpu"
driver = "null"
slots = 2
busy_watts = 20.0
idle_watts = 5.0

[[resource]]
name = "gpu0"
kind = "gpu"
driver = "null"
busy_watts = 100.0
idle_watts = 10.0
"""
