"""A task begins in its own folder and with the worker's umask, whatever ran before it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from libtask.errors import InputError
from libtask.worker.environment import Folder

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_a_task_that_changes_its_folder_does_not_change_that_of_the_next(
    tmp_path: Path,
) -> None:
    folder = Folder()
    folder.enter(str(tmp_path))

    os.chdir("/")
    folder.enter(str(tmp_path))

    assert Path.cwd() == tmp_path
    assert os.environ["PWD"] == str(tmp_path)


def test_a_task_that_changes_the_umask_does_not_change_that_of_the_next(
    tmp_path: Path,
) -> None:
    folder = Folder()

    os.umask(0o777)
    folder.enter(str(tmp_path))

    assert os.umask(0o022) == 0o022


def test_a_task_may_begin_after_one_that_removed_its_folder(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    folder = Folder()
    folder.enter(str(gone))
    gone.rmdir()

    folder.enter(str(tmp_path))

    assert Path.cwd() == tmp_path


def test_a_folder_that_is_not_there_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="gone: No such file"):
        Folder().enter(str(tmp_path / "gone"))
