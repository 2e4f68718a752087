"""acquire and release of bare resources, and pools bound to a key (P53, P103, P108, G4, G6)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from respool import BoundPool, InvalidReleaseError, PoolClosedError, PoolTimeoutError
from tests.helpers.invariants import assert_quiet, assert_within
from tests.helpers.promptly import woken
from tests.helpers.threads import Threads, run_together, wait_until_queued

if TYPE_CHECKING:
    from collections.abc import Hashable

    from tests.helpers.resources import Factory, MakePool, Thing

pytestmark = pytest.mark.usefixtures("no_backstop")


def test_acquire_gives_the_bare_resource(make_pool: MakePool, factory: Factory) -> None:
    """G6: acquire gives what create returned, release keeps it, the next acquire gives it again."""
    pool = make_pool(max_size=2)
    thing = pool.acquire("k")
    assert thing is factory.made[0]
    assert pool.stats("k").leased == 1
    pool.release(thing)
    assert_quiet(pool, keys=["k"], leased=0, idle=1)
    again = pool.try_acquire("k")
    assert again is thing
    pool.release(again)
    stats = pool.stats()
    assert (stats.acquired, stats.created, stats.reused) == (2, 1, 1)


def test_the_warmest_is_reused(make_pool: MakePool) -> None:
    """P53: last in, first out: under falling load the same resource is used again and again."""
    pool = make_pool()
    things = [pool.acquire() for _ in range(10)]
    for thing in things:
        pool.release(thing)
    for _ in range(5):
        thing = pool.acquire()
        assert thing is things[-1]
        pool.release(thing)
    assert [pool.acquire() for _ in range(10)] == things[::-1]
    for thing in things:
        pool.release(thing)
    assert_quiet(pool, leased=0, idle=10)


def test_both_tiers_share_rooms_and_resources(make_pool: MakePool) -> None:
    """G6: what a lease gave back acquire finds, and the other way round; the rooms are the same."""
    pool = make_pool(max_size=1)
    with pool.lease("k") as thing:
        assert pool.try_acquire("k") is None
    same = pool.acquire("k")
    assert same is thing
    assert pool.try_lease("k") is None
    with pytest.raises(PoolTimeoutError):
        pool.lease("k", timeout=0)
    pool.release(same)
    with pool.lease("k") as once_more:
        assert once_more is thing


def test_a_fast_release_serves_a_lease_that_waits(make_pool: MakePool) -> None:
    """G4: one queue for both tiers, in order of arrival."""
    pool = make_pool(max_size=1)
    thing = pool.acquire()
    served: list[str] = []

    def by_lease() -> None:
        with pool.lease():
            served.append("lease")

    def by_acquire() -> None:
        got = pool.acquire()
        served.append("acquire")
        pool.release(got)

    with Threads() as threads:
        for place, call in enumerate((by_lease, by_acquire, by_lease, by_acquire), 1):
            threads.start(call)
            wait_until_queued(pool, place)
        pool.release(thing)
    assert served == ["lease", "acquire", "lease", "acquire"]
    assert_quiet(pool, leased=0, idle=1)


def test_discard_frees_the_room_for_a_waiter(make_pool: MakePool, factory: Factory) -> None:
    """P19: a discarded bare resource is destroyed, and its room goes to who waits."""
    pool = make_pool(max_size=1)
    thing = pool.acquire("k")
    with Threads() as threads:
        waiting = threads.start(pool.acquire, "k")
        wait_until_queued(pool, 1)
        pool.discard(thing)
        new = woken(waiting)
    assert factory.destroyed == [thing]
    assert new is not thing
    pool.release(new)
    stats = assert_quiet(pool, leased=0, idle=1)
    assert stats.destroyed_for["discarded"] == 1


@pytest.mark.parametrize("timeout", [-1, -0.001, -math.inf, math.nan, True, False, "1", [], 1j], ids=repr)
@pytest.mark.parametrize("face", ["pool", "bound"])
@pytest.mark.parametrize("call", ["acquire", "lease"])
def test_a_senseless_timeout_is_refused_also_on_a_hit(
    make_pool: MakePool, face: str, call: str, timeout: Any
) -> None:
    """P08: with an idle resource at hand, with room, and without, the timeout is checked each time."""
    pool = make_pool(max_size=1)
    target: Any = pool if face == "pool" else pool.bind(None)
    method = getattr(target, call)
    for state in ("room", "hit", "full"):
        held = pool.lease() if state != "room" else None
        if held is not None and state == "hit":
            held.release()
        before = pool.stats()
        with pytest.raises((TypeError, ValueError)) as caught:
            method(timeout=timeout)
        assert repr(timeout) in str(caught.value)
        assert pool.stats() == before
        if held is not None:
            held.release()


class Key:
    """A key that counts how often it is hashed and compared."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.hashed = 0
        self.compared = 0

    def __hash__(self) -> int:
        self.hashed += 1
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        self.compared += 1
        return isinstance(other, Key) and other.name == self.name


