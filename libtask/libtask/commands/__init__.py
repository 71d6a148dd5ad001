"""Commands: any program as a task. The application `command`, which is part of libtask."""

from libtask.commands.command import Command, label_of

__all__ = ["Command", "label_of"]
