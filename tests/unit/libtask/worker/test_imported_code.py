"""A warm worker knows when a fresh interpreter would import something else."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from libtask.worker.imported_code import RACY_NS, ImportedCode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LONG_AGO_NS = time.time_ns() - 100 * RACY_NS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    (folder / "package").mkdir(parents=True)
    for name in ("app.py", "module.py", "package/__init__.py"):
        (folder / name).write_text("A = 1\n")
    return folder


def imported(folder: Path) -> ImportedCode:
    """Serve a task of `app.py`, which imports the others."""
    code = ImportedCode()
    assert code.serves(f"{folder}/app.py:A")
    code.find_spec("module", [str(folder)])
    code.find_spec("package", [str(folder)])
    code.find_spec("no_such_module", [str(folder)])
    return code


def old(path: Path) -> None:
    os.utime(path, ns=(LONG_AGO_NS, LONG_AGO_NS))


def test_what_has_not_changed_is_served_again(folder: Path) -> None:
    code = imported(folder)

    (folder / "result.txt").write_text("of a task")
    (folder / "__pycache__").mkdir()

    assert code.serves(f"{folder}/app.py:A")
    assert code.serves(f"{folder}/app.py:B")
    assert code.serves("heat")


def edit(folder: Path) -> None:
    (folder / "module.py").write_text("A = 2\n")


def edit_application(folder: Path) -> None:
    (folder / "app.py").write_text("A = 2\n")


def remove(folder: Path) -> None:
    (folder / "module.py").unlink()


def replace(folder: Path) -> None:
    (folder / "new").write_text("A = 2\n")
    (folder / "new").rename(folder / "module.py")


def add(folder: Path) -> None:
    (folder / "other.py").write_text("A = 1\n")


def add_to_package(folder: Path) -> None:
    (folder / "package" / "other.py").write_text("A = 1\n")


CHANGES = [edit, edit_application, remove, replace, add, add_to_package]


@pytest.mark.parametrize("aged", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_any_change_on_disk_is_seen(
    folder: Path, change: Callable[[Path], None], *, aged: bool
) -> None:
    if aged:  # files are compared by time and size, not by content
        for each in folder.rglob("*"):
            old(each)
        old(folder)
    code = imported(folder)

    change(folder)

    assert not code.serves(f"{folder}/app.py:A")
    assert not code.serves("heat")


def test_an_edit_of_one_length_at_one_time_is_seen(folder: Path) -> None:
    code = imported(folder)
    before = (folder / "module.py").stat()

    edit(folder)
    os.utime(folder / "module.py", ns=(before.st_atime_ns, before.st_mtime_ns))

    assert not code.serves(f"{folder}/app.py:A")


def test_applications_of_another_folder_take_another_worker(
    folder: Path, tmp_path: Path
) -> None:
    code = imported(folder)

    assert not code.serves(f"{tmp_path}/app.py:A")
    assert not code.serves("call")  # its functions' modules may have the same names
    assert ImportedCode().serves("call")


def test_libraries_are_not_looked_at() -> None:
    code = ImportedCode()

    code.find_spec("numpy", None)
    code.find_spec("numpy.linalg", list(np.__path__))
    code.find_spec("json", None)

    assert (code._files, code._folders) == ({}, {})


def test_packages_of_another_environment_are_libraries_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "of_another_environment.py").write_text("")
    monkeypatch.syspath_prepend(str(installed))
    code = ImportedCode()

    code.find_spec("of_another_environment", None)

    assert (code._files, code._folders) == ({}, {})
