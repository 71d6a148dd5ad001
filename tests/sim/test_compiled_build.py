"""Modules compiled from these sources decide as the sources do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from compiled.compile_modules import ROOT, modules
from torture import builds

SEEDS = 1000
PROPERTIES = (
    "test_backfilling.py",
    "test_core.py",
    "test_estimates.py",
    "test_mapping.py",
    "test_strips.py",
)
"""Property tests of what is compiled."""
EXAMPLES = "10"
"""Of a property of the core: of the sources they are more."""
UNOPTIMISED = "0"
"""Level of the C compiler, which would take longer to optimise than these tests take."""
ALL = os.environ.get("HETD_COMPILED_TESTS") == "all"
"""Whether to run the scheduler's unit tests as well."""

HAS_COMPILER = (
    shutil.which(os.environ.get("CC", "cc")) is not None
    and Path(sysconfig.get_path("include"), "Python.h").exists()
)

TRANSLATE = """
from pathlib import Path
import sys
from compiled.compile_modules import translated
print(len(translated(Path(sys.argv[1]))))
"""

pytestmark = pytest.mark.timeout(1800)


def run(*words: str, paths: tuple[Path, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, with folders that it imports from first."""
    given = {"HETD_CORE_EXAMPLES": EXAMPLES, **os.environ}
    return subprocess.run(
        [sys.executable, *words],
        env={**given, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the modules; return the folder to import them from."""
    if not HAS_COMPILER:
        pytest.skip("no C compiler, or no header files of Python")
    folder = tmp_path_factory.mktemp("compiled")
    ended = run("daemon/compiled/compile_modules.py", str(folder), UNOPTIMISED)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return folder / "wheel"


@pytest.mark.skipif(HAS_COMPILER, reason="the modules are compiled as a whole")
def test_mypyc_takes_all_modules(tmp_path: Path) -> None:
    """Where no C compiler is installed."""
    ended = run("-c", TRANSLATE, str(tmp_path), paths=(ROOT / "daemon",))

    assert (ended.returncode, ended.stderr) == (0, "")
    assert int(ended.stdout) > len(modules())


def test_all_compiled_modules_are_used(wheel: Path) -> None:
    names = list(modules())
    program = (
        "from importlib import import_module\n"
        f"for name in {names}: print(import_module(name).__file__)"
    )

    ended = run("-c", program, paths=(wheel,))

    assert ended.returncode == 0, ended.stderr
    files = ended.stdout.splitlines()
    assert len(files) == len(names)
    assert [file for file in files if not file.startswith(str(wheel))] == []


def test_both_builds_make_the_same_decisions(
    wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HETD_WHEEL", str(wheel))

    pure, compiled = (builds.lines_of(name, 0, SEEDS) for name in "01")

    assert len(pure) == SEEDS
    assert list(builds.complaints(pure, compiled)) == []


def test_compiled_modules_pass_the_tests_of_the_scheduler(
    wheel: Path, tmp_path: Path
) -> None:
    files = [f"tests/property/{name}" for name in PROPERTIES]
    files += ["tests/unit/hetsched"] if ALL else []
    plain = ["-p", "no:randomly", "-p", "no:xdist", "-p", "no:cacheprovider"]
    # of their temporary folders some stay: not where a daemon of this run has its own
    plain.append(f"--basetemp={tmp_path / 'tests'}")

    ended = run("-m", "pytest", "-q", *plain, *files, paths=(wheel,))

    assert ended.returncode == 0, ended.stdout[-3000:]
