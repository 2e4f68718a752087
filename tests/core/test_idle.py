"""What lies idle: which one is taken next, and that keys out of use cost nothing (P53, P61)."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING

import pytest

from respool import PoolError, ResourcePool
from tests.helpers.invariants import assert_quiet
from tests.helpers.resources import Thing

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.resources import Factory, MakePool


def test_the_warmest_is_taken(make_pool: MakePool, factory: Factory) -> None:
    """P53: last in, first out: with the load down to one, one resource works and the others rest."""
    pool = make_pool()
    leases = [pool.lease("A") for _ in range(10)]
    for lease in reversed(leases):
        lease.release()
    for _ in range(20):
        with pool.lease("A") as thing:
            assert thing.number == 1
    first, second = pool.lease("A"), pool.lease("A")
    assert (first.resource.number, second.resource.number) == (1, 2)
    first.release()
    second.release()
    with pool.lease("A") as thing:
        assert thing.number == 2
    stats = assert_quiet(pool, keys="A", leased=0, idle=10)
    assert stats.created == 10


class Key:
    """A key of which one knows how many exist."""

    alive = 0

    def __init__(self, number: int) -> None:
        self.number = number
        Key.alive += 1

    def __del__(self) -> None:
        Key.alive -= 1

    def __hash__(self) -> int:
        return hash(self.number)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and other.number == self.number


@pytest.mark.parametrize(
    "limits", [{"max_idle": 0}, {"max_size": 3}, {"max_idle": 3}], ids=["kept none", "evicted", "surplus"]
)
@pytest.mark.slow
def test_keys_out_of_use_are_forgotten(make_pool: MakePool, limits: dict[str, int]) -> None:
    """P61: after 100 000 keys used once each, nothing of those without a resource is left."""

    class Plain:
        pass

    pool = make_pool(create=lambda key: Plain(), destroy=lambda key, thing: None, **limits)
    blocks = []
    gc.collect()
    assert Key.alive == 0
    for size in (1_000, 99_000):
        for number in range(size):
            pool.lease(Key(number)).release()
        gc.collect()
        # The state of a few keys may be kept as a cache; what may not be is any growth.
        assert Key.alive <= 100
        blocks.append(sys.getallocatedblocks())
    assert blocks[1] - blocks[0] < 2_000
    stats = assert_quiet(pool, leased=0)
    assert stats.created == 100_000
    pool.close()
    gc.collect()
    assert Key.alive <= 100


def test_keys_that_only_failed_are_forgotten(make_pool: MakePool, factory: Factory) -> None:
    """P61: nor is anything left of keys whose create failed, or that were only asked about."""
    pool = make_pool(max_size=1)
    lease = pool.lease("held")
    gc.collect()
    for number in range(2_000):
        assert pool.try_lease(Key(number)) is None
        assert pool.stats(Key(number)).size == 0
        assert pool.clear(Key(number)) == 0
    lease.discard()
    factory.errors["create"] = [OSError(n) for n in range(2_000)]
    for number in range(2_000):
        with pytest.raises(OSError, match=str(number)):
            pool.lease(Key(number))
    gc.collect()
    assert Key.alive <= 100
    assert_quiet(pool, leased=0, idle=0)


def test_failed_calls_leave_no_key_behind(factory: Factory) -> None:
    """P61: nor of keys whose first call fails before it comes to a create, or does nothing."""

    def cost(key: str) -> int:
        if key == "dear":
            raise LookupError
        return 1

    pool: ResourcePool[str, Thing] = ResourcePool(factory.create, cost=cost)
    calls: list[tuple[type[Exception] | None, Callable[[], object]]] = [
        (LookupError, lambda: pool.lease("dear")),
        (LookupError, lambda: pool.lease_many(2, "dear")),
        (LookupError, lambda: pool.prefill(1, "dear")),
        (LookupError, lambda: pool.adopt(Thing("dear", 0), "dear")),
        (PoolError, lambda: pool.adopt(None, "A")),  # type: ignore[arg-type]
        (None, lambda: pool.prefill(0, "A")),
        (TypeError, lambda: pool.prefill("1", "A")),  # type: ignore[arg-type]
        (ValueError, lambda: pool.lease("A", timeout=-1)),
        (ValueError, lambda: pool.lease_many(0, "A")),
        (ValueError, lambda: pool.lease_many(1, "A", timeout=-1)),
    ]
    for error, call in calls:
        if error is None:
            call()
        else:
            with pytest.raises(error):
                call()
        assert list(pool._core.keys.all_locked()) == []
    pool.close()


def test_a_keys_history_begins_anew(make_pool: MakePool) -> None:
    """P61: a key's counters start when its state was last made; the pool's own go on."""
    with ResourcePool(lambda key: object()) as pool:
        assert pool.stats("A").acquired == 0
        for _ in range(3):
            pool.lease("A").release()
        assert pool.stats("A").acquired == 3
        pool.clear("A")
        pool.lease("A").release()
        assert pool.stats("A").size == 1
        assert pool.stats().acquired == 4
        assert pool.stats("B") == pool.stats("C")


def test_a_bound_pool_outlives_its_keys_state(make_pool: MakePool) -> None:
    """P61: a bound pool goes on working after its key had nothing left, and counts in one place."""
    pool = make_pool(max_size=1)
    bound = pool.bind("A")
    bound.lease().discard()
    for n in range(2_000):
        pool.lease(n).discard()
    bound.lease().release()
    assert pool.stats("A").idle == bound.stats().idle == 1
    with pool.lease("A") as thing:
        assert thing.number == 2002
        assert bound.try_lease() is None
    assert_quiet(pool, keys=["A"], leased=0, idle=1)
