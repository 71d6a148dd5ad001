"""Put the compiled modules into the wheel; hatchling calls it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledModules(BuildHookInterface[Any]):
    """Compiles the modules, in a folder that exists until the wheel is written."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; `version` names the kind of wheel, and does not matter."""
        del version
        self._folder = TemporaryDirectory()
        compiler = Path(self.root, "compile_modules.py")
        subprocess.run([sys.executable, compiler, self._folder.name], check=True)  # noqa: S603
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"][f"{self._folder.name}/wheel"] = "/"

    def finalize(self, version: str, build_data: dict[str, Any], artifact: str) -> None:
        """Remove the folder."""
        del version, build_data, artifact
        self._folder.cleanup()
