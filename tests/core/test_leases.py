"""A lease: what it knows, how its block ends, and how its resource leaves the pool (P48 to P50)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from respool import (
    InvalidReleaseError,
    Lease,
    LeaseReleasedError,
    PoolClosedError,
    PoolLimits,
    PoolTimeoutError,
    ResourcePool,
)
from tests.helpers.invariants import assert_quiet
from tests.helpers.promptly import woken
from tests.helpers.threads import Threads, wait_until_queued

if TYPE_CHECKING:
    from tests.helpers.recorder import Recorder
    from tests.helpers.resources import Factory, MakePool, Thing

pytestmark = pytest.mark.usefixtures("no_backstop")

ERRORS = [ValueError, KeyboardInterrupt, SystemExit, asyncio.CancelledError]


def test_a_lease_knows_its_key_and_resource(make_pool: MakePool) -> None:
    """G6: a lease tells key, resource and state; its block gives the bare resource."""
    pool = make_pool()
    key = ("host", 443)
    lease = pool.lease(key)
    assert isinstance(lease, Lease)
    assert lease.key is key
    assert lease.resource.key == key
    assert not lease.released
    with lease as thing:
        assert thing is lease.resource
        assert pool.stats(key).leased == 1
    assert lease.released
    assert lease.key is key
    assert_quiet(pool, keys=[key], leased=0, idle=1)


def test_without_a_key_the_key_is_none(make_pool: MakePool) -> None:
    """G6: a pool of one kind needs no keys; its leases and hooks see None."""
    pool = make_pool(max_size=1)
    lease = pool.lease()
    assert lease.key is None
    assert lease.resource.key is None
    lease.release()
    again = pool.try_lease()
    assert again is not None
    assert again.key is None
    again.release()
    assert pool.stats() == pool.stats(None)


def test_try_lease_gives_a_lease_or_none(make_pool: MakePool) -> None:
    """G6: what try_lease gives is a lease like any other; None needs no giving back."""
    pool = make_pool(max_size=1)
    lease = pool.try_lease("k")
    assert lease is not None
    assert pool.try_lease("k") is None
    with lease as thing:
        assert thing.number == 1
    assert_quiet(pool, leased=0, idle=1)


def test_a_lease_s_repr_tells_its_state(make_pool: MakePool) -> None:
    """G6: the repr is a line that names pool, key and state."""
    pool = make_pool(name="things")
    lease = pool.lease("left-key")
    text = repr(lease)
    for word in ("Lease", "'left-key'", "things", "leased"):
        assert word in text
    lease.release()
    assert repr(lease) == text.replace("leased", "released")
    assert "\n" not in text


def test_a_lease_s_repr_in_a_traceback(make_pool: MakePool) -> None:
    """G6: tools that show the local variables of a failed call find a lease that stands for nothing yet."""
    pool = make_pool(max_size=1)
    with pool.lease("A"), pytest.raises(PoolTimeoutError) as caught:
        pool.lease("A", timeout=0)
    frames = [entry.frame for entry in caught.traceback]
    shown = [repr(frame.f_locals["lease"]) for frame in frames if "lease" in frame.f_locals]
    assert shown == ["<respool.Lease: not leased yet>"]


def test_a_lease_s_repr_survives_bad_reprs() -> None:
    """G6: a key or resource whose repr raises doesn't break the lease's, nor the pool's."""

    class Wordless:
        def __repr__(self) -> str:
            raise RuntimeError("no words for it")

    key = Wordless()
    with ResourcePool[Wordless, Wordless](lambda key: Wordless(), name="wordless") as pool:
        with pool.lease(key):
            lease = pool.lease(key)
            assert "Lease" in repr(lease)
            assert "wordless" in repr(pool)
            lease.release()
            assert "Lease" in repr(lease)
        assert_quiet(pool, leased=0, idle=2)


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_in_the_body_leaves_unchanged(make_pool: MakePool, kind: type[BaseException]) -> None:
    """P48: the resource is kept, and the very same exception comes out."""
    pool = make_pool(max_size=1)
    error = kind("body")
    with pytest.raises(kind) as caught, pool.lease():
        raise error
    assert caught.value is error
    assert error.__cause__ is None
    assert error.__context__ is None
    assert_quiet(pool, leased=0, idle=1)


