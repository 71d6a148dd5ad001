"""`hetctl pool` as users type it, against a pool that `pool up` made: output, documents, errors."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import numpy as np
import pytest

from hetctl.commands.pool import VERBS
from hetctl.documents.schemas import PRINTED, schema_of
from hetpool.setup.certificates import Authority, Member
from libtask.daemon.launcher_processes import processes_of
from libtask.processes import kill_with_descendants

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S = 180.0
WAITING = ("--set", 'seconds={"cpu": 0.05}')
LONG = ("--set", 'seconds={"cpu": 600}', "--set", "strips=60000")
ELSEWHERE = {"up", "down", "join", "demo", "move"}
"""Verbs that other tests look at, or that need another node."""


class Typed:
    """Types commands with a home of their own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.socket = home / "h.sock"
        folders = {"XDG_CONFIG_HOME": "config", "XDG_STATE_HOME": "state"}
        folders |= {"XDG_DATA_HOME": "data", "XDG_RUNTIME_DIR": "run"}
        self.environment = os.environ | {
            **{key: str(home / name) for key, name in folders.items()},
            "HETD_SOCKET": str(self.socket),
        }
        self.seen: set[str] = set()

    def __call__(
        self, *words: str, status: int = 0, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "hetctl", "pool", *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
            cwd=self.home,
            env=self.environment | variables,
        )
        assert done.returncode == status, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    def json(self, *words: str, status: int = 0) -> Any:
        """Return what a command prints with `--json`, held against its schema."""
        printed = self(words[0], "--json", *words[1:], status=status).stdout
        found = json.loads(printed.splitlines()[0] if words[0] == "logs" else printed)
        schema = schema_of(found["format"])
        jsonschema.validate(found, schema)
        assert found["format"] in PRINTED[f"pool {words[0]}"]
        self.seen.add(words[0])
        return found

    def refused(self, *words: str, status: int, **variables: str) -> str:
        """Return the only line of a command that fails."""
        line = self(*words, status=status, **variables).stderr
        assert line.count("\n") == 1, line
        return line


