"""The files kept of a failed run, which is random and happens only once.

Such a run cannot be replayed from its seed. Its folder holds what is needed to
understand it: the history as clients saw it, the log, and the state that was left.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torture.history import Found, History

LAST_LINES = 20
"""Of a log, that a run's story shows; all of it is kept."""
KEPT = Path("torture-output")
"""The folder in which the command keeps failed runs."""


def keep(told: dict[str, Any], history: History, left: Path, parent: Path) -> Path:
    """Keep everything known about a run; return the folder.

    Args:
        told: the run's own report.
        history: what clients asked and heard.
        left: the folder that daemon, launcher and workers have left.
        parent: where the folder is to be made.

    """
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"failed-seed-{told['seed']}-", dir=parent))
    document = {**told, "history": plain(history)}
    text = json.dumps(document, indent=1, default=str)
    (folder / "history.json").write_text(text + "\n", encoding="utf-8")
    with contextlib.suppress(shutil.Error):  # processes that still run may remove files
        shutil.copytree(left, folder / "left", ignore=_special)
    return folder.resolve()


def _special(folder: str, names: list[str]) -> list[str]:
    """Pick what cannot be copied: sockets."""
    return [name for name in names if Path(folder, name).is_socket()]


def ends_of_logs(left: Path) -> str:
    """Return the last lines that the daemon, and its launcher, wrote."""
    logs = [*left.glob("*.log"), *left.glob("*/launcher.log")]
    return "\n".join(line for log in logs for line in _end_of(log))


def _end_of(log: Path) -> list[str]:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return [f"the end of {log.name}:", *lines[-LAST_LINES:]]


def plain(history: History) -> dict[str, Any]:
    """Return a history as JSON has it, in the order in which things were noted."""
    return {
        "submissions": {k: list(s.expected) for k, s in history.submissions.items()},
        "acknowledged": [[key, list(ids)] for key, ids in history.acknowledged],
        "refused": sorted(history.refused),
        "cancels": sorted(history.cancels),
        "told": [_told(found) for found in history.told],
    }


def _told(found: Found) -> dict[str, Any]:
    return {name: value for name, value in asdict(found).items() if value is not None}


def processes(family: Iterable[psutil.Process]) -> Iterator[str]:
    """Describe who is there, one line each."""
    for process in family:
        try:
            yield (
                f"process {process.pid} of {process.ppid()}: {process.status()}, "
                f"{process.num_threads()} threads, {' '.join(process.cmdline())}"
            )
        except psutil.Error:
            continue  # it has ended meanwhile