@pytest.mark.parametrize("kind", ERRORS)
def test_discard_on_error(
    make_pool: MakePool, factory: Factory, recorder: Recorder, kind: type[BaseException]
) -> None:
    """P48: where asked for, leaving the block by any exception destroys the resource, by none keeps it."""
    pool = make_pool(max_size=1, discard_on_error=True, observer=recorder)
    with pool.lease() as thing:
        pass
    assert_quiet(pool, leased=0, idle=1)
    error = kind("body")
    with pytest.raises(kind) as caught, pool.lease():
        raise error
    assert caught.value is error
    assert factory.destroyed == [thing]
    assert recorder.details("destroyed") == ["discarded"]
    stats = assert_quiet(pool, leased=0, idle=0)
    assert stats.destroyed_for["discarded"] == 1


def test_discard_on_error_keeps_after_a_body_that_ends_well(make_pool: MakePool, factory: Factory) -> None:
    """P48: also where giving back takes the slow way: past a reset hook, and to somebody who waits."""
    pool = make_pool(max_size=1, discard_on_error=True, reset=factory.reset)
    with Threads() as threads:
        with pool.lease():
            waiting = threads.start(lambda: pool.lease().release())
            wait_until_queued(pool, 1)
        woken(waiting)
    with pool.lease() as thing:
        assert thing.number == 1
    assert factory.destroyed == []
    assert_quiet(pool, leased=0, idle=1)


def test_discard_on_error_spares_what_was_given_back(make_pool: MakePool, factory: Factory) -> None:
    """P48: an exception after an early release harms neither the idle resource nor its next holder."""
    pool = make_pool(max_size=1, discard_on_error=True)
    lease = pool.lease()
    with pytest.raises(ValueError, match="body"), lease:  # noqa: PT012 - the order inside is the case
        lease.release()
        other = pool.lease()
        raise ValueError("body")
    assert factory.destroyed == []
    assert not other.released
    other.release()
    assert_quiet(pool, leased=0, idle=1)


@pytest.mark.parametrize("hook", ["reset", "destroy"])
def test_a_failing_release_does_not_replace_the_body_s_error(
    make_pool: MakePool, factory: Factory, hook: str
) -> None:
    """P48: the body's exception leaves even if giving back fails as well; the room is free."""
    pool = make_pool(max_size=1, reset=factory.reset, discard_on_error=hook == "destroy")
    factory.errors[hook] = [RuntimeError("giving back")]
    error = KeyError("body")
    with pytest.raises(KeyError) as caught, pool.lease():
        raise error
    assert caught.value is error
    stats = assert_quiet(pool, leased=0, idle=0)
    assert stats.hook_errors[hook] == 1
    pool.lease().release()
    assert_quiet(pool, leased=0, idle=1)


def test_return_break_and_continue_leave_the_block(make_pool: MakePool) -> None:
    """P48: every way out of a block gives back."""
    pool = make_pool(max_size=1)

    def use() -> int:
        for number in range(3):
            with pool.lease() as thing:
                if number == 0:
                    continue
                return thing.number
        return 0

    assert use() == 1
    for _ in range(2):
        with pool.lease():
            break
    assert_quiet(pool, leased=0, idle=1)


def test_a_traceback_keeps_nothing_leased(make_pool: MakePool) -> None:
    """P49: while a caught exception keeps the frames and the lease alive, the resource is back."""
    pool = make_pool(max_size=1)
    kept: list[BaseException] = []

    def work() -> None:
        lease = pool.lease()
        with lease:
            raise ValueError("kept")

    try:
        work()
    except ValueError as error:
        kept.append(error)
    trace = kept[0].__traceback__
    assert trace is not None
    assert trace.tb_next is not None
    assert isinstance(trace.tb_next.tb_frame.f_locals["lease"], Lease)
    assert_quiet(pool, leased=0, idle=1)
    with pool.lease() as thing:
        assert thing.number == 1


def test_detach_gives_the_resource_away(make_pool: MakePool, factory: Factory, recorder: Recorder) -> None:
    """P50: what is detached is the caller's: the room is free, and the pool never destroys it."""
    pool = make_pool(max_size=1, max_cost=5, cost=lambda key: 5, observer=recorder)
    lease = pool.lease("k")
    thing = lease.detach()
    assert lease.released
    stats = assert_quiet(pool, keys=["k"], leased=0, idle=0)
    assert (stats.size, stats.cost, stats.detached, stats.destroyed) == (0, 0, 1, 0)
    with pool.lease("k") as other:
        assert other is not thing
    for call in (pool.release, pool.discard):
        with pytest.raises(InvalidReleaseError):
            call(thing)
    with pytest.raises(LeaseReleasedError, match=r"detach: .*was given back before"):
        lease.detach()
    pool.clear()
    pool.close()
    assert thing.alive
    assert factory.destroyed == [other]
    assert recorder.details("destroyed") == ["cleared"]


