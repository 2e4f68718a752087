"""Several resources at once, where nobody else waits: all or nothing, and what is checked (P99, P101, P102)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from respool import (
    LeaseGroup,
    LeaseLeakWarning,
    PoolExhaustedError,
    PoolTimeoutError,
)
from tests.helpers.invariants import assert_quiet

if TYPE_CHECKING:
    from tests.helpers.resources import Factory, MakePool, Thing

pytestmark = pytest.mark.usefixtures("no_backstop")


def numbers(group: LeaseGroup[Any, Thing]) -> list[int]:
    """Release a group, and tell the numbers of what it had."""
    with group as things:
        return sorted(thing.number for thing in things)


@pytest.mark.parametrize("bound", [False, True])
def test_idle_ones_first_then_new_ones(make_pool: MakePool, bound: bool) -> None:  # noqa: FBT001
    """P99: a batch takes what is idle, the most recently used first, and creates the rest."""
    pool = make_pool(max_size=5)
    lease_many: Any = (
        pool.bind("A").lease_many if bound else lambda n, timeout=None: pool.lease_many(n, "A", timeout)
    )
    assert numbers(lease_many(3)) == [1, 2, 3]
    with pool.lease("A") as latest:
        pass
    with lease_many(1) as things:
        assert things == (latest,)
    assert numbers(lease_many(2)) != [1, 2, 3]
    assert numbers(lease_many(5, timeout=0)) == [1, 2, 3, 4, 5]
    assert numbers(lease_many(5, timeout=7)) == [1, 2, 3, 4, 5]
    stats = assert_quiet(pool, keys="A", leased=0, idle=5)
    assert (stats.created, stats.acquired, stats.reused) == (5, 17, 12)
    assert (stats.waits, stats.timeouts, stats.rejected) == (0, 0, 0)


def test_a_bound_pool_whose_key_was_dropped(make_pool: MakePool) -> None:
    """P61: a bound pool leases several also after its key had nothing for a while."""
    pool = make_pool()
    bound = pool.bind("A")
    for _ in range(3):
        group = bound.lease_many(2)
        assert bound.stats().leased == 2
        group.discard()
        assert pool.stats("A").created == 0
    assert_quiet(pool, keys="A", leased=0, idle=0)


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (0, ValueError),
        (-1, ValueError),
        (1.5, TypeError),
        (2.0, TypeError),
        (True, TypeError),
        (None, TypeError),
        ("2", TypeError),
        (math.nan, TypeError),
    ],
)
@pytest.mark.parametrize("timeout", [None, 0, 5])
def test_numbers_that_are_none(
    make_pool: MakePool, number: Any, error: type[Exception], timeout: float | None
) -> None:
    """P101: a number that is no int of at least 1 is refused on every call, hit or not."""
    pool = make_pool(max_size=2)
    for _ in range(2):
        with pytest.raises(error, match="n must be"):
            pool.lease_many(number, "A", timeout)
        with pytest.raises(error, match="n must be"):
            pool.bind("A").lease_many(number, timeout)
        pool.lease_many(2, "A").release()
    stats = assert_quiet(pool, leased=0, idle=2)
    assert (stats.rejected, stats.timeouts, stats.acquired) == (0, 0, 4)


@pytest.mark.parametrize(
    ("timeout", "error"),
    [(-1, ValueError), (math.nan, ValueError), (-math.inf, ValueError), (True, TypeError), ("1", TypeError)],
)
def test_timeouts_that_are_none(make_pool: MakePool, timeout: Any, error: type[Exception]) -> None:
    """P08: a negative timeout, NaN or one that is no number is refused on every call, hit or not."""
    pool = make_pool(max_size=2)
    for _ in range(2):
        with pytest.raises(error, match="timeout"):
            pool.lease_many(2, "A", timeout)
        pool.lease_many(2, "A").release()
    assert_quiet(pool, leased=0, idle=2)


@pytest.mark.parametrize("timeout", [math.inf, 1e300, 10**400])
def test_endless_timeouts(make_pool: MakePool, timeout: float) -> None:
    """P08: infinity, and what is as good as that, waits for ever."""
    pool = make_pool(max_size=2)
    for _ in range(2):
        pool.lease_many(2, "A", timeout).release()
    assert_quiet(pool, leased=0, idle=2)


@pytest.mark.parametrize("timeout", [None, 0, 5])
@pytest.mark.parametrize(
    "limits", [{"max_size": 3}, {"max_per_key": 3}, {"max_per_key": lambda key: 3}, {"max_cost": 7}]
)
def test_more_than_could_ever_be_had(
    make_pool: MakePool, limits: dict[str, Any], timeout: float | None
) -> None:
    """P101: more than any limit allows is PoolExhaustedError at once, however much more, and counted."""
    pool = make_pool(cost=lambda key: 2, **limits)
    held = pool.lease("A")
    for place, number in enumerate((4, 1000, 10**7, 10**30), 1):
        with pytest.raises(PoolExhaustedError, match=f"{number} resources"):
            pool.lease_many(number, "A", timeout)
        assert pool.stats().rejected == pool.stats("A").rejected == place
    assert pool.stats("A").size == 1
    held.release()
    pool.lease_many(3, "A", timeout).release()
    stats = assert_quiet(pool, keys="A", leased=0, idle=3)
    assert (stats.created, stats.waits, stats.timeouts, stats.destroyed) == (3, 0, 0, 0)


def test_all_or_nothing_at_the_deadline(make_pool: MakePool) -> None:
    """P99: 3 of cap 4 while 2 are leased: PoolTimeoutError, nothing held, what was idle is idle, nothing was made."""
    pool = make_pool(max_size=4)
    held = pool.lease_many(2, "A")
    pool.lease("A").release()
    for timeout in (0, 0.001):
        with pytest.raises(PoolTimeoutError) as caught:
            pool.lease_many(3, "A", timeout)
        error = caught.value
        assert (error.key, error.idle, error.leased, error.creating) == ("A", 1, 2, 0)
        stats = assert_quiet(pool, keys="A", leased=2, idle=1)
        assert (stats.created, stats.destroyed) == (3, 0)
    held.release()
    pool.lease_many(4, "A", 0).release()
    stats = assert_quiet(pool, keys="A", leased=0, idle=4)
    assert (stats.timeouts, stats.waits, stats.acquired) == (2, 1, 7)


@pytest.mark.parametrize("most", [0, 1, 2])
def test_fewer_are_kept_than_were_leased(make_pool: MakePool, factory: Factory, most: int) -> None:
    """P04: a batch may be larger than max_idle; on release the surplus is destroyed once each."""
    pool = make_pool(max_idle=most, max_size=4)
    for _ in range(3):
        pool.lease_many(4, "A").release()
        assert_quiet(pool, keys="A", leased=0, idle=most)
    stats = pool.stats()
    assert stats.created == 4 + 2 * (4 - most)
    assert stats.destroyed_for["surplus"] == 3 * (4 - most)
    assert len(factory.destroyed) == 3 * (4 - most)


def test_rooms_of_other_keys(make_pool: MakePool, factory: Factory) -> None:
    """P03, P91: just as many idle ones of other keys go as the batch needs, the least recently used ones."""
    pool = make_pool(max_size=6)
    for key in "BCD":
        pool.lease_many(2, key).release()
    pool.lease("B").release()
    assert numbers(pool.lease_many(3, "A", 0)) == [7, 8, 9]
    stats = assert_quiet(pool, keys="ABCD", leased=0, idle=6)
    assert stats.destroyed_for["evicted"] == 3
    assert [thing.key for thing in factory.destroyed][:2] == ["B", "C"]
    assert (pool.stats("B").idle, pool.stats("C").idle, pool.stats("D").idle) == (1, 0, 2)
    assert factory.most_alive == 6


def test_nothing_is_evicted_in_vain(make_pool: MakePool, factory: Factory) -> None:
    """P99: where all idle ones of the others wouldn't be enough, none is destroyed."""
    pool = make_pool(max_size=4)
    held = pool.lease("B")
    pool.lease_many(2, "C").release()
    for timeout in (0, 0.001):
        with pytest.raises(PoolTimeoutError):
            pool.lease_many(4, "A", timeout)
    assert factory.destroyed == []
    held.release()
    pool.lease_many(4, "A", 0).release()
    assert_quiet(pool, keys="A", leased=0, idle=4)


def test_costs_of_other_keys(make_pool: MakePool, factory: Factory) -> None:
    """P91: the same by cost: idle ones go until the batch's whole cost fits."""
    pool = make_pool(max_cost=10, cost=int)
    pool.lease_many(2, "2").release()
    pool.lease_many(2, "1").release()
    pool.lease_many(2, "3", 0).release()
    assert [thing.key for thing in factory.destroyed] == ["2"]
    stats = assert_quiet(pool, keys=["1", "2", "3"], leased=0, idle=5)
    assert stats.cost == 10


def test_no_leak_is_reported_for_what_was_refused(
    make_pool: MakePool, recwarn: pytest.WarningsRecorder
) -> None:
    """G7: batches that end without a group leak nothing."""
    pool = make_pool(max_size=3)
    held = pool.lease("A")
    for timeout in (0, 0.001):
        with pytest.raises(PoolTimeoutError):
            pool.lease_many(3, "A", timeout)
    held.release()
    pool.clear()
    assert [str(one.message) for one in recwarn if one.category is LeaseLeakWarning] == []
    assert pool.stats().leaked == 0
