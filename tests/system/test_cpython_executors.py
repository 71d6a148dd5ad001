"""CPython's own tests of executors, with the executor exchanged and nothing else.

They are in Debian's libpython3.11-testsuite; where they are not installed, this is
skipped.
"""

from __future__ import annotations

import importlib.util
import sys
import unittest
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import cloudpickle
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from system.private_daemon import PrivateDaemon

PLACES = (
    Path(unittest.__file__).parents[1] / "test",
    Path("/usr/lib/python3.11/test"),
)
FILE = "test_concurrent_futures.py"
FOUND = next((place / FILE for place in PLACES if (place / FILE).exists()), None)
NAME = "test_concurrent_futures_of_cpython"
REPEATED = {"ExecutorTest.test_free_reference": 4}
"""In 3.11 it looks at a value at once, while the thread that has set it may still be about
to release it; later versions of the test look for some seconds."""
MIXINS = ("WaitTests", "AsCompletedTests", "ExecutorTest")

pytestmark = pytest.mark.skipif(
    FOUND is None or sys.version_info[:2] != (3, 11),
    reason=f"no {FILE} of CPython 3.11: apt install libpython3.11-testsuite",
)


@pytest.fixture(scope="module")
def theirs() -> Iterator[ModuleType]:
    """Load their module; its functions travel by value, as workers have it not."""
    assert FOUND is not None
    spec = importlib.util.spec_from_file_location(NAME, FOUND)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)
    yield module
    cloudpickle.unregister_pickle_by_value(module)
    del sys.modules[NAME]


def cases() -> list[str]:
    """Name their tests, by mixin, as their source has them."""
    found: list[str] = []
    mixin = ""
    for line in FOUND.read_text().splitlines() if FOUND is not None else ():
        if line.startswith("class "):
            mixin = line.split()[1].rstrip(":").partition("(")[0]
        elif line.startswith("    def test_") and mixin in MIXINS:
            found.append(f"{mixin}.{line.split()[1].partition('(')[0]}")
    return found


@pytest.mark.timeout(120)
@pytest.mark.parametrize("case", cases())
def test_their_test_passes(
    daemon: PrivateDaemon, theirs: ModuleType, case: str
) -> None:
    mixin, _, name = case.partition(".")
    bases = (theirs.ExecutorMixin, getattr(theirs, mixin), theirs.BaseTestCase)

    def executor_type(max_workers: int | None = None) -> Any:
        return daemon.client.executor(max_workers=max_workers)

    made = type(f"Het{mixin}", bases, {"executor_type": staticmethod(executor_type)})
    result = _run(made(name))
    for _ in range(REPEATED.get(case, 0)):
        if not result.wasSuccessful():
            result = _run(made(name))

    assert not [text for _, text in [*result.failures, *result.errors]]
    assert result.testsRun == 1


def _run(test: unittest.TestCase) -> unittest.TestResult:
    result = unittest.TestResult()
    test.run(result)
    return result
