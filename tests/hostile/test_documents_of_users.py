"""Files of users with values that nobody means: one clear line each, and no traceback.

Each place of a sound document gets each strange value; the command runs in this process.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest

from hetctl.export import modelfile
from hetctl.pool.submission import read_batch as read_pool_batch
from hetctl.submission.batchfile import BatchFile
from hetctl.submission.programs import Environments
from hetd.config import read_config
from hetpool.setup.config import read_file as read_pool
from hetsim.__main__ import cli
from libtask.errors import HetError, InputError
from libtask.messages import DeviceList

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SCENARIO: dict[str, Any] = {
    "format": "hetsim/scenario-1",
    "resources": [
        {
            "name": "cpu",
            "kind": "cpu",
            "slots": 2,
            "queue_limit": 3,
            "busy_watts": 90.0,
        },
        {"name": "gpu0", "kind": "gpu", "link_bytes_per_s": 1e9, "reconfigure_s": 0.1},
    ],
    "types": [
        {
            "name": "t",
            "seconds": {"cpu": 1.0, "gpu0": 2.0},
            "strips": 4,
            "input_bytes": 1e6,
            "state_bytes": 1e6,
            "migration_s": 0.01,
        }
    ],
    "tasks": [
        {"id": "a", "type": "t", "arrival": 0.0, "deadline": 9.0, "priority": 1},
        {"id": 2, "type": "t", "after": ["a"], "actual_seconds": {"cpu": 1.0}},
    ],
    "bursts": [{"type": "t", "count": 2, "at": 1.0, "every": 0.5, "deadline_after": 9}],
    "outages": [{"resource": "gpu0", "start": 0.5, "finish": 0.7}],
}
EVENT: dict[str, Any] = {
    "format": "hetsim/mapping-1",
    "now": 1.0,
    "eet": [[1.0, 2.0]],
    "machines": [
        {"running": {"id": 0, "type": 0, "start": 0.5, "deadline": 9.0}, "queue": []},
        {"queue": [{"id": 1, "type": 0, "deadline": 9.0}]},
    ],
    "arriving": [{"id": 2, "type": 0, "deadline": 9.0}],
    "p_dyn": [1.0, 2.0],
    "slots": 3,
    "fairness_factor": 1.0,
    "completion_rates": [0.5],
}
PLAN: dict[str, Any] = {
    "format": "hetsim/batch-1",
    "accelerators": [{"id": 0, "responder": "r", "free_at": 0.0, "reconfigure_s": 0.1}],
    "responders": [{"id": "r", "ingress": 1e9}],
    "requesters": [{"id": "q", "egress": 1e9}],
    "jobs": [{"id": 1, "size": 1e6, "requester": "q"}, {"id": 2, "size": 1e6}],
    "seconds": [[1.0], [2.0]],
    "promised": [{"responder": "r", "finish": 1.0, "rate": 1e6, "start": 0.0}],
}
STRANGE: tuple[Any, ...] = (
    *(0, -1, 1e-308, -1e308, 1e308, 10**16, 2**63, -(2**63), 10**30),
    *(True, None, "x", [], {}, [[]], "\ud800é\0"),
)
DEEP = 3000


def _places(value: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    """Walk over all places of a document."""
    inside: Any = ()
    if isinstance(value, dict):
        inside = value.items()
    elif isinstance(value, list):
        inside = enumerate(value)
    for key, each in inside:
        yield (*path, key)
        yield from _places(each, *path, key)


def _changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(document)
    there = changed
    for key in path[:-1]:
        there = there[key]
    there[path[-1]] = value
    return changed


def _variants(document: Any) -> Iterator[str]:
    for path in _places(document):
        for value in STRANGE:
            yield json.dumps(_changed(document, path, value))


def _run(*words: str) -> str:
    """Run a command of `hetsim`; return its complaint, or nothing."""
    try:
        cli.main(words, prog_name="hetsim", standalone_mode=False)
    except (HetError, click.ClickException) as error:
        return str(error)
    return ""


COMMANDS: dict[str, tuple[Any, tuple[str, ...], tuple[str, ...]]] = {
    "run": (SCENARIO, ("run",), ("--policy", "finish-time")),
    "bound": (SCENARIO, ("bound",), ()),
    "map": (EVENT, ("map",), ("--policy", "felare")),
    "plan": (PLAN, ("plan",), ("--planner", "sct")),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", COMMANDS)
def test_every_value_in_every_place(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document, before, after = COMMANDS[name]
    path = tmp_path / "document.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    assert _run(*before, str(path), *after) == "", "it is sound"
    wrong: list[str] = []

    for text in _variants(document):
        path.write_text(text, encoding="utf-8")
        try:
            complaint = _run(*before, str(path), *after)
        except Exception as error:  # noqa: BLE001  whatever it is, it is a finding
            wrong.append(f"{type(error).__name__}: {error}: {text}")
            continue
        if "\n" in complaint.strip() or len(complaint) > 500:
            wrong.append(f"{complaint!r}: {text}")
    capsys.readouterr()

    assert wrong == []


READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "hetd.toml": (f"a = {'[' * DEEP}", read_config),
    "batch.toml": (
        f"a = {'[' * DEEP}",
        lambda path: BatchFile(path, Environments()).read(),
    ),
    "scenario.json": ("[" * DEEP, lambda path: _read("run", path)),
    "event.json": ("[" * DEEP, lambda path: _read("map", path)),
    "plan.json": ("[" * DEEP, lambda path: _read("plan", path)),
}


def _read(name: str, path: Path) -> None:
    _, before, after = COMMANDS[name]
    cli.main((*before, str(path), *after), prog_name="hetsim", standalone_mode=False)


@pytest.mark.parametrize("name", READERS)
def test_deep_nesting_is_one_line(name: str, tmp_path: Path) -> None:
    text, read = READERS[name]
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")

    with pytest.raises(InputError) as caught:
        read(path)

    assert str(caught.value) == f"{path}: nested too deeply"


@pytest.mark.parametrize(
    "line",
    [
        "strip_limit_s = 1e300",
        f"connections_per_user = {10**30}",
        "policy_parameters = { minimum_run_s = 1e308 }",
        f"[[resource]]\nname = 'cpu'\nkind = 'cpu'\nslots = {2**63}",
        f"[limits]\ntasks = {10**20}",
    ],
)
def test_numbers_of_a_configuration_are_such_as_can_be_meant(
    line: str, tmp_path: Path
) -> None:
    path = tmp_path / "hetd.toml"
    path.write_text(line, encoding="utf-8")

    with pytest.raises(InputError, match="expected a number up to 1e"):
        read_config(path)


def test_deep_nesting_in_a_file_of_measurements_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "models.jsonl"
    path.write_text('{"format": "hetctl/models-1"}\n' + "[" * DEEP, encoding="utf-8")

    found = modelfile.read(path, DeviceList(0, []))

    assert (found.samples, len(found.complaints)) == ([], 1)


def read_batch_file(path: Path) -> object:
    return BatchFile(path, Environments()).read()


def read_models(path: Path) -> object:
    return modelfile.read(path, DeviceList(1, []))


@pytest.mark.parametrize(
    "read", [read_config, read_pool, read_pool_batch, read_batch_file, read_models]
)
def test_an_endless_file_is_refused(read: Callable[[Path], object]) -> None:
    with pytest.raises(InputError, match=r"/dev/zero: expected at most \d+ MiB"):
        read(Path("/dev/zero"))
