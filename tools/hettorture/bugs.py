"""Seeded bugs, tried one by one: what is wrong on purpose must be noticed.

    python -m hettorture bugs [--only NAME,…]

Works on a copy of the sources; the files themselves stay as they are. What is to notice
a bug runs first without it, and must pass: a test that fails anyway notices nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hettorture.seeds import SEEDS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from hettorture.seeds import SeededBug

SOURCES = Path(__file__).parents[2]
PACKAGES = ("daemon", "libtask", "apps", "kernels", "tools", "tests")
COPIED = (*PACKAGES, "docs", "systemd", "pyproject.toml", "Makefile")
TIME_S = 300.0
FAILED = 1
"""Exit status of pytest, and of this harness, when something is wrong; others say that
it did not come to that."""


def run(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """Try the bugs; one row each."""
    names = [name for name in chosen.only.split(",") if name] or list(SEEDS)
    with tempfile.TemporaryDirectory(prefix="hettorture-") as folder:
        copy = Path(folder)
        _copy(copy)
        sound: dict[Any, int] = {}
        rows: list[dict[str, Any]] = []
        with suppress(KeyboardInterrupt):  # what is done is reported
            for name in names:
                command = SEEDS[name].noticed_by
                if command not in sound:
                    sound[command] = _status(copy, command)[0]
                rows.append(_tried(copy, name, SEEDS[name], sound))
        return rows


def _copy(folder: Path) -> None:
    kept_out = shutil.ignore_patterns("__pycache__", ".*", "demo-output")
    for name in COPIED:
        source = SOURCES / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=kept_out)
        elif source.exists():
            shutil.copy(source, folder / name)


def _tried(
    copy: Path, name: str, bug: SeededBug, sound: dict[Any, int]
) -> dict[str, Any]:
    began = time.monotonic()
    with _worsened(copy / bug.file, bug):
        status, said = _status(copy, bug.noticed_by)
    caught = status == FAILED and sound[bug.noticed_by] == 0
    row = {
        "bug": name,
        "what": bug.what,
        "noticed_by": " ".join(bug.noticed_by[1:]),
        "caught": caught,
        "said": said if caught else "",
        "seconds": round(time.monotonic() - began, 1),
        "complaints": [],
    }
    sys.stderr.write(f"{name}: {'caught' if caught else 'NOT CAUGHT'}\n")
    if not caught:
        before = sound[bug.noticed_by]
        text = f"{name} was not noticed: exit status {status}, without it {before}"
        row["complaints"] = [text, said]
    return row


@contextmanager
def _worsened(file: Path, bug: SeededBug) -> Iterator[None]:
    """Put the bug into a file, and take it out again."""
    right = file.read_text(encoding="utf-8")
    if right.count(bug.right) != 1:
        raise ValueError(f"{bug.file}: the piece of {bug.what!r} is not there once")
    file.write_text(right.replace(bug.right, bug.wrong), encoding="utf-8")
    try:
        yield
    finally:
        file.write_text(right, encoding="utf-8")


def _status(copy: Path, command: tuple[str, ...]) -> tuple[int, str]:
    """Run a command on the copy; return its exit status, and the line that says why."""
    places = os.pathsep.join(str(copy / package) for package in PACKAGES)
    # compiled code of a file that was changed within its time stamp would hide the bug
    settings = {"PYTHONPATH": places, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=copy,
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            timeout=TIME_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return -1, f"no end in {TIME_S:g} s"
    return done.returncode, _reason(done.stdout)


def _reason(said: str) -> str:
    """Pick the line that says what is wrong: of pytest, or of this harness."""
    lines = [line.strip() for line in said.splitlines()]
    told = [line for line in lines if line.startswith(("E  ", "! ", "FAILED"))]
    return (told or lines or [""])[0][:200]
