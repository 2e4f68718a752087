"""What is given back twice, to the wrong pool, or by one who no longer has it (P35 to P44)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from respool import InvalidReleaseError, LeaseReleasedError, PoolLimits, ResourcePool
from tests.helpers.invariants import assert_quiet
from tests.helpers.threads import Threads, run_together, wait_until_queued

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool import Lease
    from tests.helpers.resources import Factory, MakePool, Thing

pytestmark = pytest.mark.usefixtures("no_backstop")


def spend_release(lease: Lease[Any, Thing]) -> None:
    """Spend a lease by giving its resource back."""
    lease.release()


def spend_discard(lease: Lease[Any, Thing]) -> None:
    """Spend a lease by having its resource destroyed."""
    lease.discard()


def spend_detach(lease: Lease[Any, Thing]) -> None:
    """Spend a lease by taking its resource out of the pool."""
    lease.detach()


def spend_with(lease: Lease[Any, Thing]) -> None:
    """Spend a lease by leaving its block."""
    with lease:
        pass


WAYS = [spend_release, spend_discard, spend_detach, spend_with]


def test_a_second_release_does_nothing(make_pool: MakePool, factory: Factory) -> None:
    """P35: releasing a lease twice is releasing it once."""
    pool = make_pool(max_size=2)
    lease = pool.lease("k")
    lease.release()
    before = assert_quiet(pool, leased=0, idle=1)
    lease.release()
    lease.release()
    assert pool.stats() == before
    assert factory.calls == {"create": 1}


def test_leaving_with_after_a_release_is_silent(make_pool: MakePool) -> None:
    """P35: a body may release early; leaving its block then does nothing."""
    pool = make_pool(max_size=1)
    lease = pool.lease()
    with lease:
        lease.release()
        with pool.lease() as again:  # the room is free already
            assert again.number == 1
        before = pool.stats()
    assert pool.stats() == before
    assert_quiet(pool, leased=0, idle=1)


@pytest.mark.parametrize("way", [spend_discard, spend_detach])
def test_leaving_with_after_another_end_is_silent(
    make_pool: MakePool, way: Callable[[Lease[Any, Thing]], None]
) -> None:
    """P35, P41: so does it after a discard or a detach, and with an exception on its way."""
    pool = make_pool(max_size=1)
    lease = pool.lease()
    with pytest.raises(KeyError, match="body"), lease:  # noqa: PT012 - the body ends the lease, then fails
        way(lease)
        raise KeyError("body")
    stats = assert_quiet(pool, leased=0, idle=0)
    assert stats.destroyed + stats.detached == 1


def test_a_spent_lease_does_no_harm_to_the_next_holder(make_pool: MakePool) -> None:
    """P36: A's old lease cannot give away what B holds now."""
    pool = make_pool(max_size=1)
    old = pool.lease()
    thing = old.resource
    old.release()
    new = pool.lease()
    assert new.resource is thing
    old.release()
    assert old.released
    assert not new.released
    assert pool.try_lease() is None
    assert pool.try_acquire() is None
    assert pool.stats().leased == 1
    new.release()
    assert_quiet(pool, leased=0, idle=1)


def test_a_spent_lease_does_not_serve_a_waiter(make_pool: MakePool) -> None:
    """P36: nor does a second release hand B's resource to somebody who waits."""
    pool = make_pool(max_size=1)
    old = pool.lease()
    old.release()
    new = pool.lease()
    with Threads() as threads:
        waiting = threads.start(pool.lease)
        wait_until_queued(pool, 1)
        old.release()
        with pytest.raises(LeaseReleasedError):
            old.discard()
        with pytest.raises(LeaseReleasedError):
            old.detach()
        assert not waiting.ended
        assert pool.stats().waiters == 1
        new.release()
        waiting.result().release()
    assert_quiet(pool, leased=0, idle=1)


@pytest.mark.parametrize("stranger", [frozenset(), None, 7, "text", []], ids=repr)
@pytest.mark.parametrize("call", ["release", "discard"])
def test_a_foreign_object_is_refused(
    make_pool: MakePool, factory: Factory, call: str, stranger: object
) -> None:
    """P37, P40: what never was in the pool is refused by name, neither kept nor destroyed."""
    pool = make_pool(max_size=1)
    thing = pool.acquire()
    before = pool.stats()
    with pytest.raises(InvalidReleaseError) as caught:
        getattr(pool, call)(stranger)
    assert repr(stranger) in str(caught.value)
    assert pool.stats() == before
    assert pool.try_acquire() is None  # the room did not grow
    pool.release(thing)
    assert_quiet(pool, leased=0, idle=1)
    assert factory.calls == {"create": 1}


