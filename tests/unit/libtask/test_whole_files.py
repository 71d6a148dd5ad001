"""Whole files are read up to a limit, and refused if they change meanwhile."""

from __future__ import annotations

import io
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from libtask.errors import InputError
from libtask.whole_files import MIB, read_whole, status_of_regular

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Changing(io.FileIO):
    """A file that another program changes whenever it is read."""

    def __init__(self, path: Path, change: Callable[[Path], object]) -> None:
        super().__init__(path)
        self._path = path
        self._change = change
        self.asked: list[int | None] = []

    def read(self, size: int | None = -1, /) -> bytes:
        self.asked.append(size)
        self._change(self._path)
        return super().read(size) or b""


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more" * 1000)


def shorten(path: Path) -> None:
    os.truncate(path, 2)


def rewrite(path: Path) -> None:
    path.write_bytes(b"other")
    os.utime(path, ns=(0, 0))


def test_what_a_file_has_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")

    assert read_whole(path, 5) == b"12345"
    with path.open("rb") as file:
        assert read_whole(file, 5) == b"12345"
    assert read_whole(io.BytesIO(b"123"), 5) == b"123"
    path.write_bytes(b"")
    assert read_whole(path, 5) == b""


@pytest.mark.parametrize("most", [4, 3 * MIB])
def test_a_larger_file_is_refused_unread(tmp_path: Path, most: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(most + 1))
    file = Changing(path, lambda _: None)

    shown = "4 bytes" if most == 4 else "3 MiB"
    with pytest.raises(InputError, match=f"expected at most {shown}"):
        read_whole(file, most)

    assert file.asked == []
    file.close()


@pytest.mark.parametrize(
    ("change", "after"), [(append, 4005), (shorten, 2), (rewrite, 5)]
)
def test_a_file_that_changes_is_read_once_and_refused(
    tmp_path: Path, change: Callable[[Path], object], after: int
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    file = Changing(path, change)

    with pytest.raises(InputError) as caught:
        read_whole(file, MIB)

    assert file.asked == [6]
    file.close()
    assert str(caught.value) == (
        f"changed while it was read (5 bytes before, {after} after); "
        "try again when it is complete"
    )


def test_of_an_endless_stream_no_more_than_the_limit_is_read(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)

    def write() -> None:
        with path.open("wb", buffering=0) as pipe, suppress(BrokenPipeError):
            while True:
                pipe.write(b"x" * 100)

    writer = threading.Thread(target=write)
    writer.start()
    with pytest.raises(InputError, match="expected at most 1,000 bytes"):
        read_whole(path, 1000)
    writer.join()
    with pytest.raises(InputError, match="not a regular file"):
        status_of_regular(path)
