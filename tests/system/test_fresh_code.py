"""Each task runs the code that lies on disk when it starts, whatever ran before it."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from libtask.messages import TaskSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from libtask.client.client import Client
    from system.private_daemon import PrivateDaemon

CASES = int(os.environ.get("HETD_FRESH_CASES", "25"))
"""Submissions after random edits; `make torture` makes 2,000."""
APP = """
import os
from dataclasses import dataclass
from libtask.task import Task

WHO = {value}
import first
{imports}

@dataclass
class Values(Task):
    def save(self, checkpoint):
        from package import late
        return {{"pid": os.getpid(), "app": WHO, "first": first.values(), "late": late.WHO, "maybe": MAYBE}}


@Values.on("cpu")
def values(task, device, checkpoint):
    for _ in checkpoint.strips():
        yield
"""
OPTIONAL = """
try:
    from maybe import WHO as MAYBE
except ImportError:
    MAYBE = None
"""
FIRST = """
import second
WHO = {value}
def values():
    return [WHO, second.WHO]
"""
PLAIN = "WHO = {value}\n"


@dataclass
class Tree:
    """A folder of modules, and what a fresh interpreter would compute with them.

    Attributes:
        folder: where they lie.
        values: file -> its constant; a file that is not there is left out.

    """

    folder: Path
    values: dict[str, int] = field(default_factory=dict)

    TEMPLATES: ClassVar = {
        "app.py": APP.replace("{imports}", OPTIONAL),
        "first.py": FIRST,
        "second.py": PLAIN,
        "package/late.py": PLAIN,
        "maybe.py": PLAIN,
    }

    def write(self, name: str, value: int) -> None:
        self.values[name] = value
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.TEMPLATES[name].format(value=value), encoding="utf-8")

    def remove(self, name: str) -> None:
        if self.values.pop(name, None) is not None:
            (self.folder / name).unlink()

    def edit(self, chance: random.Random) -> None:
        name = chance.choice(list(self.TEMPLATES))
        if name == "maybe.py" and name in self.values:
            self.remove(name)
        else:
            self.write(name, chance.randrange(10, 100))  # all of one length

    def expected(self) -> dict[str, object]:
        known = self.values
        return {
            "pid": 0,
            "app": known["app.py"],
            "first": [known["first.py"], known["second.py"]],
            "late": known["package/late.py"],
            "maybe": known.get("maybe.py"),
        }

    def spec(self) -> TaskSpec:
        """Describe a task without importing its application here."""
        return TaskSpec(app=f"{self.folder}/app.py:Values", type="app:Values/any")


@pytest.fixture
def tree(tmp_path: Path) -> Callable[[str], Tree]:
    def make(name: str) -> Tree:
        made = Tree((tmp_path / name).resolve())
        for number, file in enumerate(Tree.TEMPLATES):
            if file != "maybe.py":
                made.write(file, number)
        return made

    return make


def _run(client: Client, *trees: Tree) -> list[dict[str, Any]]:
    handles = client.submit_specs([tree.spec() for tree in trees])
    return [handle.result(60.0) for handle in handles]


def _compute(client: Client, *trees: Tree) -> list[dict[str, Any]]:
    """Return the values that tasks computed, whatever process it was."""
    return [{**found, "pid": 0} for found in _run(client, *trees)]


def test_modules_of_one_name_in_two_folders_are_two(
    daemon: PrivateDaemon, tree: Callable[[str], Tree]
) -> None:
    here, there = tree("here"), tree("there")
    there.write("second.py", 77)

    for _ in range(3):
        found = _compute(daemon.client, here, there)
        assert found == [here.expected(), there.expected()]


def test_an_edited_module_is_seen_by_all_tasks_after_it(
    daemon: PrivateDaemon, tree: Callable[[str], Tree]
) -> None:
    one = tree("one")
    _compute(daemon.client, *[one] * 8)  # in warm workers
    one.write("second.py", 55)

    assert _compute(daemon.client, *[one] * 8) == [one.expected()] * 8


def test_a_module_that_was_not_there_is_seen(
    daemon: PrivateDaemon, tree: Callable[[str], Tree]
) -> None:
    one = tree("one")
    assert _compute(daemon.client, one) == [one.expected()]
    one.write("maybe.py", 5)
    assert _compute(daemon.client, one) == [one.expected()]
    one.remove("maybe.py")
    assert _compute(daemon.client, one) == [one.expected()]


def test_a_worker_stays_while_nothing_changes(
    daemon: PrivateDaemon, tree: Callable[[str], Tree]
) -> None:
    one = tree("one")
    pids = set()

    for number in range(8):
        (one.folder / f"{number}.txt").write_text("the output of a task")
        (found,) = _run(daemon.client, one)
        pids.add(found["pid"])

    assert len(pids) <= 3  # those that were warm have imported other code, and left


def test_applications_of_two_folders_keep_a_warm_worker_each(
    daemon: PrivateDaemon, tree: Callable[[str], Tree]
) -> None:
    trees = [tree("left"), tree("right")]

    pids = [_run(daemon.client, each)[0]["pid"] for each in trees * 3]

    assert pids[:2] * 3 == pids


@pytest.mark.timeout(1800)
def test_random_edits_and_submissions(
    daemon: PrivateDaemon, tree: Callable[[str], Tree]
) -> None:
    chance = random.Random(16)
    trees = [tree("a"), tree("b")]

    for case in range(CASES):
        for _ in range(chance.choice([0, 1, 1, 2])):
            chance.choice(trees).edit(chance)
        chosen = [chance.choice(trees) for _ in range(chance.randint(1, 3))]
        found = _compute(daemon.client, *chosen)
        assert found == [each.expected() for each in chosen], f"case {case}"
