"""Launchers and workers that lie: they cost their own user's tasks, and nobody else's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hetd.devices.health import HOLD_S
from hetd.reports.worker_reports import EXIT_S, OUTDATED_WORKERS
from hetd.transport.router import Peer
from hetd.workers.deadlines import WORKER_S
from hetd.workers.watchdog import KILL_S
from libtask import messages as m
from torture.liars import HONEST, LIAR, SLACK_S, HonestUser, SharedNode, fuzz

if TYPE_CHECKING:
    from collections.abc import Iterator

CASES = int(os.environ.get("HETD_FUZZ_LIARS", "15000"))
SEED = int(os.environ.get("HETD_FUZZ_SEED", "1"))


@pytest.fixture
def shared(memory_folder: Path) -> Iterator[SharedNode]:
    made = SharedNode(memory_folder)
    yield made
    made.close()


@pytest.mark.timeout(120 + CASES // 500)
def test_lies_cost_the_liar_only(memory_folder: Path) -> None:
    found = fuzz(memory_folder, CASES, SEED)

    assert found.wrong == [], f"after {found.cases} cases of seed {SEED}"
    assert found.cases >= CASES
    assert min(found.said.values()) > CASES // 200, "each lie was told, and often"


# ---------------------------------------------------------------- lie by lie

SLOTS = 2
"""Of the CPU."""


class Script:
    """A liar's program of a few lines."""

    def __init__(self, shared: SharedNode) -> None:
        self.shared = shared
        self.launcher = self.process("launcher")
        self.client = self.process("client")

    def process(self, route: str) -> Peer:
        return Peer(route.encode(), LIAR, self.shared.processes.begin())

    def submit(self, number: int, **fields: int) -> list[int]:
        spec = m.TaskSpec("bad", type="bad", kinds=["cpu"], **fields)  # type: ignore[arg-type]  # numbers all
        before = {page.id for page in self.shared.own(LIAR)}
        self.shared.say(self.client, m.Submit(1, [spec] * number))
        return sorted({page.id for page in self.shared.own(LIAR)} - before)

    def be_launcher(self, *workers: str) -> None:
        self.shared.say(self.launcher, m.Register("launcher", workers=list(workers)))

    def claim(self, peer: Peer, name: str, task: int) -> None:
        epoch = self.shared.runtime.journal.live[task].runtime.epoch
        hello = m.Register(
            "worker", worker=name, task=task, epoch=epoch, resource="cpu"
        )
        self.shared.say(peer, hello)

    def pass_time(self, seconds: float, *, each: float = 1.0) -> None:
        """Let time go by; the launcher says again and again that it is there."""
        end = self.shared.time.seconds + seconds
        while self.shared.time.seconds < end:
            self.shared.time.seconds += each
            self.be_launcher()

    def holds(self) -> list[int]:
        """Return the tasks of the liar that have a slot."""
        return sorted(record.id for record in self.shared.running(LIAR))


@pytest.fixture
def script(shared: SharedNode) -> Script:
    return Script(shared)


def _all_is_well(shared: SharedNode) -> None:
    shared.runtime.scheduler.check()
    shared.runtime.pool.check()
    records = shared.runtime.scheduler.system.tasks.values()
    assert list(shared.runtime.watchdog.neglected(records)) == []
    assert shared.mail.answers["Error bug"] == 0


def test_a_task_that_waits_for_a_worker_cannot_be_claimed(
    shared: SharedNode, script: Script
) -> None:
    script.be_launcher()
    tasks = script.submit(SLOTS)

    for number, task in enumerate(tasks * 3):
        worker = script.process(f"claims-{number}")
        script.claim(worker, f"w{number}", task)
        shared.processes.end(worker.pid)
        shared.turn()
        _all_is_well(shared)

    # whoever said nothing of a task may work: each has one, and none has another's
    peers = [script.process(f"worker-{number}") for number in range(2 * SLOTS)]
    for number, peer in enumerate(peers):
        shared.say(peer, m.Register("worker", worker=f"honest{number}"))
        _all_is_well(shared)
    workers = shared.runtime.pool.workers_of(LIAR)
    held = [binding.task for worker in workers for binding in worker.bindings]
    assert sorted(held) == tasks


def test_a_launcher_that_makes_nothing_holds_a_place_for_a_minute_and_a_half(
    shared: SharedNode, script: Script
) -> None:
    script.be_launcher()
    first = script.submit(SLOTS)
    honest = HonestUser(shared)
    honest.submit("cpu")

    for second in range(int(WORKER_S + SLACK_S)):
        assert second >= WORKER_S or script.holds() == first
        script.pass_time(1.0)
        honest.work()

    assert shared.own(HONEST) == [], "the honest user's task has run meanwhile"
    script.pass_time(4 * (WORKER_S + SLACK_S))
    assert shared.own(LIAR) == [], "it is not tried for ever"
    reason = shared.runtime.journal.find(first[0])
    assert reason is not None
    assert reason.reason == "no worker came for it in 90 s; 3 attempts are the limit"


def test_a_launcher_that_comes_and_goes_keeps_no_place(
    shared: SharedNode, script: Script
) -> None:
    script.be_launcher()
    script.submit(SLOTS)

    for _ in range(10):
        script.pass_time(WORKER_S - 10.0, each=20.0)
        shared.processes.end(script.launcher.pid)
        shared.turn()
        script.launcher = script.process("launcher")

    assert shared.own(LIAR) == []


def test_workers_that_come_and_leave_keep_no_place(
    shared: SharedNode, script: Script
) -> None:
    script.be_launcher()
    script.submit(1)

    for number in range(OUTDATED_WORKERS + 6):
        worker = script.process(f"worker-{number}")
        shared.say(worker, m.Register("worker", worker=f"w{number}"))
        shared.say(worker, m.Leaving())

    assert shared.own(LIAR) == []


