"""Policies of other packages: found by their entry points, refused with one line."""

from __future__ import annotations

import logging
import math
import os
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from builders import Harness, a_resource, a_task
from hetd.clock import Clock
from hetsched.ids import TaskId
from hetsched.planning.registry import make_named
from hetsched.policies import (
    POLICIES,
    describe_policy,
    make_policy,
    package_of,
    parameters_of,
    plug_ins,
)
from hetsched.policies.finish_time import FinishTime
from hetsched.policy import Place, Preempt, StateChangedError, Wake
from hetsched.system import SECOND
from installed_packages import install, install_project
from libtask import messages as m
from libtask.errors import BugError, InputError, NotFoundError
from unit.daemon_shell import Shell, a_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hetsched.events import Event
    from hetsched.policy import Decision, Policy
    from hetsched.system import System

ADMIN = os.getuid()
EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "shortest-first"
MODULE = '''
from dataclasses import dataclass, field

@dataclass(frozen=True)
class Lazy:
    """Leaves everything where it is."""

    patience: float = 1.0

    def react(self, event, system, now):
        return ()

@dataclass(frozen=True)
class Undescribed(Lazy):
    pass

Undescribed.__doc__ = None

@dataclass
class Thawed:
    def react(self, event, system, now):
        return ()

@dataclass(frozen=True)
class Still:
    pass

@dataclass(frozen=True)
class Demanding(Lazy):
    goal: float = None

@dataclass(frozen=True)
class Unsendable(Lazy):
    goal: type = int

@dataclass(frozen=True)
class Deaf(Lazy):
    def react(self, event):
        return ()

@dataclass(frozen=True)
class Patient(Lazy):
    retries: int = 3
    objective: str = "energy"
    seen: dict = field(default_factory=dict, init=False)

    def __post_init__(self):
        if self.retries > 9:
            raise LookupError("no such retries")

@dataclass(frozen=True)
class Reading(Lazy):
    file: str = "/etc/weights"
    content: list = field(default_factory=list, init=False)

    def read_files(self, read):
        self.content.append(read(self.file))
        self.content[0].index(b"layers")
'''


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder where packages are installed; `MODULE` lies there as `plugged`."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "plugged.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path / "site")
    plug_ins.cache_clear()
    yield tmp_path / "site"
    plug_ins.cache_clear()


def test_a_policy_of_another_package_is_made_like_a_built_in_one(site: Path) -> None:
    install(site, "mine", {"lazy": "plugged:Lazy"})

    policy = make_policy("lazy", {"patience": "2.5"})

    assert parameters_of(policy) == {"patience": 2.5}
    assert describe_policy(type(policy)) == "Leaves everything where it is."
    assert package_of("lazy") == "mine"
    with pytest.raises(InputError, match="policy lazy has no parameter 'speed'"):
        make_policy("lazy", {"speed": 1})


def test_a_field_that_init_does_not_take_is_its_state(site: Path) -> None:
    install(site, "mine", {"patient": "plugged:Patient"})

    first, second = make_policy("patient", {}), make_policy("patient", {"retries": "4"})
    vars(first)["seen"][3] = 1

    assert parameters_of(first)["retries"] == 3
    assert "seen" not in parameters_of(first)
    assert vars(second)["seen"] == {}
    with pytest.raises(InputError, match="policy patient has no parameter 'seen'"):
        make_policy("patient", {"seen": {}})


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        (
            {"retries": "many"},
            'policy patient: retries: expected a whole number, got "many"',
        ),
        ({"retries": 2.5}, "policy patient: retries: expected a whole number, got 2.5"),
        ({"retries": 10}, "policy patient: LookupError: no such retries"),
        (
            {"objective": "money"},
            'policy patient: objective: expected "performance", "energy" or "edp", got "money"',
        ),
    ],
)
def test_a_value_that_a_policy_cannot_take_is_named(
    site: Path, parameters: dict[str, Any], text: str
) -> None:
    install(site, "mine", {"patient": "plugged:Patient"})

    with pytest.raises(InputError) as caught:
        make_policy("patient", parameters)

    assert str(caught.value) == text


