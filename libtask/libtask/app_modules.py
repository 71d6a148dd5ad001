"""Names of the modules that users' files are imported under, and the way back from such a name.

`libtask.apps` imports a file under a name of its own, as two folders may each have an `app.py`.
What a worker keeps in files may hold that name: Numba's `cache=True` writes it beside compiled
code and imports it when it reads that again. In other processes the same file is `__main__`, or
has its plain name, so `OtherNames` answers with the module that the process has.
"""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

PREFIX = "libtask_app_"


def module_name(path: Path, changed: int) -> str:
    """Return the name for a file; `changed`: its time of change, in nanoseconds."""
    import hashlib

    digest = hashlib.sha256(f"{path}:{changed}".encode()).hexdigest()[:12]
    return f"{PREFIX}{path.stem}_{digest}"


class OtherNames(MetaPathFinder):
    """Finds the module of a user's file by the name that another process gave it."""

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> ModuleSpec | None:
        """Return how to take a module that is imported already; None: there is none."""
        if not fullname.startswith(PREFIX):
            return None
        stem = fullname.removeprefix(PREFIX).rpartition("_")[0]
        candidates = list(_modules_of(stem))
        exact = [m for m in candidates if _name_now(m) == fullname]
        # a copied folder has the code that was compiled for the first one
        for module in exact or candidates[-1:]:
            return ModuleSpec(fullname, _Imported(module))
        return None


class _Imported(Loader):
    """Gives a module that is imported already."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._spec = module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Give it its own spec back, by which others know what `__main__` is."""
        module.__spec__ = self._spec


def _modules_of(stem: str) -> Iterator[ModuleType]:
    """Yield the imported modules whose file is named `stem`.py."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and Path(file).name == f"{stem}.py":
            yield module


def _name_now(module: ModuleType) -> str | None:
    """Return the name under which `libtask.apps` would import a module's file now."""
    path = Path(str(module.__file__)).resolve()
    try:
        return module_name(path, path.stat().st_mtime_ns)
    except OSError:
        return None


sys.meta_path.append(OtherNames())
