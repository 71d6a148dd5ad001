"""The broker without processes: jobs that wait for a node."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from hetpool import messages as m
from hetpool.client.pool import _without_calls
from hetpool.jobs import PoolPlan
from hetpool.messages import encode
from hetpool.seam import ErrandState
from libtask.errors import NotAllowedError
from unit.hetpool.fake_engine import (
    a_job,
    a_node,
    a_pool,
    listed,
    run,
)

JOB = a_job(1)
PICKY = a_job(3, nodes=("n3",))


def test_a_job_that_waits_is_listed_and_placed_when_a_node_can_run_it() -> None:
    async def story() -> None:
        pool = await a_pool()
        plan = await pool.ask("place", m.PlaceJobs((PICKY,)), PoolPlan)
        pool.engine.known.add(PICKY.id)

        assert plan.entries == ()
        assert list(plan.waiting) == [PICKY.id]
        assert plan.notes == ("1 job waits: n3: absent or drained",)
        assert await listed(pool) == [(PICKY.id, "waiting")]
        await pool.look(after=10.0)
        assert pool.engine.calls == []
        await pool.join(a_node("n3"))
        await pool.look()

        assert pool.engine.calls == [("pin", PICKY.id, "tls://n3:9000")]
        assert (await pool.claim("n3", PICKY)).owned
        assert await listed(pool) == [(PICKY.id, "placed")]
        await pool.look(after=10.0)
        assert len(pool.engine.calls) == 1

    run(story())


def test_jobs_wait_while_the_only_node_is_drained() -> None:
    async def story() -> None:
        pool = await a_pool("n1")
        await pool.ask("drain", m.DrainNode("n1"))
        assert await pool.place(a_job(1), a_job(2)) == {}
        await pool.look()

        await pool.ask("drain", m.DrainNode("n1", on=False))
        await pool.look()

        assert {key for _, key, _ in pool.engine.calls} == {a_job(1).id, a_job(2).id}
        assert not pool.broker.ledger.waiting

    run(story())


def test_a_job_that_waits_is_placed_only_when_its_client_has_started_it() -> None:
    # else it would be started without a node after it was pinned to one, and stay so
    async def story() -> None:
        pool = await a_pool()
        await pool.place(PICKY)
        pool.engine.known.clear()
        await pool.join(a_node("n3"))
        await pool.look()
        assert pool.engine.calls == []

        pool.engine.known.add(PICKY.id)
        await pool.look(after=6.0)

        assert pool.engine.calls == [("pin", PICKY.id, "tls://n3:9000")]

    run(story())


def test_a_job_that_waits_and_that_no_client_starts_makes_room() -> None:
    async def story() -> None:
        pool = await a_pool()
        await pool.place(PICKY)
        pool.engine.known.clear()
        await pool.look(after=100.0)
        assert await listed(pool) == []

        # a client that starts it late has to place it again
        pool.broker.errand_changed(PICKY.id, ErrandState.OPEN)
        await asyncio.sleep(0)

        assert pool.engine.calls == [("give_back", PICKY.id, "")]

    run(story())


def test_a_job_that_is_sent_twice_waits_once() -> None:
    async def story() -> None:
        pool = await a_pool()
        await asyncio.gather(pool.place(PICKY), pool.place(PICKY))
        await pool.place(PICKY)

        assert await listed(pool) == [(PICKY.id, "waiting")]

    run(story())


def test_a_job_that_waits_can_be_cancelled() -> None:
    async def story() -> None:
        pool = await a_pool()
        await pool.place(PICKY)

        unbegun = await pool.ask("cancel", m.CancelJobs((PICKY.id,), "enough"))
        await pool.join(a_node("n3"))
        await pool.look()

        assert unbegun.names == (PICKY.id,)
        assert pool.engine.calls == [("cancel", PICKY.id, "enough")]
        assert await listed(pool) == []
        assert await listed(pool, PICKY.id) == [(PICKY.id, "cancelled")]

    run(story())


def test_a_job_that_is_started_after_its_cancellation_ends() -> None:
    async def story() -> None:
        pool = await a_pool()
        await pool.place(PICKY)
        await pool.ask("cancel", m.CancelJobs((PICKY.id,), "enough"))

        pool.broker.errand_changed(PICKY.id, ErrandState.OPEN)
        await asyncio.sleep(0)

        assert pool.engine.calls == [("cancel", PICKY.id, "enough")] * 2

    run(story())


def test_an_errand_that_comes_after_the_end_of_its_job_is_given_back() -> None:
    async def story() -> None:
        pool = await a_pool("n1")
        await pool.place(JOB)
        pool.broker.errand_changed(JOB.id, ErrandState.OPEN)
        pool.broker.errand_changed(JOB.id, ErrandState.ENDED)
        pool.broker.errand_changed(JOB.id, ErrandState.FORGOTTEN)
        await asyncio.sleep(0)
        assert pool.engine.calls == []

        # another client had placed the same job before its end
        pool.broker.errand_changed(JOB.id, ErrandState.OPEN)
        await asyncio.sleep(0)

        assert pool.engine.calls == [("give_back", JOB.id, "")]

    run(story())


def test_an_errand_that_is_started_late_is_not_given_back() -> None:
    async def story() -> None:
        pool = await a_pool("n1")
        await pool.place(JOB)
        pool.engine.known.clear()
        await pool.look(after=100.0)
        assert not pool.broker.ledger.placed

        pool.broker.errand_changed(JOB.id, ErrandState.OPEN)
        await asyncio.sleep(0)

        assert pool.engine.calls == []

    run(story())


def test_a_job_that_waits_can_be_moved_to_a_node_that_is_drained() -> None:
    async def story() -> None:
        pool = await a_pool("n1")
        await pool.ask("drain", m.DrainNode("n1"))
        await pool.place(JOB)

        await pool.ask("move", m.MoveJob(JOB.id, "n1"))

        assert pool.engine.calls == [("pin", JOB.id, "tls://n1:9000")]
        assert (await pool.claim("n1", JOB)).owned

    run(story())


def test_a_job_that_waits_goes_where_a_late_node_has_it() -> None:
    async def story() -> None:
        pool = await a_pool("n1")
        await pool.ask("drain", m.DrainNode("n1"))
        await pool.place(JOB)

        lost = await pool.join(a_node("n2"), m.OpenJob(JOB.id, 7))
        await pool.look()

        assert lost == ()
        assert pool.engine.calls == [("pin", JOB.id, "tls://n2:9000")]
        terms = await pool.claim("n2", JOB)
        assert (terms.owned, terms.generation, terms.reported) == (True, 7, True)

    run(story())


def test_a_job_that_nobody_waits_for_any_longer_waits_no_longer() -> None:
    async def story() -> None:
        pool = await a_pool()
        await pool.place(PICKY)

        pool.broker.errand_changed(PICKY.id, ErrandState.FORGOTTEN)

        assert await listed(pool) == []

    run(story())


def test_more_jobs_than_may_wait_are_refused_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hetpool.broker.waiting.MOST_WAITING", 2)

    async def story() -> None:
        pool = await a_pool()
        await pool.place(PICKY)

        with pytest.raises(NotAllowedError, match="2 at most"):
            await pool.place(*(a_job(n, nodes=("n3",)) for n in (4, 5)))

        assert await listed(pool) == [(PICKY.id, "waiting")]
        assert len(await pool.place(a_job(6))) == 1

    run(story())


def test_jobs_that_may_not_wait_fail_without_those_of_other_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hetpool.broker.waiting.MOST_WAITING", 1)

    async def story() -> None:
        pool = await a_pool()
        await pool.place(PICKY)

        refused, placed = await asyncio.gather(
            pool.place(a_job(4, nodes=("n3",))),
            pool.place(a_job(5)),
            return_exceptions=True,
        )

        assert isinstance(refused, NotAllowedError)
        assert isinstance(placed, dict)
        assert placed.keys() == {a_job(5).id}

    run(story())


def test_large_descriptions_of_jobs_that_wait_are_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hetpool.broker.waiting.MOST_BYTES", 3 << 20)
    large = [
        a_job(n, nodes=("n3",), params={"text": "x" * (1 << 20)}) for n in range(3)
    ]

    async def story() -> None:
        pool = await a_pool()
        await pool.place(*large[:2])

        with pytest.raises(NotAllowedError, match="with 3 MiB"):
            await pool.place(large[2])

        await pool.ask("cancel", m.CancelJobs((large[0].id,)))
        assert await pool.place(large[2]) == {}
        assert len(await listed(pool)) == 2

    run(story())


def test_calls_and_environments_that_the_engine_keeps_are_limited_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hetpool.broker.waiting.MOST_BYTES", 3 << 20)
    large = bytes(1 << 20)
    call = a_job(1, nodes=("n3",), call=large)
    command = a_job(2, nodes=("n3",), options={"env": {"A": "x" * (1 << 20)}})
    jobs = _without_calls([call, command, replace(call, id=a_job(3).id)])

    async def story() -> None:
        pool = await a_pool()
        await pool.place(*jobs[:2])

        with pytest.raises(NotAllowedError, match="with 3 MiB of parameters and calls"):
            await pool.place(jobs[2])

        await pool.ask("cancel", m.CancelJobs((jobs[0].id,)))
        assert await pool.place(jobs[2]) == {}

    run(story())
    assert [len(encode(job)) < 1000 for job in jobs] == [True] * 3
    assert [job.left_out >> 20 for job in jobs] == [1, 1, 1]
    assert _without_calls([PICKY]) == (PICKY,)


def test_a_client_is_told_how_many_of_its_own_jobs_wait() -> None:
    async def story() -> None:
        pool = await a_pool()
        wanted = [m.PlaceJobs((each,)) for each in (a_job(1), PICKY)]
        asked = [pool.ask("place", each, PoolPlan) for each in wanted]

        notes = [plan.notes for plan in await asyncio.gather(*asked)]

        assert notes == [(), ("1 job waits: n3: absent or drained",)]

    run(story())


def test_later_jobs_that_wait_are_listed_with_higher_orders() -> None:
    async def story() -> None:
        pool = await a_pool()
        await pool.place(a_job(9, nodes=("n3",)))
        await pool.place(a_job(4, nodes=("n3",)))
        await pool.place(a_job(7))

        found = await pool.ask("jobs", m.ListJobs(), m.JobList)

        orders = {each.id: each.order for each in found.jobs}
        assert orders[a_job(9).id] < orders[a_job(4).id] < orders[a_job(7).id]

    run(story())