def test_a_bound_pool_pays_the_hash_once(make_pool: MakePool) -> None:
    """G6: after bind no call hashes or compares the key."""
    pool = make_pool(max_size=2)
    key = Key("k")
    bound = pool.bind(key)
    assert isinstance(bound, BoundPool)
    bound.release(bound.acquire())
    hashed, compared = key.hashed, key.compared
    for _ in range(10):
        with bound.lease():
            pass
        bound.release(bound.acquire())
        bound.release(bound.try_acquire())
        lease = bound.try_lease()
        assert lease is not None
        lease.release()
    assert (key.hashed, key.compared) == (hashed, compared)
    assert_quiet(pool, leased=0, idle=1)


def test_a_bound_pool_is_its_pool_without_the_key(make_pool: MakePool, factory: Factory) -> None:
    """G6: acquire, release, discard, clear and stats do what the pool's own do with the key."""
    pool = make_pool(max_size=3)
    bound, other = pool.bind("k"), pool.bind("other")
    first, second = bound.acquire(), pool.acquire("k")
    assert first.key == "k"
    assert bound.stats() == pool.stats("k")
    assert bound.stats().leased == 2
    assert other.stats().size == 0
    pool.release(first)
    bound.release(second)
    third = other.acquire()
    other.release(third)
    assert bound.stats().idle == 2
    bound.discard(bound.acquire())
    assert bound.clear() == 1
    assert sorted(factory.numbers_destroyed()) == [1, 2]
    assert_quiet(pool, keys=["other"], leased=0, idle=1)


def test_equal_keys_are_one_key(make_pool: MakePool) -> None:
    """G6: keys that compare equal share resources, through the pool and through bound pools."""
    pool = make_pool()
    pool.release(pool.acquire(1))
    with pool.lease(1.0) as thing:
        assert thing.number == 1
    with pool.bind(1 + 0j).lease() as same:
        assert same is thing
    assert pool.stats(1).reused == 2
    assert_quiet(pool, leased=0, idle=1)


def test_a_bound_pool_outlives_its_key_s_state(make_pool: MakePool) -> None:
    """P61, G6: a bound pool works on after its key's state may have been dropped, and with the same rooms."""
    pool = make_pool(max_size=2, max_per_key=1)
    bound = pool.bind("k")
    bound.discard(bound.acquire())
    for key in range(200):
        pool.discard(pool.acquire(key))
    thing = bound.acquire()
    assert pool.try_acquire("k") is None  # the key's own limit is one, whoever asks
    assert pool.bind("k").try_acquire() is None
    assert pool.stats("k").leased == bound.stats().leased == 1
    bound.release(thing)
    with pool.lease("k") as same:
        assert same is thing
    assert_quiet(pool, keys=["k"], leased=0, idle=1)


