"""Compile modules of hetsched by mypyc: `python compile_modules.py FOLDER`.

`FOLDER/wheel` then holds what the wheel contains: the package `hetd_compiled` with the
compiled modules and the digest of their sources, and beside it the library that these
modules load.
"""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from setuptools import Extension

DAEMON = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(DAEMON))

from hetsched.build import DIGEST, SOURCES, WHEEL, digest_of  # noqa: E402  found by the line above

LEFT_OUT = {
    "build.py": "it chooses between the builds",
    "ids.py": "names for int alone",
    # objects of compiled classes cannot be weakly referenced
    "graphs.py": "weak references",
    # mypyc does not compile classes of msgspec
    "actions.py": "msgspec structs",
    "events.py": "msgspec structs",
    "limits.py": "msgspec structs",
    "policy.py": "msgspec structs",
    "tasks.py": "msgspec structs",
    "policies": "not verified compiled, and users' classes have them as bases",
    "planning/interpretation.py": "a base class of policies",
    "planning/registry.py": "structures made at run time",
    "planning/mapper.py": "a base class of policies",
    "planning/batch": "a base class of policies, and numerics",
    "planning/learned": "numerics",
    # mypyc cannot make data classes that are generic and have slots
    "planning/fairness.py": "generic",
    "planning/machines.py": "generic",
    "planning/mapping.py": "generic",
}
"""Module or folder -> why it is not compiled."""

OPTIMIZATION = "1"
"""At level 2 the C compiler alone takes more than two minutes."""

EXACT = "-ffp-contract=off"
"""A fused multiplication and addition would round differently than Python does."""


def modules() -> list[str]:
    """List the modules to compile, relative to the folder of the daemon's packages."""
    found = (path.relative_to(SOURCES) for path in sorted(SOURCES.rglob("*.py")))
    return [f"{SOURCES.name}/{each}" for each in found if _is_compiled(each)]


def _is_compiled(path: Path) -> bool:
    inside = {str(path), *map(str, path.parents)}
    return path.name != "__init__.py" and not inside & LEFT_OUT.keys()


def compile_modules(folder: Path) -> None:
    """Compile all modules into one library, and a small file for each."""
    digest = digest_of(SOURCES)  # of what is read now, whatever changes meanwhile
    extensions = translated(folder)
    for extension in extensions:
        extension.extra_compile_args.append(EXACT)
        if extension.name.startswith(f"{SOURCES.name}."):
            extension.name = f"{WHEEL}.{extension.name}"
    _build(extensions, folder)
    package = folder / "wheel" / WHEEL
    text = '"""Compiled modules of hetsched; see `hetsched.build`."""\n'
    (package / "__init__.py").write_text(text, encoding="ascii")
    (package / DIGEST).write_text(digest, encoding="ascii")


def translated(folder: Path) -> list[Extension]:
    """Translate the modules to C, which takes a third of the time of the whole.

    A warning is an error: mypyc warns where it would evaluate something at another moment
    than Python does.
    """
    from mypyc.build import mypycify

    os.chdir(DAEMON)
    os.environ["MYPYPATH"] = str(DAEMON.parent / "libtask")
    options = ["--follow-imports=silent", "--ignore-missing-imports"]
    told = StringIO()
    try:
        with redirect_stdout(told), redirect_stderr(told):
            extensions = mypycify(
                [*options, f"--cache-dir={folder}/types", *modules()],
                opt_level=OPTIMIZATION,
                debug_level="0",
                group_name=WHEEL,
                target_dir=str(folder / "c"),
            )
    except SystemExit:  # it has printed why
        sys.exit(told.getvalue())
    if "warning:" in told.getvalue():
        sys.exit(told.getvalue())
    return extensions


def _build(extensions: list[Extension], folder: Path) -> None:
    """Compile the C files."""
    from setuptools import Distribution

    command = Distribution({"ext_modules": extensions}).get_command_obj("build_ext")
    command.build_lib = str(folder / "wheel")
    command.build_temp = str(folder / "objects")
    command.parallel = os.cpu_count()
    command.ensure_finalized()
    command.run()


if __name__ == "__main__":
    compile_modules(Path(sys.argv[1]).absolute())