def test_a_policy_of_another_package_gets_its_files(site: Path) -> None:
    install(site, "mine", {"reading": "plugged:Reading"})

    policy = make_policy("reading", {}, lambda name: f"layers of {name}".encode())

    assert vars(policy)["content"] == [b"layers of /etc/weights"]
    text = "policy reading: read_files: ValueError: subsection not found"
    with pytest.raises(InputError, match=text):
        make_policy("reading", {}, lambda _name: b"")


def test_the_example_of_the_manual_is_installed_by_its_project_file(site: Path) -> None:
    install_project(site, EXAMPLE)

    policy = make_policy("shortest-first", {"weight": 2})

    assert parameters_of(policy) == {"weight": 2.0}
    assert plug_ins().faults == {}


@pytest.mark.parametrize("kind", POLICIES.values(), ids=POLICIES)
def test_a_policy_may_have_a_built_in_one_as_its_base(kind: type[Policy]) -> None:
    mine = make_dataclass(
        "Mine", [("patience", float, 1.0)], bases=(kind,), frozen=True
    )

    policy: Policy = make_named("policy", {"mine": mine}, "mine", {"patience": "2"})

    assert parameters_of(policy) == {**parameters_of(kind()), "patience": 2.0}


@pytest.mark.usefixtures("site")
def test_built_in_policies_come_from_hetd() -> None:
    assert {package_of(name) for name in POLICIES} == {"hetd"}


def test_an_unknown_name_is_answered_with_all_there_are(site: Path) -> None:
    install(site, "mine", {"lazy": "plugged:Lazy"})

    with pytest.raises(NotFoundError, match=r"no policy 'lasy' \(did .* lazy\?\)"):
        make_policy("lasy", {})


@pytest.mark.parametrize(
    ("name", "place", "fault"),
    [
        ("lazy", "absent:Lazy", "import fails: ModuleNotFoundError: No module named"),
        ("lazy", "plugged:Busy", "import fails: AttributeError: "),
        ("lazy", "leaving:Lazy", "import fails: SystemExit: 3"),
        ("Lazy", "plugged:Lazy", "its name may have lower-case letters"),
        ("l" * 65, "plugged:Lazy", "its name may have lower-case letters"),
        ("affinity", "plugged:Lazy", "a built-in policy has that name"),
        ("lazy", "plugged:MODULE", "import fails: AttributeError: "),
        ("lazy", "plugged:dataclass", "plugged:dataclass is not a dataclass"),
        ("lazy", "plugged:Thawed", "plugged:Thawed is not frozen"),
        ("lazy", "plugged:Still", "plugged:Still has no method react"),
        ("lazy", "plugged:Demanding", "cannot be made with its defaults: "),
        ("lazy", "plugged:Unsendable", "cannot be made with its defaults: "),
        (
            "lazy",
            "plugged:Deaf",
            "a react that does not take (self, event, system, now)",
        ),
    ],
)
def test_a_policy_that_cannot_be_used_is_one_line_and_harms_no_other(
    site: Path, name: str, place: str, fault: str
) -> None:
    (site / "leaving.py").write_text("raise SystemExit(3)")
    install(site, "mine", {name: place})
    install(site, "other", {"undescribed": "plugged:Undescribed"})

    (text,) = plug_ins().faults.values()

    assert text.startswith(f"policy {name!r} of package mine is not used: ")
    assert fault in text
    assert "\n" not in text
    if name in POLICIES:
        assert type(make_policy(name, {})) is POLICIES[name]
    else:
        with pytest.raises(InputError, match="of package mine is not used: "):
            make_policy(name, {})
    other = make_policy("undescribed", {})
    assert describe_policy(type(other)) == "(no description)"


def test_of_two_packages_with_one_name_the_first_by_name_is_used(site: Path) -> None:
    install(site, "b", {"lazy": "plugged:Undescribed"})
    install(site, "a", {"lazy": "plugged:Lazy"})

    assert package_of("lazy") == "a"
    assert type(make_policy("lazy", {})).__name__ == "Lazy"
    assert plug_ins().faults == {
        "lazy": "policy 'lazy' of package b is not used: package a has one of that name"
    }


# ---------------------------------------------------------------- the daemon


