"""Programs as tasks, as a user types them: `hetctl run`, `submit --`, scripts, arrays."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import termios
from array import array
from collections import Counter
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest

from libtask.client.client import Selection
from libtask.processes import is_alive
from system.private_daemon import PATIENCE, RESOURCES, SETTINGS, eventually
from system.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from system.private_daemon import PrivateDaemon

UNTIL = 'while [ ! -e "$1" ]; do sleep 0.01; done'
"""A loop of the shell that ends when a file appears."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands are submitted in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---------------------------------------------------------------- run


def test_run_shows_the_output_and_ends_with_the_exit_status(
    hetctl: Terminal, folder: Path
) -> None:
    done = hetctl.completed("run", "--", "sh", "-c", "pwd; echo no >&2; exit 7")

    assert done.returncode == 7
    assert done.stdout == f"{folder}\nno\n"


@pytest.mark.parametrize(
    ("script", "status"),
    [("exit 0", 0), ("kill -9 $$", 137), ("kill -TERM $$", 143)],
)
def test_exit_statuses_are_those_of_a_shell(
    hetctl: Terminal, script: str, status: int
) -> None:
    hetctl("run", "--", "sh", "-c", script, status=status)


def test_output_that_cannot_be_written_cancels_the_task(
    hetctl: Terminal, daemon: PrivateDaemon
) -> None:
    script = f"echo some; {UNTIL}"

    done = hetctl.redirected(
        "> /dev/full", "run", "--", "sh", "-c", script, "sh", "never"
    )

    expected = "hetctl: cannot write standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, expected)
    (task,) = daemon.client.tasks(Selection(limit=1))
    assert daemon.await_state(task.id, "cancelled").reason == (
        "cancelled by its owner: its output could not be written"
    )


def test_a_broken_pipe_cancels_the_task(
    hetctl: Terminal, daemon: PrivateDaemon
) -> None:
    with hetctl.opened("run", "--", "yes", stderr=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        assert run.stdout.readline() == "y\n"
        run.stdout.close()
        printed = run.stderr.read()

    assert (run.returncode, printed) == (141, "")
    (task,) = daemon.client.tasks(Selection(limit=1))
    daemon.await_state(task.id, "cancelled")


def test_a_slow_reader_is_told_of_output_that_the_log_dropped(
    private_daemon: Callable[..., PrivateDaemon], folder: Path
) -> None:
    daemon = private_daemon("log_mb = 1\n" + SETTINGS + RESOURCES)
    write = "head -c 4000000 /dev/zero | tr '\\0' x"
    script = f"{write}; {UNTIL}; {write}; shift; {UNTIL}"

    words = ("run", "--", "sh", "-c", script, "sh", "blocked", "cut")
    with Terminal(daemon).opened(*words, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None
        eventually(partial(_is_full, run.stdout), "a pipe that blocks its writer")
        (folder / "blocked").touch()
        eventually(lambda: any(map(_is_cut, _logs_of(daemon))), "a log below the cap")
        (folder / "cut").touch()
        output, errors = run.communicate(timeout=PATIENCE)

    assert run.returncode == 1
    assert set(output) == {"x"}
    lines = [line.split(" bytes of output are missing") for line in errors.splitlines()]
    missing = sum(int(line[0].removeprefix("hetctl: ")) for line in lines)
    assert len(output) + missing == 8_000_000


def _is_full(pipe: IO[str]) -> bool:
    held = array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, held)
    return held[0] == fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)


def _logs_of(daemon: PrivateDaemon) -> list[Path]:
    return list((daemon.crew_folder / "logs").glob("*.log"))


def _is_cut(log: Path) -> bool:
    status = log.stat()
    return status.st_size == 8_000_000 and status.st_blocks * 512 <= 1 << 20


def test_a_program_that_is_not_there(hetctl: Terminal) -> None:
    done = hetctl.completed("run", "--", "no-such-program")

    assert (done.returncode, done.stdout) == (127, "")
    assert done.stderr == "hetctl: no-such-program: command not found\n"


