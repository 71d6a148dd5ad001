"""The broker without processes: placing, losses, moves, cancellations, restarts."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hetpool import messages as m
from hetpool.broker.broker import FIRST_WINDOW_S
from hetpool.broker.racks import WHOLE, RackPlanner, racks_of
from hetpool.jobs import InputFile, JobStatus, NodeSlot, PoolJob, PoolNode, PoolPlan
from hetpool.placing import Commitments
from hetpool.seam import ErrandState
from hetsched.planning.batch.planners import make_planner
from libtask.errors import InputError, NotFoundError
from unit.hetpool.fake_engine import (
    FakePool,
    a_job,
    a_node,
    a_pool,
    listed,
    orders,
    run,
)
from unit.hetpool.jumping_loop import run as in_jumping_time

if TYPE_CHECKING:
    pass

JOB = a_job(1)
PICKY = a_job(3, nodes=("n3",))
CPU, GPU = NodeSlot("cpu", "cpu"), NodeSlot("gpu0", "gpu")
SAVED = m.SnapshotFile("cd" * 32, 1000, "n1")


def other(node: str) -> str:
    return "n2" if node == "n1" else "n1"


# ------------------------------------------------------------ placing


def test_jobs_are_spread_and_only_their_nodes_may_run_them() -> None:
    async def story() -> None:
        pool = await a_pool()
        nodes = await pool.place(a_job(1), a_job(2))

        assert set(nodes.values()) == {"n1", "n2"}
        there = nodes[a_job(1).id]
        assert (await pool.claim(there, a_job(1))).owned
        assert not (await pool.claim(other(there), a_job(1))).owned

    run(story())


def test_a_single_job_does_not_wait_for_others_and_later_ones_are_gathered() -> None:
    async def story() -> None:
        pool = await a_pool(window_s=10.0)
        slept = asyncio.get_running_loop().time

        await pool.place(a_job(1))
        first = slept()
        pool.now += 1.0
        await asyncio.gather(pool.place(a_job(2)), pool.place(a_job(3)))
        second = slept()
        pool.now += 60.0
        await pool.place(a_job(4))

        last = slept()
        assert first == pytest.approx(FIRST_WINDOW_S, abs=0.1)
        assert second - first == pytest.approx(9.0, abs=0.1)
        assert last - second == pytest.approx(FIRST_WINDOW_S, abs=0.1)

    in_jumping_time(story())


def test_a_job_that_is_placed_again_stays_where_it_is() -> None:
    async def story() -> None:
        pool = await a_pool()
        first = await pool.place(JOB)

        for _ in range(3):
            assert await pool.place(JOB) == first

    run(story())


def test_later_batches_avoid_what_is_busy() -> None:
    async def story() -> None:
        pool = await a_pool()
        first = await pool.place(a_job(1, cpu=1000.0))
        second = await pool.place(a_job(2, cpu=10.0))

        assert set(first.values()) != set(second.values())

    run(story())


def test_plans_do_not_wait_for_what_is_cancelled() -> None:
    async def story() -> None:
        pool = await a_pool()
        (there,) = (await pool.place(a_job(1, cpu=1000.0))).values()
        pool.node(there).states = {a_job(1).id: "running"}
        assert await pool.place(a_job(2)) == {a_job(2).id: other(there)}

        await pool.ask("cancel", m.CancelJobs((a_job(1).id,)))

        assert await pool.place(a_job(3)) == {a_job(3).id: there}

    run(story())


def test_plans_count_on_the_rate_that_a_node_measured() -> None:
    async def story() -> None:
        pool = await a_pool("n1", share=1.0)
        await pool.join(a_node("home", cpus=0))
        sent = InputFile("ab" * 32, 10_000, ("home",))
        assert await pool.place(a_job(1, inputs=(sent,))) == {a_job(1).id: "n1"}
        assert (await pool.claim("n1", a_job(1), 1000.0)).cap is None

        await pool.place(a_job(2, inputs=(sent,)))
        await pool.join(a_node("n1"))

        (piece,) = pool.broker.ledger.placed[a_job(2).id].entry.pieces
        assert piece[2] == pytest.approx(1000.0, rel=0.01)
        assert pool.broker.ledger.nodes["n1"].measured == 1000.0

    run(story())


def test_what_nothing_can_run_is_left_out_until_something_can() -> None:
    async def story() -> None:
        pool = await a_pool()
        assert await pool.place(PICKY) == {}

        await pool.join(a_node("n3"))
        await pool.look()

        assert await pool.place(PICKY) == {PICKY.id: "n3"}

    run(story())


def test_a_large_pool_is_planned_by_racks_beside_what_it_has() -> None:
    count = WHOLE + 50

    async def story() -> None:
        pool = await a_pool(*(f"n{number}" for number in range(count)))
        first = await pool.place(*(a_job(n) for n in range(1, count + 1)))
        later = await pool.place(*(a_job(n) for n in range(1001, 1001 + count)))
        known = await pool.place(a_job(5000, seconds={}), a_job(5001, seconds={}))
        none = await pool.place(a_job(6000, nodes=("n9999",)))

        # a job for each node, twice: each rack gets its part, and each node of it
        for placed in (first, later):
            assert sorted(placed.values()) == sorted(pool.broker.ledger.nodes)
        assert len(set(known.values())) == 2
        assert none == {}

    run(story())


def test_racks_are_equal_and_beside_their_load() -> None:
    nodes = [a_node(f"n{number}") for number in range(201)]
    held = Commitments(busy={(f"n{number}", "cpu"): [100.0] for number in range(67)})
    jobs = [a_job(n) for n in range(1, 101)]
    racks = RackPlanner("ncjm", make_planner("ncjm", {}), 100)

    plan, left = racks.plan(jobs, nodes, held)

    assert [len(rack) for rack in racks_of(nodes, 100)] == [67, 67, 67]
    busy = {name for name, _ in held.busy}
    assert left == []
    assert not busy & {entry.node for entry in plan.entries}


def test_short_jobs_of_a_client_travel_together() -> None:
    async def story() -> None:
        pool = await a_pool(group_s=0.5, group_size=50)
        jobs = tuple(a_job(n, cpu=0.01) for n in range(1, 201))
        plan = await pool.ask("place", m.PlaceJobs(jobs), PoolPlan)

        errands = pool.broker.ledger.errands
        assert {entry.errand for entry in plan.entries} == set(errands)
        assert all(1 < len(some) <= 50 for some in errands.values())
        for some in errands.values():
            assert len({pool.broker.ledger.placed[job].node for job in some}) == 1

    run(story())


def test_a_plan_alone_changes_nothing() -> None:
    async def story() -> None:
        pool = await a_pool()
        wanted = m.PlaceJobs((JOB,), only_plan=True)
        plan = await pool.ask("place", wanted, PoolPlan)

        assert len(plan.entries) == 1
        assert not pool.broker.ledger.placed

    run(story())


def test_what_no_client_started_makes_room() -> None:
    async def story() -> None:
        pool = await a_pool()
        await pool.place(JOB)
        pool.engine.known.clear()

        await pool.look(after=100.0)

        assert not pool.broker.ledger.placed
        assert not pool.broker.ledger.errands

    run(story())


def test_a_client_that_was_suspended_starts_its_job_late() -> None:
    async def story() -> None:
        pool = await a_pool()
        node = (await pool.place(JOB))[JOB.id]
        pool.engine.known.clear()
        await pool.look(after=100.0)

        assert not (await pool.claim(other(node), JOB)).owned
        assert (await pool.claim(node, JOB)).owned
        assert pool.broker.ledger.errands == {JOB.id: [JOB.id]}
        pool.broker.errand_changed(JOB.id, ErrandState.FORGOTTEN)
        assert not (await pool.claim(node, JOB)).owned

    run(story())


def test_a_job_that_was_set_aside_may_be_placed_anew() -> None:
    async def story() -> None:
        pool = await a_pool("n1")
        await pool.place(JOB)
        pool.engine.known.clear()
        await pool.look(after=100.0)
        pool.lose("n1")
        await pool.join(a_node("n2"))

        assert await pool.place(JOB) == {JOB.id: "n2"}
        assert not (await pool.claim("n1", JOB)).owned
        assert not pool.broker.ledger.unstarted

    run(story())


def test_an_ended_job_makes_room_and_a_forgotten_one_is_gone() -> None:
    async def story() -> None:
        pool = await a_pool("n1")
        await pool.place(JOB)

        pool.broker.errand_changed(JOB.id, ErrandState.ENDED)
        assert not list(pool.broker.ledger.unfinished())
        pool.broker.errand_changed(JOB.id, ErrandState.FORGOTTEN)
        assert not pool.broker.ledger.placed
        assert not pool.broker.ledger.errands

    run(story())


# ------------------------------------------------------------ losses


def test_jobs_of_a_lost_node_move_after_a_while_and_not_before() -> None:
    async def story() -> None:
        pool = await a_pool()
        lost = (await pool.place(JOB))[JOB.id]
        pool.lose(lost)

        await pool.look(after=24.0)
        assert pool.engine.calls == []
        await pool.look(after=2.0)

        assert pool.engine.calls == [("pin", JOB.id, f"tls://{other(lost)}:9000")]
        terms = await pool.claim(other(lost), JOB)
        assert terms.owned
        assert terms.generation > 0
        assert not (await pool.claim(lost, JOB)).owned

    run(story())


def test_a_node_that_returns_in_time_keeps_its_jobs() -> None:
    async def story() -> None:
        pool = await a_pool()
        node = (await pool.place(JOB))[JOB.id]
        pool.lose(node)
        await pool.look(after=20.0)

        lost = await pool.join(a_node(node), m.OpenJob(JOB.id, 0))
        await pool.look(after=20.0)

        assert lost == ()
        assert pool.engine.calls == []

    run(story())


def test_connecting_again_without_joining_does_not_save_a_node() -> None:
    async def story() -> None:
        pool = await a_pool()
        node = (await pool.place(JOB))[JOB.id]
        for _ in range(4):
            pool.lose(node)
            await pool.look(after=10.0)

        assert len(pool.engine.calls) == 1

    run(story())


def test_a_node_that_returns_late_is_told_what_it_lost() -> None:
    async def story() -> None:
        pool = await a_pool()
        node = (await pool.place(JOB))[JOB.id]
        pool.lose(node)
        await pool.look(after=30.0)

        lost = await pool.join(a_node(node), m.OpenJob(JOB.id, 0))

        assert lost == (f"{JOB.id}.0",)

    run(story())


def test_a_node_that_returns_after_its_job_ended_elsewhere_loses_it() -> None:
    async def story() -> None:
        pool = await a_pool()
        node = (await pool.place(JOB))[JOB.id]
        pool.lose(node)
        await pool.look(after=30.0)
        pool.broker.errand_changed(JOB.id, ErrandState.ENDED)
        pool.broker.errand_changed(JOB.id, ErrandState.FORGOTTEN)

        assert await pool.join(a_node(node), m.OpenJob(JOB.id, 0)) == (f"{JOB.id}.0",)
        # a result stays where a client that returns finds it
        ended = m.OpenJob(JOB.id, 0, ended=True)
        assert await pool.join(a_node(node), ended) == ()
        assert pool.broker.ledger.known == {JOB.id: (node, 0)}

        # its client submits it again: it is wanted where it is placed
        again = (await pool.place(JOB))[JOB.id]
        assert await pool.join(a_node(again), m.OpenJob(JOB.id, 0)) == ()

    run(story())


def test_a_lost_job_continues_from_its_copied_snapshot() -> None:
    async def story() -> None:
        pool = await a_pool(copy_s=5.0)
        node = (await pool.place(JOB))[JOB.id]
        await pool.look(after=6.0)
        assert orders(pool, node) == ["save"]
        assert orders(pool, other(node)) == ["keep"]

        pool.lose(node)
        await pool.look(after=30.0)

        terms = await pool.claim(other(node), JOB)
        assert terms.snapshot is not None
        assert terms.snapshot.node == other(node)

    run(story())


def test_copies_are_as_rare_as_pays() -> None:
    async def story() -> None:
        # sqrt(2 * 1 s * 200 s) = 20 s
        pool = await a_pool(node_mtbf_s=200.0)
        node = (await pool.place(a_job(1, cpu=1000.0)))[JOB.id]

        await pool.look(after=19.0)
        assert orders(pool, node) == []
        await pool.look(after=2.0)
        assert orders(pool, node) == ["save"]

    run(story())


def test_lost_results_are_computed_again_elsewhere() -> None:
    async def story() -> None:
        pool = await a_pool()
        node = (await pool.place(JOB))[JOB.id]
        pool.broker.errand_changed(JOB.id, ErrandState.ENDED)
        pool.lose(node)
        pool.broker.errand_changed(JOB.id, ErrandState.OPEN)

        await pool.look(after=30.0)

        assert [call[0] for call in pool.engine.calls] == ["pin"]

    run(story())


# ------------------------------------------------------------ restarts of the scheduler


def test_after_a_restart_a_job_stays_where_its_node_reports_it() -> None:
    async def story() -> None:
        pool = await a_pool("n1")
        await pool.join(a_node("n2"), m.OpenJob(JOB.id, 7))

        assert await pool.place(JOB, started=(JOB.id,)) == {JOB.id: "n2"}
        terms = await pool.claim("n2", JOB)
        assert (terms.generation, terms.reported) == (7, True)

    run(story())


def test_after_a_restart_a_job_waits_for_the_node_that_may_have_it() -> None:
    async def story() -> None:
        pool = await a_pool("n1")
        assert await pool.place(JOB, started=(JOB.id,)) == {}
        pool.now += 30.0

        assert await pool.place(JOB, started=(JOB.id,)) == {JOB.id: "n1"}

    run(story())


# ------------------------------------------------------------ moves


def test_an_attempt_that_its_node_gave_up_is_followed_by_another() -> None:
    async def claimed() -> list[m.JobTerms]:
        pool = FakePool()
        await pool.join(a_node("n1"))
        job = a_job()
        await pool.place(job)
        first = await pool.claim("n1", job)
        given_up = (m.OpenJob(job.id, first.generation),)
        second = await pool.claim("n1", job, given_up=given_up)
        # what is said twice, or by another node, changes nothing
        again = await pool.claim("n1", job, given_up=given_up)
        await pool.claim("n2", job, given_up=(m.OpenJob(job.id, second.generation),))
        return [first, second, again, await pool.claim("n1", job)]

    terms = asyncio.run(claimed())

    assert [each.generation for each in terms] == [0, 1, 1, 1]
    assert all(each.owned for each in terms)


def test_a_move_parks_pins_and_leaves_in_this_order() -> None:
    async def story() -> None:
        pool = await a_pool()
        source = (await pool.place(JOB))[JOB.id]
        pool.node(source).parked = m.ParkedJob(snapshot=SAVED)

        await pool.ask("move", m.MoveJob(JOB.id, other(source)))

        assert [name for name, _ in pool.node(source).asked] == ["park", "leave"]
        assert pool.engine.calls == [("pin", JOB.id, f"tls://{other(source)}:9000")]
        terms = await pool.claim(other(source), JOB)
        assert terms.snapshot == SAVED
        assert terms.sources["n1"] == "tls://n1:9000"

    run(story())


def test_a_job_whose_inputs_are_on_their_way_is_taken_back() -> None:
    async def story() -> None:
        pool = await a_pool()
        source = (await pool.place(JOB))[JOB.id]
        pool.node(source).parked = m.ParkedJob(here=False)

        await pool.ask("move", m.MoveJob(JOB.id, other(source)))

        assert [call[0] for call in pool.engine.calls] == ["pin", "take_back"]

    run(story())


def test_a_job_that_ended_meanwhile_does_not_move() -> None:
    async def story() -> None:
        pool = await a_pool()
        source = (await pool.place(JOB))[JOB.id]
        pool.node(source).parked = m.ParkedJob(ended=True)

        moved = await pool.ask("move", m.MoveJob(JOB.id, other(source)))

        assert moved.names == ()
        assert pool.engine.calls == []

    run(story())


def test_a_job_of_a_silent_node_stays_and_can_be_moved_later() -> None:
    async def story() -> None:
        pool = await a_pool()
        source = (await pool.place(JOB))[JOB.id]
        pool.node(source).silent = True
        with pytest.raises(Exception, match="does not answer"):
            await pool.ask("move", m.MoveJob(JOB.id, other(source)))
        pool.node(source).silent = False
        assert (await pool.claim(source, JOB)).owned

        moved = await pool.ask("move", m.MoveJob(JOB.id, other(source)))

        assert moved.names == (JOB.id,)

    run(story())


def test_moves_that_cannot_be_are_refused() -> None:
    async def story() -> None:
        pool = await a_pool()
        await pool.join(a_node("gate", cpus=0))
        await pool.place(JOB)
        with pytest.raises(NotFoundError, match="n9"):
            await pool.ask("move", m.MoveJob(JOB.id, "n9"))
        with pytest.raises(InputError, match="runs no jobs"):
            await pool.ask("move", m.MoveJob(JOB.id, "gate"))
        with pytest.raises(NotFoundError, match="no unfinished job"):
            await pool.ask("move", m.MoveJob(a_job(9).id, "n1"))

    run(story())


def test_a_draining_node_is_emptied_and_gets_nothing() -> None:
    async def story() -> None:
        pool = await a_pool()
        nodes = await pool.place(a_job(1), a_job(2), a_job(3), a_job(4))
        on_one = {job for job, node in nodes.items() if node == "n1"}

        await pool.ask("drain", m.DrainNode("n1"))
        await pool.look()

        assert {key for name, key, _ in pool.engine.calls if name == "pin"} == on_one
        assert await pool.place(a_job(5)) == {a_job(5).id: "n2"}
        await pool.ask("drain", m.DrainNode("n1", on=False))
        assert await pool.place(a_job(6)) == {a_job(6).id: "n1"}

    run(story())


def test_a_drained_node_stays_so_after_a_restart_of_the_scheduler() -> None:
    async def story() -> None:
        pool = await a_pool("n1")
        await pool.join(a_node("n2", draining=True))

        assert set((await pool.place(a_job(1), a_job(2))).values()) == {"n1"}

    run(story())


# ------------------------------------------------------------ planning again


def test_waiting_jobs_move_to_a_new_node() -> None:
    async def story() -> None:
        pool = await a_pool("n1")
        jobs = [a_job(n) for n in range(1, 9)]
        await pool.place(*jobs)
        pool.node("n1").states = {job.id: "staged" for job in jobs}
        pool.node("n1").states[jobs[0].id] = "running"
        await pool.join(a_node("n2"))

        await pool.look(after=6.0)

        moved = {key for name, key, _ in pool.engine.calls if name == "pin"}
        assert 3 <= len(moved) <= 5
        assert jobs[0].id not in moved

    run(story())


def test_a_plan_that_gains_little_is_not_carried_out() -> None:
    async def story() -> None:
        pool = await a_pool()
        jobs = [a_job(n) for n in range(1, 9)]
        nodes = await pool.place(*jobs)
        for name in ("n1", "n2"):
            pool.node(name).states = {
                job: "staged" for job, node in nodes.items() if node == name
            }

        await pool.look(after=6.0)

        assert pool.engine.calls == []

    run(story())


def test_a_long_job_elsewhere_does_not_make_others_move_without_gain() -> None:
    async def story() -> None:
        pool = await a_pool("n1", "n2", "n3")
        long = a_job(99, cpu=1000.0)
        (there,) = (await pool.place(long)).values()
        pool.node(there).states[long.id] = "running"
        for number in range(1, 9):
            nodes = await pool.place(a_job(number, cpu=10.0 + number))
            for job, node in nodes.items():
                pool.node(node).states[job] = "staged"

        await pool.look(after=6.0)

        assert pool.engine.calls == []

    run(story())


def test_a_job_that_ends_much_too_early_makes_the_others_move() -> None:
    async def story() -> None:
        pool = await a_pool()
        jobs = [a_job(n, cpu=100.0) for n in range(1, 7)]
        nodes = await pool.place(*jobs)
        for name in ("n1", "n2"):
            pool.node(name).states = {
                job: "staged" for job, node in nodes.items() if node == name
            }
        await pool.look(after=6.0)
        for job in [job for job, node in nodes.items() if node == "n1"]:
            pool.broker.errand_changed(job, ErrandState.ENDED)

        await pool.look(after=6.0)

        assert {node for _, _, node in pool.engine.calls} == {"tls://n1:9000"}

    run(story())


def with_gpu(name: str) -> PoolNode:
    return replace(a_node(name), slots=(CPU, GPU))


async def on_gpus(*jobs: PoolJob) -> tuple[FakePool, dict[str, str]]:
    """Return a pool of two nodes with a GPU, and where it placed jobs that need one."""
    pool = await a_pool()
    for name in ("n1", "n2"):
        await pool.join(with_gpu(name))
    nodes = await pool.place(*jobs)
    await pool.look()
    for job, node in nodes.items():
        pool.node(node).states[job] = "staged"
    return pool, nodes


async def behind_another(elsewhere: float) -> tuple[FakePool, PoolJob]:
    """Return a pool and a job that waits for a GPU, which hetd gave to a job for the CPU.

    Args:
        elsewhere: seconds of the waiting job on the other node's GPU, which is free.

    """
    first = a_job(1, seconds={"n1/cpu": 0.2})
    second = a_job(2, seconds={"n1/gpu0": 0.1, "n2/gpu0": elsewhere})
    pool, nodes = await on_gpus(first, second)
    assert nodes == {first.id: "n1", second.id: "n1"}
    pool.node("n1").states[first.id] = "running"
    pool.node("n1").resources[first.id] = "gpu0"
    return pool, second


def test_what_waits_for_a_device_that_hetd_gave_to_another_job_moves() -> None:
    async def story() -> None:
        pool, job = await behind_another(0.5)

        await pool.look(after=6.0)

        assert ("pin", job.id, "tls://n2:9000") in pool.engine.calls

    run(story())


def test_the_later_a_job_is_the_longer_it_is_expected_to_take_still() -> None:
    async def story() -> None:
        pool, job = await behind_another(20.0)
        await pool.look(after=6.0)
        assert pool.engine.calls == []

        await pool.look(after=30.0)

        assert ("pin", job.id, "tls://n2:9000") in pool.engine.calls

    run(story())


def test_what_waits_for_a_lost_device_moves_at_once_and_nothing_goes_there() -> None:
    jobs = [a_job(n, seconds={"gpu": 10.0}) for n in range(1, 5)]

    async def story() -> None:
        pool, nodes = await on_gpus(*jobs)
        on_one = {job for job, node in nodes.items() if node == "n1"}
        assert len(on_one) == 2

        await pool.ask("slots", m.ChangeSlots("n1", (CPU,)))
        await pool.look(after=1.0)  # less than the pause between two plans

        assert {key for name, key, _ in pool.engine.calls if name == "pin"} == on_one
        assert await pool.place(a_job(9, seconds={"gpu": 1.0})) == {a_job(9).id: "n2"}

    run(story())


def test_what_waits_for_a_device_that_is_lost_everywhere_stays() -> None:
    job = a_job(1, seconds={"gpu": 10.0})

    async def story() -> None:
        pool, nodes = await on_gpus(job)
        for name in ("n1", "n2"):
            await pool.ask("slots", m.ChangeSlots(name, (CPU,)))
        await pool.look(after=1.0)
        assert pool.engine.calls == []

        other_one = other(nodes[job.id])
        await pool.ask("slots", m.ChangeSlots(other_one, (CPU, GPU)))
        await pool.look(after=1.0)
        assert pool.engine.calls[0] == ("pin", job.id, f"tls://{other_one}:9000")

    run(story())


def test_a_job_may_stay_on_another_resource_of_its_node() -> None:
    job = a_job(1, seconds={"n1/cpu": 2.0, "n1/gpu0": 1.0})

    async def story() -> None:
        pool, _ = await on_gpus(job)
        assert pool.broker.ledger.placed[job.id].entry.resource == "gpu0"

        await pool.ask("slots", m.ChangeSlots("n1", (CPU,)))
        await pool.look(after=1.0)

        assert pool.engine.calls == []
        assert pool.broker.ledger.placed[job.id].entry.resource == "cpu"

    run(story())


# ------------------------------------------------------------ cancel and refuse


def test_cancel_reaches_what_runs_and_stops_what_does_not() -> None:
    async def story() -> None:
        pool = await a_pool("n1")
        await pool.place(a_job(1), a_job(2))
        pool.node("n1").states = {a_job(1).id: "running"}

        order = m.CancelJobs((a_job(1).id, a_job(2).id), "no longer needed")
        unbegun = await pool.ask("cancel", order)

        assert unbegun.names == (a_job(2).id,)
        terms = await pool.claim("n1", a_job(2))
        assert terms.cancelled == "no longer needed"
        # it may have been on its way: the next look repeats it
        pool.node("n1").asked.clear()
        await pool.look()
        again = [order for name, order in pool.node("n1").asked if name == "cancel"]
        assert {order.reason for order in again} == {"no longer needed"}

    run(story())


def test_the_end_of_a_job_that_no_hetd_had_is_listed_when_it_is_asked_for() -> None:
    async def story() -> None:
        pool = await a_pool("n1")
        await pool.place(JOB, a_job(2))
        end = JobStatus(JOB.id, "synthetic", "cancelled", "n1", finished=7.0)
        elsewhere = JobStatus(a_job(2).id, "synthetic", "failed", "n2", finished=8.0)

        await pool.ask("ended", m.EndedJob(end))
        await pool.ask("ended", m.EndedJob(elsewhere))
        assert await listed(pool, JOB.id) == [(JOB.id, "cancelled")]
        pool.broker.errand_changed(JOB.id, ErrandState.ENDED)
        pool.broker.errand_changed(JOB.id, ErrandState.FORGOTTEN)

        every = await pool.ask("jobs", m.ListJobs(ended=True), m.JobList)
        ended = [each for each in every.jobs if each.finished]
        assert [(each.id, each.state) for each in ended] == [(JOB.id, "cancelled")]
        assert await listed(pool) == [(a_job(2).id, "placed")]
        assert await listed(pool, JOB.id) == [(JOB.id, "cancelled")]
        await pool.place(JOB)
        assert await listed(pool, JOB.id) == [(JOB.id, "placed")]

    run(story())


def test_an_end_does_not_hold_if_its_node_begins_the_job_again() -> None:
    async def story() -> None:
        pool = await a_pool("n1")
        await pool.place(JOB)
        end = JobStatus(JOB.id, "synthetic", "failed", "n1", finished=7.0)
        await pool.ask("ended", m.EndedJob(end))

        await pool.claim("n1", JOB)

        assert await listed(pool) == [(JOB.id, "placed")]

    run(story())


def test_a_node_that_returns_late_loses_a_job_that_was_cancelled_while_it_waited() -> (
    None
):
    async def story() -> None:
        pool = await a_pool("n1")
        await pool.place(PICKY)
        await pool.ask("cancel", m.CancelJobs((PICKY.id,), "enough"))

        lost = await pool.join(a_node("n3"), m.OpenJob(PICKY.id, 4))

        assert lost == (f"{PICKY.id}.4",)

    run(story())


def test_two_nodes_with_one_name_are_refused() -> None:
    async def story() -> None:
        pool = await a_pool("n1")
        twin = m.Join(PoolNode("n1", "tls://elsewhere:9000"))
        with pytest.raises(InputError, match="unique"):
            await pool.ask("join", twin)

    run(story())


def test_a_planner_that_is_unknown_fails_its_batch_alone() -> None:
    async def story() -> None:
        pool = await a_pool()
        bad = pool.place(a_job(1), planner="best")
        good = pool.place(a_job(2))
        results = await asyncio.gather(bad, good, return_exceptions=True)

        assert isinstance(results[0], InputError)
        assert not isinstance(results[1], BaseException)

    run(story())


@pytest.mark.parametrize(
    "name", ["place", "join", "claim", "cancel", "move", "drain", "slots"]
)
@pytest.mark.parametrize("content", [b"", b"\xff" * 50, b"\x81\xa1x\x01", b"\x90"])
def test_a_malformed_message_is_refused_in_one_line(name: str, content: bytes) -> None:
    async def story() -> None:
        pool = await a_pool()
        with pytest.raises(InputError) as caught:
            await pool.engine.handlers[name](content)
        assert "\n" not in str(caught.value)

    run(story())
