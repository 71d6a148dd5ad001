"""Loads learned from co-runs: in force in the model, kept over restarts, refused if wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hetd.config import ContentionTable, LoadTable
from hetsched.contention import Load
from libtask import messages as m
from unit.daemon_shell import Shell

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetsched.contention import ContentionModel

ADMIN = 0
FOUND = ContentionTable(discover=True)
HEAT = m.LearnedLoad("heat", "cpu", "memory", 0.8, 0.65, {"heat": 1.39})
USUAL = Load("memory", 0.3, 0.3)


def model_of(shell: Shell) -> ContentionModel:
    crowding = shell.runtime.scheduler.system.crowding
    assert crowding is not None
    return crowding.model


def memory_of(shell: Shell, task_type: str) -> Load:
    (load,) = (
        each
        for each in model_of(shell).loads_of(task_type, "cpu")
        if each.shared == "memory"
    )
    return load


def loads_told(shell: Shell, uid: int = ADMIN) -> list[m.LearnedLoad]:
    found: list[m.LearnedLoad] = shell.ask(m.Models(1), uid).loads
    return found


def test_a_learned_load_is_in_force_and_survives_a_restart(
    restart: Callable[..., Shell],
) -> None:
    shell = restart(contention=FOUND)
    before, version = memory_of(shell, "heat/64"), model_of(shell).version
    cores = model_of(shell).loads_of("heat/64", "cpu")[0]

    shell.ask(m.AddSamples(1, [], [HEAT]), ADMIN)

    assert before == USUAL
    # what co-runs did not measure is as usual
    assert model_of(shell).loads_of("heat/64", "cpu") == (
        cores,
        Load("memory", 0.8, 0.65),
    )
    assert memory_of(shell, "markov/64") == USUAL
    assert model_of(shell).version > version
    shell.commit()
    later = restart(contention=FOUND)
    assert memory_of(later, "heat/64") == Load("memory", 0.8, 0.65)
    assert loads_told(later) == [HEAT]


def test_a_newer_load_replaces_one_and_a_forgotten_one_is_as_usual(
    restart: Callable[..., Shell],
) -> None:
    shell = restart(contention=FOUND)
    newer = m.LearnedLoad("heat", "cpu", "memory", 0.2, 0.4)
    shell.ask(m.AddSamples(1, [], [HEAT]), ADMIN)
    shell.ask(m.AddSamples(1, [], [newer]), ADMIN)
    assert loads_told(shell) == [newer]

    other = shell.ask(m.DeleteSamples(1, ["markov"]), ADMIN)
    gone = shell.ask(m.DeleteSamples(1, ["heat"], ["cpu"]), ADMIN)

    assert (other.loads, gone.loads) == (0, 1)
    assert memory_of(shell, "heat/64") == USUAL
    shell.commit()
    assert loads_told(restart(contention=FOUND)) == []


def test_what_the_configuration_declares_goes_first(
    restart: Callable[..., Shell],
) -> None:
    declared = LoadTable("heat", "cpu", "memory", 0.5, 0.5)
    shell = restart(contention=ContentionTable(discover=True, load=[declared]))

    shell.ask(m.AddSamples(1, [], [HEAT]), ADMIN)

    assert memory_of(shell, "heat/64") == Load("memory", 0.5, 0.5)
    shell.ask(m.DeleteSamples(1), ADMIN)
    assert memory_of(shell, "heat/64") == Load("memory", 0.5, 0.5)


def test_loads_wait_for_the_return_of_what_is_shared(
    restart: Callable[..., Shell],
) -> None:
    shell = restart(contention=FOUND)
    shell.ask(m.AddSamples(1, [], [HEAT]), ADMIN)
    shell.commit()

    without = restart()

    assert loads_told(without) == [HEAT]
    assert memory_of(restart(contention=FOUND), "heat/64").demand == 0.8


@pytest.mark.parametrize(
    ("load", "complaint"),
    [
        (m.LearnedLoad("a", "tpu", "memory", 0.1, 0.1), "no resource 'tpu'; there are"),
        (
            m.LearnedLoad("a", "cpu", "disk", 0.1, 0.1),
            "a on cpu: nothing says that it uses a shared resource 'disk'; see",
        ),
        (
            m.LearnedLoad("a", "cpu", "memory", float("nan"), 0.1),
            "a on cpu: demand: expected 0 to 16, got nan",
        ),
        (
            m.LearnedLoad("a", "cpu", "memory", 0.1, 1.5),
            "a on cpu: bound: expected a share from 0 to 1, got 1.5",
        ),
        (
            m.LearnedLoad("a", "cpu", "memory", 0.1, 0.1, {"b": 0.0}),
            "a on cpu: slowdown beside b: expected above 0, got 0",
        ),
    ],
)
def test_bad_loads_change_nothing(
    restart: Callable[..., Shell], load: m.LearnedLoad, complaint: str
) -> None:
    shell = restart(contention=FOUND)

    error = shell.error(m.AddSamples(1, [], [HEAT, load]), ADMIN)

    assert complaint in error.text
    assert "\n" not in error.text
    assert loads_told(shell) == []


def test_only_as_many_loads_as_fit_into_an_answer_are_kept(
    restart: Callable[..., Shell],
) -> None:
    shell = restart(contention=FOUND)
    loads = [m.LearnedLoad(f"a{n}", "cpu", "memory", 0, 0) for n in range(m.MAX_LOADS)]
    shell.ask(m.AddSamples(1, [], loads), ADMIN)

    error = shell.error(m.AddSamples(1, [], [HEAT]), ADMIN)

    assert error.text == (
        "at most 256 loads are kept: delete some with `hetctl models forget`"
    )
    assert not isinstance(shell.ask(m.AddSamples(1, [], loads[:3]), ADMIN), m.Error)
    assert len(loads_told(shell)) == m.MAX_LOADS


def test_users_see_loads_of_installed_applications_and_change_none(
    restart: Callable[..., Shell],
) -> None:
    shell = restart(contention=FOUND)
    mine = m.LearnedLoad("mine.py:App", "cpu", "memory", 0.1, 0.1)
    beside = m.LearnedLoad("heat", "cpu", "cores", 0.1, 0.1, {mine.app: 2, "heat": 3})
    shell.ask(m.AddSamples(1, [], [mine, beside]), ADMIN)

    (seen,) = loads_told(shell, 1000)

    assert (seen.app, seen.slowdowns) == ("heat", {"heat": 3})
    assert shell.error(m.AddSamples(1, [], [HEAT])).code == "not-allowed"
    assert shell.error(m.DeleteSamples(1)).code == "not-allowed"