def test_signals_reach_the_program(hetctl: Terminal, folder: Path) -> None:
    script = f'trap "echo heard; exit 5" USR1; touch ready; {UNTIL}'

    with hetctl.opened("run", "--", "sh", "-c", script, "sh", "never") as run:
        eventually((folder / "ready").exists, "its start")
        run.send_signal(signal.SIGUSR1)
        output, _ = run.communicate(timeout=PATIENCE)

    assert run.returncode == 5
    assert output.endswith("heard\n")  # its shell may complain of its `sleep`


def test_a_program_that_ignores_interrupts_is_cancelled_by_the_third(
    hetctl: Terminal, folder: Path, daemon: PrivateDaemon
) -> None:
    script = f'trap "" INT TERM; echo $$ > pid; {UNTIL}'

    with hetctl.opened("run", "--", "sh", "-c", script, "sh", "never") as run:
        pid = int(eventually(lambda: _read(folder / "pid"), "its start"))
        for number in range(3):
            run.send_signal(signal.SIGINT)
            if number < 2:
                _heard(hetctl)
        run.communicate(timeout=PATIENCE)

    assert run.returncode == 125
    eventually(lambda: not is_alive(pid), "its end")
    assert daemon.client.tasks(Selection(limit=1))[0].state == "cancelled"


def test_a_program_is_ended_at_its_time_limit(hetctl: Terminal, folder: Path) -> None:
    script = f"echo $$ > pid; {UNTIL}"

    done = hetctl.completed(
        "run", "--time", "0.3s", "--", "sh", "-c", script, "sh", "never"
    )

    assert done.returncode == 124
    (line,) = done.stderr.splitlines()
    assert line.endswith("cancelled: it ran for 0.3 s, its time limit")
    assert not is_alive(int((folder / "pid").read_text()))


def test_a_program_that_uses_more_memory_than_it_needs_is_ended(
    hetctl: Terminal, folder: Path
) -> None:
    script = "import time; x = b'1' * (300 << 20); time.sleep(100)"
    program = f'{sys.executable} -c "{script}" & echo $! > child; wait'

    done = hetctl.completed("run", "--memory", "150M", "--", "sh", "-c", program)

    assert done.returncode == 125
    (line,) = done.stderr.splitlines()
    assert "failed: used " in line
    assert line.endswith("MiB of 150 MiB of memory")
    child = int((folder / "child").read_text())
    eventually(lambda: not is_alive(child), "its end")


def test_a_program_is_told_how_many_cores_it_has(hetctl: Terminal) -> None:
    script = "echo $OMP_NUM_THREADS $(nproc)"

    output = hetctl("run", "--cores", "all", "--", "sh", "-c", script)

    cores = len(os.sched_getaffinity(0))
    assert output == f"{cores} {cores}\n"


def test_run_waits_with_a_name_for_resources(hetctl: Terminal) -> None:
    output = hetctl("run", "--on", "gpu", "--", "sh", "-c", "echo $HETD_RESOURCE")

    assert output == "gpu0\n"


@pytest.mark.skipif(
    not (shutil.which("make") and shutil.which("cc")), reason="needs make and cc"
)
def test_a_project_in_c_is_made(hetctl: Terminal, folder: Path) -> None:
    for name in ("a", "b", "c"):
        (folder / f"{name}.c").write_text(f"int {name}(void) {{ return 1; }}\n")
    calls = "int a(void), b(void), c(void);\n"
    (folder / "main.c").write_text(
        f"{calls}int main(void) {{ return a() + b() + c() - 3; }}\n"
    )
    (folder / "Makefile").write_text("main: main.o a.o b.o c.o\n\t$(CC) -o $@ $^\n")

    hetctl("run", "--", "make", "-j2")

    assert subprocess.run(["./main"], check=False).returncode == 0
    (folder / "b.c").write_text("no C\n")
    failed = hetctl.completed("run", "--", "make", "-j2")
    assert failed.returncode == 2
    assert "b.c" in failed.stdout


