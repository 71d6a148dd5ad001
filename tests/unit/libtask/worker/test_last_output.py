"""What is kept of a worker's log, and which line says why it died."""

from __future__ import annotations

from typing import TYPE_CHECKING

from libtask.phase import Phase, PhaseRecord
from libtask.worker.last_output import LINES, TAIL_BYTES, of_ended, of_failed, tail

if TYPE_CHECKING:
    from pathlib import Path

DUMP = """Fatal Python error: Aborted

Current thread 0x00007f (most recent call first):
  File "/apps/blur.py", line 12 in build
  File "/apps/blur.py", line 30 in run
""" + "".join(f'  File "/libtask/worker.py", line {n} in step\n' for n in range(90))

# as Intel's FPGA emulator writes it where it takes the CPU for another
COMPILER = """**Internal compiler error** Cannot select: 0x55: v4f32 = X86ISD::VRNDSCALE
  0x55: v4f32 = X86ISD::VZEXT_MOVL
In function: blur_rows
Please report the issue on Intel OpenCL forum
"""
COMPILING = PhaseRecord(
    Phase.COMPILING, 7, 9, 0, text="while compiling `blur_rows` for fpga0"
)


def a_log(folder: Path, content: str) -> str:
    path = folder / "w.log"
    path.write_text(content)
    return str(path)


def test_the_telling_line_stands_above_pythons_dump(tmp_path: Path) -> None:
    log = a_log(tmp_path, "of another task\n" + COMPILER + DUMP)

    found = tail(log, len("of another task\n"))

    first = COMPILER.splitlines()[0]
    assert found.cause == f"{first}; build() at /apps/blur.py:12"
    assert found.lines[:4] == COMPILER.splitlines()
    assert found.lines[4] == "Fatal Python error: Aborted"
    assert len(found.lines) <= LINES


def test_how_a_worker_ended_is_one_line_with_the_phase(tmp_path: Path) -> None:
    log = a_log(tmp_path, COMPILER)

    last = of_ended(COMPILING, log, "killed by signal 6 (SIGABRT)", "")

    assert last.reason == (
        "killed by signal 6 (SIGABRT) while compiling `blur_rows` for fpga0: "
        "**Internal compiler error** Cannot select: 0x55: v4f32 = X86ISD::VRNDSCALE"
    )
    assert (last.task, last.epoch, last.log_start) == (7, 9, 0)
    assert last.log_end == len(COMPILER)


def test_who_was_ended_is_explained_by_who_ended_it(tmp_path: Path) -> None:
    log = a_log(tmp_path, "error: not the cause\n")

    last = of_ended(COMPILING, log, "killed by signal 15 (SIGTERM)", ": no checkpoint")

    assert last.reason.endswith("for fpga0: no checkpoint")
    assert last.lines == ["error: not the cause"]


def test_without_a_word_of_an_error_the_last_line_counts(tmp_path: Path) -> None:
    assert tail(a_log(tmp_path, "step 1\nstep 2\n\n"), 0).cause == "step 2"
    assert tail(a_log(tmp_path, ""), 0).cause == ""


def test_what_is_kept_is_bounded_and_cannot_steer_a_terminal(tmp_path: Path) -> None:
    lines = "".join(f"{number} {'x' * 3000}\x1b[2J\n" for number in range(3000))
    log = a_log(tmp_path, lines)

    found = tail(log, 0)

    assert found.end == len(lines)
    assert 0 < len(found.lines) <= LINES
    assert sum(len(line) + 1 for line in found.lines) <= TAIL_BYTES
    assert found.lines[-1].startswith("2999 xxx")
    assert "\x1b" not in "".join(found.lines)


def test_a_line_without_an_end_and_bytes_that_are_no_text_are_kept(
    tmp_path: Path,
) -> None:
    path = tmp_path / "w.log"
    path.write_bytes(b"\xff\xfe broken\rerror: \x00 here")

    found = tail(str(path), 0)

    assert found.lines == ["\ufffd\ufffd broken", r"error: \x00 here"]
    assert found.cause == r"error: \x00 here"


def test_a_log_that_is_not_there_tells_nothing(tmp_path: Path) -> None:
    assert tail(str(tmp_path / "none"), 12).end == 12
    link = tmp_path / "link"
    link.symlink_to(a_log(tmp_path, "secret\n"))
    assert tail(str(link), 0).lines == []
    assert of_failed(COMPILING, "", "ValueError: no").lines == []


def test_a_log_that_was_cut_since_tells_nothing(tmp_path: Path) -> None:
    found = tail(a_log(tmp_path, "short\n"), 1000)

    assert (found.lines, found.end) == ([], 1000)
