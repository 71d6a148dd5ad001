"""Under all orders of events, no task is lost or run twice and no resource is overloaded.

A model of the world carries out the scheduler's actions and fails on those that no worker
could carry out; Hypothesis generates the events. Every policy is tested.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant, run_state_machine_as_test

from hetsched.policies import POLICIES
from property.eventful_world import EventfulWorld
from property.obedient_world import (
    CAPACITY,
    QUOTAS,
    RESOURCES,
    a_new_scheduler,
    handled,
)

EXAMPLES = int(os.environ.get("HETD_CORE_EXAMPLES", "30"))
"""For each policy; `make torture` has 300."""


class SupervisedWorld(EventfulWorld):
    """A world in which something must always hold."""

    @invariant()
    def the_scheduler_is_consistent(self) -> None:
        self.scheduler.check()

    @invariant()
    def no_task_is_lost(self) -> None:
        live = set(self.scheduler.system.tasks)
        ended = {task for task, last in self.recorded.items() if last.state.ended}
        assert live | ended == set(self.submitted)
        assert not live & ended

    @invariant()
    def what_was_recorded_is_so(self) -> None:
        displaced = self.scheduler.system.displaced
        for task in self.scheduler.system.tasks.values():
            last = self.recorded[task.id]
            if any(task in queue for queue in displaced):
                continue  # where it waits is told once a policy has seen it
            assert (last.state, last.resource) == (task.state, task.resource)

    @invariant()
    def the_workers_hold_what_the_scheduler_thinks(self) -> None:
        thought = {
            task.id: (
                task.epoch,
                task.resource if task.state == "running" else None,
                task.progress,
            )
            for task in self.scheduler.system.tasks.values()
            if task.bound
        }
        assert thought == {
            b.task: (b.epoch, b.resource or b.behind, b.progress)
            for b in self.bindings.values()
        }

    @invariant()
    def nobody_takes_more_than_his_quota(self) -> None:
        ordered = [b for b in self.bindings.values() if b.resource or b.behind]
        taken = Counter(self.submitted[each.task].owner for each in ordered)
        for owner, quota in QUOTAS.single.items():
            assert quota.running is not None
            assert taken[owner] <= quota.running

    @invariant()
    def no_more_of_an_array_run_than_may(self) -> None:
        ordered = [b for b in self.bindings.values() if b.resource or b.behind]
        tasks = [self.submitted[each.task] for each in ordered]
        running = Counter((each.owner, each.at_once) for each in tasks if each.at_once)
        assert all(count <= at_once for (_, at_once), count in running.items())

    @invariant()
    def nothing_needs_more_than_there_is(self) -> None:
        records = self.scheduler.system.tasks
        running = [
            records[each.task] for each in self.bindings.values() if each.resource
        ]
        cores = memory = 0
        device = Counter[str]()
        for task in running:
            if task.needs is not None:
                cores += task.needs.cores
                memory += task.needs.memory_bytes
                most = RESOURCES[task.assigned_to].memory_bytes or 0
                device[task.assigned_to] += min(task.needs.device_bytes, most)
        assert cores <= (CAPACITY.cores or 0)
        assert memory <= (CAPACITY.memory_bytes or 0)
        for name in ("gpu0", "gpu1"):
            assert device[name] <= (RESOURCES[name].memory_bytes or 0)

    def teardown(self) -> None:
        self.everything_comes_to_an_end()
        self.the_same_events_give_the_same_actions()

    def everything_comes_to_an_end(self) -> None:
        """Let all resources and workers behave: every task that can run completes."""
        for name in RESOURCES:
            self.return_resource(name)
        while self.blocked:
            self.give_a_slot_back()
        while self.unattended:
            self.attend_again(0)
        for task in list(self.submitted):
            self.release(task - 1)
        for _ in range(20 * len(self.submitted)):
            self.let_go_on()
            self.the_scheduler_is_consistent()
        assert not self.scheduler.system.tasks, "some tasks never end"

    def let_go_on(self) -> None:
        while self.recalled():
            self.give_back(0)
        self.let_a_pause_end()
        for binding in self.running():
            if self.bindings.get(binding.task) is not binding:
                continue
            if binding.asked_to_yield:
                self.yield_binding(binding)
            elif binding.resource is not None:
                self.finish_binding(binding)
        self.pass_time(1.0)

    def the_same_events_give_the_same_actions(self) -> None:
        again = a_new_scheduler(self.policy, self.at_once)
        for events, now, actions in self.history:
            assert handled(again, events, now) == actions


# planners of batches take minutes for all of it on a busy machine
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("policy", "at_once"),
    [
        *((policy, None) for policy in POLICIES),
        ("finish-time", 1),
        ("migration", 2),
    ],
)
def test_nothing_is_lost_doubled_or_overloaded(
    policy: str, at_once: int | None
) -> None:
    run_state_machine_as_test(
        lambda: SupervisedWorld(policy, at_once),  # type: ignore[arg-type]  # a factory does as well
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=60,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