# ---------------------------------------------------------------- surroundings


def test_a_command_has_the_surroundings_of_its_submitter(
    hetctl: Terminal, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRUIT", "a pear\nand an apple")
    before = os.umask(0o027)
    try:
        output = _with_environment(hetctl)(
            "run", "--env", "MORE=1 2", "--", "sh", "-c", 'umask; echo "$FRUIT$MORE"'
        )
    finally:
        os.umask(before)

    assert output == "0027\na pear\nand an apple1 2\n"


def test_what_is_exported_can_be_chosen(
    hetctl: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FRUIT", "BREAD"):
        monkeypatch.setenv(name, "1")
    terminal = _with_environment(hetctl)
    words = ("--", "sh", "-c", 'echo "$FRUIT $BREAD ${PATH:+path}"')

    assert terminal("run", "--export", "none", *words) == "  path\n"
    assert terminal("run", "--export", "BREAD", *words) == " 1 path\n"
    refused = terminal.completed("run", "--export", "WINE", *words)
    assert refused.returncode == 2
    assert refused.stderr == "hetctl: export: there is no variable 'WINE'\n"


def test_a_command_is_told_its_place(hetctl: Terminal, daemon: PrivateDaemon) -> None:
    names = ("TASK", "INDEX", "RESOURCE", "KIND", "ATTEMPT")
    script = " ".join(f"$HETD_{name}" for name in names)
    threads = "$OMP_NUM_THREADS [$CUDA_VISIBLE_DEVICES]"
    asked = hetctl.json(
        *("submit", "--array", "5", "--on", "gpu0"),
        *("--", "sh", "-c", f'echo "{script} {threads}"'),
    )
    (task,) = asked["ids"]

    hetctl("wait", str(task))

    assert hetctl("logs", str(task)) == f"{task} 5 gpu0 gpu 1 1 []\n"


def test_commands_side_by_side_have_processors_of_their_own(
    hetctl: Terminal, private_daemon: Callable[..., PrivateDaemon], folder: Path
) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two processors")
    cpu = '[[resource]]\nname = "cpu"\nkind = "cpu"\nslots = 2\n'
    terminal = Terminal(private_daemon(SETTINGS + cpu))
    script = f"taskset -pc $$ > on-$HETD_INDEX; {UNTIL}"
    words = ("submit", "--array", "0-1", "--", "sh", "-c", script, "sh", "gate")
    terminal(*words)

    found = [eventually(partial(_read, folder / f"on-{n}"), "it") for n in (0, 1)]
    (folder / "gate").touch()
    terminal("wait", "all")

    assert len({text.rpartition(":")[2] for text in found}) == 2
    assert hetctl is not terminal


def test_an_environment_is_kept_once_and_shown_nowhere(
    hetctl: Terminal, daemon: PrivateDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    word = "a-word-that-nobody-else-may-read"
    monkeypatch.setenv("PRIVATE", word)
    terminal = _with_environment(hetctl)
    folder = daemon.crew_folder / "attachments"
    before = {path.name for path in folder.iterdir()} if folder.exists() else set()

    for _ in range(2):
        terminal("submit", "--array", "0-9", "--wait", "--", "true")

    (kept,) = [path for path in folder.iterdir() if word.encode() in path.read_bytes()]
    assert len({path.name for path in folder.iterdir()} - before) == 1
    assert (kept.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (
        0o600,
        0o700,
    )
    for words in (("show", "last"), ("list", "--json"), ("show", "last", "--json")):
        assert word not in terminal(*words)
    holders = [path for path in daemon.folder.rglob("*") if path.is_file()]
    assert [path for path in holders if word.encode() in path.read_bytes()] == [kept]


# ---------------------------------------------------------------- output


def test_output_goes_to_files_apart_or_together(hetctl: Terminal, folder: Path) -> None:
    words = ("--", "sh", "-c", "echo out; echo err >&2")
    together = ("submit", "--array", "3-4", "--name", "x", "--wait")

    hetctl(*together, "--output", "{name}-{index}.txt", *words)
    hetctl("submit", "--wait", "--output", "o", "--error", "e", *words)

    found = {path.name: path.read_text() for path in folder.iterdir()}
    both = "out\nerr\n"
    assert found == {"x-3.txt": both, "x-4.txt": both, "o": "out\n", "e": "err\n"}


def test_what_stands_for_nothing_is_refused(hetctl: Terminal) -> None:
    refused = hetctl.completed("submit", "--output", "{jobid}.txt", "--", "true")

    assert refused.returncode == 2
    assert refused.stderr.startswith("hetctl: {jobid}.txt: file names may contain")


def test_an_output_file_that_cannot_be_written_fails_the_task(
    hetctl: Terminal,
) -> None:
    words = ("submit", "--wait", "--output", "/no/such/folder/x", "--", "true")

    output = hetctl(*words, status=10)

    assert "output file /no/such/folder/x: No such file or directory" in output


def test_a_flood_of_output_takes_no_more_disk_than_the_log_may(
    private_daemon: Callable[..., PrivateDaemon],
) -> None:
    daemon = private_daemon("log_mb = 1\n" + SETTINGS + RESOURCES)
    terminal = Terminal(daemon)

    terminal("submit", "--wait", "--", "sh", "-c", "yes | head -c 60000000; echo END")

    eventually(lambda: _disk(daemon.crew_folder / "logs") < 2 << 20, "the cap")
    assert terminal("logs", "last").endswith("END\n")


# ---------------------------------------------------------------- many


def test_a_thousand_commands_keep_their_exit_statuses(
    hetctl: Terminal, daemon: PrivateDaemon
) -> None:
    script = "exit $((HETD_INDEX % 3))"
    words = ("--name", "many", "--array", "0-999", "--wait", "--", "sh", "-c", script)

    hetctl("submit", *words, status=10)

    found = daemon.client.tasks(Selection(limit=1000))
    assert Counter(each.exit_code for each in found) == {0: 334, 1: 333, 2: 333}
    assert {each.state for each in found if each.exit_code} == {"failed"}
    assert {each.type for each in found} == {"command/many"}


def test_index_stands_for_itself_in_words(hetctl: Terminal, folder: Path) -> None:
    words = ("--array", "1-2", "--wait", "--", "touch", "x{index}", "{other}")

    hetctl("submit", *words)

    assert {path.name for path in folder.iterdir()} == {"x1", "x2", "{other}"}


# ---------------------------------------------------------------- scripts


SCRIPT = """#!/bin/sh
# what is trained
#HET --on gpu --name trainer
#HET --env "FRUIT=a pear"

echo "$HETD_RESOURCE $FRUIT $1 $2"
#HET --nonsense
"""


def test_a_script_says_how_it_is_to_be_scheduled(
    hetctl: Terminal, folder: Path
) -> None:
    (folder / "s.sh").write_text(SCRIPT)
    (task,) = hetctl.json("submit", "s.sh", "one", "--", "--two")["ids"]
    (folder / "s.sh").unlink()  # it is kept as it was submitted

    hetctl("wait", str(task))

    assert hetctl("logs", str(task)) == "gpu0 a pear one --two\n"
    assert hetctl.json("show", str(task))["name"] == "trainer"


def test_what_is_typed_goes_before_what_a_script_says(
    hetctl: Terminal, folder: Path
) -> None:
    (folder / "s.sh").write_text(SCRIPT)
    (task,) = hetctl.json("submit", "--on", "fpga0", "s.sh", "--name", "mine")["ids"]

    hetctl("wait", str(task))

    assert hetctl("logs", str(task)).startswith("fpga0 a pear")
    assert hetctl.json("show", str(task))["name"] == "mine"


def test_a_script_comes_from_standard_input(hetctl: Terminal) -> None:
    with hetctl.opened("submit", "-", "--json", stdin=subprocess.PIPE) as submit:
        output, _ = submit.communicate("#!/bin/sh\n#HET --name piped\necho here\n")
    (task,) = json.loads(output)["ids"]

    hetctl("wait", str(task))

    assert hetctl("logs", str(task)) == "here\n"


def test_lines_for_slurm_that_are_not_read_are_told(
    hetctl: Terminal, folder: Path
) -> None:
    warning = "hetctl: s.sh: #SBATCH lines are not read; write #HET\n"
    for lines, told in (
        ("#SBATCH -c 4\n", warning),
        ("#SBATCH -c 4\n#HET --cores 1\n", ""),
        ("echo\n#SBATCH -c 4\n", ""),
    ):
        (folder / "s.sh").write_text(f"#!/bin/sh\n{lines}")

        done = hetctl.completed("submit", "s.sh")

        assert (done.returncode, done.stderr) == (0, told)
        hetctl("wait", "last")  # the next one would be told that it waits


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("#HET --tme 10m", "s.sh: line 2: no option '--tme'; see hetctl submit --help"),
        ("#HET heat", "s.sh: line 2: no option 'heat'; see hetctl submit --help"),
        ("#HET --json", "s.sh: line 2: an option that scripts cannot have: as_json"),
        ("#HET --name 'x", "s.sh: line 2: No closing quotation"),
        (
            "#HET --priority soon",
            "s.sh: line 2: Invalid value for '--priority': 'soon' is not",
        ),
    ],
)
def test_a_mistake_in_a_script_is_named_by_its_line(
    hetctl: Terminal, folder: Path, line: str, complaint: str
) -> None:
    (folder / "s.sh").write_text(f"#!/bin/sh\n{line}\n")

    refused = hetctl.completed("submit", "s.sh")

    assert refused.returncode == 2
    assert refused.stderr.startswith(f"hetctl: {complaint}")
    assert refused.stderr.count("\n") == 1


# ---------------------------------------------------------------- what is refused


def test_too_many_words_are_refused(hetctl: Terminal) -> None:
    refused = hetctl.completed("submit", "--", "echo", "x" * 70_000)

    assert refused.returncode == 2
    expected = "the words of a command have 70006 bytes, at most 65536; put long input"
    assert expected in refused.stderr


def test_too_large_an_environment_is_refused(hetctl: Terminal) -> None:
    many = [word for n in range(3) for word in ("--env", f"N{n}={'x' * 100_000}")]

    refused = hetctl.completed("submit", *many, "--", "true")

    assert refused.returncode == 2
    assert (
        "bytes, at most 262144; pass fewer variables, such as export=A,B"
        in refused.stderr
    )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("submit",), "nothing to submit: give APP, a script, or -- COMMAND..."),
        (("run",), "no program given: hetctl run -- COMMAND..."),
        (("submit", "sleep"), "to run the program: hetctl submit -- sleep ..."),
        (("submit", "heat", "--", "true"), "either the application heat, or a program"),
        (("submit", "--frist", "x"), "no option '--frist'; write a program after --"),
        (("submit", "--frist", "--", "true"), "'--frist'; see hetctl submit --help"),
        (("submit", "--stop-signal", "NOW", "--", "true"), "expected a signal such as"),
    ],
)
def test_what_makes_no_sense_is_said_in_a_line(
    hetctl: Terminal, words: tuple[str, ...], complaint: str
) -> None:
    refused = hetctl.completed(*words)

    assert refused.returncode in (2, 4)
    assert complaint in refused.stderr
    assert refused.stderr.count("\n") == 1


