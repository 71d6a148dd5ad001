"""The phase of a worker's task, in shared memory that outlives the worker.

The launcher allocates a page of shared memory for each worker before the fork, and reads
it after the worker's death. Entering a phase stores one byte, which is atomic; phases
change about ten times per task and never per strip. A process without a shared page (a
user's own program, a test) writes to private memory.
"""

from __future__ import annotations

import contextlib
import mmap
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE_BYTES = 4096
TEXT_BYTES = 500
"""Maximum bytes of the name of a resource or a compiled program."""
_TASK = struct.Struct("<qqq")
_LIMIT = struct.Struct("<Q")
_PHASE, _COMPUTED, _TASK_AT, _LIMIT_AT, _PLACE, _PROGRAM = 0, 1, 8, 40, 64, 1024


class Phase(IntEnum):
    """The current activity of a worker."""

    IDLE = 0
    LOADING = 1
    WAITING = 2
    OPENING = 3
    SETTING_UP = 4
    COMPILING = 5
    COPYING_IN = 6
    FIRST_STRIP = 7
    STRIPS = 8
    COPYING_OUT = 9
    SNAPSHOT = 10
    SAVING = 11
    COMMAND = 12


TEXTS = {
    Phase.LOADING: "in `load()`",
    Phase.WAITING: "while it waited",
    Phase.OPENING: "while opening {place}",
    Phase.SETTING_UP: "before its first strip on {place}",
    Phase.COMPILING: "while compiling {program} for {place}",
    Phase.COPYING_IN: "while copying in to {place}",
    Phase.FIRST_STRIP: "in its first strip on {place}",
    Phase.STRIPS: "after its first strip on {place}",
    Phase.COPYING_OUT: "while copying out of {place}",
    Phase.SNAPSHOT: "while writing a snapshot",
    Phase.SAVING: "in `save()`",
    Phase.COMMAND: "while its command ran on {place}",
}


@dataclass(frozen=True, slots=True)
class PhaseRecord:
    """The content of a page.

    Attributes:
        phase: the last phase entered.
        task: id of the task; `epoch`: of its binding to the worker.
        log_start: byte of the worker's log at which the output of this segment begins.
        computed: whether a strip of this segment was finished.
        text: the phase in words; empty: the worker holds no task.

    """

    phase: Phase
    task: int = 0
    epoch: int = 0
    log_start: int = 0
    computed: bool = False
    text: str = ""


class PhasePage:
    """A page with the current phase of a worker.

    Args:
        memory: `PAGE_BYTES` bytes; shared memory if another process reads the page.

    """

    def __init__(self, memory: mmap.mmap | bytearray) -> None:
        self._memory = memory
        self._place = ""

    @classmethod
    def shared(cls) -> PhasePage:
        """Return a page in memory that is shared with processes forked later.

        Raises:
            OSError: the system has no memory for it.

        """
        return cls(mmap.mmap(-1, PAGE_BYTES))

    def write_to(self, page: PhasePage) -> None:
        """Use the memory of another page from now on."""
        self._memory = page._memory
        self._place = ""

    @property
    def idle(self) -> bool:
        """Whether the worker has no task."""
        return self._memory[_PHASE] == Phase.IDLE

    def limit_memory(self, limit: int) -> None:
        """Set the bytes that the task may use from now on; 0: any number."""
        _LIMIT.pack_into(self._memory, _LIMIT_AT, limit)

    def memory_limit(self) -> int:
        """Return the bytes that the present task may use; 0: any number."""
        if self.idle:
            return 0
        (limit,) = _LIMIT.unpack_from(self._memory, _LIMIT_AT)
        return int(limit)

    def begin(self, task: int, epoch: int, log_start: int, phase: Phase) -> None:
        """Begin a segment of a task."""
        memory = self._memory
        memory[_PHASE] = Phase.IDLE  # until the other fields are written
        memory[_COMPUTED] = 0
        _TASK.pack_into(memory, _TASK_AT, task, epoch, log_start)
        memory[_PHASE] = phase

    def enter(self, phase: Phase) -> None:
        """Enter a phase."""
        self._memory[_PHASE] = phase

    def open(self, place: str) -> None:
        """Begin to open a resource, which the following phases refer to."""
        if place != self._place:
            self._put(_PLACE, place)
            self._place = place
        self._memory[_PHASE] = Phase.OPENING

    def compile(self, program: str) -> None:
        """Begin to compile a program."""
        self._put(_PROGRAM, program)
        self._memory[_PHASE] = Phase.COMPILING

    def compute(self) -> None:
        """Record that the first strip of this segment is finished."""
        self._memory[_COMPUTED] = 1
        self._memory[_PHASE] = Phase.STRIPS

    @contextlib.contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        """Set a phase for the block; after an error it stays the current phase."""
        before = self._memory[_PHASE]
        self._memory[_PHASE] = phase
        yield
        self._memory[_PHASE] = before

    @contextlib.contextmanager
    def compiling(self, program: str) -> Iterator[None]:
        """Set the phase of compiling a program for the block; it stays after an error."""
        before = self._memory[_PHASE]
        self.compile(program)
        yield
        self._memory[_PHASE] = before

    def read(self) -> PhaseRecord:
        """Return the page's content, in any process that shares it."""
        memory = self._memory
        try:
            phase = Phase(memory[_PHASE])
        except ValueError:  # a task may have overwritten the memory
            phase = Phase.IDLE
        if phase is Phase.IDLE:
            return PhaseRecord(phase)
        task, epoch, log_start = _TASK.unpack_from(memory, _TASK_AT)
        text = TEXTS[phase].format(place=self._get(_PLACE), program=self._get(_PROGRAM))
        computed = bool(memory[_COMPUTED])
        return PhaseRecord(phase, task, epoch, log_start, computed, text)

    def _put(self, at: int, text: str) -> None:
        data = text.encode(errors="replace")[:TEXT_BYTES]
        self._memory[at : at + len(data) + 2] = struct.pack("<H", len(data)) + data

    def _get(self, at: int) -> str:
        (size,) = struct.unpack_from("<H", self._memory, at)
        data = bytes(self._memory[at + 2 : at + 2 + min(size, TEXT_BYTES)])
        return data.decode(errors="replace")


own_page = PhasePage(bytearray(PAGE_BYTES))
"""The page of this process; devices and executions write to it."""