def test_detach_wakes_a_waiter(make_pool: MakePool) -> None:
    """P50: the room of a detached resource goes to the next waiter at once."""
    pool = make_pool(max_size=1)
    lease = pool.lease()
    with Threads() as threads:
        waiting = threads.start(pool.lease)
        wait_until_queued(pool, 1)
        thing = lease.detach()
        new = woken(waiting)
    assert new.resource is not thing
    new.release()
    assert_quiet(pool, leased=0, idle=1)


def test_detach_inside_the_block(make_pool: MakePool) -> None:
    """P50: a block whose resource was detached ends in silence."""
    pool = make_pool(max_size=1)
    lease = pool.lease()
    with lease as thing:
        assert lease.detach() is thing
        assert pool.stats().size == 0
    assert thing.alive
    stats = assert_quiet(pool, leased=0, idle=0)
    assert stats.detached == 1


def test_detach_after_close_ends_the_waiting(make_pool: MakePool) -> None:
    """P50: a detached resource is nothing that close has to wait for."""
    pool = make_pool(max_size=1)
    lease = pool.lease()
    with pytest.raises(PoolTimeoutError):
        pool.close(timeout=0)
    with Threads() as threads:
        closing = threads.start(pool.close)
        thing = lease.detach()
        woken(closing)
    assert thing.alive
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.detached, stats.destroyed) == (1, 0)


def test_discard_destroys_before_it_returns(
    make_pool: MakePool, factory: Factory, recorder: Recorder
) -> None:
    """P41: a discarded resource is destroyed once, for that reason, and its room is free."""
    pool = make_pool(max_size=1, observer=recorder)
    lease = pool.lease("k")
    thing = lease.resource
    lease.discard()
    assert factory.destroyed == [thing]
    assert lease.released
    assert recorder.details("destroyed") == ["discarded"]
    stats = assert_quiet(pool, keys=["k"], leased=0, idle=0)
    assert (stats.size, stats.destroyed_for["discarded"]) == (0, 1)
    pool.lease("k").release()
    assert_quiet(pool, leased=0, idle=1)


def test_a_lease_outlives_the_name_of_its_pool() -> None:
    """G6: a lease keeps what it needs: its resource goes back though nobody else holds the pool."""
    destroyed: list[object] = []
    pool = ResourcePool(
        lambda key: object(), lambda key, thing: destroyed.append(thing), limits=PoolLimits(max_size=1)
    )
    lease = pool.lease("k")
    with pytest.raises(PoolTimeoutError):
        pool.close(timeout=0)
    del pool
    thing = lease.resource
    lease.release()
    assert destroyed == [thing]


def test_bound_leases_are_leases(make_pool: MakePool) -> None:
    """G6: a bound pool's leases have its key, and its pool's rooms."""
    pool = make_pool(max_size=2)
    bound = pool.bind("k")
    with bound.lease() as thing:
        assert thing.key == "k"
        second = bound.try_lease()
        assert second is not None
        assert second.key == "k"
        assert bound.try_lease() is None
        assert pool.try_lease("other") is None
        with pytest.raises(PoolTimeoutError):
            bound.lease(timeout=0)
        second.release()
    assert_quiet(pool, keys=["k"], leased=0, idle=2)
    pool.close()
    with pytest.raises(PoolClosedError):
        bound.lease()


def test_leases_in_an_exit_stack(make_pool: MakePool) -> None:
    """P48: leases nest: an error in a later acquire gives the earlier ones back."""
    pool = make_pool(max_size=2)
    with pytest.raises(PoolTimeoutError), pool.lease(), pool.lease(), pool.lease(timeout=0):
        pytest.fail("there is no third")
    assert_quiet(pool, leased=0, idle=2)


def test_a_lease_used_as_a_block_in_another_thread(make_pool: MakePool) -> None:
    """P44: a lease may be handed to a thread that runs its block."""
    pool = make_pool(max_size=1)

    def use(lease: Lease[Any, Thing]) -> int:
        with lease as thing:
            return thing.number

    with Threads() as threads:
        assert threads.start(use, pool.lease()).result() == 1
    assert_quiet(pool, leased=0, idle=1)
