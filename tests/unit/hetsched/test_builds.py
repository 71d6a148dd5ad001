"""Which build of the scheduler runs, and what the compiler needs of its modules.

That both decide the same is tested in `tests/sim/test_compiled_build.py`.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from typing import get_type_hints

import msgspec
import pytest

from compiled.compile_modules import ROOT, SIMULATOR, modules
from hetsched.build import DIGEST, SOURCES, WHEEL, digest_of, find_compiled

MODULES = modules()


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a wheel of these sources, without modules; return its folder of hetsched."""
    folder = tmp_path / WHEEL
    for sources in (SOURCES, SIMULATOR):
        (folder / sources.name).mkdir(parents=True)
        (folder / sources.name / DIGEST).write_text(digest_of(sources))
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, WHEEL, raising=False)
    monkeypatch.delenv("HETD_COMPILED", raising=False)
    return folder / SOURCES.name


def test_compiled_modules_of_these_sources_are_used(wheel: Path) -> None:
    assert find_compiled(SOURCES) == (wheel, "")
    assert find_compiled(SIMULATOR) == (wheel.parent / SIMULATOR.name, "")


def test_a_wheel_of_other_sources_is_not_used_and_said_so(wheel: Path) -> None:
    (wheel / DIGEST).write_text("0" * 64)

    folder, fault = find_compiled(SOURCES)

    assert folder is None
    assert str(wheel) in fault
    assert "other sources" in fault


def test_a_wheel_without_its_digest_is_not_used(wheel: Path) -> None:
    (wheel / DIGEST).unlink()

    folder, fault = find_compiled(SOURCES)

    assert folder is None
    assert DIGEST in fault


def test_a_variable_selects_the_sources(
    wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HETD_COMPILED", "0")

    assert find_compiled(SOURCES) == (None, "")


def test_the_digest_depends_on_every_text_and_place(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    digests = {digest_of(tmp_path)}
    (tmp_path / "a.py").write_text("2")
    digests.add(digest_of(tmp_path))
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    digests.add(digest_of(tmp_path))

    assert len(digests) == 3


def test_the_wheel_has_the_version_of_the_program() -> None:
    own, program = (
        tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
        for folder in (ROOT / "daemon/compiled", ROOT)
    )
    pinned = program["optional-dependencies"]["compiled"]

    assert own["version"] == program["version"]
    assert pinned == [f"hetd-compiled=={own['version']}"]


@pytest.mark.parametrize("name", MODULES)
def test_the_types_of_fields_are_there_at_run_time(name: str) -> None:
    """The compiler reads the annotations of data classes when a module is imported."""
    for found in vars(import_module(name)).values():
        if isinstance(found, type) and is_dataclass(found) and found.__module__ == name:
            get_type_hints(found)


@pytest.mark.parametrize("name", MODULES)
def test_no_structure_of_msgspec_is_compiled(name: str) -> None:
    """The compiler makes another class of it, or one that cannot be imported."""
    found = vars(import_module(name)).values()
    structs = [each for each in found if isinstance(each, type(msgspec.Struct))]

    assert [each for each in structs if each.__module__ == name] == []


def tree_of(name: str) -> ast.Module:
    return ast.parse(MODULES[name].read_text("utf-8"))


@pytest.mark.parametrize("name", MODULES)
def test_attributes_of_classes_are_constants_or_say_that_they_are_of_the_class(
    name: str,
) -> None:
    """The compiler supports no other defaults, and one variable at a time."""
    others = [
        node.lineno
        for found in ast.walk(tree_of(name))
        if isinstance(found, ast.ClassDef)
        and not any(ast.unparse(base).endswith("Enum") for base in found.bases)
        for node in found.body
        if isinstance(node, ast.Assign)
        and not (isinstance(node.value, ast.Constant) and len(node.targets) == 1)
        and ast.unparse(node.targets[0]) != "__slots__"
    ]

    assert others == []


@pytest.mark.parametrize("name", MODULES)
def test_no_generator_expression_is_kept(name: str) -> None:
    """The compiler makes a list of one: it would be evaluated at another moment."""
    tree = tree_of(name)
    consumed = {
        id(argument)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        for argument in call.args
    }
    kept = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.GeneratorExp) and id(node) not in consumed
    ]

    assert kept == []
