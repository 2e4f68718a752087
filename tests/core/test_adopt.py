"""Resources made elsewhere and put under the pool (P51)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from respool import (
    ALL,
    PoolClosedError,
    PoolError,
    PoolExhaustedError,
    PoolTimeoutError,
    Quarantine,
    ResourcePool,
)
from tests.helpers.forks import in_child
from tests.helpers.invariants import assert_quiet
from tests.helpers.promptly import woken
from tests.helpers.resources import Factory, Thing
from tests.helpers.threads import Threads, run_together, wait_until_queued

if TYPE_CHECKING:
    from tests.helpers.recorder import Recorder
    from tests.helpers.resources import MakePool

pytestmark = pytest.mark.usefixtures("no_backstop")


def foreign(factory: Factory, key: object = "A") -> Thing:
    """Make a thing outside the pool, known to the factory."""
    return factory.create(key)  # type: ignore[arg-type]  # any key will do


def test_an_adopted_one_is_idle(make_pool: MakePool, factory: Factory, recorder: Recorder) -> None:
    """P51: it's idle and counted as adopted, and handed out like any other; the create hook isn't asked."""
    pool = make_pool(max_size=2, observer=recorder)
    thing = foreign(factory)
    pool.adopt(thing, "A")
    stats = assert_quiet(pool, keys="A", leased=0, idle=1)
    assert (stats.adopted, stats.created, stats.acquired, stats.cost) == (1, 0, 0, 1)
    with pool.lease("A", 0) as held:
        assert held is thing
    assert pool.acquire("A") is thing
    pool.release(thing)
    stats = assert_quiet(pool, keys="A", leased=0, idle=1)
    assert (stats.acquired, stats.reused) == (2, 1)
    assert recorder.of("created") == []


def test_without_a_key(make_pool: MakePool, factory: Factory) -> None:
    """P51: in a pool of one kind the key is left out; ALL is no key, and an unhashable one is TypeError."""
    pool = make_pool()
    thing = foreign(factory, None)
    pool.adopt(thing)
    with pool.lease() as held:
        assert held is thing
    other = foreign(factory)
    for key in (ALL, []):
        with pytest.raises(TypeError):
            pool.adopt(other, key)
    assert pool.try_acquire(None) is thing
    pool.release(thing)
    pool.adopt(other, "A")


@pytest.mark.parametrize(
    "limits",
    [{"max_size": 1}, {"max_per_key": 1}, {"max_cost": 5}, {"max_idle": 1}, {"max_per_key": lambda key: 1}],
)
@pytest.mark.parametrize("state", ["idle", "leased"])
def test_above_the_limits_it_stays_the_callers(
    make_pool: MakePool, factory: Factory, limits: dict[str, Any], state: str
) -> None:
    """P51: above any limit it's PoolExhaustedError; nothing is evicted, and the resource is neither kept nor destroyed."""
    pool = make_pool(cost=lambda key: 3, **limits)
    held = pool.lease("A")
    if state == "idle":
        held.release()
    thing = foreign(factory)
    if state == "leased" and "max_idle" in limits:
        pool.adopt(thing, "A")
        held.release()
        assert_quiet(pool, keys="A", leased=0, idle=1)
        return
    with pytest.raises(PoolExhaustedError, match="adopt"):
        pool.adopt(thing, "A")
    assert thing.alive
    stats = assert_quiet(pool, keys="A")
    assert (stats.adopted, stats.size, stats.destroyed) == (0, 1, 0)
    held.release()
    pool.clear()
    pool.adopt(thing, "A")
    assert assert_quiet(pool, keys="A", leased=0, idle=1).cost == 3


@pytest.mark.parametrize("waits_for", ["A", "B"])
def test_while_others_wait(make_pool: MakePool, factory: Factory, waits_for: str) -> None:
    """P51: where somebody waits for the room, or for that key, nothing is adopted before them."""
    pool = make_pool(max_cost=10, cost={"A": 1, "B": 5}.__getitem__, max_per_key={"A": 1, "B": None}.get)
    held = [pool.lease(key) for key in ("A", "B")]
    with Threads() as threads:
        waiting = threads.start(pool.lease, waits_for)
        wait_until_queued(pool, 1)
        thing = foreign(factory)
        with pytest.raises(PoolExhaustedError, match="waits"):
            pool.adopt(thing, "A")
        for lease in held:
            lease.discard()
        woken(waiting).discard()
    pool.adopt(thing, "A")
    assert_quiet(pool, keys="AB", leased=0, idle=1)


@pytest.mark.parametrize("state", ["idle", "leased", "fast", "adopted", "pending", "quarantined", "detached"])
def test_twice(  # noqa: C901 - a table of states
    make_pool: MakePool, factory: Factory, state: str
) -> None:
    """P51: what the pool holds already, in whatever state and under whatever key, is PoolError."""
    pool = make_pool()
    lease = pool.lease("A")
    thing = lease.resource
    if state == "idle":
        lease.release()
    elif state == "fast":
        lease.release()
        pool.acquire("A")
    elif state == "adopted":
        lease.discard()
        thing = foreign(factory)
        pool.adopt(thing, "A")
    elif state == "pending":
        lease.release(lambda: False)
    elif state == "quarantined":
        factory.errors["destroy"] = [Quarantine()]
        lease.discard()
        thing.alive = True  # it could not be destroyed
        factory.alive += 1
    elif state == "detached":
        assert lease.detach() is thing
        pool.adopt(thing, "A")
    before = pool.stats()
    for key in "AB":
        with pytest.raises(PoolError, match="already") as caught:
            pool.adopt(thing, key)
        assert not isinstance(caught.value, PoolExhaustedError)
    assert pool.stats() == before
    if state == "fast":
        pool.release(thing)
    elif state == "leased":
        lease.release()
    elif state == "quarantined":
        pool.forget("A")
    elif state == "detached":
        factory.alive += 1  # what came back is no longer one that the pool has given away


