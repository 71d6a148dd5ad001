"""`hetctl pool submit -- COMMAND`: what is refused before anything is submitted, and what is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import pytest
from click.testing import CliRunner

from hetctl.pool import submission
from hetpool.client.describing import described
from hetpool.jobs import InputFile, NodeSlot, PoolNode
from libtask.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hetpool.jobs import PoolJob


class FakePool:
    """Describes jobs as `Pool` does, with files that travel nowhere."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def nodes(self) -> list[PoolNode]:
        slots = (NodeSlot("cpu", "cpu"), NodeSlot("gpu0", "gpu"))
        return [PoolNode("n1", "tls://n1:9000", slots)]

    def job(self, app: Any, *arguments: Any, **options: Any) -> PoolJob:
        return described(app, arguments, options, self._bring)

    @staticmethod
    def _bring(path: Path) -> InputFile:
        if not path.exists():
            raise InputError(f"{path}: No such file or directory")
        return InputFile("ab" * 32, path.stat().st_size, ("n1",), path.suffix)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[PoolJob]:
    """Return the jobs that the command submits."""
    jobs: list[PoolJob] = []

    def submit(_pool: Any, some: Sequence[PoolJob], *_: Any) -> int:
        jobs.extend(some)
        return 0

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(submission, "settings_of", lambda _config: None)
    monkeypatch.setattr(submission, "open_pool", lambda _config: FakePool())
    monkeypatch.setattr(submission, "_submit", submit)
    return jobs


def typed(*words: str) -> Any:
    return CliRunner().invoke(submission.submit_command, list(words))


def test_an_array_of_programs_is_a_job_for_each_index(
    sent: list[PoolJob], tmp_path: Path
) -> None:
    for name in ("sim", "part-3", "part-4"):
        (tmp_path / name).touch(mode=0o755)

    done = typed(
        *("--array", "3-4", "--send", "sim", "--input", "part-{index}"),
        *("--output", "out-{index}", "--env", "A=1", "--on", "gpu0"),
        *("--stop-signal", "USR1", "--", "./sim", "{index}", "--fast"),
    )

    assert done.exit_code == 0, done.output
    assert [job.params["argv"] for job in sent] == [
        ["./sim", "3", "--fast"],
        ["./sim", "4", "--fast"],
    ]
    assert [job.params["output"] for job in sent] == ["out-3", "out-4"]
    (first, _) = sent
    assert first.params["able"] == ["gpu"]
    assert first.params["stop_signal"] == 10
    assert first.options == {"env": {"A": "1"}, "resources": ("gpu0",)}
    assert [each.name for each in first.sent] == ["sim"]
    assert first.params["input"].startswith("hetpool-input:")


def test_options_of_programs_may_be_parameters_of_an_application(
    sent: list[PoolJob], tmp_path: Path
) -> None:
    assert typed("heat", "--n", "64", "--output", "plate.npy").exit_code == 0

    (job,) = sent
    assert job.params == {"n": 64, "output": str(tmp_path / "plate.npy")}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--send", "none", "--", "true"), "none: No such file"),
        (("--input", "none", "--", "cat"), "write node:none"),
        (("heat", "--", "true"), "either the application heat, or"),
        (("--cwd", "/", "--send", "a", "--", "true"), "--send is for the folder"),
        (("--array", "0-9%2", "--", "true"), "no limit of tasks at once"),
        (("--set", "n=1", "--", "true"), "--set is for applications"),
        (("--frob", "--", "true"), "no option '--frob'"),
        (("--output", "{x}", "--", "true"), "file names may contain"),
        ((), "nothing to submit"),
    ],
)
@pytest.mark.usefixtures("sent")
def test_mistakes_are_named(words: tuple[str, ...], said: str) -> None:
    done = typed(*words)

    assert done.exit_code != 0
    assert said in done.output + str(done.exception)


@pytest.mark.usefixtures("sent")
def test_a_script_is_to_be_sent_along(tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text("#!/bin/sh\n#HET --on gpu\n")

    assert "--send job.sh -- sh job.sh" in typed("job.sh").output


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('command = ["./sim", "{n}"]', "task[1].command: programs in batch files are "),
        ('app = "heat"\nafter = [1]', "task[1].after: unknown key; a pool knows app, "),
        (
            'app = "heat"\nnode = ["a"]',
            "task[1].node: unknown key (did you mean nodes?)",
        ),
        (
            'app = "heat"\ncount = "2"',
            'task[1].count: expected a whole number, got "2"',
        ),
    ],
)
def test_a_batch_file_of_one_node_is_refused_with_the_place(
    tmp_path: Path, table: str, said: str
) -> None:
    file = tmp_path / "study.toml"
    file.write_text(f'[[task]]\napp = "heat"\n[[task]]\n{table}\n')

    with pytest.raises(InputError) as caught:
        submission.read_batch(file)

    assert str(caught.value).startswith(f"{file}: {said}")
