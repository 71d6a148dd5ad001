"""Rollouts that are left out or broken off change no decision of `finish-time`."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

import pytest

from hetsched.planning import lookahead
from hetsched.planning.lookahead import RULES
from hetsched.planning.rollout import Item, NodeState, Rollout, Started
from hetsched.planning.rollout_rules import ByEnds, Migrating, WorkConserving
from hetsched.policies import finish_time, make_policy
from hetsim.arena.generator import draw, read_generator
from hetsim.simulation import Simulation
from hetsim.workload import expected_seconds

if TYPE_CHECKING:
    from hetsched.actions import Action
    from hetsched.events import Event
    from hetsched.ids import Nanoseconds

SEEDS = range(100)


@pytest.fixture
def seeded() -> random.Random:
    return random.Random(1)


def trace_of(seed: int) -> list[str]:
    scenario = draw(seed, read_generator()).scenario
    lines: list[str] = []

    def note(events: list[Event], now: Nanoseconds, actions: list[Action]) -> None:
        lines.append(f"{now} {events} {actions}")

    policy = make_policy("finish-time", {})
    Simulation(scenario, policy, expected_seconds(scenario), note).run()
    return lines


@pytest.mark.parametrize("first", range(1, 13, 4))
def test_the_same_actions_follow_where_every_rollout_is_played(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = range(first, first + 4)
    traces = [trace_of(seed) for seed in seeds]

    played: list[Rollout] = []
    play = Rollout.play

    def note(self: Rollout, *args: object, **how: object) -> None:
        played.append(self)
        play(self, *args, **how | {"limit": math.inf})  # type: ignore[arg-type]  # as given
        self.plain, self.preempted = False, True

    monkeypatch.setattr(Rollout, "play", note)
    monkeypatch.setattr(Rollout, "least_score", lambda *_: -math.inf)
    monkeypatch.setattr(Rollout, "_is_settled", lambda _: False)
    monkeypatch.setattr(finish_time, "all_at_best", lambda _: False)
    monkeypatch.setattr(lookahead.LookAhead, "is_known", lambda *_: False)

    assert [trace_of(seed) for seed in seeds] == traces
    assert played


def a_node_state(chance: random.Random) -> NodeState:
    """Draw resources, items that run and wait there, and items that were asked to go."""
    count = chance.randint(1, 4)
    slots = [chance.randint(1, 2) for _ in range(count)]
    node = NodeState(
        slots=slots,
        shared=[chance.random() < 0.2 for _ in range(count)],
        items=[],
        running=[],
        queues=[[] for _ in range(count)],
        fronts=[[] for _ in range(count)],
        mean_weight=0.02,
    )
    for _ in range(chance.randint(1, 10)):
        _add_item(node, chance)
    node.complete()
    return node


def _add_item(node: NodeState, chance: random.Random) -> None:
    count = len(node.slots)
    times = [chance.choice((1.0, chance.uniform(0.1, 9.0))) for _ in range(count)]
    fits = [min(times) / time for time in times]
    strips = [float(chance.randint(1, 20))] * count
    copies = [chance.choice((0.0, 0.1)) for _ in range(count)]
    item = Item(times, fits, times.index(min(times)), strips, copies, moves=6)
    number, r = len(node.items), chance.randrange(count)
    node.items.append(item)
    if sum(started.resource == r for started in node.running) < node.slots[r]:
        item.home = r
        destination = chance.choice((None, None, None, -1, chance.randrange(count)))
        arriving = chance.choice((0.0, 0.0, 0.2))
        node.running.append(Started(number, r, arriving, destination))
    else:
        lists = chance.choice((node.fronts, node.queues, node.queues))
        lists[r].append(number)


@pytest.mark.parametrize("rule", RULES)
def test_a_rollout_is_broken_off_only_where_it_could_not_get_below_the_limit(
    rule: type[Rollout], seeded: random.Random
) -> None:
    broken_off = 0
    for _ in SEEDS:
        node = a_node_state(seeded)
        full = rule(node)
        full.play()
        limit = full.score() * seeded.choice((0.5, 0.9, 1.0, 1.001, 1.5))
        tried = rule(node)
        tried.play(limit=limit)

        broken_off += tried.end == math.inf
        assert rule(node).least_score() <= full.score()
        assert tried.score() == full.score() or (
            tried.end == math.inf and full.score() >= limit
        )
    assert broken_off


@pytest.mark.parametrize(
    ("rule", "other"),
    [(ByEnds, Rollout), (Migrating, Rollout), (Migrating, WorkConserving)],
)
def test_a_rule_is_left_out_only_where_another_one_did_the_same(
    rule: type[Rollout], other: type[Rollout], seeded: random.Random
) -> None:
    left_out = 0
    for _ in SEEDS:
        node = a_node_state(seeded)
        one, two = rule(node), other(node)
        one.play()
        two.play()

        left_out += one.does_as(other)
        same = (one.end, one.total, one.steps) == (two.end, two.total, two.steps)
        assert same or not one.does_as(other)
    assert left_out


class Counting(ByEnds):
    """Compares what rollouts count with what is there."""

    def decide(self) -> None:
        super().decide()
        for r in self.range:
            free = self.node.slots[r] - len(self.on[r])
            taken = len(self.queues[r]) + len(self.fronts[r]) + self.inbound[r]
            assert self.free[r] == free
            assert self.spare[r] == free - taken
        waiting = sum(map(len, self.queues + self.fronts))
        assert self.waiting_items == waiting
        assert self.unfinished == waiting + sum(map(len, self.on))


def test_free_and_spare_slots_are_counted(seeded: random.Random) -> None:
    for _ in SEEDS:
        Counting(a_node_state(seeded)).play()