@pytest.fixture(scope="module")
def typed() -> Iterator[Typed]:
    root = ["--allow-root"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory(prefix="pool-") as folder:
        made = Typed(Path(folder))
        try:
            made("up", "--name", "n1", "--timeout", "120s", *root)
            made("submit", "synthetic", *WAITING, "--wait")
            yield made
        finally:
            made("down")
            kill_with_descendants(processes_of(made.socket))


@pytest.mark.timeout(900)
def test_every_verb_prints_what_its_schema_says(typed: Typed) -> None:
    np.save(typed.home / "plate.npy", np.full((64, 64), 20.0, np.float32))
    (typed.home / "batch.toml").write_text(
        '[[task]]\napp = "synthetic"\nparams = { seconds = { cpu = 0.02 } }\ncount = 3\n'
    )

    assert typed.json("status")["nodes"] == ["n1"]
    (node,) = typed.json("nodes")["nodes"]
    assert node["present"]
    assert typed.json("plan", "batch.toml")["makespan"] > 0
    output = str(typed.home / "out.npy")
    done = typed.json(
        *("submit", "heat", "--input", "plate.npy", "--output", output),
        *("--steps", "5", "--wait"),
    )
    (task,) = done["tasks"]
    assert (task["state"], task["node"]) == ("completed", "n1")
    assert len(typed.json("batch", "batch.toml")["jobs"]) == 3
    assert typed.json("wait", "all")["tasks"]
    assert len(typed.json("list")["tasks"]) >= 5
    assert typed.json("show", task["id"])["tasks"][0]["tasks"]["n1"]["app"] == "heat"
    assert typed.json("get", task["id"], "-o", "fetched.npy")["bytes"] > 64 * 64 * 4
    np.testing.assert_array_equal(
        np.load(typed.home / "fetched.npy"), np.load(typed.home / "out.npy")
    )
    _program(typed)
    typed.json("logs", task["id"])
    assert typed.json("gantt", "-o", "g.svg")["tasks"]
    assert typed.json("trace")["traceEvents"]
    samples = typed.json("metrics")["samples"]
    assert {"hetpool_up": 1.0}.items() <= {
        s["name"]: s["value"] for s in samples
    }.items()
    _steering(typed)
    assert typed.seen == set(VERBS) - ELSEWHERE


def _program(typed: Typed) -> None:
    """Run an array of programs with a file of this folder; fetch what they wrote."""
    (typed.home / "say.sh").write_text('echo "$1"; cat; pwd > place\n')
    done = typed.json(
        *("submit", "--array", "3-4", "--send", "say.sh", "--input", "say.sh"),
        *("--output", "{index}.txt", "--wait", "--", "sh", "say.sh", "<{index}>"),
    )
    assert {each["app"] for each in done["tasks"]} == {"say.sh"}
    ids = [each["id"] for each in done["tasks"]]
    said = {typed.json("get", each, "-o", "said.txt")["bytes"] for each in ids}
    assert said == {4 + len((typed.home / "say.sh").read_text())}
    assert typed.json("get", ids[0], "--file", "place")["bytes"] > 1
    assert "no file none" in typed.refused("get", ids[0], "--file", "none", status=4)
    typed("submit", "--wait", "--", "sh", "-c", "exit 3", status=10)
    assert (
        "no folder /nowhere"
        in typed(
            *("submit", "--cwd", "/nowhere", "--wait", "--", "true"), status=10
        ).stdout
    )


def _steering(typed: Typed) -> None:
    """Cancel a task that runs; drain the node and resume it."""
    (job,) = typed.json("submit", "synthetic", *LONG)["jobs"]
    shown = typed.json("top")["tasks"]
    assert [each["job"] for each in shown] == [job]
    assert typed.json("explain", job[:8])["why"]
    assert typed.json("cancel", job[:8], "--reason", "enough")["ids"]
    (ended,) = typed.json("wait", job[:8], status=11)["tasks"]
    assert "enough" in ended["reason"]
    assert typed.json("drain", "n1")["state"] == "draining"
    assert typed.json("status")["draining"] == ["n1"]
    assert typed.json("resume", "n1")["state"] == "up"


@pytest.mark.timeout(600)
def test_texts_are_for_people(typed: Typed) -> None:
    waited = typed("submit", "synthetic", *WAITING, "--wait").stdout

    assert "completed on cpu" in waited
    assert "n1" in typed("nodes").stdout
    assert "synthetic" in typed("list").stdout
    assert "running: tls://127.0.0.1:" in typed("status").stdout
    assert "job " in typed("show", "last").stdout
    assert "has ended: completed" in typed("explain", "last").stdout
    assert "no unfinished tasks" in typed("top", "--once").stdout
    assert "# TYPE hetpool_node_up gauge" in typed("metrics").stdout


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("show", "n1:99999"), 4, "no task n1:99999"),
        (("show", "n9:1"), 4, "no task n9:1"),
        (("show", "7"), 2, "expected NODE:NUMBER"),
        (("show", "n1:x"), 2, "expected NODE:NUMBER"),
        (("cancel", "ffffffff"), 4, "no task of a job ffffffff"),
        (("drain", "n2"), 4, "no node 'n2'; there are: n1"),
        (("move", "last", "n2"), 2, "has already ended"),
        (("submit", "haet"), 4, "no application 'haet' (did you mean heat?)"),
        (("submit", "heat", "--n", "x"), 2, "n"),
        (
            ("submit", "heat", "--input", "none.npy"),
            2,
            "write node:none.npy for a file",
        ),
        (("submit", "heat", "--edges", "@none"), 2, "write @@none for the text itself"),
        (("submit", "heat", "--node", "n2"), 4, "no node 'n2'"),
        (("batch", "none.toml"), 2, "none.toml: No such file or directory"),
        (("plan", "batch.toml", "--planner", "ncj"), 2, "(did you mean ncjm?)"),
        (("gantt", "-o", "x.gif"), 2, "expected a name that ends in"),
        (("get", "last", "--parameter", "none"), 4, "no file in a parameter 'none'"),
        (
            ("submit", "--", "./none"),
            2,
            "./none: a command runs in a folder of its own",
        ),
        (("get", "last", "--file", "none"), 4, "has no folder of its own here"),
        (("frobnicate",), 2, "no command 'pool frobnicate'"),
        (("metrics", "--every", "2s"), 2, "--every needs --textfile"),
    ],
)
def test_mistakes_are_one_line(
    typed: Typed, words: tuple[str, ...], status: int, said: str
) -> None:
    (typed.home / "batch.toml").write_text('[[task]]\napp = "heat"\n')

    assert said in typed.refused(*words, status=status)


