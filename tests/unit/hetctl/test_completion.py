"""Shell completion, by the code that `hetctl completion` prints."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from unit.fake_daemon import FakeDaemon, a_task
from unit.hetctl.typed_commands import text


def completed(line: str, socket: Path) -> set[str]:
    """Complete as bash does when the user presses Tab at the end of `line`."""
    words = line.split(" ")
    asked = {
        "_HETCTL_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "HETD_SOCKET": str(socket),
    }
    script = "from hetctl.__main__ import main; main(prog_name='hetctl')"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | asked,
    )
    assert done.stderr == ""
    return {each.partition(",")[2] for each in done.stdout.split()}


def test_commands_options_and_values_are_completed(daemon: FakeDaemon) -> None:
    path = daemon.path
    assert completed("hetctl pol", path) == {"policy"}
    assert completed("hetctl policy s", path) == {"show", "set"}
    assert "--deadline" in completed("hetctl submit heat --d", path)
    assert completed("hetctl submit he", path) == {"heat"}
    assert completed("hetctl migrate 7 --to ", path) == {"cpu", "gpu0"}
    assert completed("hetctl drain g", path) == {"gpu0"}
    assert completed("hetctl policy set mi", path) == {"migration"}


def test_tasks_are_completed_that_a_command_can_take(daemon: FakeDaemon) -> None:
    daemon.tasks = {
        11: a_task(11, state="running", name="study.1", job="night"),
        12: a_task(12, state="completed", name="done"),
        13: a_task(13, state="failed", name="two words", job="two words"),
    }
    words = {"last", "all", "mine"}

    offered = {
        verb: completed(f"hetctl {verb} ", daemon.path) - words
        for verb in ("cancel", "result", "logs")
    }

    assert offered == {
        "cancel": {"11", "@study", "job:night"},
        "result": {"12", "13", "@done"},
        "logs": {"11", "12", "13", "@study", "@done", "job:night"},
    }
    assert completed("hetctl graph ", daemon.path) == {"night"}


@pytest.mark.parametrize(
    "name", ["a;id", "a`id`", "$(id)", "a&b", "a'b", "~", "a*", "{a}"]
)
def test_no_name_is_offered_that_a_shell_would_run_or_expand(
    name: str, daemon: FakeDaemon
) -> None:
    daemon.tasks = {
        11: a_task(11, state="running", name=name, job=name),
        12: a_task(12, state="running", name="plain-1_é", job="night"),
    }

    offered = completed("hetctl logs ", daemon.path)

    assert offered - {"last", "all", "mine"} == {"11", "12", "@plain-1_é", "job:night"}
    assert completed("hetctl graph ", daemon.path) == {"night"}


def test_without_a_daemon_nothing_is_completed_and_nothing_complained_of(
    tmp_path: Path,
) -> None:
    assert completed("hetctl drain ", tmp_path / "none") == set()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_code_names_the_program(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hetctl", "completion", shell],
        capture_output=True,
        text=True,
        check=True,
    )

    assert f"_HETCTL_COMPLETE={shell}_complete" in done.stdout


def test_completion() -> None:
    assert "_HETCTL_COMPLETE" in text("completion", "bash")


# ------------------------------------------------------------ in the shells themselves

IN_ZSH = """
compdef() { }
compset() { IPREFIX=${PREFIX%%=*}=; PREFIX=${PREFIX#*=} }
compadd() { print -rl -- $IPREFIX$^completions }
_describe() { print -rl -- $IPREFIX$^completions_with_descriptions }
source $1
shift
words=("$@") CURRENT=$# PREFIX=${@[-1]}
_hetctl_completion
"""
"""A completion in zsh, with stand-ins for the functions that the code calls."""

IN_BASH = """
source $1
COMP_LINE=$2 COMP_WORDS=("${@:3}") COMP_WORDBREAKS=$' \\t\\n"><=;|&(:@'
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_hetctl_completion hetctl
printf '%s\\n' "${COMPREPLY[@]}"
"""
"""A completion in bash, which splits words at more characters than spaces."""


def _code(shell: str, folder: Path) -> Path:
    done = subprocess.run(
        [sys.executable, "-m", "hetctl", "completion", shell],
        capture_output=True,
        check=True,
    )
    path = folder / f"hetctl.{shell}"
    path.write_bytes(done.stdout)
    return path


def _offered(shell: str, line: str, daemon: FakeDaemon, folder: Path) -> list[str]:
    """Press Tab at the end of a line in a shell, if it is installed."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    code = str(_code(shell, folder))
    if shell == "fish":
        words = ["--no-config", "-c", f"source {code}; complete -C '{line}'"]
    elif shell == "bash":
        split = re.findall(r"[@=:]|[^\s@=:]+", line)
        words = ["--norc", "-c", IN_BASH, "bash", code, line, *split]
    else:
        words = ["-f", "-c", IN_ZSH, "zsh", code, *line.split(" ")]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    own = {"PATH": path, "HETD_SOCKET": str(daemon.path), "HOME": str(folder)}
    done = subprocess.run(
        [program, *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | own,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize("shell", ["fish", "zsh"])
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("hetctl list --state co", ["completed"]),
        ("hetctl list --state=co", ["--state=completed"]),
        ("hetctl migrate 11 --to=c", ["--to=cpu"]),
        ("hetctl cancel @st", ["@study"]),
        ("hetctl cancel 11,@", ["11,@study"]),
        ("hetctl submit he", ["heat"]),
    ],
)
def test_values_are_completed_in_a_shell(
    shell: str, line: str, offered: list[str], daemon: FakeDaemon, tmp_path: Path
) -> None:
    daemon.tasks = {11: a_task(11, state="running", name="study.1")}

    assert _offered(shell, line, daemon, tmp_path) == offered


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("hetctl list --state co", ["completed"]),
        ("hetctl list --state=co", ["completed"]),
        ("hetctl migrate 11 --to=c", ["cpu"]),
        ("hetctl cancel @st", ["@study"]),
        ("hetctl cancel 11,@", ["11,@study"]),
        ("hetctl submit he", ["heat"]),
        ("hetctl submit --name=a:b he", ["heat"]),
    ],
)
def test_values_are_completed_in_bash(
    line: str, offered: list[str], daemon: FakeDaemon, tmp_path: Path
) -> None:
    """Bash replaces only the part of a word after its last `=` or `:`."""
    daemon.tasks = {11: a_task(11, state="running", name="study.1")}

    assert _offered("bash", line, daemon, tmp_path) == offered


@pytest.mark.parametrize(("shell", "between"), [("fish", "\t"), ("zsh", ":")])
def test_descriptions_are_shown_with_their_commas(
    shell: str, between: str, daemon: FakeDaemon, tmp_path: Path
) -> None:
    (found,) = _offered(shell, "hetctl pol", daemon, tmp_path)

    assert found.startswith(f"policy{between}Show, list or set the policy")


def test_files_are_completed_in_fish(daemon: FakeDaemon, tmp_path: Path) -> None:
    (tmp_path / "picture.tiff").touch()

    line = f"hetctl submit {tmp_path}/pic"
    assert _offered("fish", line, daemon, tmp_path) == [f"{tmp_path}/picture.tiff"]