# ---------------------------------------------------------------- ends


ESCAPES = """
    echo $$ > first
    setsid sh -c 'echo $$ > second; exec sleep 1000' &
    (setsid sh -c 'setsid sh -c "echo \\$\\$ > third; exec sleep 1000" & sleep 0.01' &)
"""


@pytest.mark.parametrize("end", ["exit", "cancel"])
def test_nothing_stays_of_a_command(
    hetctl: Terminal, folder: Path, daemon: PrivateDaemon, end: str
) -> None:
    last = "sleep 0" if end == "exit" else 'trap "" TERM; sleep 1000'
    waits = "while [ ! -s second ] || [ ! -s third ]; do sleep 0.01; done"
    script = f"{ESCAPES}\n{waits}\n{last}"
    (task,) = hetctl.json("submit", "--", "sh", "-c", script)["ids"]
    files = [folder / name for name in ("first", "second", "third")]
    pids = [int(eventually(partial(_read, file), "a process")) for file in files]

    if end == "cancel":
        hetctl("cancel", str(task))
    hetctl("wait", str(task), status=0 if end == "exit" else 11)

    eventually(lambda: not any(map(is_alive, pids)), "the end of all")


def test_a_tree_of_processes_that_grows_is_ended(
    hetctl: Terminal, folder: Path
) -> None:
    # bounded: the test must not be what it tests
    grow = 'grow() { [ "$1" -gt 0 ] || exec sleep 1000; (grow $(($1 - 1))) & (setsid sh -c "sleep 1000") & grow $(($1 - 1)); }'
    (task,) = hetctl.json("submit", "--", "sh", "-c", f"{grow}; touch up; grow 5")[
        "ids"
    ]
    eventually((folder / "up").exists, "its start")

    hetctl("cancel", str(task))
    hetctl("wait", str(task), status=11)

    eventually(lambda: not _sleepers(folder), "the end of all")


