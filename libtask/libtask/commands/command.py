"""The application `command`: any program as a task.

Clients describe a command with it (`hetctl submit -- CMD`), workers run it. Its variables
and the meaning of its exit status are documented in docs/how-to/commands.md.
"""

from __future__ import annotations

import re
import shlex
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from libtask.attachments import Attachments
from libtask.commands.running import run
from libtask.messages import MAX_GRACE_S
from libtask.task import Size, Task

if TYPE_CHECKING:
    from collections.abc import Iterable

    from libtask.messages import Kind

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
"""Placeholders in the names of output files."""


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
        output: file of its standard output; empty: the task's log.
        error: file of its standard error; empty: that of the output.
        stop_signal: number of the signal on which it saves and exits; 0: it cannot.
        grace_s: seconds for that.
        resumable: whether every exit status means that it has saved; else only 75
            (EX_TEMPFAIL) does.

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
    output: str = ""
    error: str = ""
    stop_signal: int = 0
    grace_s: float = 60.0
    resumable: bool = False

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


Command.on("cpu")(run)
Command.on("gpu")(run)
Command.on("fpga")(run)


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
