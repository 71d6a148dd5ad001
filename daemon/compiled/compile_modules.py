"""Compile modules of hetsched and hetsim by mypyc: `python compile_modules.py FOLDER [LEVEL]`.

`FOLDER/wheel` then holds what the wheel contains: the package `hetd_compiled` with the
compiled modules and the digests of their sources, and beside it the library that these
modules load. LEVEL is that of the C compiler's optimisation, usually 2.
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

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "daemon"))

from hetsched.build import DIGEST, SOURCES, WHEEL, digest_of  # noqa: E402  found by the line above

SIMULATOR = ROOT / "tools" / "hetsim"

LEFT_OUT = {
    "build.py": "it chooses between the builds",
    "decision_checks.py": "it is for values of wrong types, which compiled code would convert",
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
"""Module or folder of hetsched -> why it is not compiled."""

OF_SIMULATOR = (
    "agenda.py",
    "contention.py",
    "correction.py",
    "sharing.py",
    "simulation.py",
    "workers.py",
    "workload.py",
)
"""Modules of hetsim that events of a simulation pass; the others are not compiled."""

OPTIMIZATION = "2"
"""Of the C compiler, which then takes some minutes; at level 1 the simulator takes 3 % longer
for an event, and at level 3 as long as at level 2."""

EXACT = "-ffp-contract=off"
"""A fused multiplication and addition would round differently than Python does."""
UNWARNED = ("-Wno-all", "-w")
"""Python's own flags have -Wall, which takes three quarters of the time on such a file."""


def modules() -> dict[str, Path]:
    """Return the modules to compile: dotted name -> source."""
    found = [path for path in sorted(SOURCES.rglob("*.py")) if _is_compiled(path)]
    found += [SIMULATOR / name for name in OF_SIMULATOR]
    # the first part is the folder of packages: daemon or tools
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts[1:]): path
        for path in found
    }


def _is_compiled(path: Path) -> bool:
    inside = path.relative_to(SOURCES)
    left_out = {str(inside), *map(str, inside.parents)} & LEFT_OUT.keys()
    return path.name != "__init__.py" and not left_out


def compile_modules(folder: Path, optimization: str = OPTIMIZATION) -> None:
    """Compile all modules into one library, and a small file for each."""
    packages = (SOURCES, SIMULATOR)
    # of what is read now, whatever changes meanwhile
    digests = {package.name: digest_of(package) for package in packages}
    extensions = translated(folder, optimization)
    for extension in extensions:
        extension.extra_compile_args += [EXACT, *UNWARNED]
        if extension.name.partition(".")[0] in digests:
            extension.name = f"{WHEEL}.{extension.name}"
    _build(extensions, folder)
    wheel = folder / "wheel" / WHEEL
    text = '"""Compiled modules of hetsched and hetsim; see `hetsched.build`."""\n'
    (wheel / "__init__.py").write_text(text, encoding="ascii")
    for name, digest in digests.items():
        (wheel / name / DIGEST).write_text(digest, encoding="ascii")


def translated(folder: Path, optimization: str = OPTIMIZATION) -> list[Extension]:
    """Translate the modules to C, which takes a third of the time of the whole.

    A warning is an error: mypyc warns where it would evaluate something at another moment
    than Python does.
    """
    from mypyc.build import mypycify

    os.chdir(ROOT)
    os.environ["MYPYPATH"] = "daemon:libtask:tools"
    options = ["--follow-imports=silent", "--ignore-missing-imports"]
    paths = [str(path.relative_to(ROOT)) for path in modules().values()]
    told = StringIO()
    try:
        with redirect_stdout(told), redirect_stderr(told):
            extensions = mypycify(
                [*options, f"--cache-dir={folder}/types", *paths],
                opt_level=optimization,
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
    compile_modules(Path(sys.argv[1]).absolute(), *sys.argv[2:])