def test_the_end_of_a_worker_is_noticed_whatever_its_launcher_says(
    shared: SharedNode, script: Script
) -> None:
    script.submit(1)
    worker = script.process("worker")
    script.be_launcher("w")
    shared.say(worker, m.Register("worker", worker="w"))

    shared.processes.end(worker.pid)
    shared.turn()
    shared.time.seconds += EXIT_S + SLACK_S
    shared.turn()

    (page,) = shared.own(LIAR)
    reason = "its worker ended, and its launcher did not say how"
    assert (page.runtime.attempts, page.reason) == (1, reason)


@pytest.mark.parametrize("state_bytes", [0, (1 << 63) - 1])
def test_a_silent_worker_that_nobody_ends_holds_a_slot_as_long_as_is_documented(
    shared: SharedNode, script: Script, state_bytes: int
) -> None:
    script.be_launcher("w")
    shared.say(script.process("worker"), m.Register("worker", worker="w"))
    script.submit(1, state_bytes=state_bytes)
    (cpu,) = (
        each
        for each in shared.runtime.scheduler.system.states.values()
        if each.resource.kind == "cpu"
    )
    copied = shared.runtime.watchdog.longest_copy_s if state_bytes else 0.0

    script.pass_time(600.0 + copied + KILL_S + 2 * SLACK_S)
    assert cpu.slots == SLOTS - 1, "a process that cannot be ended has it"
    script.pass_time(HOLD_S + SLACK_S)

    assert cpu.slots == SLOTS
    script.pass_time(4 * (WORKER_S + SLACK_S))
    assert script.holds() == []


def test_a_program_of_its_own_holds_a_place_as_long_as_setting_up_may_take(
    shared: SharedNode, script: Script
) -> None:
    own = script.process("own")
    shared.say(own, m.Register("worker", worker="own", own=True))
    spec = m.TaskSpec("bad", kinds=["cpu"])
    shared.say(script.client, m.Submit(1, [spec], worker="own"))
    assert len(script.holds()) == 1

    script.pass_time(600.0 + 2 * SLACK_S)

    assert script.holds() == []
    kinds = [type(message) for route, message in shared.mail.sent if route == b"own"]
    assert kinds[-1] is m.Abort
    assert m.KillWorker not in {type(message) for _, message in shared.mail.sent}


def test_a_cancel_frees_the_place_of_a_program_that_does_not_obey(
    shared: SharedNode, script: Script
) -> None:
    own = script.process("own")
    shared.say(own, m.Register("worker", worker="own", own=True))
    shared.say(
        script.client, m.Submit(1, [m.TaskSpec("bad", kinds=["cpu"])], worker="own")
    )
    (task,) = script.holds()

    shared.say(script.client, m.Control(1, "cancel", [task]))
    script.pass_time(shared.parts.config.value.strip_limit_s + SLACK_S)

    assert shared.own(LIAR) == []


def test_device_errors_of_one_user_end_no_task_of_another(
    shared: SharedNode, script: Script
) -> None:
    launcher = Peer(b"launcher2", HONEST, shared.processes.begin())
    shared.say(launcher, m.Register("launcher"))
    worker = Peer(b"worker2", HONEST, shared.processes.begin())
    shared.say(worker, m.Register("worker", worker="good"))
    client = Peer(b"client2", HONEST, shared.processes.begin())
    shared.say(client, m.Submit(1, [m.TaskSpec("good", kinds=["cpu"])]))
    script.be_launcher()
    liar = script.process("worker")
    shared.say(liar, m.Register("worker", worker="w"))

    for task in script.submit(4):
        epoch = shared.runtime.journal.live[task].runtime.epoch
        shared.say(liar, m.Failed(task, epoch, "it says", "device"))

    (page,) = shared.own(HONEST)
    assert (page.state, page.runtime.attempts) == ("running", 0)


def test_a_claim_takes_no_resource_that_the_task_was_not_given(
    shared: SharedNode, script: Script
) -> None:
    script.be_launcher()
    worker = script.process("worker")
    shared.say(worker, m.Register("worker", worker="w"))
    (task,) = script.submit(1)
    epoch = shared.runtime.journal.live[task].runtime.epoch

    hello = m.Register("worker", worker="w", task=task, epoch=epoch, resource="gpu0")
    shared.say(script.process("again"), hello)

    _all_is_well(shared)
    record = shared.runtime.scheduler.system.tasks[task]  # type: ignore[index]  # it is one
    assert (record.state, record.resource) == ("running", "cpu")


@pytest.mark.parametrize("ends", ["Finished", "Aborted", "Failed", "Yielded"])
def test_the_end_of_a_task_that_was_not_begun_leaves_it_to_somebody(
    shared: SharedNode, script: Script, ends: str
) -> None:
    script.be_launcher()
    workers = [script.process(f"worker-{number}") for number in range(SLOTS + 1)]
    for number, peer in enumerate(workers):
        shared.say(peer, m.Register("worker", worker=f"w{number}"))
    for task in script.submit(SLOTS + 1):
        page = shared.runtime.journal.live[task]
        record = m.CheckpointRecord(1, 2)
        for epoch in (page.runtime.epoch + 1, page.runtime.epoch):
            message = {
                "Finished": m.Finished(task, epoch),
                "Aborted": m.Aborted(task, epoch),
                "Failed": m.Failed(task, epoch, "it says"),
                "Yielded": m.Yielded(task, epoch, record),
            }[ends]
            for peer in reversed(workers):
                shared.say(peer, message)
                _all_is_well(shared)