@pytest.mark.parametrize("key", [[], {}, set()], ids=repr)
def test_an_unhashable_key_is_refused(make_pool: MakePool, key: Any) -> None:
    """G6: with a TypeError, on every way in; the pool goes on working."""
    pool = make_pool(max_size=1)
    for call in (pool.acquire, pool.try_acquire, pool.lease, pool.try_lease, pool.bind, pool.stats):
        with pytest.raises(TypeError):
            call(key)
    pool.release(pool.acquire())
    assert_quiet(pool, leased=0, idle=1)


def test_a_double_release_is_refused_while_nobody_has_it(make_pool: MakePool) -> None:
    """G6, P39: the second release is an error, also when the first one served somebody who gave back since."""
    pool = make_pool(max_size=1)
    thing = pool.acquire()
    with Threads() as threads:
        waiting = threads.start(lambda: pool.release(pool.acquire()))
        wait_until_queued(pool, 1)
        pool.release(thing)
        waiting.result()
    for call in (pool.release, pool.discard, pool.bind(None).release, pool.bind(None).discard):
        with pytest.raises(InvalidReleaseError):
            call(thing)
    assert_quiet(pool, leased=0, idle=1)


def test_bind_after_close(make_pool: MakePool) -> None:
    """G9: a pool bound before or after close takes back what is out, and gives nothing out."""
    pool = make_pool()
    before = pool.bind("k")
    thing, other = before.acquire(), before.acquire()
    with pool:
        pass
    for bound in (before, pool.bind("k")):
        with pytest.raises(PoolClosedError):
            bound.acquire()
        assert bound.clear() == 0
    before.release(thing)
    pool.bind("k").release(other)
    assert not thing.alive
    assert not other.alive
    assert_quiet(pool, leased=0, idle=0)


@pytest.mark.slow
@pytest.mark.parametrize("max_size", [2, 8])
@pytest.mark.parametrize("hooked", [False, True], ids=["bare", "hooked"])
def test_counts_are_exact_under_load(
    make_pool: MakePool,
    factory: Factory,
    max_size: int,
    hooked: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """P108, P103: eight threads, 10,000 rounds in all, on the fast path: every one is counted, none twice."""
    options = {"validate": factory.validate, "reset": factory.reset} if hooked else {}
    pool = make_pool(max_size=max_size, **options)
    bound = pool.bind("k")
    in_use: set[int] = set()

    def use() -> int:
        for number in range(1250):
            thing = bound.acquire() if number % 2 else pool.acquire("k")
            assert thing.number not in in_use
            in_use.add(thing.number)
            in_use.remove(thing.number)
            (pool if number % 3 else bound).release(thing)
        return 1250

    def look() -> int:
        for _ in range(200):
            assert_within(pool.stats(), pool.limits)
            assert_within(pool.stats("k"), pool.limits)
        return 0

    assert sum(run_together(*[use] * 8, look)) == 10_000
    stats = assert_quiet(pool, keys=["k"], leased=0)
    assert stats.acquired == pool.stats("k").acquired == 10_000
    assert stats.created + stats.reused == 10_000
    assert stats.created == len(factory.made) <= max_size
    assert factory.most_alive <= max_size


@pytest.mark.slow
def test_two_keys_under_load_at_the_total(make_pool: MakePool, factory: Factory) -> None:
    """P103: with evictions all the time no limit is passed and every number adds up."""
    pool = make_pool(max_size=3, max_per_key=2)

    def use(key: Hashable) -> None:
        for _ in range(300):
            thing: Thing = pool.acquire(key)
            assert thing.alive
            assert thing.key == key
            pool.release(thing)

    with Threads() as threads:
        for key in ("A", "A", "A", "B", "B", None):
            threads.start(use, key)
        for _ in range(100):
            assert_within(pool.stats(), pool.limits)
    stats = assert_quiet(pool, keys=["A", "B", None], leased=0)
    assert stats.acquired == 1800
    assert stats.created + stats.reused == 1800
    assert factory.most_alive <= 3
