"""Descriptors and files from which programs read their standard input."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from libtask.commands.standard_input import OfferedInput, can_be_offered, open_input
from libtask.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path


def _content(path: Path) -> bytes:
    descriptor = open_input(path)
    try:
        return os.read(descriptor, 100)
    finally:
        os.close(descriptor)


def _piped(content: bytes) -> int:
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    return reading


def test_a_receiver_reads_the_same_pipe(tmp_path: Path) -> None:
    pipe = _piped(b"text")

    with closing(OfferedInput(pipe, tmp_path / "input")) as offered:
        received = open_input(offered.path)

    os.close(pipe)
    assert not os.get_inheritable(received)
    with os.fdopen(received, "rb") as stream:
        assert stream.read() == b"text"


def test_each_receiver_reads_a_file_from_where_it_was_offered(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")

    with path.open("rb", buffering=0) as stream:
        stream.seek(4)
        with closing(OfferedInput(stream.fileno(), tmp_path / "input")) as offered:
            assert [_content(offered.path) for _ in range(2)] == [b"456789"] * 2


def test_folders_may_have_any_length(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 40) / "input"
    pipe = _piped(b"text")

    with closing(OfferedInput(pipe, folder)) as offered:
        assert _content(offered.path) == b"text"

    os.close(pipe)


def test_the_folder_is_closed_to_others(tmp_path: Path) -> None:
    pipe = _piped(b"")

    with closing(OfferedInput(pipe, tmp_path / "input")):
        assert (tmp_path / "input").stat().st_mode & 0o077 == 0

    os.close(pipe)


def test_nothing_is_left_of_an_offer(tmp_path: Path) -> None:
    pipe = _piped(b"")

    OfferedInput(pipe, tmp_path / "input").close()

    os.close(pipe)
    assert list((tmp_path / "input").iterdir()) == []


def test_what_another_process_of_this_number_left_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / str(os.getpid())).touch()
    pipe = _piped(b"text")

    with closing(OfferedInput(pipe, tmp_path / "input")) as offered:
        assert _content(offered.path) == b"text"

    os.close(pipe)


def test_an_offer_that_nobody_serves_is_an_error(tmp_path: Path) -> None:
    pipe = _piped(b"")
    offered = OfferedInput(pipe, tmp_path / "input")
    kept = tmp_path / "kept"
    offered.path.rename(kept)
    offered.close()
    os.close(pipe)

    with pytest.raises(InputError, match="has ended"):
        open_input(kept)


def test_a_named_pipe_without_a_writer_is_empty(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    assert _content(tmp_path / "pipe") == b""


@pytest.mark.parametrize(
    ("name", "why"), [(".", "is a directory"), ("no", "No such file or directory")]
)
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(InputError, match=f"^input file .*: {why}$"):
        open_input(tmp_path / name)


def test_a_terminal_and_a_closed_descriptor_are_not_offered(tmp_path: Path) -> None:
    pipe = _piped(b"")
    leader, terminal = os.openpty()

    assert can_be_offered(pipe)
    assert not can_be_offered(terminal)
    for each in (pipe, leader, terminal):
        os.close(each)
    assert not can_be_offered(pipe)
