"""Programs of users in a pool: folders, environments, exit statuses, and moves with their state."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hetpool import Input
from hetpool.inquiry import AskFile, FilePart
from libtask.commands import Command
from libtask.errors import InputError, NotFoundError, TaskFailedError
from pool.private_pool import PATIENCE
from system.private_daemon import eventually

if TYPE_CHECKING:
    from hetpool import Pool, PoolTask
    from pool.private_pool import PrivatePool

pytestmark = pytest.mark.timeout(300)

TRAIN = Path(__file__).parents[2] / "docs" / "examples" / "train.py"
STEPS = "60000"
"""Some seconds: progress is told once a second."""


def shell(text: str, **fields: Any) -> Command:
    return Command(["sh", "-c", text], **fields)


def fetched(pool: Pool, task: PoolTask, name: str = "") -> bytes:
    """Return a file of an ended task: its output, or one of its folder."""
    end = task.ended.result(PATIENCE)
    question = AskFile(end.task, "output", name=name)
    return pool.inquire(end.node, question, FilePart).content


def test_a_program_has_a_folder_the_files_sent_along_and_an_environment(
    pool: Pool, tmp_path: Path
) -> None:
    program, text = tmp_path / "shout", tmp_path / "words.txt"
    program.write_text(
        '#!/bin/sh\ntr a-z A-Z; echo "$GREETING $HETD_ATTEMPT"; ls > names'
    )
    program.chmod(0o755)
    text.write_text("quietly\n")

    task = pool.submit(
        Command(["./shout"], output="said.txt"),
        files=[program],
        env={"GREETING": "hello"},
    )
    assert fetched(pool, task) == b"hello 1\n"
    assert fetched(pool, task, "names") == b"names\nsaid.txt\nshout\n"
    with pytest.raises(NotFoundError, match=r"names, said\.txt, shout"):
        fetched(pool, task, "../../contents")

    loud = pool.submit(
        "command",
        {"argv": ["./shout"], "input": Input(text), "output": "said.txt"},
        files=[program],
    )
    assert fetched(pool, loud) == b"QUIETLY\n 1\n"


def test_a_folder_of_the_node_is_used_where_it_exists(
    pool: Pool, tmp_path: Path
) -> None:
    task = pool.submit(shell("pwd > place"), cwd=str(tmp_path))
    assert task.result(PATIENCE) is None
    assert (tmp_path / "place").read_text() == f"{tmp_path}\n"

    absent = pool.submit(shell("true"), cwd="/no/such/folder")
    with pytest.raises(InputError, match="no folder /no/such/folder"):
        absent.result(PATIENCE)


def test_the_end_of_a_program_is_that_of_its_task(pool: Pool) -> None:
    bad, none = pool.submit(shell("echo why; exit 3")), pool.submit(Command(["nosuch"]))

    with pytest.raises(TaskFailedError, match="exit status 3") as caught:
        bad.result(PATIENCE)
    assert caught.value.output == ("why",)
    with pytest.raises(TaskFailedError, match="nosuch: command not found"):
        none.result(PATIENCE)


def test_a_program_that_moves_takes_its_state_along(
    pool: Pool, shared_pool: PrivatePool
) -> None:
    words = [sys.executable, "train.py", "--steps", STEPS]
    command = Command(words, output="log.txt", stop_signal=signal.SIGTERM)
    # a node's environment chooses the instructions of BLAS, and so the last bits
    unmoved = pool.submit(command, files=[TRAIN])
    task = pool.submit(command, files=[TRAIN])
    eventually(lambda: task.progress > 0.1, "progress", PATIENCE)
    source, reached = task.node, task.progress

    task.move("n2" if source == "n1" else "n1")

    log = fetched(pool, task).decode().splitlines()
    assert task.node != source
    weights = fetched(pool, task, "weights.npy")
    assert weights == fetched(pool, unmoved, "weights.npy")
    # a line at each start, in one file: the second one went on
    begun = [int(line.split()[2]) for line in log]
    assert begun[0] == 0
    assert begun[1] >= reached * int(STEPS)
    left = [each.state for each in shared_pool.tasks_of(source, task.id)]
    assert left == ["cancelled"]
    assert not list(shared_pool.folder.glob(f"{source}/commands/{task.id}*"))


def test_a_program_that_cannot_save_its_state_stays(pool: Pool) -> None:
    task = pool.submit(shell("while [ ! -e gate ]; do sleep 0.05; done"))
    eventually(lambda: task.state == "running", "running", PATIENCE)

    with pytest.raises(InputError, match="cannot save its state"):
        task.move("n2" if task.node == "n1" else "n1")

    assert task.state == "running"
    task.cancel()
