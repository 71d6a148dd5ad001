"""Packages with policies, as an installer leaves them: modules beside a `.dist-info`."""

from __future__ import annotations

import shutil
import tomllib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

GROUP = "hetsched.policies"


def install(folder: Path, package: str, points: Mapping[str, str]) -> None:
    """Write what an installer notes of a package: its name and entry points."""
    notes = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    notes.mkdir(parents=True)
    (notes / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"
    )
    lines = [f"{name} = {place}" for name, place in points.items()]
    (notes / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines, ""]))


def install_project(folder: Path, project: Path) -> None:
    """Install a project of plain modules as its `pyproject.toml` says."""
    about = tomllib.loads((project / "pyproject.toml").read_text())
    table = about["project"]
    install(folder, table["name"], table["entry-points"][GROUP])
    for module in about["tool"]["hatch"]["build"]["targets"]["wheel"]["include"]:
        shutil.copy(project / module, folder)
