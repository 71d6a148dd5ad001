"""Names of applications by value, and files that are none."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from libtask.apps import resolve, short_name
from libtask.attachments import Attachments
from libtask.by_value import parse
from libtask.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

DIGEST = 64 * "a"


def test_a_name_has_folder_digest_program_and_class() -> None:
    name = parse(f"/run/hetd.launcher/attachments/{DIGEST}.notebook:Total")

    assert name == ("/run/hetd.launcher/attachments", DIGEST, "notebook", "Total")


@pytest.mark.parametrize(
    "app",
    [
        "heat",
        "/some/file.py:Total",
        f"attachments/{DIGEST}.notebook:Total",
        f"/run/attachments/{DIGEST[1:]}.notebook:Total",
        f"/run/attachments/{DIGEST}.notebook:Total/4",
        f"/run/attachments/../{DIGEST}.notebook:Total",
    ],
)
def test_other_names_are_none(app: str) -> None:
    assert parse(app) is None


def test_it_is_shown_by_program_and_class() -> None:
    assert short_name(f"/run/attachments/{DIGEST}.prog:Total") == "prog:Total"


@pytest.mark.parametrize("content", [b"nothing", pickle.dumps((int, {}))])
def test_a_file_without_a_task_is_refused(tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "attachments"
    digest = Attachments(folder).keep(content)

    with pytest.raises(InputError, match="Total"):
        resolve(f"{folder}/{digest}.prog:Total")


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "attachments"
    digest = Attachments(folder).keep(b"content")
    (folder / digest).write_bytes(b"another")

    with pytest.raises(InputError, match="it was changed"):
        resolve(f"{folder}/{digest}.prog:Total")


def test_a_file_that_is_gone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        resolve(f"{tmp_path}/attachments/{DIGEST}.prog:Total")
