"""`hetctl explain` on a real daemon."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from hetapps.synthetic import Synthetic
from hetctl.__main__ import main
from system.private_daemon import eventually

if TYPE_CHECKING:
    from system.private_daemon import PrivateDaemon

NOT_FOUND = 4


def hetctl(daemon: PrivateDaemon, *words: str) -> Any:
    return CliRunner().invoke(main, [*words, "--socket", str(daemon.socket)])


def test_a_waiting_task_is_explained_in_figures(daemon: PrivateDaemon) -> None:
    times = {"cpu": 60.0, "gpu": 60.0, "fpga": 60.0}
    task = Synthetic(seconds=times, strips=300)
    first = daemon.client.submit(task, resources=["gpu0"])
    daemon.await_state(first.id, "running")
    second = daemon.client.submit(task, resources=["gpu0"])

    shown = hetctl(daemon, "explain", str(second.id))
    began = first.info().progress
    document = eventually(lambda: _known(daemon, second.id), "a measured strip")
    done = first.info().progress

    assert shown.stdout.startswith(
        f"task {second.id} waits for gpu0, behind 1 other\n"
        "  policy affinity: principle A: it goes where it fits best\n"
    )
    assert "its owner does not want it there" in shown.stdout
    assert document["format"] == "hetctl/explanation-1"
    prospects = {each["resource"]: each for each in document["prospects"]}
    assert prospects["gpu0"]["ahead"] == 1
    # both take a minute, or longer by what a busy machine adds to each strip; the first has
    # done a part of it
    wait, finish = (prospects["gpu0"][name] for name in ("wait_s", "finish_s"))
    whole = finish - wait
    assert whole > 48
    assert 0.95 * (1.0 - done) * whole <= wait <= 1.05 * (1.0 - began) * whole
    assert prospects["cpu"]["finish_s"] is None


def test_a_dry_run_submits_nothing_and_says_when_the_task_would_be_done(
    daemon: PrivateDaemon,
) -> None:
    words = ("submit", "synthetic", "--seconds", '{"cpu": 1, "gpu": 2}')
    before = [each.id for each in daemon.client.tasks()]

    shown = hetctl(daemon, *words, "--array", "0-3", "--dry-run")
    document = json.loads(hetctl(daemon, *words, "--dry-run", "--json").stdout)

    assert shown.stdout.startswith(
        "nothing submitted; the first of 4 tasks would be done, behind all that waits now:"
    )
    prospects = {each["resource"]: each for each in document["prospects"]}
    assert (document["format"], document["tasks"]) == ("hetctl/estimate-1", 1)
    assert prospects["cpu"]["finish_s"] is not None
    assert prospects["fpga0"]["note"] == "no implementation for fpga"
    assert [each.id for each in daemon.client.tasks()] == before


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--cores", "999"), "synthetic needs 999 cores; this node has "),
        (("--wait",), "--dry-run submits nothing to wait for"),
    ],
)
def test_a_dry_run_refuses_what_a_submit_would(
    daemon: PrivateDaemon, words: tuple[str, ...], complaint: str
) -> None:
    times = ("--seconds", '{"cpu": 1}')

    refused = hetctl(daemon, "submit", "synthetic", *times, "--dry-run", *words)

    assert refused.exit_code == 2
    assert complaint in refused.stderr


def _known(daemon: PrivateDaemon, task: int) -> Any:
    """Explain a task, once the one before it has shown how long it takes."""
    document = json.loads(hetctl(daemon, "explain", str(task), "--json").stdout)
    (gpu,) = (each for each in document["prospects"] if each["resource"] == "gpu0")
    return document if gpu["wait_s"] > 30 else None


def test_an_ended_task_says_how_it_ended(daemon: PrivateDaemon) -> None:
    task = daemon.client.submit(Synthetic(seconds={"cpu": 0.0}, strips=1))
    task.result(30)

    shown = hetctl(daemon, "explain", str(task.id))

    assert shown.stdout == f"task {task.id} has completed\n"


def test_a_task_that_is_not_there_is_not_found(daemon: PrivateDaemon) -> None:
    assert hetctl(daemon, "explain", "4000000").exit_code == NOT_FOUND
