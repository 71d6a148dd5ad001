"""`hetctl result`: what a task has computed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from hetctl.options import connect, shared
from hetctl.output import emit
from hetctl.selectors import selected
from hetctl.terminal import say
from libtask.errors import InputError, TaskFailedError
from libtask.plaintext import visible
from libtask.results import has_pickled, restored, told

if TYPE_CHECKING:
    from hetctl.documents.tasks import Result
    from libtask.messages import TaskInfo

PICKLES = (".pickle", ".pkl")


@click.command("result")
@click.argument("selector")
@click.option(
    "--save",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write it: .json, .npy for an array, .pickle as Python has it.",
)
@shared
def result_command(
    *, selector: str, save: Path | None, socket: Path | None, as_json: bool
) -> None:
    """Print the result of a task that has completed, or save it.

    Values that are not plain are kept pickled. They are printed as their type and size,
    and saved to .pickle as they were.
    """
    with connect(socket) as client:
        ids = selected(client, [selector])
        if len(ids) != 1:
            text = (
                f"selector {selector!r}: a result is of one task, that names {len(ids)}"
            )
            raise InputError(text)
        info = client.show(ids[0])
    _demand_completed(info)
    if save is not None:
        _save(info, save)
    if as_json:
        emit(_document(info, save))
    elif save is None:
        encoded = msgspec.json.encode(told(info.result), enc_hook=str)
        say(visible(msgspec.json.format(encoded).decode()))
    if not as_json:
        for warning in info.warnings:
            say(f"hetctl: {visible(warning)}", err=True)


def _document(info: TaskInfo, save: Path | None) -> Result:
    return {
        "format": "hetctl/result-1",
        "id": info.id,
        "result": told(info.result),
        "warnings": info.warnings,
        "saved": None if save is None else str(save),
    }


def _demand_completed(info: TaskInfo) -> None:
    if info.state == "completed":
        return
    reason = f": {info.reason}" if info.reason else ""
    raise TaskFailedError(f"task {info.id} has no result, it is {info.state}{reason}")


def _save(info: TaskInfo, path: Path) -> None:
    """Write a result in the form that the name of the file says."""
    value = info.result
    if path.suffix in PICKLES:
        import cloudpickle  # classes of the task's own file go with it

        path.write_bytes(cloudpickle.dumps(_own(info)))
    elif path.suffix == ".npy":
        import numpy as np

        np.save(path, _array(_own(info)))
    else:
        encoded = msgspec.json.encode(told(value), enc_hook=str)
        path.write_bytes(msgspec.json.format(encoded) + b"\n")


def _own(info: TaskInfo) -> Any:
    """Return a result as it was; that of another user is not unpickled.

    Raises:
        InputError: it is another user's.

    """
    if not has_pickled(info.result):
        return info.result
    if info.owner != f"uid:{os.getuid()}":
        raise InputError(f"task {info.id} is {info.owner}'s: only they can unpickle it")
    return restored(info.result)


def _array(value: Any) -> Any:
    """Return the array that a result is, or the only one that it holds.

    Raises:
        InputError: it holds none, or several.

    """
    import numpy as np

    if isinstance(value, dict):
        found = [each for each in value.values() if isinstance(each, list | np.ndarray)]
        if len(found) != 1:
            text = f"expected one array in the result, there are {len(found)}"
            raise InputError(text)
        value = found[0]
    try:
        return np.asarray(value)
    except ValueError as error:
        raise InputError(f"the result is no array: {error}") from error
