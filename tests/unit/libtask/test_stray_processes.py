"""What a task starts ends with it, wherever it hides; and its log stays small."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from libtask import processes
from libtask.worker import logs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HIDING = {
    "child": "hide()",
    "own session": "os.setsid(); hide()",
    "daemon": "os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); hide()",
    "hydra": "hydra()",
}
"""How a process may try to outlive the task that started it."""

PROGRAM = """
import os, sys, time

def hide():
    with open(sys.argv[1], "a") as file:
        file.write(f"{os.getpid()}\\n")
    time.sleep(600)

def hydra():
    # A new process takes the place of the old one all the time.
    for _ in range(3):
        if os.fork() == 0:
            break
    with open(sys.argv[1], "a") as file:
        file.write(f"{os.getpid()}\\n")
    end = time.monotonic() + 100  # should the test be killed
    while time.monotonic() < end:
        if os.fork():
            os._exit(0)
        os.setsid()
        time.sleep(0.001)

if os.fork() == 0:
    BODY
"""


def write_program(folder: Path, way: str) -> list[str]:
    path = folder / "hiding.py"
    path.write_text(PROGRAM.replace("BODY", HIDING[way]))
    return [sys.executable, str(path), str(folder / "pids")]


@pytest.fixture
def in_subreaper(tmp_path: Path) -> Callable[[str], str]:
    """Run a few lines in a process that is given its descendants' orphans."""

    def run(lines: str) -> str:
        code = "import os, subprocess, sys, time\nfrom libtask import processes\n"
        code += "processes.become_subreaper()\n" + textwrap.dedent(lines)
        ended = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return ended.stdout

    return run


@pytest.mark.parametrize("way", HIDING)
def test_nothing_below_a_process_outlives_its_end(
    tmp_path: Path, in_subreaper: Callable[[str], str], way: str
) -> None:
    command = write_program(tmp_path, way)
    wanted = 4 if way == "hydra" else 1

    told = in_subreaper(
        f"""
        subprocess.Popen({command!r})
        pids = {str(tmp_path / "pids")!r}
        while not os.path.exists(pids) or len(open(pids).read().split()) < {wanted}:
            time.sleep(0.002)
        print(processes.end_children(30.0), processes.has_children())
        """
    )

    assert told == "True False\n"
    hidden = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert not any(map(processes.is_alive, hidden))


def test_orphans_of_a_command_are_reaped_while_it_runs(
    in_subreaper: Callable[[str], str],
) -> None:
    told = in_subreaper(
        """
        from libtask.commands.process import Process, Start
        # it leaves three orphans, which end at once, and then waits for a line
        script = "for i in 1 2 3; do (true &); done; read line; exit 7"
        read, write = os.pipe()
        command = Process(Start(["sh", "-c", script], os.environ, input=read))
        deadline = time.monotonic() + 30
        most = 0
        while most < 4 and time.monotonic() < deadline:
            most = max(most, len(processes.children_of(os.getpid())))
        left = most
        while left > 1 and time.monotonic() < deadline:
            command.reap_orphans()
            left = len(processes.children_of(os.getpid()))
        print(most, left)
        os.write(write, b"x\\n")
        while command.poll() is None and time.monotonic() < deadline:
            command.reap_orphans()
        print(command.poll())
        command.close()
        """
    )

    assert told == "4 1\n7\n"


def test_a_process_is_known_by_its_start_too() -> None:
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    own = processes.started_at(os.getpid())

    try:
        assert 0 < own <= processes.started_at(other.pid)
        assert processes.children_of(os.getpid()).count(other.pid) == 1
    finally:
        other.communicate(b"\n")
    assert processes.started_at(other.pid) == 0


# ---------------------------------------------------------------- logs


def test_a_full_log_keeps_its_beginning_its_end_and_all_places(tmp_path: Path) -> None:
    log = tmp_path / "w.log"
    lines = [b"line %06d\n" % number for number in range(100_000)]
    log.write_bytes(b"".join(lines))
    limit = 200_000

    assert logs.cap(log, limit)

    status = log.stat()
    assert status.st_size == 1_200_000
    assert status.st_blocks * 512 <= limit
    shown, stop = _read(log, 0, None)
    assert stop == status.st_size
    assert shown.startswith(b"line 000000\n")
    assert shown.endswith(b"line 099999\n")
    dropped = status.st_size - len(shown) + len(_notice(shown))
    assert b"%d bytes of output were dropped" % dropped in shown
    # a task that wrote late finds its lines where they were
    assert _read(log, 12 * 99_990, 12 * 99_991)[0] == lines[99_990]


def test_a_part_that_is_dropped_while_it_is_read_is_not_read_as_zeros(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "w.log"
    log.write_bytes(b"x" * 1_200_000)
    pread = os.pread

    def pread_late(descriptor: int, size: int, place: int) -> bytes:
        logs.cap(log, 200_000)
        return pread(descriptor, size, place)

    monkeypatch.setattr(os, "pread", pread_late)

    with logs.opened(log, os.getuid()) as file:
        parts, end = logs.read_parts(file, 0, None)

    kept = [part for part in parts if isinstance(part, bytes)]
    dropped = [part for part in parts if isinstance(part, int)]
    assert set(b"".join(kept)) == {ord("x")}
    assert len(dropped) == 1
    assert sum(map(len, kept)) + sum(dropped) == end == 1_200_000


def _read(log: Path, start: int, stop: int | None) -> tuple[bytes, int]:
    with logs.opened(log, os.getuid()) as file:
        return logs.read(file, start, stop)


def _notice(shown: bytes) -> bytes:
    start = shown.index(b"\n[hetd: ")
    return shown[start : shown.index(b"]\n", start) + 2]


def test_logs_are_capped_by_name_and_those_that_are_gone_do_not_matter(
    tmp_path: Path,
) -> None:
    cap = logs.LogCap(tmp_path / "logs")
    cap.path("w1").write_bytes(b"x" * 100_000)
    cap.look(["w1", "gone"], 0)
    before = cap.flooded
    cap.path("w1").write_bytes(b"x" * 3_000_000)

    cap.look(["w1", "gone"], 1_000_000)

    assert (before, cap.flooded) == (False, True)
    assert cap.path("w1").stat().st_blocks * 512 <= 1_000_000


def test_a_log_that_was_cut_tells_so(tmp_path: Path) -> None:
    log = tmp_path / "w.log"
    log.write_bytes(b"short\n")

    assert b"9 bytes of output were dropped" in _read(log, 100, 109)[0]
    assert _read(log, 2, 4) == (b"or", 4)


def test_only_a_users_own_file_is_read_as_his_log(tmp_path: Path) -> None:
    log, link, fifo = tmp_path / "w.log", tmp_path / "link", tmp_path / "fifo"
    log.write_bytes(b"printed\n")
    link.symlink_to(log)
    os.mkfifo(fifo)

    assert _read(log, 0, None) == (b"printed\n", 8)
    for refused in (link, fifo, tmp_path):
        with pytest.raises(OSError, match=r"symbolic link|not a file of uid"):
            logs.opened(refused, os.getuid())
    with pytest.raises(PermissionError, match="not a file of uid"):
        logs.opened(log, os.getuid() + 1)


def test_signals_go_by_the_right_number() -> None:
    from libtask.launcher.supervisor import describe

    assert describe(3) == "exit status 3"
    assert describe(-signal.SIGKILL) == "killed by signal 9 (SIGKILL)"
    assert describe(-40) == "killed by signal 40 (real-time)"