def test_without_a_scheduler_the_status_is_3(typed: Typed) -> None:
    line = typed.refused("list", status=3, HETPOOL_SCHEDULER="tls://127.0.0.1:1")

    assert "no scheduler at tls://127.0.0.1:1: connection refused" in line


def test_without_a_pool_the_status_is_3(typed: Typed, tmp_path: Path) -> None:
    line = typed.refused("status", status=3, XDG_CONFIG_HOME=str(tmp_path))

    assert "`hetctl pool up` sets one up" in line


def test_a_certificate_of_another_pool_is_status_5(
    typed: Typed, tmp_path: Path
) -> None:
    (tmp_path / "hetd").mkdir(mode=0o700)
    config = (typed.home / "config" / "hetd" / "pool.toml").read_text()
    (tmp_path / "hetd" / "pool.toml").write_text(config)
    now = dt.datetime.fromtimestamp(typed.home.stat().st_mtime, dt.UTC)
    authority = Authority(tmp_path / "hetd" / "pool", now)
    files = authority.member(Member("this"))
    line = typed.refused("list", status=5, XDG_CONFIG_HOME=str(tmp_path))

    assert "refuses the scheduler's certificate" in line
    files.key.chmod(0o644)
    line = typed.refused("list", status=5, XDG_CONFIG_HOME=str(tmp_path))
    assert "mode 0644 lets others read this key; chmod 600" in line


def test_an_expired_certificate_is_status_5(typed: Typed, tmp_path: Path) -> None:
    shutil.copytree(typed.home / "config" / "hetd", tmp_path / "hetd")
    pool = tmp_path / "hetd" / "pool"
    began = dt.datetime.fromtimestamp(typed.home.stat().st_mtime, dt.UTC)
    for name in ("this.pem", "this.key"):
        (pool / name).unlink()
    Authority(pool, began - dt.timedelta(days=400)).member(Member("this"))
    line = typed.refused("list", status=5, XDG_CONFIG_HOME=str(tmp_path))

    assert "the certificate expired on" in line
    assert "`hetctl pool up` renews it" in line


def test_without_the_extra_the_line_says_how_to_install_it() -> None:
    hide = (
        "import importlib.util as u, sys; find = u.find_spec; "
        "u.find_spec = lambda name, *a: None if name == 'distributed' else find(name, *a); "
        "from hetctl.__main__ import main; sys.argv[1:] = ['pool', 'list']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", hide], capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "a pool needs distributed: " in done.stderr
    assert "-m pip install 'hetd[pool]'" in done.stderr


@pytest.mark.parametrize("words", [["list", "--help"], ["pool", "--help"]])
def test_nothing_of_dask_is_loaded_before_a_verb_runs(words: list[str]) -> None:
    code = (
        "import sys; from hetctl.__main__ import main\n"
        f"sys.argv[1:] = {words!r}\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "loaded = {n.partition('.')[0] for n in sys.modules}\n"
        "print(sorted(loaded & {'distributed', 'dask', 'hetpool', 'cryptography'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines()[-1] == "[]"