class Wordless:
    """A resource whose repr fails."""

    def __repr__(self) -> str:
        raise RuntimeError("no words for it")


def test_a_repr_that_raises_does_not_break_the_refusal() -> None:
    """P37: the error is the refusal, not the repr's own."""
    with ResourcePool(lambda key: Wordless()) as pool:
        thing = pool.acquire()
        pool.release(thing)
        with pytest.raises(InvalidReleaseError):
            pool.release(thing)
        with pytest.raises(InvalidReleaseError):
            pool.discard(Wordless())


def test_a_resource_of_another_pool_is_refused(make_pool: MakePool) -> None:
    """P38: a pool does not take what another pool of the same kind has lent."""
    mine, other = make_pool(max_size=2), make_pool(max_size=2)
    own, foreign = mine.acquire(), other.acquire()
    before = mine.stats(), other.stats()
    for call in (mine.release, mine.discard):
        with pytest.raises(InvalidReleaseError):
            call(foreign)
    assert (mine.stats(), other.stats()) == before
    mine.release(own)
    other.release(foreign)
    assert_quiet(mine, leased=0, idle=1)
    assert_quiet(other, leased=0, idle=1)


@pytest.mark.parametrize("call", ["release", "discard"])
def test_an_idle_resource_is_refused(make_pool: MakePool, factory: Factory, call: str) -> None:
    """P39, P40: only a holder releases or discards; what is idle stays idle, once."""
    pool = make_pool(max_size=3)
    thing = pool.acquire("k")
    pool.release(thing)
    before = assert_quiet(pool, leased=0, idle=1)
    with pytest.raises(InvalidReleaseError, match="Thing 1"):
        getattr(pool, call)(thing)
    assert pool.stats() == before
    assert factory.destroyed == []
    first, second = pool.acquire("k"), pool.acquire("k")
    assert first is thing
    assert second is not thing
    pool.release(first)
    pool.release(second)


@pytest.mark.parametrize("call", ["release", "discard"])
@pytest.mark.parametrize("gone", ["discarded", "detached", "cleared", "closed"])
def test_a_resource_that_left_is_refused(make_pool: MakePool, gone: str, call: str) -> None:
    """P37, P40, P41: what has left the pool, in whatever way, is a stranger to it."""
    pool = make_pool(max_size=1)
    if gone == "detached":
        thing = pool.lease().detach()
    else:
        thing = pool.acquire()
        if gone == "discarded":
            pool.discard(thing)
        else:
            pool.release(thing)
            pool.clear() if gone == "cleared" else pool.close()
    before = assert_quiet(pool, leased=0, idle=0)
    with pytest.raises(InvalidReleaseError, match="Thing 1"):
        getattr(pool, call)(thing)
    assert pool.stats() == before


@pytest.mark.parametrize("call", ["release", "discard"])
def test_what_a_lease_holds_is_the_lease_s_to_give_back(make_pool: MakePool, call: str) -> None:
    """P39, P40: the fast tier refuses a resource that a lease holds, and the lease stays good."""
    pool = make_pool(max_size=1)
    lease = pool.lease("k")
    thing = lease.resource
    with pytest.raises(InvalidReleaseError, match="Thing 1"):
        getattr(pool, call)(thing)
    with pytest.raises(InvalidReleaseError):
        getattr(pool.bind("k"), call)(thing)
    assert not lease.released
    assert lease.resource is thing
    assert pool.stats().leased == 1
    lease.release()
    assert_quiet(pool, leased=0, idle=1)


@pytest.mark.parametrize("way", WAYS)
def test_a_spent_lease_refuses_what_would_change_something(
    make_pool: MakePool, factory: Factory, way: Callable[[Lease[Any, Thing]], None]
) -> None:
    """P41, P42: after its end a lease has no resource, discard, detach or block; release does nothing."""
    pool = make_pool(max_size=1)
    lease = pool.lease("k")
    assert not lease.released
    way(lease)
    assert lease.released
    assert lease.key == "k"
    before, destroyed = pool.stats(), list(factory.destroyed)
    with pytest.raises(LeaseReleasedError):
        _ = lease.resource
    with pytest.raises(LeaseReleasedError):
        lease.discard()
    with pytest.raises(LeaseReleasedError):
        lease.detach()
    with pytest.raises(LeaseReleasedError), lease:
        pytest.fail("the body of a spent lease has run")
    lease.release()
    assert pool.stats() == before
    assert factory.destroyed == destroyed


