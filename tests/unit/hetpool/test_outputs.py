"""Output files of attempts: names of their own, final names once accepted, nothing left else."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import pytest

from hetapps.heat import Heat
from hetpool import messages as m
from hetpool.attempts import mark_of
from hetpool.node.outputs import accepted, dropped, final_names, redirected
from libtask import Output, Task
from libtask.errors import InputError
from libtask.snapshots import pack, put_back
from unit.hetpool.fake_engine import FakePool, a_job, a_node

FIRST, SECOND = "pool/aa.1", "pool/aa.2"


@dataclass
class Several(Task):
    n: int = 1
    parts: list[Annotated[str, Output]] = field(default_factory=list)
    picture: Annotated[Path | None, Output] = None


def test_two_attempts_write_two_files(tmp_path: Path) -> None:
    wanted = str(tmp_path / "plate.npy")
    found = [
        redirected("heat", ({"n": 8, "output": wanted},), each)
        for each in (FIRST, SECOND)
    ]

    names = [files for _, _, files in found]
    assert names == [(tmp_path / "plate.aa.1.npy",), (tmp_path / "plate.aa.2.npy",)]
    app, arguments, _ = found[0]
    assert (app, arguments) == ("heat", ({"n": 8, "output": str(names[0][0])},))


@pytest.mark.parametrize("params", [{}, {"output": ""}, {"input": "a.npy"}])
def test_what_writes_nothing_stays_as_it_is(params: dict[str, Any]) -> None:
    arguments = (params,)

    assert redirected("heat", arguments, FIRST) == ("heat", arguments, ())
    assert redirected(max, (1, 2), FIRST) == (max, (1, 2), ())


def test_tasks_and_paths_are_redirected_too(tmp_path: Path) -> None:
    app, _, files = redirected(Heat(n=8, output=str(tmp_path / "a.npy")), (), FIRST)
    assert Path(app.output) == files[0] == tmp_path / "a.aa.1.npy"

    _, (params,), files = redirected(Several, ({"picture": Path("b.png")},), FIRST)
    assert params["picture"] == Path("b.aa.1.png")
    assert files == (Path("b.aa.1.png").absolute(),)


def test_an_accepted_file_gets_its_name_and_another_is_removed(tmp_path: Path) -> None:
    first, second = tmp_path / "p.aa.1.npy", tmp_path / "p.aa.2.npy"
    first.write_text("old")
    second.write_text("new")

    dropped([first], mark_of(FIRST))
    for _ in range(2):  # its agent may end in between
        accepted([second], mark_of(SECOND))

    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "p.npy": "new"
    }


def test_files_that_are_named_after_the_output_follow_it(tmp_path: Path) -> None:
    (tmp_path / "plate.aa.1.npy").write_text("with the ending that the library adds")
    (tmp_path / "plate.aa.1-2.txt").touch()
    (tmp_path / "plate.other").touch()

    accepted([tmp_path / "plate.aa.1"], mark_of(FIRST))

    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"plate.npy", "plate-2.txt", "plate.other"}


def test_a_name_that_is_taken_by_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.npy").mkdir()
    (tmp_path / "a.aa.1.npy").touch()

    with pytest.raises(InputError, match=r"output .*/a\.npy: "):
        accepted([tmp_path / "a.aa.1.npy"], mark_of(FIRST))


def test_a_result_has_the_final_names() -> None:
    result = {"output": "/x/p.aa.1.npy", "more": [Path("q.aa.1"), (1.5, "r")]}

    assert final_names(result, mark_of(FIRST)) == {
        "output": "/x/p.npy",
        "more": [Path("q"), (1.5, "r")],
    }


def test_a_snapshot_of_another_attempt_does_not_bring_its_paths_along() -> None:
    before = Several(n=3, picture=Path("p.aa.1.png"))
    after = Several(n=1, picture=Path("p.aa.2.png"))

    put_back(after, pack(before))

    assert (after.n, after.picture) == (3, Path("p.aa.2.png"))


def test_a_claim_tells_a_lost_job_from_an_unknown_one() -> None:
    async def story() -> None:
        pool = FakePool()
        for name in ("n1", "n2"):
            await pool.join(a_node(name))
        job = a_job(1)
        unknown = await pool.claim("n1", job)
        there = (await pool.place(job))[job.id]
        lost = await pool.claim("n2" if there == "n1" else "n1", job)

        assert (unknown.owned, unknown.elsewhere) == (False, False)
        assert (lost.owned, lost.elsewhere) == (False, True)
        assert (await pool.claim(there, job)) == m.JobTerms(job.id)

    asyncio.run(story())
