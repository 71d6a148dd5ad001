"""The log writer: complete where it is read, and never in the way where it is not."""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING

import pytest

from hetd.log import LINES, LogWriter
from unit.scripted_daemon import until

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)


def _logger(writer: LogWriter) -> logging.Logger:
    logger = logging.Logger("hetd")  # noqa: LOG001  nobody else is to find it
    logger.addHandler(writer)
    return logger


def test_what_is_logged_is_written(pipe: tuple[int, int]) -> None:
    reader, descriptor = pipe
    writer = LogWriter(descriptor)

    _logger(writer).warning("task %d\ud800", 7)
    writer.flush()

    assert os.read(reader, 1000).endswith(b" WARNING hetd: task 7\\ud800\n")
    os.close(descriptor)


def test_nobody_waits_for_a_reader_that_has_stopped(pipe: tuple[int, int]) -> None:
    reader, descriptor = pipe
    writer = LogWriter(descriptor)
    logger = _logger(writer)
    told = threading.Event()

    def tell() -> None:
        for number in range(3 * LINES):
            logger.warning("line %d of many, each as long as this one", number)
        told.set()

    threading.Thread(target=tell, daemon=True).start()
    assert told.wait(30)

    seen: list[bytes] = []
    reading = threading.Thread(target=_read_all, args=(reader, seen))
    reading.start()
    until(lambda: not writer._lines.unfinished_tasks, "room for more")
    logger.warning("after all")
    until(lambda: not writer._lines.unfinished_tasks, "the last line")
    os.close(descriptor)
    reading.join()

    text = b"".join(seen)
    assert b"line 0 of many" in text
    assert b"lines of the log found no room" in text
    assert text.endswith(b"after all\n")


def _read_all(reader: int, seen: list[bytes]) -> None:
    while data := os.read(reader, 65_536):
        seen.append(data)


def test_a_reader_that_is_gone_hurts_nobody() -> None:
    gone, descriptor = os.pipe()
    os.close(gone)
    writer = LogWriter(descriptor)

    writer.say("into the void")
    writer.flush()

    assert not writer._lines.unfinished_tasks
    os.close(descriptor)