def test_a_stale_lease_does_not_come_alive(make_pool: MakePool) -> None:
    """P42: a spent lease stays so while the same resource is leased again and again."""
    pool = make_pool(max_size=1)
    stale: list[Lease[Any, Thing]] = []
    for _ in range(5):
        lease = pool.lease()
        for old in stale:
            assert old.released
            with pytest.raises(LeaseReleasedError):
                _ = old.resource
            with pytest.raises(LeaseReleasedError):
                old.discard()
        assert lease.resource.number == 1
        lease.release()
        stale.append(lease)
    assert_quiet(pool, leased=0, idle=1)


class Twin:
    """A resource that is unhashable, equal to anything, and can't be referred to weakly."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True


def test_bookkeeping_is_by_identity() -> None:
    """P43: unhashable resources that are all equal are told apart, on both tiers."""
    gone: list[int] = []
    pool = ResourcePool(
        lambda key: Twin(), lambda key, twin: gone.append(id(twin)), limits=PoolLimits(max_size=4)
    )
    with pool:
        twins = [pool.acquire("k") for _ in range(3)]
        lease = pool.lease("k")
        assert len({id(twin) for twin in [*twins, lease.resource]}) == 4
        pool.release(twins[1])
        with pytest.raises(InvalidReleaseError):
            pool.release(twins[1])
        with pytest.raises(InvalidReleaseError):
            pool.release(lease.resource)
        with pytest.raises(InvalidReleaseError):
            pool.release(Twin())
        pool.discard(twins[0])
        assert gone == [id(twins[0])]
        pool.release(twins[2])
        lease.release()
        assert_quiet(pool, keys=["k"], leased=0, idle=3)


def test_lists_as_resources() -> None:
    """P43: plain mutable containers, equal while empty, are resources like any other."""
    pool: ResourcePool[None, list[int]] = ResourcePool(lambda key: [])
    with pool:
        first, second = pool.acquire(), pool.acquire()
        assert first is not second
        pool.release(first)
        first.append(1)
        assert pool.acquire() is first
        pool.release(second)
        pool.release(first)
        assert_quiet(pool, leased=0, idle=2)


@pytest.mark.parametrize("end", ["release", "discard"])
def test_one_thread_acquires_another_gives_back(make_pool: MakePool, end: str) -> None:
    """P44: a resource belongs to no thread, on the fast tier and with leases."""
    pool = make_pool(max_size=2)
    with Threads() as threads:
        thing = threads.start(pool.acquire).result()
        lease = threads.start(pool.lease).result()
        assert pool.stats().leased == 2
        threads.start(getattr(pool, end), thing).result()
        threads.start(getattr(lease, end)).result()
    assert lease.released
    stats = assert_quiet(pool, leased=0)
    assert stats.idle + stats.destroyed == 2


def test_two_threads_release_one_lease(make_pool: MakePool) -> None:
    """P35: of two releases at once one counts: the resource is idle once, in every run."""
    pool = make_pool(max_size=2)
    for _ in range(100):
        lease = pool.lease()
        run_together(lease.release, lease.release)
        assert lease.released
        assert_quiet(pool, leased=0, idle=1)


def test_two_threads_release_one_resource(make_pool: MakePool) -> None:
    """P39: of two fast-tier releases at once one is refused, in every run."""
    pool = make_pool(max_size=2)

    def give_back() -> bool:
        try:
            pool.release(thing)
        except InvalidReleaseError:
            return False
        return True

    for _ in range(100):
        thing = pool.acquire()
        assert sorted(run_together(give_back, give_back)) == [False, True]
        assert_quiet(pool, leased=0, idle=1)


def test_one_thread_releases_while_another_discards(make_pool: MakePool, factory: Factory) -> None:
    """P41: of a release and a discard at once one counts; nothing is idle and destroyed."""
    pool = make_pool(max_size=2)

    def discard() -> None:
        try:
            lease.discard()
        except LeaseReleasedError:
            return

    for _ in range(100):
        lease = pool.lease()
        thing = lease.resource
        run_together(lease.release, discard)
        stats = assert_quiet(pool, leased=0)
        assert stats.idle == (0 if thing in factory.destroyed else 1)
