"""Output files of jobs: each attempt writes files of its own, named by job and attempt.

They get the names that the user gave when the attempt's result is accepted. So an attempt on
a lost node that goes on computing never writes where another one does.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetpool.attempts import final_name, mark_of
from libtask.apps import resolve
from libtask.errors import InputError
from libtask.parameters import FileRole, file_parameters
from libtask.task import Task

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


def redirected(
    app: Any, arguments: tuple[Any, ...], attempt: str
) -> tuple[Any, tuple[Any, ...], tuple[Path, ...]]:
    """Let a task write its declared output files under names of its attempt.

    Args:
        app, arguments: as `Client.submit` takes them.
        attempt: name of its task in hetd.

    Returns:
        both with other names, and the files that the attempt writes.

    """
    app_class = _class_of(app)
    names = _outputs(app_class) if app_class is not None else []
    if not names:
        return app, arguments, ()
    if isinstance(app, Task):
        given = {name: getattr(app, name) for name in names}
        values, files = _marked(given, names, mark_of(attempt))
        return (replace(app, **values) if files else app), arguments, files  # type: ignore[type-var]  # tasks are dataclasses
    params = (arguments[0] or {}) if arguments else {}
    values, files = _marked(params, names, mark_of(attempt))
    return app, ((values,) if files else arguments), files


def _class_of(app: Any) -> type[Task] | None:
    """Return the class of an application; None: it is a function, which declares nothing."""
    if isinstance(app, str):
        return resolve(app)
    if isinstance(app, Task):
        return type(app)
    return app if isinstance(app, type) and issubclass(app, Task) else None


def _outputs(app_class: type[Task]) -> list[str]:
    roles = file_parameters(app_class)
    return [name for name, role in roles.items() if role is FileRole.OUTPUT]


def _marked(
    params: Mapping[str, Any], names: Iterable[str], mark: str
) -> tuple[dict[str, Any], tuple[Path, ...]]:
    files: list[Path] = []
    values = dict(params)
    for name in names:
        if name in values:
            values[name] = _renamed(values[name], mark, files)
    return values, tuple(files)


def _renamed(value: Any, mark: str, files: list[Path]) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_renamed(each, mark, files) for each in value)
    if not isinstance(value, str | Path) or str(value) in ("", "."):
        return value
    path = Path(value)
    # the suffix stays: applications choose a format by it
    path = path.with_name(f"{path.stem}{mark}{path.suffix}")
    files.append(path.absolute())
    return type(value)(path) if isinstance(value, str) else path


def accepted(files: Iterable[Path], mark: str) -> None:
    """Give the files of an attempt their final names; those that have them stay.

    Raises:
        InputError: one cannot be renamed.

    """
    for path in _written(files, mark):
        try:
            path.replace(path.with_name(final_name(path.name, mark)))
        except FileNotFoundError:
            continue
        except OSError as error:
            name = final_name(path.name, mark)
            text = f"output {path.with_name(name)}: {error.strerror}"
            raise InputError(text) from error


def dropped(files: Iterable[Path], mark: str) -> None:
    """Remove the files of an attempt whose result is not wanted."""
    for path in _written(files, mark):
        if path.is_file():
            path.unlink(missing_ok=True)


def _written(files: Iterable[Path], mark: str) -> Iterator[Path]:
    """Yield what an attempt wrote: the files, or others that are named after them."""
    for path in files:
        if path.exists() or not path.parent.is_dir():
            yield path
            continue
        stem = path.name.partition(mark)[0] + mark
        with os.scandir(path.parent) as entries:
            found = [entry.name for entry in entries if entry.name.startswith(stem)]
        yield from (path.with_name(name) for name in found)


def final_names(value: Any, mark: str) -> Any:
    """Return a result with the final names of files, in maps, lists and tuples too."""
    if isinstance(value, str):
        return final_name(value, mark)
    if isinstance(value, Path):
        return Path(final_name(str(value), mark))
    if isinstance(value, dict):
        return {key: final_names(each, mark) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(final_names(each, mark) for each in value)
    return value
