"""Put generated man pages and completions into the wheel, where there are any.

hatchling calls it (`pyproject.toml`). `make dist` generates `share/` in the sdist; a
checkout has none, so editable installations and `make install` get no files from here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class SharedFiles(BuildHookInterface[Any]):
    """Adds `share/` to the files that an installation puts below its prefix."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the folder; `version` names the kind of wheel, and does not matter."""
        del version
        share = Path(self.root, "share")
        if share.is_dir():
            build_data["shared_data"][str(share)] = "share"
