"""The last output of a task: the reason and phase of its end, and the end of its log.

The launcher reads it after reaping a worker that held a task, the worker itself after
its task has failed. The kept part of the log has a fixed maximum size.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from libtask.messages import LastOutput
from libtask.plaintext import one_line, visible
from libtask.worker.logs import opened, read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from libtask.phase import PhaseRecord

LINES = 20
LINE_CHARACTERS = 400
TAIL_BYTES = 4096
"""Maximum bytes of the kept lines, which come from the last `WINDOW_BYTES` of the log."""
WINDOW_BYTES = 65_536
REASON_CHARACTERS = 1000
CAUSE_CHARACTERS = 300
_ERROR = re.compile(
    r"error|fatal|fail|abort|assert|cannot|unable|panic|exception|illegal",
    re.IGNORECASE,
)
_DUMP = "Fatal Python error: "
"""First words of a dump of `faulthandler`, which every worker enables."""
_DUMP_LINES = 5
"""Lines of a dump that are kept: its head and the innermost frames."""
_FRAME = re.compile(r'  File "(?P<file>.+)", line (?P<line>\d+) in (?P<name>.+)')


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a part of a log.

    Attributes:
        lines: the last lines, without control characters.
        cause: the line that best explains the end of the process; empty: none.
        end: the byte after the last one.

    """

    lines: list[str]
    cause: str
    end: int


def of_ended(record: PhaseRecord, log: str, how: str, why: str) -> LastOutput:
    """Return the last output of the task of a worker that has ended.

    Args:
        record: content of the worker's page.
        log: path of its log; empty: none.
        how: description of the process's exit.
        why: the cause, to be appended to `how`; empty: taken from the output.

    """
    found = tail(log, record.log_start)
    if not why and found.cause:
        why = f": {found.cause}"
    reason = one_line(f"{how} {record.text}{why}")[:REASON_CHARACTERS]
    return _made(record, reason, log, found)


def of_failed(record: PhaseRecord, log: str, error: str) -> LastOutput:
    """Return the last output of a task that failed in a worker that still runs."""
    reason = one_line(error)[:REASON_CHARACTERS]
    return _made(record, reason, log, tail(log, record.log_start))


def _made(record: PhaseRecord, reason: str, log: str, found: Tail) -> LastOutput:
    return LastOutput(
        task=record.task,
        epoch=record.epoch,
        reason=reason,
        phase=one_line(record.text),
        lines=found.lines,
        computed=record.computed,
        log=log,
        log_start=record.log_start,
        log_end=found.end,
    )


def tail(log: str, start: int) -> Tail:
    """Read the end of a worker's log, from byte `start` at the earliest."""
    data, end = _read(log, start)
    lines = [visible(line).rstrip()[:LINE_CHARACTERS] for line in data.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    said, dump = _without_dump(lines)
    kept = _last(said, LINES - len(dump)) + dump
    return Tail(kept, telling(said, dump), end)


def telling(said: Sequence[str], dump: Sequence[str]) -> str:
    """Return the line that best explains the end of a process, and its place.

    Args:
        said: lines of its output.
        dump: the head of the dump of Python's stack at a crash.

    """
    written = [line.strip() for line in said if line.strip()]
    errors = [line for line in written if _ERROR.search(line)]
    best = (errors or written or [""])[-1][:CAUSE_CHARACTERS]
    frames = [found for line in dump if (found := _FRAME.match(line))]
    where = (
        "{name}() at {file}:{line}".format(**frames[0].groupdict()) if frames else ""
    )
    return "; ".join(part for part in (best, where) if part)


def _without_dump(lines: list[str]) -> tuple[list[str], list[str]]:
    """Split the output of a process from the dump after it; keep the dump's head."""
    for place in reversed(range(len(lines))):
        if lines[place].startswith(_DUMP):
            dump = [line for line in lines[place:] if line.strip()]
            return lines[:place], dump[:_DUMP_LINES]
    return lines, []


def _last(lines: Sequence[str], most: int) -> list[str]:
    """Return the last lines up to the maximum number and size."""
    kept: list[str] = []
    left = TAIL_BYTES
    for line in reversed(lines[-most:]):
        left -= len(line.encode()) + 1
        if left < 0:
            break
        kept.insert(0, line)
    return kept


def _read(log: str, start: int) -> tuple[str, int]:
    """Return the end of a log in whole lines, and the byte after it."""
    if not log:
        return "", start
    try:
        with opened(Path(log), os.getuid()) as file:
            end = max(start, os.fstat(file.fileno()).st_size)
            begin = max(start, end - WINDOW_BYTES)
            data = read(file, begin, end)[0] if end > begin else b""
    except OSError:
        return "", start
    text = data.decode(errors="replace")
    if begin > start and "\n" in text:
        text = text[text.index("\n") + 1 :]
    return text, end
