"""Classes by value: applications that are defined in a notebook, a REPL or a program.

No other process can import such a class. The client pickles it, with everything of its
module that it refers to, into an attachment, which only the owner's processes read. The
application's name contains the name of the attachment: `value:ATTACHMENT:MODULE:Class`.
"""

from __future__ import annotations

import dataclasses
import io
import pickle
from typing import TYPE_CHECKING, Any

import cloudpickle

from libtask.apps import attachment_of, set_version, short_name
from libtask.attachments import FOLDER, Attachments
from libtask.endpoint import launcher_folder
from libtask.errors import InputError
from libtask.parameters import know_parameters, parameters
from libtask.wording import one_line

if TYPE_CHECKING:
    from pathlib import Path

    from libtask.task import Task

MOST_BYTES = 16 << 20
"""Maximum bytes of a pickled class with what it refers to."""


def keep_class(app_class: type[Task], socket: Path) -> str:
    """Write a class into the user's attachments; return the attachment's name.

    It is pickled at each submission, as it may refer to what has changed since.

    Args:
        app_class: the class.
        socket: hetd's socket, which determines the folder.

    Raises:
        InputError: it cannot be pickled, or is too large.
        HetError: it cannot be stored.

    """
    content = _pickled(app_class)
    if len(content) > MOST_BYTES:
        raise InputError(
            f"{app_class.__name__}: with all that it refers to it has {len(content)} "
            f"bytes, at most {MOST_BYTES}; load large data from a file"
        )
    attachment = _attachments(socket).keep(content)
    set_version(app_class, attachment)
    return attachment


def class_by_value(app: str, socket: Path) -> type[Task]:
    """Unpickle a class in a worker of its owner.

    Raises:
        InputError: the attachment is gone, or refers to modules that are not there.

    """
    name = short_name(app)
    content = _attachments(socket).read(attachment_of(app))
    try:
        app_class, known = pickle.loads(content)  # noqa: S301  own process wrote it
    except Exception as error:
        text = f"{type(error).__name__}: {one_line(error)}"
        raise InputError(f"{name}: the class cannot be loaded: {text}") from error
    know_parameters(app_class, known)
    set_version(app_class, attachment_of(app))
    found: type[Task] = app_class
    return found


def _attachments(socket: Path) -> Attachments:
    return Attachments(launcher_folder(socket.absolute()) / FOLDER)


def _pickled(app_class: type[Task]) -> bytes:
    """Pickle a class and its parameters, whose types are only known in its module."""
    file = io.BytesIO()
    try:
        ClassPickler(file).dump((app_class, parameters(app_class)))
    except Exception as error:
        text = f"{type(error).__name__}: {one_line(error)}"
        raise InputError(
            f"{app_class.__name__}: it refers to what cannot be pickled ({text}); "
            "put the class into a file, or create that in load()"
        ) from error
    return file.getvalue()


class ClassPickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Pickles classes, with the markers of dataclasses, which are compared by identity."""

    def reducer_override(self, value: Any) -> Any:
        if value is dataclasses.MISSING:
            return "MISSING"  # a name in the module `dataclasses`
        return super().reducer_override(value)
