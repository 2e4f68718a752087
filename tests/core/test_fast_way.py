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
from respool._rows import SERVED, WAITING, Batch, Row, Ticket
from respool._slot import CREATING, Bell, Record, guard_class
from tests.helpers.checkpoints import every_checkpoint
from tests.helpers.invariants import assert_quiet
from tests.helpers.threads import Threads, wait_until, wait_until_queued

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool._slot import Guard
    from tests.helpers.clocks import Clock
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
    """An idle stack whose resources are gone once somebody has looked so often whether there are any."""

    looks = 1
    taken: tuple[Guard, ...] = ()

    def __len__(self) -> int:
        number = super().__len__()
        self.looks -= 1
        if not self.looks:
            self.taken = tuple(self)
            self.clear()
        return number


class Books:
    """The books of a pool of 3 whose idle resources, all of one key, are there at the first look and so many more, and then gone."""

    def __init__(self, idle: int, looks: int) -> None:
        self.accounts = Accounts(3, None)
        self.row = self.new_row()
        self.row.idle = Fleeting()
        self.row.idle.looks = looks + 1
        guards = guard_class(Bell([].append))
        for _ in range(idle):
            guard = guards()
            guard.record = self.new_record(self.row)
            self.accounts.adopt(guard.record)
            self.row.idle.append(guard)
        self.accounts.use.news[self.row] = None
        self.condemned: deque[Guard] = deque()

    def new_row(self) -> Row:
        """Give a row for another key."""
        self.accounts.rows += 1
        return Row(self.accounts.rows, None, self.accounts.use, (), ())

    @staticmethod
    def new_record(row: Row) -> Record:
        """Give a record at a cost of 1."""
        record = Record(row)  # type: ignore[arg-type]  # a row without a pool
        record.cost = 1
        return record

    def want(self, row: Row, count: int) -> Ticket:
        """Put somebody in line who wants so many, and serve who can be served."""
        records = [self.new_record(row) for _ in range(count)]
        ticket = Ticket(records[0], [].append)
        ticket.count = count
        ticket.batch = Batch(records) if count > 1 else None
        self.accounts.enter(ticket)
        self.accounts.match(self.condemned)
        return ticket

    def check(self) -> None:
        """See that no room was given that isn't there, and nothing was condemned that somebody has."""
        accounts = self.accounts
        assert accounts.size <= 3
        assert accounts.destroying == len(self.condemned) == len({id(guard) for guard in self.condemned})
        assert not any(guard in self.row.idle for guard in self.condemned)


@pytest.mark.parametrize("idle", [1, 2, 3])
def test_what_was_idle_at_the_first_look_is_no_room(idle: int) -> None:
    """P100, G1: a batch that finds fewer idle ones than it has counted is not given rooms that don't exist in their place."""
    books = Books(idle, looks=0)
    ticket = books.want(books.row, 3)
    assert ticket.state is WAITING
    assert ticket.batch is not None
    assert books.accounts.size == idle
    assert not any(record.phase is CREATING for record in ticket.batch.records)


@pytest.mark.parametrize("own", [True, False], ids=["own", "another"])
@pytest.mark.parametrize("looks", range(12))
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("idle", [1, 2, 3])
def test_idle_ones_go_between_two_looks(idle: int, count: int, looks: int, own: bool) -> None:  # noqa: FBT001
    """P100, G1, G13: whichever look finds them gone, those who want them, or their rooms, get what there is or wait."""
    books = Books(idle, looks)
    tickets = [books.want(books.row if own else books.new_row(), count) for _ in range(2)]
    books.check()
    served = [ticket for ticket in tickets if ticket.state is SERVED]
    rooms = sum(ticket.batch is None and ticket.grant is None for ticket in served)
    rooms += sum(record.phase is CREATING for one in served if one.batch for record in one.batch.records)
    assert rooms == books.accounts.creating == books.accounts.size - idle


@pytest.mark.parametrize("looks", range(12))
@pytest.mark.parametrize("by_key", [True, False], ids=["by key", "in all"])
def test_idle_ones_go_while_limits_shrink(looks: int, by_key: bool) -> None:  # noqa: FBT001
    """P62, G1, G13: whichever look finds them gone, a shrunk pool condemns only what it still has."""
    books = Books(3, looks)
    accounts = books.accounts
    accounts.shrunk = True
    if by_key:
        books.row.cap = 1
        accounts.over[books.row] = None
    else:
        accounts.max_size = 1
    accounts.shed(books.condemned)
    books.check()
    assert accounts.shrunk is (len(books.condemned) < 2)


def test_idle_ones_go_while_they_are_reaped(clock: Clock, make_pool: MakePool) -> None:
    """P56, G13: reap takes it that what it has counted is in somebody's hands by now."""
    pool = make_pool(max_size=2, idle_timeout=60)
    pool.prefill(2, "A")
    clock.advance(61)
    row = pool._core.keys.rows["A"]
    row.idle = idle = Fleeting(row.idle)
    assert pool.reap() == 0
    assert len(idle.taken) == 2
    row.idle = deque(idle.taken)
    assert pool.reap() == 2
    assert_quiet(pool, leased=0, idle=0)
