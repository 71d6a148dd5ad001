"""Calls of functions that are cancelled while they run: interrupted, as by Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import cloudpickle
import pytest

from libtask.client.client import Client
from libtask.messages import ENDED
from system.private_daemon import PATIENCE, RESOURCES, eventually, opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from libtask.client.handles import TaskHandle
    from system.private_daemon import PrivateDaemon

PATIENT = 'policy = "affinity"\ncancel_grace_s = 600.0\n'
"""A call that is not interrupted does not end while its test waits."""

# workers cannot import this module
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def patient() -> Iterator[PrivateDaemon]:
    with opened(PATIENT + RESOURCES) as daemon:
        yield daemon


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A file that a call makes when it runs."""
    return tmp_path / "begun"


def asleep(begun: Path) -> None:
    begun.touch()
    try:
        time.sleep(600)
    finally:
        begun.with_name("cleaned").touch()


def busy(begun: Path) -> None:
    begun.touch()
    while True:
        pass


def otherwise(begun: Path) -> None:
    begun.touch()
    try:
        time.sleep(600)
    except KeyboardInterrupt:
        raise ValueError("stopped") from None


def cancelled(call: TaskHandle, begun: Path) -> str:
    eventually(begun.exists, "a running call")
    call.cancel()
    return call.wait(PATIENCE)


def test_the_function_cleans_up(patient: PrivateDaemon, begun: Path) -> None:
    call = patient.client.submit(asleep, begun)

    assert cancelled(call, begun) == "cancelled"
    assert begun.with_name("cleaned").exists()


@pytest.mark.parametrize("function", [busy, otherwise])
def test_it_is_cancelled_whatever_it_does(
    patient: PrivateDaemon, begun: Path, function: Callable[[Path], None]
) -> None:
    assert cancelled(patient.client.submit(function, begun), begun) == "cancelled"


def talking(begun: Path) -> None:
    sys.stdout.write("half of it\n")
    asleep(begun)


def test_its_output_so_far_is_kept(patient: PrivateDaemon, begun: Path) -> None:
    call = patient.client.submit(talking, begun)
    cancelled(call, begun)

    assert "".join(call.logs()) == "half of it\n"


def test_its_worker_runs_the_next_call(patient: PrivateDaemon, begun: Path) -> None:
    before = {patient.client.submit(os.getpid).result(PATIENCE) for _ in range(8)}
    cancelled(patient.client.submit(asleep, begun), begun)

    assert patient.client.submit(os.getpid).result(PATIENCE) in before


def test_one_that_runs_over_a_restart_is_interrupted_too(begun: Path) -> None:
    with opened(PATIENT + RESOURCES) as daemon:
        call = daemon.client.submit(asleep, begun)
        eventually(begun.exists, "a running call")
        daemon.restart()

        assert cancelled(call, begun) == "cancelled"
        assert begun.with_name("cleaned").exists()
        assert len(daemon.workers()) == 1


def test_a_time_limit_interrupts_it(patient: PrivateDaemon, begun: Path) -> None:
    patient.client.submit(abs, -1).result(PATIENCE)  # a worker is there now
    call = patient.client.submit(asleep, begun, time_limit_s=3)

    assert call.wait(PATIENCE) == "cancelled"
    assert "its time limit" in (patient.info(call.id).reason or "")
    assert begun.with_name("cleaned").exists()


def waiting(socket: Path, begun: Path) -> None:
    with Client(socket) as client, client.executor() as executor:
        executor.submit(asleep, begun).result()


def left_to_the_exit(socket: Path, begun: Path) -> None:
    with Client(socket) as client, client.executor() as executor:
        executor.submit(asleep, begun)


@pytest.mark.parametrize("function", [waiting, left_to_the_exit])
def test_one_that_waits_for_others_ends_with_them(
    patient: PrivateDaemon, begun: Path, function: Callable[[Path, Path], None]
) -> None:
    call = patient.client.submit(function, patient.socket, begun)

    assert cancelled(call, begun) == "cancelled"
    eventually(begun.with_name("cleaned").exists, "the end of the call inside")
    eventually(lambda: all_ended(patient), "the end of all")


def killed_once(socket: Path, begun: Path) -> str:
    if begun.exists():
        return "again"
    with Client(socket) as client, client.executor() as executor:
        executor.submit(asleep, begun)
        while not begun.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    return "not killed"


def test_what_a_killed_call_has_called_ends(
    patient: PrivateDaemon, begun: Path
) -> None:
    call = patient.client.submit(killed_once, patient.socket, begun)

    assert call.result(PATIENCE) == "again"
    eventually(begun.with_name("cleaned").exists, "the end of the call inside")
    eventually(lambda: all_ended(patient), "the end of all")


def all_ended(daemon: PrivateDaemon) -> bool:
    return all(task.state in ENDED for task in daemon.client.tasks())


PROGRAM = """
import sys, time
from pathlib import Path
from libtask import Client

def asleep(begun):
    begun.touch()
    time.sleep(600)

with Client(sys.argv[1]) as client, client.executor() as executor:
    executor.submit(asleep, Path(sys.argv[2]))
    executor.submit(time.sleep, 600).result()
"""


def test_ctrl_c_in_a_program_ends_the_calls_of_its_executor(
    patient: PrivateDaemon, begun: Path, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    words = [sys.executable, "program.py", str(patient.socket), str(begun)]
    program = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        eventually(begun.exists, "a running call")
        program.send_signal(signal.SIGINT)
        _, errors = program.communicate(timeout=PATIENCE)
    finally:
        program.kill()

    assert errors.rstrip().endswith("KeyboardInterrupt")
    eventually(lambda: all_ended(patient), "the end of its calls")
