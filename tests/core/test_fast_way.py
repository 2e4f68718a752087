"""The fast ways: a call that has not taken anything yet passes nobody, wherever another thread comes in between.

And the books don't rely on it: without the interpreter lock a resource that was idle may be gone at the next look.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any

import pytest

from respool import PoolClosedError, PoolTimeoutError, ResourcePool
from respool._accounting import Accounts
from respool._rows import WAITING, Batch, Row, Ticket
from respool._slot import CREATING, Bell, Record, guard_class
from tests.helpers.checkpoints import every_checkpoint
from tests.helpers.invariants import assert_quiet
from tests.helpers.threads import Threads, wait_until, wait_until_queued

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool._slot import Guard
    from tests.helpers.resources import MakePool, Thing

    Way = Callable[[ResourcePool[Any, Thing]], Callable[[], object]]

pytestmark = pytest.mark.usefixtures("no_backstop")

WAYS: dict[str, Way] = {
    "lease": lambda pool: pool.lease("A").release,
    "bound lease": lambda pool: pool.bind("A").lease().release,
    "lease_many": lambda pool: pool.lease_many(1, "A").release,
    "bound lease_many": lambda pool: pool.bind("A").lease_many(1).release,
    "acquire": lambda pool: _bare(pool, pool.acquire("A")),
    "bound acquire": lambda pool: _bare(pool, pool.bind("A").acquire()),
}


def _bare(pool: ResourcePool[Any, Thing], thing: Thing) -> Callable[[], object]:
    return lambda: pool.release(thing)


@pytest.mark.parametrize("way", WAYS)
def test_who_has_nothing_yet_passes_nobody(make_pool: MakePool, way: str) -> None:
    """P03, P100, G2: somebody queues for all there is while a call is on its way to the idle one: it gets in line behind."""
    for visit in every_checkpoint():
        pool = make_pool(max_size=2)
        held = pool.lease("A")
        pool.prefill(1, "A")
        order: list[str] = []
        idle: list[int] = []

        def want_all(pool: ResourcePool[Any, Thing] = pool, order: list[str] = order) -> None:
            with pool.lease_many(2, "A"):
                order.append("all")

        def want_one(
            visit: Any = visit, pool: ResourcePool[Any, Thing] = pool, order: list[str] = order
        ) -> None:
            end = visit.run(lambda: WAYS[way](pool), between)
            order.append("one")
            end()

        with visit, Threads() as threads:

            def between(
                pool: ResourcePool[Any, Thing] = pool, idle: list[int] = idle, threads: Threads = threads
            ) -> None:
                threads.start(want_all)
                wait_until_queued(pool, 1)
                idle.append(pool.stats().idle)

            one = threads.start(want_one)
            wait_until(lambda one=one, pool=pool: one.ended or pool.stats().waiters == 2)  # type: ignore[misc]
            held.release()
        if visit.reached:
            assert order == (["all", "one"] if idle == [1] else ["one", "all"]), repr(visit)
        assert_quiet(pool, keys="A", leased=0, idle=2)


@pytest.mark.parametrize("way", WAYS)
def test_who_has_nothing_yet_gets_nothing_of_a_closed_pool(make_pool: MakePool, way: str) -> None:
    """P53, G4: close() comes while a call is on its way to the idle resource: it raises, and gives nothing out."""
    for visit in every_checkpoint():
        pool = make_pool(max_size=1)
        pool.prefill(1, "A")
        idle: list[int] = []

        def between(pool: ResourcePool[Any, Thing] = pool, idle: list[int] = idle) -> None:
            idle.append(pool.stats().idle)
            with contextlib.suppress(PoolTimeoutError):  # it's out
                pool.close(0)

        with visit:
            try:
                end = visit.run(lambda pool=pool: WAYS[way](pool), between)  # type: ignore[misc]
            except PoolClosedError:
                assert idle == [1]
            else:
                assert idle != [1]
                end()
        assert_quiet(pool, leased=0)


class Fleeting(deque["Guard"]):
    """An idle stack whose resources are gone once somebody has counted them."""

    def __len__(self) -> int:
        number = super().__len__()
        self.clear()
        return number


@pytest.mark.parametrize("idle", [1, 2, 3])
def test_what_was_idle_at_the_first_look_is_no_room(idle: int) -> None:
    """P100, G1: a batch that finds fewer idle ones than it has counted is not given rooms that don't exist in their place."""
    accounts = Accounts(3, None)
    row = Row(1, None, accounts.use, (), ())
    row.idle = Fleeting()
    guards = guard_class(Bell([].append))
    for _ in range(idle):
        guard = guards()
        guard.record = Record(row)  # type: ignore[arg-type]  # a row without a pool
        accounts.adopt(guard.record)
        row.idle.append(guard)
    ticket = Ticket(Record(row), [].append)  # type: ignore[arg-type]  # as above
    ticket.count = 3
    ticket.batch = Batch([ticket.record, Record(row), Record(row)])  # type: ignore[arg-type]  # as above
    accounts.enter(ticket)
    accounts.match(deque())
    assert ticket.state is WAITING
    assert accounts.size == idle
    assert not any(record.phase is CREATING for record in ticket.batch.records)