@pytest.fixture
def start(tmp_path: Path, site: Path) -> Iterator[Callable[..., Shell]]:
    shells: list[Shell] = []

    def made(**fields: Any) -> Shell:
        shell = Shell(tmp_path, **fields)
        shells.append(shell)
        shell.runtime.restore()
        return shell

    yield made
    for shell in shells:
        shell.close()


def test_the_daemon_lists_sets_and_names_it(
    site: Path, start: Callable[..., Shell]
) -> None:
    install(site, "mine", {"lazy": "plugged:Lazy"})
    shell = start()

    info = shell.ask(m.Policies(1, set="lazy", parameters={"patience": 2}), ADMIN)

    assert (info.name, info.parameters) == ("lazy", {"patience": 2.0})
    assert info.available["lazy"] == "Leaves everything where it is."
    assert info.packages == dict.fromkeys(POLICIES, "hetd") | {"lazy": "mine"}


def test_a_fault_is_the_answer_to_whoever_sets_it(
    site: Path, start: Callable[..., Shell]
) -> None:
    install(site, "mine", {"lazy": "absent:Lazy"})
    shell = start()

    error = shell.error(m.Policies(1, set="lazy"), ADMIN)

    assert error.text.startswith("policy 'lazy' of package mine is not used: import")
    assert shell.ask(m.Policies(2)).name != "lazy"


def test_a_policy_that_was_set_and_is_uninstalled_gives_way_to_the_configured_one(
    site: Path,
    start: Callable[..., Shell],
    caplog: pytest.LogCaptureFixture,
) -> None:
    install(site, "mine", {"lazy": "plugged:Lazy"})
    before = start(policy="affinity")
    before.ask(m.Policies(1, set="lazy"), ADMIN)
    before.commit()
    (site / "mine-1.0.dist-info" / "entry_points.txt").unlink()
    plug_ins.cache_clear()

    with caplog.at_level(logging.WARNING, "hetd"):
        after = start(policy="affinity")

    assert after.ask(m.Policies(1)).name == "affinity"
    assert [r.message for r in caplog.records if "no policy 'lazy'" in r.message]


# ---------------------------------------------------------------- errors while it decides

RAISING = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Raising:
    def react(self, event, system, now):
        raise ZeroDivisionError("no\\nidea")
"""

CHANGING = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Changing:
    def react(self, event, system, now):
        for task in system.tasks.values():
            task.resource = "gpu9"
        return ()
"""


@dataclass(frozen=True)
class Nonsense:
    """Decide what each test wants, when a task arrives."""

    make: Callable[[Any], Any]

    def react(self, _event: Event, system: System, _now: int) -> Any:
        waiting = list(system.unplaced)
        return self.make(waiting[0].id) if waiting else ()


def endless(task: TaskId) -> Iterator[Decision]:
    while True:
        yield Wake(task)


def leave(_task: TaskId) -> Iterator[Decision]:
    raise SystemExit(3)


place: Any = Place  # no type checker may have seen the code of another package
preempt: Any = Preempt
wake: Any = Wake
NONSENSE: list[tuple[Callable[[Any], Any], str]] = [
    (lambda _: None, "react returned None; expected decisions"),
    (lambda _: 5, "react returned 5; expected decisions"),
    (lambda _: [{"task": 1}], "react yielded {'task': 1}; expected Place, Preempt"),
    (lambda _: [place(TaskId(99), "cpu")], "there is no task 99"),
    (lambda t: [place(t, "gpu7")], "there is no resource 'gpu7'; there are: cpu"),
    (lambda t: [preempt(t, "gpu8")], "there is no resource 'gpu8'; there are: cpu"),
    (lambda t: [place(t, 5)], "Place.resource: expected a text, got 5"),
    (lambda t: [place(t, "cpu", "1")], "Place.rank: expected a number, got '1'"),
    (lambda t: [place(t, "cpu", math.nan)], "Place.rank: expected a number, got nan"),
    (lambda t: [place(t, "cpu", 0, 5)], "Place.rule: expected a text, got 5"),
    (lambda t: [preempt(t, 5)], "Preempt.destination: expected a text or None, got 5"),
    (lambda _: [wake(1.5)], "Wake.at: expected a whole number, got 1.5"),
    (lambda t: [preempt(t)], "is queued, not running: it cannot be preempted"),
    (endless, "react made more than 1010 decisions at once"),
    (leave, "SystemExit: 3"),
]


