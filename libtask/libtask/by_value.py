"""Applications by value: task classes that were defined in `__main__`, a notebook or a REPL.

No other process could import them, or only by running the whole program again. So the
class is pickled, with the functions and values of `__main__` that it uses, into an
attachment of the user's. The application's name is then
`FOLDER/DIGEST.STEM:Class`: the file, the program or `notebook`, and the class. Only the
user's own processes read it.
"""

from __future__ import annotations

import functools
import pickle
import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

from libtask.attachments import FOLDER, Attachments
from libtask.endpoint import launcher_folder
from libtask.errors import HetError, InputError
from libtask.parameters import field_type
from libtask.task import Task
from libtask.wording import cause

MAIN = "__main__"
NOTEBOOK = "notebook"
"""Stands for the program where `__main__` has no file."""
MOST_BYTES = 16 << 20
"""Of a class with all that it refers to: data belong into parameters and files."""
LONGEST_STEM = 64

_NAME = re.compile(rf"(/.*/{FOLDER})/([0-9a-f]{{64}})\.([\w-]+):(\w+)")


class ValueName(NamedTuple):
    """The parts of the name of an application by value."""

    folder: str
    digest: str
    stem: str
    class_name: str


class KeptClass(NamedTuple):
    """A class in the user's attachments: the application's name, and the attachment."""

    app: str
    attachment: str


def parse(app: str) -> ValueName | None:
    """Return the parts of an application's name; None: it is not one by value."""
    found = _NAME.fullmatch(app)
    return None if found is None else ValueName(*found.groups())


def goes_by_value(app_class: type[Task]) -> bool:
    """Return whether a class is defined in the program itself, or interactively."""
    return app_class.__module__ == MAIN


def keep_class(socket: Path, app_class: type[Task]) -> KeptClass:
    """Write a class into the attachments of a daemon's user.

    Args:
        socket: of the daemon.
        app_class: a class of `__main__`, not nested in another one.

    Raises:
        InputError: it refers to something that cannot be pickled, or to too much.
        HetError: the file cannot be written.

    """
    payload = _pickled(app_class)
    folder = launcher_folder(socket.absolute()) / FOLDER
    try:
        digest = Attachments(folder).keep(payload)
    except OSError as error:
        text = f"class {app_class.__name__} is not stored: {error.strerror}"
        raise HetError(text) from error
    return KeptClass(f"{folder}/{digest}.{_stem()}:{app_class.__name__}", digest)


def _pickled(app_class: type[Task]) -> bytes:
    import cloudpickle

    name = app_class.__name__
    if app_class.__qualname__ != name:
        raise InputError(f"{app_class.__qualname__}: define the class at the top level")
    try:
        # annotations may be texts, with names that the worker does not have
        names = [each.name for each in fields(app_class)]  # type: ignore[arg-type]  # a dataclass
        types = {each: field_type(app_class, each) for each in names}
        payload: bytes = cloudpickle.dumps((app_class, types))
    except Exception as error:
        text = f"class {name} cannot be sent to a worker: {cause(error)}; put it into a file"
        raise InputError(text) from error
    if len(payload) > MOST_BYTES:
        raise InputError(
            f"class {name} is {len(payload) >> 20} MiB with what it refers to, of at most "
            f"{MOST_BYTES >> 20}: pass data as parameters or files"
        )
    return payload


def _stem() -> str:
    file = Path(getattr(sys.modules[MAIN], "__file__", None) or "")
    if not file.is_file():  # a REPL, a notebook, or standard input
        return NOTEBOOK
    return re.sub(r"[^\w-]", "_", file.stem)[:LONGEST_STEM]


@functools.cache
def load_class(app: str) -> type[Task]:
    """Read a class from the attachments; once in a process, as tasks of it share it.

    Raises:
        InputError: the name is none, or the file is gone, changed or cannot be unpickled.

    """
    name = parse(app)
    if name is None:
        raise InputError(f"{app}: no application by value")
    payload = Attachments(Path(name.folder)).read(name.digest)
    try:
        app_class, types = pickle.loads(payload)  # noqa: S301  a file of the user's own
    except Exception as error:
        text = (
            f"class {name.class_name} of {name.stem} cannot be loaded: {cause(error)}"
        )
        raise InputError(text) from error
    if isinstance(app_class, type) and issubclass(app_class, Task):
        declared = getattr(app_class, "__annotations__", {})
        app_class.__annotations__ = {**declared, **types}
        return app_class
    raise InputError(f"{app}: {name.class_name} is not a subclass of libtask.Task")
