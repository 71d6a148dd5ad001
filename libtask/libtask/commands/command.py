"""The application `command`: any program as a task.

Clients describe a command with it (`hetctl submit -- CMD`), workers run it. Its variables
and the meaning of its exit status are documented in docs/how-to/commands.md.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from libtask.attachments import Attachments
from libtask.commands.context import CommandContext
from libtask.commands.environment import cores, variables
from libtask.commands.process import Process, Start, describe
from libtask.commands.progress import ProgressFile
from libtask.commands.standard_input import open_input
from libtask.errors import CommandFailedError, InputError
from libtask.messages import MAX_GRACE_S
from libtask.task import Size, Task

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from libtask.messages import DeviceSpec, Kind


ARGUMENT_BYTES = 64 << 10
"""Maximum bytes of all words of a command; longer text belongs in a file."""
LABEL_CHARACTERS = 100
TOTAL = 1_000_000
"""Number of iterations that represents a whole command."""
INTERPRETERS = ("python", "sh", "bash", "dash", "perl", "Rscript", "julia", "node")
QUOTED = re.compile(r"'[^']*'")
"""Text that a shell takes literally."""
FOR_SHELL = re.compile(r"[|&;<>()$`*?\[#~{}!\n]")
FIELDS = ("{id}", "{index}", "{name}", "{attempt}", "{resource}")
"""Placeholders in the names of input and output files."""


@dataclass
class Command(Task):
    """A program, run as a task.

    Attributes:
        argv: the program and its arguments.
        by_kind: replaces `argv` for some kinds of resources.
        able: kinds of resources that `argv` can use.
        script: name of the attachment to insert into `argv`.
        words_before: number of words of `argv` before the script.
        environment: name of the attachment with its variables.
        folder: folder of the attachments.
        name: its label, by which execution times are recorded; empty: the program's.
        index: its place in an array.
        umask: its umask; -1: the worker's.
        input: file of its standard input, or a socket on which its descriptor is offered;
            empty: it has none.
        output: file of its standard output; empty: the task's log.
        error: file of its standard error; empty: that of the output.
        stop_signal: number of the signal on which it saves and exits; 0: it cannot.
        grace_s: seconds for that.
        resumable: whether every exit status means that it has saved; else only 75
            (EX_TEMPFAIL) does.
        starts_before: number of its starts on other nodes, which count as attempts.

    """

    argv: list[str] = field(default_factory=list)
    by_kind: dict[str, list[str]] = field(default_factory=dict)
    able: list[str] = field(default_factory=lambda: ["cpu"])
    script: str = ""
    words_before: int = 0
    environment: str = ""
    folder: str = ""
    name: str = ""
    index: int | None = None
    umask: int = -1
    input: str = ""
    output: str = ""
    error: str = ""
    stop_signal: int = 0
    grace_s: float = 60.0
    resumable: bool = False
    starts_before: int = 0

    needs_device: ClassVar[bool] = False
    keeps_snapshots: ClassVar[bool] = False

    def __post_init__(self) -> None:
        every = [self.argv, *self.by_kind.values()]
        if not self.by_kind and not self.argv:
            raise ValueError("a command needs a program")
        if any(not words or not words[0] for words in self.by_kind.values()):
            raise ValueError("a command needs a program")
        if self.argv and not self.argv[0]:
            raise ValueError("a command needs a program, not an empty word")
        _check_size(word for words in every for word in words)
        if not 0 <= self.stop_signal < signal.NSIG:
            raise ValueError(f"stop_signal: no signal {self.stop_signal}")
        if not 0 <= self.grace_s <= MAX_GRACE_S:
            raise ValueError(f"grace_s: expected 0 to {MAX_GRACE_S:g} seconds")

    def kinds(self) -> list[Kind]:
        kinds: Any = (
            list(self.by_kind) if not self.argv else [*self.by_kind, *self.able]
        )
        return list(dict.fromkeys(kinds))

    def size(self) -> Size:
        label = self.name or label_of(self.argv or next(iter(self.by_kind.values())))
        return Size(label[:LABEL_CHARACTERS])

    @property
    def movable(self) -> bool:
        """Whether it can save its state and continue elsewhere."""
        return self.stop_signal > 0 or self.resumable

    def described(self) -> dict[str, Any]:
        names = [name for name in (self.environment, self.script) if name]
        return {
            "attachments": names,
            "preemptible": self.movable,
            "grace_s": self.grace_s,
        }

    def load(self) -> None:
        """Read its variables, so that a missing file is reported before its start."""
        self.variables: dict[str, str] | None = None
        if self.environment:
            content = self.attachments.read(self.environment)
            pairs = (each.partition(b"=") for each in content.split(b"\0") if each)
            self.variables = {
                key.decode(errors="surrogateescape"): value.decode(
                    errors="surrogateescape"
                )
                for key, _, value in pairs
            }
        if self.script:
            self.attachments.read(self.script)

    def total(self) -> int:
        return TOTAL

    @property
    def attachments(self) -> Attachments:
        return Attachments(Path(self.folder))

    def words(self, kind: str) -> list[str]:
        """Return the program and its arguments for a kind of resource."""
        words = self.by_kind.get(kind, self.argv)
        if not self.script or words is not self.argv:
            return words
        place = self.words_before
        return [*words[:place], str(self.attachments.file(self.script)), *words[place:]]


def label_of(words: list[str]) -> str:
    """Return the label of a command: its script if it has an interpreter, or its program."""
    program = Path(words[0]).name
    if program.rstrip("0123456789.") in INTERPRETERS and len(words) > 1:
        script = words[1]
        if not script.startswith("-"):
            return Path(script).name
    return program


def split(text: str) -> list[str]:
    """Split a command line into words, or pass it to a shell if it uses shell syntax.

    Without a shell, signals and the exit status are directly those of the program.
    """
    bare = QUOTED.sub("", text)
    first = bare.split(maxsplit=1)[0] if bare.split() else ""
    if FOR_SHELL.search(bare) or "=" in first:
        return ["/bin/sh", "-c", text]
    return shlex.split(text)


def _check_size(words: Iterable[str]) -> None:
    """Check the words of a command.

    Raises:
        ValueError: they are too long or cannot be encoded.

    """
    length = 0
    for word in words:
        if "\0" in word:
            raise ValueError("a word of a command holds a zero byte")
        try:
            length += len(word.encode()) + 1
        except UnicodeEncodeError as error:
            raise ValueError(f"a word of a command is not UTF-8: {word!r}") from error
    if length > ARGUMENT_BYTES:
        text = f"the words of a command have {length} bytes, at most {ARGUMENT_BYTES}"
        raise ValueError(f"{text}; put long input into a file")


SAVED = os.EX_TEMPFAIL
"""Exit status of a command that has saved its state and must be started again."""
FIRST_BEAT_S = 0.05
BEAT_S = 1.0
"""Seconds between two checkpoints of a command without events."""
STARTING_S = 10.0
"""Seconds after its start in which a command may not have set up its handler of the signal
on which it saves its state."""
CANCEL_S = 2.0
"""Seconds for a cancelled command to exit by itself; hetd waits for 5."""


def run(task: Command, device: Any, checkpoint: Any) -> Iterator[None]:
    """Run the command until it ends, or has left its resource on request."""
    context: CommandContext = checkpoint.context or CommandContext()
    with ExitStack() as stack:
        running = Running(task, device.spec, checkpoint, context, stack)
        checkpoint.begin()
        try:
            yield from running.follow()
        except BaseException:
            # cancelled, or its worker exits
            running.process.end(task.stop_signal or signal.SIGTERM, CANCEL_S)
            raise


class Running:
    """One execution of a command.

    Args:
        task: the command.
        device: its device.
        checkpoint: holds its progress.
        context: state shared with its worker.
        stack: closes its resources.

    """

    def __init__(
        self,
        task: Command,
        device: DeviceSpec,
        checkpoint: Any,
        context: CommandContext,
        stack: ExitStack,
    ) -> None:
        self._task = task
        self._device = device
        self._checkpoint = checkpoint
        self._situation = context
        self._attempt = context.attempt + task.starts_before
        self._asked_at: float | None = None
        self._began_at = time.monotonic()
        self._killed = False
        folder = Path(task.folder or "/nonexistent").parent / "progress"
        name = f"{os.getpid()}-{context.task}-{context.attempt}"
        self._progress = ProgressFile(folder / name)
        stack.callback(self._progress.remove)
        self.process = Process(self._start(stack))
        stack.callback(self.process.close)

    def follow(self) -> Iterator[None]:
        """Wait for the end of the process, with a checkpoint after each wait."""
        beat = FIRST_BEAT_S
        while True:
            self._send_signals()
            self._heed()
            self._situation.wait(self.process.descriptor, beat)
            beat = BEAT_S
            code = self.process.poll()
            if code is not None:
                break
            if self._situation.adopts:
                self.process.reap_orphans()
            self._note_progress()
            yield
        self._conclude(code)

    # ------------------------------------------------------------ start

    def _start(self, stack: ExitStack) -> Start:
        task = self._task
        output = self._open(task.output, stack)
        same = not task.error or task.error == task.output
        error = output if same else self._open(task.error, stack)
        return Start(
            task.words(self._device.kind),
            self._environment(),
            task.umask,
            self._input(stack),
            output,
            error,
            cores(self._device, self._situation.slot, self._situation.cores),
        )

    def _environment(self) -> dict[str, str]:
        own = self._task.variables
        environment = dict(os.environ if own is None else own)
        for name in [name for name in environment if name.startswith("HETD_")]:
            if name != "HETD_SOCKET":
                del environment[name]
        context, index = self._situation, self._task.index
        return environment | {
            **variables(self._device, self._situation.cores),
            "HETD_TASK": str(context.task),
            "HETD_INDEX": "" if index is None else str(index),
            "HETD_RESOURCE": self._device.name,
            "HETD_KIND": self._device.kind,
            "HETD_ATTEMPT": str(self._attempt),
            "HETD_PROGRESS": str(self._progress.path),
        }

    def _input(self, stack: ExitStack) -> int | None:
        """Open the input file.

        Raises:
            InputError: it cannot be opened.

        """
        if not self._task.input:
            return None
        descriptor = open_input(Path(self._filled(self._task.input)))
        stack.callback(os.close, descriptor)
        return descriptor

    def _open(self, pattern: str, stack: ExitStack) -> int | None:
        """Open an output file, in append mode after the first attempt.

        Raises:
            InputError: it cannot be opened.

        """
        if not pattern:
            return None
        path = Path(self._filled(pattern))
        anew = os.O_TRUNC if self._attempt == 1 else os.O_APPEND
        try:
            mask = os.umask(self._task.umask) if self._task.umask >= 0 else None
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | anew, 0o666)
            finally:
                if mask is not None:
                    os.umask(mask)
        except OSError as error:
            raise InputError(f"output file {path}: {error.strerror}") from error
        stack.callback(os.close, descriptor)
        return descriptor

    def _filled(self, pattern: str) -> str:
        index = self._task.index
        for mark, value in (
            ("{id}", self._situation.task),
            ("{index}", "" if index is None else index),
            ("{name}", self._task.name),
            ("{attempt}", self._attempt),
            ("{resource}", self._device.name),
        ):
            pattern = pattern.replace(mark, str(value))
        return pattern

    # ------------------------------------------------------------ running

    def _send_signals(self) -> None:
        while self._situation.signals:
            self.process.send(self._situation.signals.pop(0))

    def _heed(self) -> None:
        """Ask the process to stop if hetd requested that; kill it after its grace time."""
        if not self._situation.leaving:
            return
        now = time.monotonic()
        if self._asked_at is None:
            self._asked_at = now
            self.process.ask(self._task.stop_signal or signal.SIGTERM)
        elif now > self._asked_at + self._task.grace_s and not self._killed:
            self._killed = True
            self.process.kill()

    def _note_progress(self) -> None:
        share = self._progress.share()
        checkpoint = self._checkpoint
        if share is not None and checkpoint.total:
            # the last part is accounted at its end
            done = min(int(share * checkpoint.total), checkpoint.total - 1)
            if done > checkpoint.done:
                checkpoint.advance_to(done)

    # ------------------------------------------------------------ the end

    def _conclude(self, code: int) -> None:
        """Interpret the exit status.

        Raises:
            CommandFailedError: the command failed.

        """
        if code == 0:
            self._checkpoint.advance_to(self._checkpoint.total)
        elif self._asked_at is not None and self._has_saved(code):
            self._situation.left = True
            if not self._task.movable:
                self._checkpoint.restart()
        elif self._asked_at is not None:
            raise CommandFailedError(self._why_not_saved(code), code)
        else:
            raise CommandFailedError(describe(code), code)

    def _has_saved(self, code: int) -> bool:
        kept = self._task.resumable or code == SAVED or self._was_starting(code)
        return kept or self._situation.requeue or not self._task.movable

    def _was_starting(self, code: int) -> bool:
        """Return whether the signal ended it before it could have a handler for it.

        It has not changed its saved state then: it goes on elsewhere as it would have here.
        """
        if code != -self._task.stop_signal or self._asked_at is None:
            return False
        early = self._asked_at - self._began_at < STARTING_S
        return early and self._progress.share() is None

    def _why_not_saved(self, code: int) -> str:
        name = signal.Signals(self._task.stop_signal).name
        if self._killed:
            return f"did not leave in {self._task.grace_s:g} s after {name}: killed"
        return f"{describe(code)} after {name}: not {SAVED}, so its state is not saved"


Command.on("cpu")(run)
Command.on("gpu")(run)
Command.on("fpga")(run)