@pytest.mark.parametrize(("make", "text"), NONSENSE)
def test_a_decision_that_is_not_one_is_told_to_the_developer(
    make: Callable[[Any], Any], text: str
) -> None:
    node = Harness([a_resource("cpu")], {"heat/1": {"cpu": 1.0}}, "affinity")
    node.change_policy(Nonsense(make))

    with pytest.raises(BugError) as caught:
        node.handle(a_task(1))

    assert str(caught.value).startswith("policy Nonsense: ")
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("make", "text"), [each for each in NONSENSE if each[0] is not endless]
)
def test_a_decision_that_is_not_one_is_replaced_in_the_daemon(
    tmp_path: Path, make: Callable[[Any], Any], text: str
) -> None:
    shell = Shell(tmp_path)
    shell.runtime.change_policy(Nonsense(make))

    (task,) = shell.submit(a_spec())

    scheduler = shell.runtime.scheduler
    scheduler.check()
    assert isinstance(scheduler.policy, FinishTime)
    assert scheduler.system.tasks[TaskId(task)].resource is not None
    assert text in shell.runtime.policy_fault
    shell.close()


def test_scalars_of_numpy_are_numbers_of_a_decision() -> None:
    node = Harness([a_resource("cpu")], {"heat/1": {"cpu": 1.0}}, "affinity")
    rank = np.float32(0.5)
    node.change_policy(Nonsense(lambda task: [place(np.int64(task), "cpu", rank)]))

    node.handle(a_task(1))

    assert type(node.scheduler.system.tasks[TaskId(1)].rank) is float


@dataclass(frozen=True)
class Broken:
    """Raise an error at the first decision, or make an impossible one."""

    impossible: bool = False

    def react(self, _event: Event, system: System, _now: int) -> Iterator[Decision]:
        for task in list(system.unplaced):
            if not self.impossible:
                raise ZeroDivisionError("no idea")
            yield Place(task.id, "no such resource")


@pytest.mark.parametrize("impossible", [False, True])
def test_a_policy_that_fails_is_replaced_and_its_tasks_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, impossible: bool
) -> None:
    shell = Shell(tmp_path)
    shell.runtime.change_policy(Broken(impossible))

    (task,) = shell.submit(a_spec())

    scheduler = shell.runtime.scheduler
    scheduler.check()
    assert isinstance(scheduler.policy, FinishTime)
    assert scheduler.system.tasks[TaskId(task)].resource is not None
    assert [note[1] for note in shell.journal.batch.notes] == ["policy-failed"]
    assert "finish-time decides until another is set" in caplog.text
    shell.close()


def test_the_answer_names_the_policy_that_failed_and_the_notes_are_in_order(
    site: Path, start: Callable[..., Shell]
) -> None:
    (site / "raising.py").write_text(RAISING)
    install(site, "mine", {"raising": "raising:Raising"})
    shell = start(policy="affinity")

    answer = shell.ask(m.Policies(1, set="raising"), ADMIN)

    assert (answer.name, answer.failed) == ("finish-time", "raising")
    assert answer.fault == "Raising: ZeroDivisionError: no idea"
    assert shell.ask(m.Policies(2)).failed == "raising"
    kinds = [note[1] for note in shell.journal.batch.notes]
    assert kinds == ["policy-set", "policy-failed"]
    again = shell.ask(m.Policies(3, configured=True), ADMIN)
    assert (again.name, again.failed, again.fault) == ("affinity", "", "")


@dataclass(frozen=True)
class Changing:
    """Change what it may only read, when a task has arrived."""

    change: Callable[[System], object]

    def react(self, _event: Event, system: System, _now: int) -> Iterator[Decision]:
        if system.tasks:
            self.change(system)
        for task in list(system.unplaced):
            yield Place(task.id, "cpu")


