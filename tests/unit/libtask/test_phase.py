"""The page on which a worker says what it does just now."""

from __future__ import annotations

import os
import signal

import pytest

from libtask.phase import PAGE_BYTES, TEXT_BYTES, Phase, PhasePage, PhaseRecord


def a_page() -> PhasePage:
    return PhasePage(bytearray(PAGE_BYTES))


def test_an_unused_page_says_nothing() -> None:
    assert a_page().read() == PhaseRecord(Phase.IDLE)


def test_each_phase_is_told_with_its_resource() -> None:
    page = a_page()
    page.begin(7, 9, 1234, Phase.LOADING)
    texts = [page.read().text]
    page.open("gpu0")
    texts.append(page.read().text)
    for phase in Phase:
        if phase not in (Phase.IDLE, Phase.LOADING, Phase.OPENING, Phase.COMPILING):
            page.enter(phase)
            texts.append(page.read().text)

    assert texts == [
        "in `load()`",
        "while opening gpu0",
        "while it waited",
        "before its first strip on gpu0",
        "while copying in to gpu0",
        "in its first strip on gpu0",
        "after its first strip on gpu0",
        "while copying out of gpu0",
        "while writing a snapshot",
        "in `save()`",
        "while its command ran on gpu0",
    ]
    record = page.read()
    assert (record.task, record.epoch, record.log_start) == (7, 9, 1234)


def test_a_phase_within_another_ends_with_its_block_unless_by_an_error() -> None:
    page = a_page()
    page.begin(1, 1, 0, Phase.LOADING)
    page.open("fpga0")
    page.enter(Phase.SETTING_UP)

    with page.compiling("`blur_rows` of blur/fpga.cl"), page.during(Phase.COPYING_IN):
        pass
    assert page.read().phase is Phase.SETTING_UP

    with pytest.raises(ValueError, match="no such"), page.compiling("`blur_rows`"):
        raise ValueError("no such")
    assert page.read().text == "while compiling `blur_rows` for fpga0"


def test_a_stretch_has_computed_once_its_first_strip_is_done() -> None:
    page = a_page()
    page.begin(1, 1, 0, Phase.LOADING)
    assert not page.read().computed

    page.compute()
    assert (page.read().phase, page.read().computed) == (Phase.STRIPS, True)

    page.begin(1, 1, 10, Phase.WAITING)
    assert not page.read().computed


def test_long_names_are_cut_and_broken_pages_are_read() -> None:
    page = a_page()
    page.begin(1, 1, 0, Phase.LOADING)
    page.open("é" * 4000)
    page.compile("p" * 4000)
    assert "p" * TEXT_BYTES in page.read().text
    assert len(page.read().text) < 2 * TEXT_BYTES

    scribbled = PhasePage(bytearray(b"\xff" * PAGE_BYTES))
    assert scribbled.read().phase is Phase.IDLE


def test_a_page_outlives_the_process_that_wrote_to_it() -> None:
    page = PhasePage.shared()
    pid = os.fork()
    if pid == 0:
        page.begin(3, 4, 5, Phase.LOADING)
        page.open("gpu0")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)

    record = page.read()

    assert (record.task, record.text) == (3, "while opening gpu0")


def test_a_page_is_idle_between_tasks() -> None:
    page = a_page()
    before = page.idle
    page.begin(1, 1, 0, Phase.LOADING)
    during = page.idle
    page.enter(Phase.IDLE)
    assert (before, during, page.idle) == (True, False, True)
