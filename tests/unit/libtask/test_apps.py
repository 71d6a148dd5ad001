"""Applications are found by name or file, and every mistake is one line."""

from __future__ import annotations

import os
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import pytest

from libtask import Input, Output, apps
from libtask.apps import Options, describe, resolve
from libtask.errors import InputError, NotFoundError
from libtask.parameters import build, file_parameters, plain, values_of
from libtask.task import Size, Task

SOURCE = """
    from __future__ import annotations
    from dataclasses import dataclass, field
    from pathlib import Path
    from typing import TYPE_CHECKING, ClassVar, Literal
    from libtask.task import Size, Task
    if TYPE_CHECKING:
        from numpy.typing import NDArray

    @dataclass
    class Sum(Task):
        label: ClassVar[str] = "sum"
        n: int = 10
        rate: float = 1.0
        edge: Literal["fixed", "open"] = "fixed"
        output: Path | None = None
        sizes: list[int] = field(default_factory=list)
        wide: bool = False
        grid: NDArray = field(init=False, repr=False, compare=False)

        def __post_init__(self) -> None:
            if self.n < 1:
                raise ValueError(f"n must be at least 1, not {self.n}")

        def size(self) -> Size:
            return Size(str(self.n), work=self.n, state_bytes=8 * self.n)

    @Sum.on("cpu")
    def on_cpu(task, device, checkpoint):
        for strip in checkpoint.strips():
            yield

    @dataclass
    class Named(Task):
        name: str

    @dataclass
    class Narrow(Sum):
        def kinds(self):
            return ["gpu"]

    class Other:
        pass
"""


@pytest.fixture
def app_file(tmp_path: Path) -> Path:
    path = tmp_path / "sums.py"
    path.write_text(textwrap.dedent(SOURCE))
    return path


def message(app: str) -> str:
    with pytest.raises(InputError) as caught:
        apps.resolve(app)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_entry_point_is_found_by_name() -> None:
    assert "heat" in apps.available()
    assert "call" not in apps.available()


def test_unknown_name_gets_a_suggestion_and_the_list() -> None:
    with pytest.raises(NotFoundError, match=r"did you mean heat\?.*synthetic"):
        apps.resolve("heta")


def test_file_is_loaded_once_until_it_changes(app_file: Path) -> None:
    first = apps.resolve(f"{app_file}:Sum")

    assert apps.resolve(f"{app_file}:Sum") is first
    app_file.write_text(textwrap.dedent(SOURCE) + "\n# edited\n")
    os.utime(app_file, ns=(1, 1))
    assert apps.resolve(f"{app_file}:Sum") is not first