CHANGES: list[tuple[Callable[[System], object], str]] = [
    (lambda system: system.tasks.clear(), "system.tasks"),
    (lambda system: system.unplaced and system.unplaced.pop(), "system.unplaced"),
    (
        lambda system: system.queue("cpu") and system.queue("cpu").pop(),
        "system.queue('cpu')",
    ),
    (lambda system: system.states["cpu"].running.clear(), "system.running('cpu')"),
]


@pytest.mark.parametrize(("change", "where"), CHANGES)
def test_a_change_of_what_a_policy_may_only_read_is_told_to_the_developer(
    change: Callable[[System], object], where: str
) -> None:
    node = Harness([a_resource("cpu")], {"heat/1": {"cpu": 1.0}}, "affinity")
    node.handle(a_task(1))
    node.handle(a_task(2))

    with pytest.raises(StateChangedError) as caught:  # noqa: PT012  either may be the first
        node.change_policy(Changing(change))
        node.handle(a_task(3))

    text = f"policy Changing: react changed {where}, which it may only read"
    assert str(caught.value) == text


class SlowTime:
    """Time passes whenever somebody looks."""

    def __init__(self) -> None:
        self.time, self.step = 0, SECOND

    def now(self) -> int:
        self.time += self.step
        return self.time


def test_the_daemon_gives_up_its_records_when_a_policy_has_changed_them(
    site: Path, start: Callable[..., Shell]
) -> None:
    (site / "changing.py").write_text(CHANGING)
    install(site, "mine", {"changing": "changing:Changing"})
    before = start(policy="affinity")
    (first,) = before.submit(a_spec())
    before.commit()
    setting = m.Policies(1, set="changing", key="once")

    with pytest.raises(BugError) as caught:
        before.ask(setting, ADMIN)
    fault = before.runtime.foreign_policy.fault_in(caught.value)
    before.runtime.give_up_policy(fault)
    before.commit()

    after = start(policy="affinity")
    after.runtime.scheduler.check()
    assert after.state(first) in {"queued", "running"}
    answer = after.ask(setting, ADMIN)
    assert (answer.name, answer.failed) == ("finish-time", "changing")
    assert answer.fault == fault
    assert fault.startswith("Changing: the state that it may only read is contra")
    again = after.ask(m.Policies(2, configured=True, key="twice"), ADMIN)
    assert (again.name, again.failed, again.fault) == ("affinity", "", "")


@pytest.mark.parametrize(
    ("error", "blamed"),
    [
        (KeyError("cpu"), True),
        (BugError("task 2 is recorded, and not known"), True),
        (StateChangedError("Changing: react changed system.tasks"), True),
        (InputError("socket: it is used"), False),
    ],
)
def test_errors_that_end_the_daemon_are_a_policys_if_it_may_have_caused_them(
    tmp_path: Path, error: Exception, *, blamed: bool
) -> None:
    shell = Shell(tmp_path)
    faults = shell.runtime.foreign_policy
    changed = isinstance(error, StateChangedError)
    assert bool(faults.fault_in(error)) == changed  # no such policy has decided

    shell.runtime.change_policy(Changing(lambda _: None))
    shell.runtime.change_policy(FinishTime())

    assert bool(faults.fault_in(error)) == blamed
    assert faults.fault_in(error).startswith("Changing: " if blamed else "")
    shell.close()


def test_changed_records_are_found_later_if_it_was_too_early_to_look(
    tmp_path: Path,
) -> None:
    time = SlowTime()
    shell = Shell(tmp_path, Clock(now=time.now))
    shell.runtime.change_policy(Changing(lambda _: None))
    time.step = 0
    shell.submit(a_spec())  # the last check took too long for another one now
    for task in shell.runtime.scheduler.system.tasks.values():
        task.resource = "gpu9"

    shell.runtime.tick()
    time.time += 100 * SECOND

    with pytest.raises(BugError, match="has another resource than"):
        shell.runtime.tick()
    shell.close()


def test_without_a_fallback_the_error_reaches_the_developer() -> None:
    node = Harness([a_resource("cpu")], {"heat/1": {"cpu": 1.0}}, "affinity")
    node.change_policy(Broken())

    with pytest.raises(ZeroDivisionError, match="no idea"):
        node.handle(a_task(1))
