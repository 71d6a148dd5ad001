"""Every JSON document of `hetctl`, as real commands print it, against its schema."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from click.testing import CliRunner

from hetctl.__main__ import main
from hetctl.documents.schemas import ON_ERROR, PRINTED, documents, file_name, schema_of
from hetctl.reference import commands
from system.private_daemon import RESOURCES, SETTINGS
from system.terminal import PRINTER, Terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from system.private_daemon import PrivateDaemon

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
CPU = '{"cpu": 0.01}'
BATCH = """
job = "study"

[[task]]
app = "synthetic"
params = { seconds = { cpu = 0.01 } }
"""
QUICK = """
import time
from dataclasses import dataclass
from libtask import Size, Task

@dataclass
class Quick(Task):
    n: int = 1

    @classmethod
    def samples(cls, folder):
        return [cls(n=1)]

    def size(self):
        return Size(str(self.n), work=self.n)

    def total(self):
        return 5

def run(task, device, checkpoint):
    for strip in checkpoint.strips():
        time.sleep(0.001 * len(strip))  # the work
        yield

Quick.on("cpu")(run)
"""
STREAMS = {"logs", "events", "models export", "daemon logs"}
"""Commands that print an object a line."""
SERVERS = {"web"}
"""Commands that do not end by themselves; a test of their own looks at them."""
OF_POOLS = "pool "
"""Begins the names of commands that need a pool: `tests/pool/test_verbs.py` looks at them."""


def test_the_published_schemas_are_those_of_the_types() -> None:
    published = {path.name: json.loads(path.read_text()) for path in SCHEMAS.iterdir()}

    assert published == {file_name(name): schema_of(name) for name in documents()}


def test_every_command_tells_what_it_prints() -> None:
    assert set(PRINTED) == {name for name, _ in commands(main)}
    printed = {each for some in PRINTED.values() for each in some}
    assert printed | {ON_ERROR} == set(documents())


SHARING = """
[contention]
discover = true
"""


class Judge:
    """Runs commands with `--json` and holds what they print against the schemas."""

    def __init__(self, daemon: PrivateDaemon) -> None:
        # in this process: as many interpreters would take most of the test's time
        self._runner = CliRunner(env={"HETD_SOCKET": str(daemon.socket)})
        self.seen: set[tuple[str, str]] = set()

    def __call__(self, command: str, *words: str, status: int = 0) -> list[Any]:
        typed = [*command.split(), *words, "--json"]
        if command == "run":  # what follows is the program's
            typed = [command, "--json", "--", *words]
        result = self._runner.invoke(main, typed)
        assert result.exit_code == status, result.output
        printed = result.stdout
        lines = printed.splitlines() if command in STREAMS else [printed]
        found = [json.loads(line) for line in lines]
        headed = found[:1] if command == "models export" else found
        for each in headed:
            self.look(command, each)
        return found

    def look(self, command: str, document: dict[str, Any]) -> None:
        schema = schema_of(document["format"])
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.validate(document, schema)
        assert document["format"] in PRINTED[command]
        self.seen.add((command, document["format"]))


@pytest.mark.timeout(600)  # some sixty processes, on a machine that may be busy
def test_real_output_is_as_its_schema_says(
    private_daemon: Callable[..., PrivateDaemon], tmp_path: Path
) -> None:
    daemon = private_daemon(SETTINGS + SHARING + RESOURCES)
    judge = Judge(daemon)
    _tasks(judge, daemon, tmp_path)
    _the_node(judge, tmp_path)
    _looking_back(judge, tmp_path)
    _execution_times(judge, tmp_path)
    _the_daemon(judge, daemon, tmp_path)

    told = {(command, each) for command, some in PRINTED.items() for each in some}
    unseen = {each for each in told - judge.seen if each[0] not in SERVERS}
    assert {each for each in unseen if not each[0].startswith(OF_POOLS)} == set()


def _tasks(judge: Judge, daemon: PrivateDaemon, folder: Path) -> None:
    (folder / "printer.py").write_text(_dedented(PRINTER))
    (folder / "batch.toml").write_text(BATCH)
    app, gate = f"{folder}/printer.py:Printer", folder / "gate"
    words = ("--strip", "1", "--gate", str(gate), "--on", "cpu,gpu0")
    ((task,),) = [each["ids"] for each in judge("submit", app, *words)]
    daemon.await_state(task, "running")
    judge("submit", "synthetic", "--seconds", CPU, "--array", "0-2", "--hold")
    judge("set", "2-3", "priority=3", "deadline=1h")
    for verb in ("hold", "release", "snapshot"):
        judge(verb, "2")
    _again(judge)
    judge("cancel", "4,5")
    judge("progress")
    where = daemon.info(task).resource
    judge("migrate", str(task), "--to", "gpu0" if where == "cpu" else "cpu")
    daemon.await_state(task, "running")
    for shown in ("1", "1,2"):
        judge("explain", shown)
    gate.touch()
    judge("run", "true")
    judge("result", "1")
    judge("wait", "1-2")
    judge("logs", "1")
    judge("events", "all")
    for shown in ("1", "1-4"):
        judge("show", shown)
    judge("list")
    for option in ("--dry-run", "--wait"):
        judge("submit", "synthetic", "--seconds", CPU, option)
    judge("batch", str(folder / "batch.toml"))
    judge("batch", str(folder / "batch.toml"), "--check")
    judge("batch", str(folder / "batch.toml"), "--wait")
    judge("list", "--jobs")
    judge("graph", "study", "-o", str(folder / "graph.svg"))


def _again(judge: Judge) -> None:
    """End task 3, submit it again as 5 and 6, and forget it."""
    judge("cancel", "3", "--reason", "not wanted")
    judge("requeue", "3")
    judge("requeue", "3", "--wait")
    judge("forget", "3")


def _dedented(program: str) -> str:
    return re.sub(r"^    ", "", program, flags=re.MULTILINE)


def _the_node(judge: Judge, folder: Path) -> None:
    judge("devices")
    judge("devices", "--load")
    judge("metrics")
    judge("top")
    judge("drain", "fpga0")
    judge("resume", "fpga0")
    judge("policy set", "finish-time", "--set", "caution=3")
    judge("policy show")
    judge("policy list")
    judge("policy reset")
    judge("completion", "bash")
    judge("doc", "policy set")


def _looking_back(judge: Judge, folder: Path) -> None:
    judge("history")
    judge("report")
    judge("gantt", "-o", str(folder / "g.svg"))
    judge("trace")
    judge("trace", "--format", "chrome")


def _execution_times(judge: Judge, folder: Path) -> None:
    models = str(folder / "models.jsonl")
    (folder / "quick.py").write_text(QUICK)
    judge("characterize", f"{folder}/quick.py:Quick", "--quick", "--repeat", "1")
    judge("characterize", f"{folder}/quick.py:Quick", "--together")
    judge("models list")
    judge("models show")
    judge("models plot", "quick:Quick", "-o", str(folder / "m.svg"))
    judge("models export")
    judge("models export", "-o", models)
    judge("models import", models)
    judge("models forget", "--all")


def _the_daemon(judge: Judge, daemon: PrivateDaemon, folder: Path) -> None:
    judge("daemon start")  # it runs already
    judge("daemon status")
    judge("daemon logs")
    judge("config show")
    state = ("--state", str(daemon.state))
    judge("daemon check", *state)
    judge("daemon backup", str(folder / "backup.db"), *state)
    judge("daemon stop")
    assert daemon.terminate() == 0  # reaps it
    _restarted(judge, daemon)
    judge("daemon restore", str(folder / "backup.db"), *state)
    daemon.start()


def _restarted(judge: Judge, daemon: PrivateDaemon) -> None:
    """Let a daemon that nobody here has started begin again; end it."""
    words = ("--state", str(daemon.state), "--config", str(daemon.config))
    typed = Terminal(daemon)  # another process: the daemon is nobody's child here
    typed("daemon", "start", *words)
    judge.look("daemon restart", typed.json("daemon", "restart"))
    assert typed.json("daemon", "status")["config"] == str(daemon.config)
    typed("daemon", "stop")


def test_a_wrong_document_is_told_from_a_right_one() -> None:
    right = {"format": "hetctl/control-1", "verb": "hold", "ids": [1]}
    jsonschema.validate(right, schema_of("control-1"))

    for wrong in ({"ids": [0]}, {"verb": "stop"}, {"ids": None}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(right | wrong, schema_of("control-1"))


def test_options_may_stand_before_the_command(daemon: PrivateDaemon) -> None:
    printed = Terminal(daemon)("--json", "--socket", str(daemon.socket), "devices")

    assert json.loads(printed)["format"] == "hetctl/devices-1"