def test_no_byte_code_is_kept_that_hides_a_later_edit(
    app_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    beside = app_file.with_name("beside_the_app.py")
    beside.write_text("")
    app_file.write_text(f"{app_file.read_text()}\nimport beside_the_app\n")

    resolve(f"{app_file}:Sum")

    assert "beside_the_app" in sys.modules
    assert not list(app_file.parent.rglob("*.pyc"))


def test_relative_file(app_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(app_file.parent)

    task = build(apps.resolve("sums.py:Sum"), {})

    assert apps.describe(task, "sums.py:Sum", apps.Options()).app == f"{app_file}:Sum"
    assert apps.name_of(type(task)) == f"{app_file}:Sum"


def test_wrong_files(app_file: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("x = 1\nraise RuntimeError('no\\nway')\n")
    exits = tmp_path / "exits.py"
    exits.write_text("import sys\nsys.exit(3)\n")
    syntax = tmp_path / "syntax.py"
    syntax.write_text("x = 1\ndef f(:\n")
    importing = tmp_path / "importing.py"
    importing.write_text("\nimport broken_module\n")
    (tmp_path / "broken_module.py").write_text("y = (\n")
    parsing = tmp_path / "parsing.py"
    parsing.write_text("import json\njson.loads('no')\n")
    absent = tmp_path / "absent.py"
    absent.write_text("\n\nimport no_such_module\n")

    assert "No such file" in message(f"{tmp_path}/none.py:Sum")
    assert "did you mean Sum?" in message(f"{app_file}:Sun")
    assert "Other is not a subclass" in message(f"{app_file}:Other")
    assert "say which class" in message(str(app_file))
    assert f"line 2 of {broken}: RuntimeError: no way" in message(f"{broken}:Sum")
    assert "SystemExit" in message(f"{exits}:Sum")
    assert f"line 2 of {syntax}: SyntaxError" in message(f"{syntax}:Sum")
    inner = f"line 1 of {tmp_path}/broken_module.py: SyntaxError"
    assert inner in message(f"{importing}:Sum")
    assert f"line 2 of {parsing}: JSONDecodeError" in message(f"{parsing}:Sum")
    assert f"line 3 of {absent}: ModuleNotFoundError" in message(f"{absent}:Sum")


def test_text_parameters_take_the_declared_types(app_file: Path) -> None:
    texts = {
        "n": "4096",
        "rate": "1e-3",
        "output": "o.npy",
        "sizes": "1,2",
        "wide": "true",
    }

    task = build(apps.resolve(f"{app_file}:Sum"), texts, text=True)

    assert plain(type(task), values_of(task)) == {
        "n": 4096,
        "rate": 0.001,
        "edge": "fixed",
        "output": "o.npy",
        "sizes": [1, 2],
        "wide": True,
    }


def test_plain_parameters_make_the_same_task_again(app_file: Path) -> None:
    app_class = apps.resolve(f"{app_file}:Sum")
    task = build(app_class, {"n": 3, "output": "o"})

    assert build(app_class, plain(app_class, values_of(task))) == task


@pytest.mark.parametrize(
    ("params", "text", "said"),
    [
        ({"m": 1}, False, "unknown parameter 'm'"),
        ({"siezs": 1}, False, "did you mean sizes?"),
        ({"n": "abc"}, True, "parameter n: expected int, got 'abc'"),
        ({"n": "4"}, False, "parameter n: expected int, got '4'"),
        ({"n": 0}, False, "n must be at least 1, not 0"),
        ({"edge": "soft"}, True, "expected one of 'fixed', 'open', got 'soft'"),
        ({"output": 3}, False, "expected path or none, got 3"),
        ({"grid": 3}, False, "unknown parameter 'grid'"),
    ],
)
def test_bad_parameters(
    app_file: Path, params: dict[str, object], *, text: bool, said: str
) -> None:
    with pytest.raises(InputError) as caught:
        build(apps.resolve(f"{app_file}:Sum"), params, text=text)

    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_parameter_lists_those_there_are(app_file: Path) -> None:
    with pytest.raises(InputError, match=r"parameters: n: int = 10; rate: float = 1.0"):
        build(apps.resolve(f"{app_file}:Sum"), {"zzz": 1})


def test_a_class_without_its_decorator_is_told_of() -> None:
    class Plain(Task):
        n: int = 3

    hint = (
        r"unknown parameter 'n'; parameters: none; write @dataclass before class Plain"
    )
    with pytest.raises(InputError, match=hint):
        build(Plain, {"n": 4})


def test_missing_parameter(app_file: Path) -> None:
    with pytest.raises(InputError, match="missing parameter name: str"):
        build(apps.resolve(f"{app_file}:Named"), {})


def test_description_carries_size_and_options(app_file: Path) -> None:
    app = f"{app_file}:Sum"
    options = apps.Options(priority=3, after=(1, -1), resources=("gpu0",), name="mine")

    spec = apps.describe(build(apps.resolve(app), {"n": 5}), app, options)

    assert (spec.type, spec.work, spec.state_bytes) == ("sums:Sum/5", 5.0, 40)
    assert (spec.kinds, spec.params["n"]) == (["cpu"], 5)
    assert (spec.priority, spec.after, spec.resources) == (3, [1, -1], ["gpu0"])


def test_task_may_narrow_its_kinds(app_file: Path) -> None:
    app = f"{app_file}:Narrow"

    assert apps.describe(build(apps.resolve(app), {}), app, apps.Options()).kinds == [
        "gpu"
    ]


def test_more_memory_than_there_is(app_file: Path) -> None:
    app = f"{app_file}:Sum"
    task = build(apps.resolve(app), {"n": 1 << 50})

    with pytest.raises(
        InputError, match=r"needs 8\.0 PiB, this machine has [0-9.]+ .iB"
    ):
        apps.describe(task, app, apps.Options())


def test_a_size_of_another_type() -> None:
    class Wrong(Task):
        def size(self) -> Any:
            return 5

    with pytest.raises(InputError, match=r"^Wrong: size: expected a libtask.Size, got"):
        apps.size_of(Wrong())


class Counted(Task):
    def __init__(self, iterations: Any) -> None:
        self.iterations = iterations

    def total(self) -> Any:
        return self.iterations


@pytest.mark.parametrize("iterations", [None, 0, 1, np.int64(3), np.uint8(0)])
def test_iterations_are_a_whole_number_or_none(iterations: Any) -> None:
    found = apps.total_of(Counted(iterations))

    assert found == iterations
    assert type(found) in (int, type(None))


@pytest.mark.parametrize("iterations", [-1, np.int32(-5), 2.0, 2.5, True, "3"])
def test_another_number_of_iterations_is_refused(iterations: Any) -> None:
    text = "Counted: total: expected a whole number from 0, or None, got "
    with pytest.raises(InputError) as caught:
        apps.total_of(Counted(iterations))
    assert str(caught.value) == text + repr(iterations)


@pytest.mark.parametrize("granule", [0, -3, 1.5, True, "4"])
def test_a_granule_of_parts_that_is_not_a_whole_number_is_refused(granule: Any) -> None:
    class Parted(Task):
        def part_granule(self) -> Any:
            return granule

    text = "Parted: part_granule: expected a whole number from 1, got "
    with pytest.raises(InputError) as caught:
        apps.part_granule_of(Parted())
    assert str(caught.value) == text + repr(granule)


@pytest.mark.parametrize(
    "field", ["work", "input_bytes", "state_bytes", "memory_bytes"]
)
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), None, "many"])
def test_an_amount_that_is_not_one_is_refused(field: str, value: Any) -> None:
    class Sized(Task):
        def size(self) -> Size:
            return Size(**{field: value})

    text = f"Sized: size: {field}: expected a finite number from 0, got {value!r}"
    with pytest.raises(InputError) as caught:
        apps.size_of(Sized())
    assert str(caught.value) == text


