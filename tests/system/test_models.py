"""`hetctl models` on a real daemon: what is measured survives, what is corrupt does not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from click.testing import CliRunner

from hetctl.__main__ import main
from libtask.messages import LearnedLoad, Sample
from system.private_daemon import RESOURCES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from system.private_daemon import PrivateDaemon

BAD_INPUT, NOT_FOUND = 2, 4
SAMPLES = [
    Sample("heat/256", "cpu", 0.5, 1e6, spread=0.05, count=5, setup=0.01),
    Sample("heat/256", "gpu0", 0.75, 1e6, count=3, joules=12.5),
    Sample("heat/1024", "cpu", 8.5, 1.6e7, spread=0.02, count=5),
    Sample("heat/1024", "gpu0", 2.125, 1.6e7, spread=0.02, count=5),
    Sample("markov/64/float32", "cpu", 0.25, 4096.0),
]


def in_order(samples: list[Sample]) -> list[Sample]:
    return sorted(samples, key=lambda each: (each.type, each.resource, each.work))


class Terminal:
    """Runs hetctl against a daemon that knows `SAMPLES`."""

    def __init__(self, daemon: PrivateDaemon) -> None:
        self.daemon = daemon
        daemon.client.forget()
        daemon.client.learn(SAMPLES)

    def __call__(self, *words: str, status: int = 0) -> Any:
        socket = ["--socket", str(self.daemon.socket)]
        outcome = CliRunner().invoke(main, ["models", *words, *socket])
        assert outcome.exit_code == status, outcome.output
        return outcome

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--json").stdout)

    def known(self) -> list[Sample]:
        return in_order(self.daemon.client.models())


@pytest.fixture
def models(daemon: PrivateDaemon) -> Terminal:
    return Terminal(daemon)


def test_models_survive_export_forget_import(models: Terminal, tmp_path: Path) -> None:
    before = models.known()
    file = tmp_path / "models.jsonl"

    models("export", "-o", str(file))
    models("forget", "--all")
    assert models.known() == []
    models("import", str(file))

    after = models.known()
    assert [(s.type, s.resource, s.work, s.count) for s in after] == [
        (s.type, s.resource, s.work, s.count) for s in before
    ]
    for old, new in zip(before, after, strict=True):
        assert new.seconds == pytest.approx(old.seconds)
        assert new.joules == old.joules


def test_a_corrupt_line_is_refused_and_the_rest_is_kept(
    models: Terminal, tmp_path: Path
) -> None:
    file = tmp_path / "models.jsonl"
    models("export", "heat", "-o", str(file))
    lines = file.read_text().splitlines()
    lines[1] = lines[1].replace("8.5", '"soon"', 1)
    lines[2] = lines[2][:40]
    lines[3] = lines[3].replace('"gpu0"', '"gpu7"').replace('"cpu"', '"gpu7"')
    lines.append('{"type":"heat/64","resource":"cpu","seconds":-1.0}')
    file.write_text("\n".join(lines) + "\n")
    models("forget", "--all")

    outcome = models("import", str(file), status=BAD_INPUT)

    complaints = outcome.stderr.splitlines()
    assert [line.partition(": line ")[2][:2] for line in complaints] == [
        "2:",
        "3:",
        "4:",
        "6:",
    ]
    assert complaints[0].startswith(f"hetctl: {file}: line 2: ")
    assert "no resource 'gpu7' here; there are: cpu, gpu0, fpga0" in complaints[2]
    assert "seconds: expected a number above 0, got -1" in complaints[3]
    assert len(models.known()) == 1


@pytest.mark.parametrize("text", ["", "[[resource]]\n", '{"format":"other-1"}\n'])
def test_what_is_no_model_file_is_refused(
    models: Terminal, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "models.jsonl"
    file.write_text(text)

    outcome = models("import", str(file), status=BAD_INPUT)

    assert outcome.stderr == (
        f"hetctl: {file}: line 1: expected the format 'hetctl/models-1'\n"
    )
    assert len(models.known()) == len(SAMPLES)


def test_applications_are_listed(models: Terminal) -> None:
    assert models.json("list")["apps"] == [
        {
            "app": "heat",
            "sizes": 2,
            "resources": ["cpu", "gpu0"],
            "measurements": 18,
            "loads": 0,
        },
        {
            "app": "markov",
            "sizes": 1,
            "resources": ["cpu"],
            "measurements": 1,
            "loads": 0,
        },
    ]
    assert models("list").stdout.splitlines()[1].split() == [
        "heat",
        "2",
        "cpu,",
        "gpu0",
        "18",
        "0",
    ]


def test_times_are_shown_with_affinities(models: Terminal) -> None:
    samples = models.json("show", "heat/1024")["samples"]

    assert {s["resource"]: s["affinity"] for s in samples} == {
        "cpu": pytest.approx(0.25),
        "gpu0": 1.0,
    }
    assert "1.00 best" in models("show", "heat").stdout
    assert len(models.json("show")["samples"]) == len(SAMPLES)


def test_a_picture_is_drawn(models: Terminal, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "heat.svg"

    models("plot", "heat", "-o", str(picture))

    drawn = picture.read_text()
    for text in ("cpu", "gpu0", "best", "execution time in seconds", "1024"):
        assert f">{text}" in drawn
    models("plot", "heat", "-o", str(tmp_path / "heat.bmp"), status=BAD_INPUT)


def test_forgetting_is_selective(models: Terminal) -> None:
    models("forget", "heat", "--resource", "gpu0")

    assert {(s.type, s.resource) for s in models.known()} == {
        ("heat/256", "cpu"),
        ("heat/1024", "cpu"),
        ("markov/64/float32", "cpu"),
    }
    models("forget", "heat", "--resource", "gpu0", status=NOT_FOUND)
    models("forget", status=BAD_INPUT)
    models("show", "blur", status=NOT_FOUND)


def test_an_application_of_a_file_is_named_as_when_it_was_submitted(
    models: Terminal, tmp_path: Path
) -> None:
    file = tmp_path / "models.jsonl"
    models("export", "heat", "-o", str(file))
    file.write_text(file.read_text().replace('"heat/', '"own:Heat/'))
    models("import", str(file))

    shown = models("show", "folder/own.py:Heat").stdout
    models("forget", "folder/own.py:Heat")

    assert "own:Heat/256" in shown
    assert all(not each.type.startswith("own:") for each in models.known())


def test_models_survive_a_crash(private_daemon: Callable[..., PrivateDaemon]) -> None:
    daemon = private_daemon()
    models = Terminal(daemon)
    models("forget", "markov")
    before = models.known()

    daemon.restart()

    assert models.known() == before


LOADS = [
    LearnedLoad("blur", "cpu", "memory", 0.35, 0.5, {"heat": 1.2}),
    LearnedLoad("heat", "cpu", "memory", 0.8, 0.65, {"heat": 1.39, "blur": 1.1}),
]


def test_loads_of_co_runs_are_kept_shown_copied_and_forgotten(
    private_daemon: Callable[..., PrivateDaemon], tmp_path: Path
) -> None:
    daemon = private_daemon("[contention]\ndiscover = true\n" + RESOURCES)
    models = Terminal(daemon)
    daemon.client.learn([], LOADS)
    file = tmp_path / "models.jsonl"
    models("export", "-o", str(file))

    daemon.restart()

    assert daemon.client.learned_loads() == LOADS
    (cores, memory) = daemon.client.type_loads(["heat/256"])[:2]
    assert (cores.resource, cores.shared, cores.bound) == ("cpu", "cores", 1.0)
    assert (memory.shared, memory.demand, memory.bound) == ("memory", 0.8, 0.65)
    listed = {each["app"]: each for each in models.json("list")["apps"]}
    assert (listed["blur"]["loads"], listed["blur"]["measurements"]) == (1, 0)
    shown = models.json("show", "blur")
    assert (shown["samples"], shown["loads"]) == ([], [msgspec.to_builtins(LOADS[0])])
    assert "1.39 beside heat, 1.10 beside blur" in models("show", "heat").stdout
    forgotten = models("forget", "heat")
    assert forgotten.stdout == "4 measurements and 1 load deleted\n"
    assert daemon.client.learned_loads() == LOADS[:1]
    assert "and 2 loads imported, 0 rejected" in models("import", str(file)).stdout
    assert daemon.client.learned_loads() == LOADS


def test_loads_that_cannot_be_are_refused_line_by_line(
    models: Terminal, tmp_path: Path
) -> None:
    file = tmp_path / "models.jsonl"
    good = {"format": "hetctl/load-1", **msgspec.to_builtins(LOADS[0])}
    lines = [{"format": "hetctl/models-1"}, good, {**good, "demand": "much"}]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))

    outcome = models("import", str(file), status=BAD_INPUT)

    first, second = outcome.stderr.splitlines()
    assert first.endswith("line 2: no 'memory' of 'cpu' here; known: nothing")
    assert 'line 3: demand: expected a number, got "much"' in second