def test_processes_of_a_user_are_bounded(
    private_daemon: Callable[..., PrivateDaemon],
) -> None:
    daemon = private_daemon("processes_per_user = 3333\n" + SETTINGS + RESOURCES)

    limits = Terminal(daemon)("run", "--", "cat", "/proc/self/limits").splitlines()

    (line,) = [line for line in limits if line.startswith("Max processes")]
    assert line.split()[2:4] == ["3333", "3333"]


def test_a_command_goes_on_while_the_daemon_is_away(
    private_daemon: Callable[..., PrivateDaemon], folder: Path
) -> None:
    daemon = private_daemon()
    terminal = Terminal(daemon)
    script = f"echo $$ >> pid; {UNTIL}; exit 4"
    (task,) = terminal.json("submit", "--", "sh", "-c", script, "sh", "gate")["ids"]
    pid = eventually(lambda: _read(folder / "pid"), "its start")

    daemon.restart()
    (folder / "gate").touch()
    terminal("wait", str(task), status=10)

    assert (folder / "pid").read_text() == pid
    assert daemon.info(task).exit_code == 4


def test_a_command_that_lost_its_worker_is_started_again(
    private_daemon: Callable[..., PrivateDaemon], folder: Path
) -> None:
    daemon = private_daemon()
    terminal = Terminal(daemon)
    script = f'echo "$HETD_ATTEMPT $$" >> starts; {UNTIL}'
    (task,) = terminal.json("submit", "--", "sh", "-c", script, "sh", "gate")["ids"]
    first = int(eventually(lambda: _read(folder / "starts"), "its start").split()[1])
    worker = int(Path(f"/proc/{first}/stat").read_text().rpartition(")")[2].split()[1])

    os.kill(worker, signal.SIGKILL)
    eventually(lambda: len(_lines(folder / "starts")) == 2, "its second start")
    (folder / "gate").touch()
    terminal("wait", str(task))

    assert not is_alive(first)
    assert [line.split()[0] for line in _lines(folder / "starts")] == ["1", "2"]