@pytest.mark.parametrize("cores", [-1, 1.5, "some"])
def test_needed_cores_that_are_not_a_number_are_refused(cores: Any) -> None:
    class Wide(Task):
        needs_cores = cores

    Wide.on("cpu")(lambda _task, _device, _checkpoint: iter(()))
    text = "Wide: needs_cores: expected a whole number from 0, or 'all', got "
    with pytest.raises(InputError) as caught:
        apps.describe(Wide(), "Wide", apps.Options())
    assert str(caught.value) == text + repr(cores)


def test_no_implementation(app_file: Path) -> None:
    app = f"{app_file}:Named"
    task = build(apps.resolve(app), {"name": "x"})

    with pytest.raises(InputError, match="no implementation"):
        apps.describe(task, app, apps.Options())


# ---------------------------------------------------------------- files


@dataclass
class Filed(Task):
    """Names files in every way that a parameter may."""

    source: Annotated[str, Input]
    others: Annotated[list[str], Input] = field(default_factory=list)
    target: Annotated[Path | None, Output] = None
    maybe: Annotated[str, Input] | None = None
    bounded: Annotated[str, msgspec.Meta(max_length=20), Output] = ""
    plain: str = "no file"


def test_the_files_of_a_task_are_those_that_it_declares() -> None:
    whole = build(
        Filed,
        {
            "source": "a.npy",
            "others": ["b", "c"],
            "target": "/out/d",
            "maybe": "e",
            "bounded": "f",
        },
    )

    assert [(each.parameter, each.role, each.path) for each in whole.files()] == [
        ("source", Input, "a.npy"),
        ("others", Input, "b"),
        ("others", Input, "c"),
        ("target", Output, "/out/d"),
        ("maybe", Input, "e"),
        ("bounded", Output, "f"),
    ]
    assert [each.path for each in build(Filed, {"source": "a"}).files()] == ["a"]
    assert build(Filed, {"source": ""}).files() == []


def test_declared_files_are_checked_as_before() -> None:
    with pytest.raises(InputError, match="parameter source: expected"):
        build(Filed, {"source": 3})
    with pytest.raises(InputError, match="parameter bounded: expected str of length"):
        build(Filed, {"source": "a", "bounded": "x" * 21})
    with pytest.raises(InputError, match="parameter bounded: expected str, got 3"):
        build(Filed, {"source": "a", "bounded": 3})


def test_installed_applications_declare_their_files() -> None:
    declared = {
        name: {
            each: role.value for each, role in file_parameters(resolve(name)).items()
        }
        for name in ("heat", "markov", "correlation", "gaussian-blur", "synthetic")
    }

    both = {"input": "input", "output": "output"}
    assert declared == {
        "heat": {**both, "picture": "output"},
        "markov": both,
        "correlation": both,
        "gaussian-blur": both,
        "synthetic": {},
    }


def test_a_task_for_another_machine_may_need_more_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("libtask.apps.machine_memory", lambda: 1000)
    task = build(resolve("heat"), {"n": 1024})

    with pytest.raises(InputError, match="this machine has 1000 B"):
        describe(task, "heat", Options())
    assert describe(task, "heat", Options(), fits_here=False).app == "heat"
