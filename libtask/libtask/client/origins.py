"""The origin of a client's tasks: written once, and again when it changes."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from libtask.attachments import FOLDER, Attachments
from libtask.endpoint import launcher_folder
from libtask.messages import COMMAND, MAX_TASKS
from libtask.origin import current_folder, exported, here, packed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from libtask.messages import TaskSpec

KEPT_S = 600.0
"""Seconds after which the file is looked for again: launchers remove unneeded ones."""


@dataclass(frozen=True, slots=True)
class Export:
    """The variables that tasks get from the environment of their submission.

    Attributes:
        names: `all`, `none`, or names separated by commas.
        variables: further variables, which take precedence.

    """

    names: str = "all"
    variables: Mapping[str, str] = field(default_factory=dict)


EVERYTHING = Export()


class OriginFiles:
    """Writes the origin of this process into the user's attachments.

    Args:
        socket: hetd's socket.

    """

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._attachments: Attachments | None = None
        self._known: Any = None
        self._name = ""
        self._until = 0.0

    def stamped(self, specs: Iterable[TaskSpec], export: Export) -> Iterator[TaskSpec]:
        """Add the origin to tasks, except to programs, as they are taken.

        Raises:
            InputError: the environment is too large, or lacks an exported variable.
            HetError: the environment cannot be stored.

        """
        name, left = "", 0
        for spec in specs:
            if spec.app == COMMAND or spec.from_origin:
                yield spec
                continue
            if not left:
                name, left = self._name_of(export), MAX_TASKS
            left -= 1
            yield msgspec.structs.replace(
                spec, attachments=[*spec.attachments, name], from_origin=True
            )

    def _name_of(self, export: Export) -> str:
        state = (_variables(), sys.path.copy(), current_folder(), export)
        now = time.monotonic()
        if state != self._known or now > self._until or not self._is_there():
            origin = here(exported(export.names, export.variables))
            self._name = self._folder().keep(packed(origin))
            self._known, self._until = state, now + KEPT_S
        return self._name

    def _is_there(self) -> bool:
        """Whether the file is still there: the user's own tasks may remove it."""
        return os.path.exists(self._folder().path / self._name)  # noqa: PTH110  for speed

    def _folder(self) -> Attachments:
        if self._attachments is None:
            folder = launcher_folder(self._socket.absolute()) / FOLDER
            self._attachments = Attachments(folder)
        return self._attachments


def _variables() -> dict[bytes, bytes]:
    """Return this process's environment, to compare it.

    `os.environb` encodes and decodes each variable at every look, 80 us in all.
    """
    return dict(getattr(os.environ, "_data", os.environb))