# ---------------------------------------------------------------- hold


def test_hold_stops_a_command_where_it_is(
    hetctl: Terminal, daemon: PrivateDaemon, folder: Path
) -> None:
    script = f"sleep 1000 & echo $! > child; echo $$ > pid; {UNTIL}"
    (task,) = hetctl.json("submit", "--", "sh", "-c", script, "sh", "gate")["ids"]
    pids = [
        int(eventually(partial(_read, folder / n), "its start"))
        for n in ("child", "pid")
    ]

    hetctl("hold", str(task))

    eventually(lambda: {_state(pid) for pid in pids} == {"T"}, "the stop of both")
    held = daemon.info(task)
    assert (held.state, held.suspended, held.resource) == ("running", True, "cpu")
    hetctl("release", str(task))
    eventually(lambda: "T" not in {_state(pid) for pid in pids}, "its going on")
    (folder / "gate").touch()
    hetctl("wait", str(task))
    assert not daemon.info(task).suspended


def test_a_held_command_can_be_sent_elsewhere_from_its_beginning(
    hetctl: Terminal, daemon: PrivateDaemon, folder: Path
) -> None:
    script = f'echo "$HETD_ATTEMPT" >> starts; {UNTIL}'
    (task,) = hetctl.json("submit", "--", "sh", "-c", script, "sh", "gate")["ids"]
    eventually(lambda: _lines(folder / "starts") == ["1"], "its start")
    refused = hetctl.completed("migrate", str(task), "--to", "cpu")

    hetctl("hold", "--requeue", str(task))
    daemon.await_state(task, "held")
    hetctl("release", str(task))
    eventually(lambda: _lines(folder / "starts") == ["1", "2"], "its second start")
    (folder / "gate").touch()
    hetctl("wait", str(task))

    assert refused.returncode == 2
    assert "cannot save its state" in refused.stderr