def test_none(make_pool: MakePool) -> None:
    """P51, P26: None can't be adopted."""
    pool = make_pool()
    with pytest.raises(PoolError, match="None"):
        pool.adopt(None, "A")
    assert_quiet(pool, leased=0, idle=0)


def test_closed(make_pool: MakePool, factory: Factory) -> None:
    """P51: a closed pool adopts nothing, also for a key that it has still something of."""
    pool = make_pool()
    lease = pool.lease("A")
    with pytest.raises(PoolTimeoutError):
        pool.close(0)
    thing = foreign(factory)
    for key in "AB":
        with pytest.raises(PoolClosedError):
            pool.adopt(thing, key)
    assert thing.alive
    lease.release()
    assert_quiet(pool, leased=0, idle=0)
    factory.destroy("A", thing)


def test_unhashable_and_equal_ones() -> None:
    """P43, P51: adopted by identity: equal and unhashable resources are told apart."""
    with ResourcePool[None, list[int]](lambda key: [0]) as pool:
        things = [[1], [1], [1]]
        for thing in things:
            pool.adopt(thing)
        with pytest.raises(PoolError):
            pool.adopt(things[1])
        with pool.lease_many(3) as held:
            assert {id(thing) for thing in held} == {id(thing) for thing in things}
        assert_quiet(pool, leased=0, idle=3)


@pytest.mark.parametrize("end", ["discard", "detach", "clear", "close", "leak", "evicted", "invalid"])
@pytest.mark.filterwarnings("ignore::respool.LeaseLeakWarning")
def test_it_ends_like_any_other(make_pool: MakePool, factory: Factory, end: str) -> None:
    """P51, P107: an adopted resource is destroyed, detached or leaked as one that the pool has made."""
    pool = make_pool(max_size=1, validate=factory.validate)
    thing = foreign(factory)
    pool.adopt(thing, "A")
    if end in {"discard", "detach"}:
        getattr(pool.lease("A"), end)()
    elif end == "leak":
        pool.lease("A")
        pool.reap()
    elif end == "evicted":
        pool.lease("B", 0).discard()
    elif end == "invalid":
        thing.healthy = False
        pool.lease("A", 0).discard()
    else:
        getattr(pool, end)()
    stats = assert_quiet(pool, leased=0, idle=0)
    assert thing.alive == (end == "detach")
    reason = {"discard": "discarded", "clear": "cleared", "close": "closed", "leak": "leaked"}.get(end, end)
    assert (stats.adopted, stats.detached) == (1, end == "detach")
    assert stats.destroyed_for.get(reason) == (None if end == "detach" else 1)


def test_validated_and_reset_like_any_other(make_pool: MakePool, factory: Factory) -> None:
    """P51: adopting runs no hook; the next acquire validates it, its release resets it."""
    pool = make_pool(validate=factory.validate, reset=factory.reset)
    pool.adopt(foreign(factory), "A")
    assert factory.calls == {"create": 1}
    pool.lease("A").release()
    assert factory.calls == {"create": 1, "validate": 1, "reset": 1}


def test_cost_of_an_adopted_one(make_pool: MakePool, factory: Factory) -> None:
    """P51, P94: its cost is asked for and charged; where that fails, it stays the caller's."""
    pool = make_pool(cost=int, max_cost=10)
    thing = foreign(factory, "x")
    with pytest.raises(ValueError, match="'x'"):
        pool.adopt(thing, "x")
    assert pool.stats().hook_errors["cost"] == 1
    thing = foreign(factory, "7")
    pool.adopt(thing, "7")
    assert pool.stats().cost == 7
    pool.lease("7").discard()
    assert assert_quiet(pool, leased=0, idle=0).cost == 0
    factory.alive -= 1  # the one of the key x


def test_the_last_room_is_adopted_into_once(make_pool: MakePool, factory: Factory) -> None:
    """P51, G2: threads that adopt at once pass no limit."""
    pool = make_pool(max_size=3)
    things = [foreign(factory) for _ in range(8)]

    def adopt(thing: Thing) -> bool:
        try:
            pool.adopt(thing, "A")
        except PoolExhaustedError:
            return False
        return True

    done = run_together(*(lambda thing=thing: adopt(thing) for thing in things))
    assert sum(done) == 3
    assert assert_quiet(pool, keys="A", leased=0, idle=3).adopted == 3
    factory.alive -= 5  # which stayed the callers'


def test_adopted_then_forked(make_pool: MakePool, factory: Factory) -> None:
    """P73: a child neither has what its parent adopted nor is kept from adopting."""
    pool = make_pool()
    thing = foreign(factory)
    pool.adopt(thing, "A")

    def child() -> None:
        assert_quiet(pool, leased=0, idle=0)
        pool.adopt(Thing("A", 99), "A")
        with pool.lease("A", 0) as held:
            assert held.number == 99

    in_child(child)
    assert_quiet(pool, keys="A", leased=0, idle=1)