# ---------------------------------------------------------------- tools


def _read(path: Path) -> str:
    """Read what a whole `echo` has written; empty: nothing yet."""
    text = path.read_text() if path.exists() else ""
    return text if text.endswith("\n") else ""


def _lines(path: Path) -> list[str]:
    return _read(path).splitlines()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _disk(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.iterdir())


def _sleepers(folder: Path) -> list[int]:
    """Find the processes that are in a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and (entry / "cwd").readlink() == folder:
                found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid() and _is_sleep(pid)]


def _is_sleep(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text() in ("sleep\n", "sh\n")
    return False


def _heard(hetctl: Terminal) -> None:
    """Let hetctl deal with what it was sent: two requests take longer than its look."""
    for _ in range(2):
        hetctl("list")


def _with_environment(hetctl: Terminal) -> Terminal:
    """Have commands typed in the present environment."""
    return hetctl.anew()


TWELVE = SETTINGS + RESOURCES.replace("slots = 2", "slots = 12")


def test_an_array_of_a_thousand_commands_runs_eight_at_once(
    private_daemon: Callable[..., PrivateDaemon], folder: Path
) -> None:
    hetctl = Terminal(private_daemon(TWELVE))
    fails_at_seven = 'echo "$HETD_INDEX $WORD" >> done; test "$HETD_INDEX" != 7'
    options = ("--array", "1-1000%8", "--name", "many", "--env", "WORD=given")

    out = hetctl("submit", *options, "--", "sh", "-c", fails_at_seven)
    hetctl("wait", "@many", status=10)
    tasks = hetctl.json("list", "@many", "--all", "--limit", "1000")["tasks"]

    assert "1000" in out
    lines = (folder / "done").read_text(encoding="ascii").splitlines()
    assert sorted(lines) == sorted(f"{index} given" for index in range(1, 1001))
    states = Counter(task["state"] for task in tasks)
    assert states == {"completed": 999, "failed": 1}
    assert 2 < most_at_once(tasks) <= 8


def most_at_once(tasks: list[dict[str, Any]]) -> int:
    """Return how many tasks ran at the same time, by their own times."""
    changes = sorted(
        [(task["finished"], -1) for task in tasks]
        + [(task["started"], 1) for task in tasks]
    )
    return max(accumulate(change for _, change in changes))
