"""close() against what is under way at that moment: creates, validations, other closers, releases (P70 to P72, G9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from respool import PoolClosedError
from tests.helpers.gates import Gate, RemoteHook
from tests.helpers.invariants import assert_quiet
from tests.helpers.promptly import woken
from tests.helpers.threads import Threads, run_together, wait_asleep, wait_until

if TYPE_CHECKING:
    from tests.helpers.resources import Factory, MakePool, Thing

pytestmark = pytest.mark.usefixtures("no_backstop")


@pytest.mark.parametrize("waits", [True, False], ids=["close waits", "nobody waits"])
def test_a_create_under_way_ends_in_destroy(make_pool: MakePool, factory: Factory, waits: bool) -> None:  # noqa: FBT001
    """P70: what was being created when close began is destroyed, and its caller told why."""
    create: RemoteHook[Thing] = RemoteHook()
    factory.before["create"] = create
    pool = make_pool(max_size=2)
    with Threads() as threads:
        leasing = threads.start(pool.lease, "k")
        acquiring = threads.start(pool.acquire, "k")
        calls = [create.next_call(), create.next_call()]
        if waits:
            closing = threads.start(pool.close)
            wait_until(lambda: pool.closed, "the pool is closed")
        else:
            with pool:
                pass
        for call in calls:
            call.returns(None)  # type: ignore[arg-type] - the factory makes the thing
        assert isinstance(leasing.error(), PoolClosedError)
        assert isinstance(acquiring.error(), PoolClosedError)
        if waits:
            woken(closing)
        assert sorted(factory.numbers_destroyed()) == [1, 2]
    assert_quiet(pool, leased=0, idle=0)


def test_a_create_that_fails_after_close(make_pool: MakePool, factory: Factory) -> None:
    """P70: a create that fails while the pool closes raises its own error, and close ends."""
    create: RemoteHook[Thing] = RemoteHook()
    factory.before["create"] = create
    pool = make_pool(max_size=1)
    error = OSError("no")
    with Threads() as threads:
        leasing = threads.start(pool.lease)
        call = create.next_call()
        closing = threads.start(pool.close)
        wait_until(lambda: pool.closed, "the pool is closed")
        call.raises(error)
        assert leasing.error() is error or isinstance(leasing.error(), PoolClosedError)
        closing.result()
    assert factory.destroyed == []
    assert_quiet(pool, leased=0, idle=0)


@pytest.mark.parametrize("waits", [True, False], ids=["close waits", "nobody waits"])
def test_a_validate_under_way_ends_in_destroy(make_pool: MakePool, factory: Factory, waits: bool) -> None:  # noqa: FBT001
    """P70: an idle one that is being validated when close begins is destroyed, its taker told why."""
    gate = Gate()
    factory.before["validate"] = lambda key, thing: gate.stop()
    pool = make_pool(max_size=2, validate=factory.validate)
    pool.lease().release()
    with Threads() as threads:
        leasing = threads.start(pool.lease)
        gate.wait_arrived(1)
        if waits:
            closing = threads.start(pool.close)
            wait_until(lambda: pool.closed, "the pool is closed")
        else:
            with pool:
                pass
        gate.open()
        assert isinstance(leasing.error(), PoolClosedError)
        if waits:
            woken(closing)
        assert factory.numbers_destroyed() == [1]
    assert_quiet(pool, leased=0, idle=0)


def test_two_threads_close_at_once(make_pool: MakePool, factory: Factory) -> None:
    """P71: both return, and nothing is destroyed twice, in every run."""
    for _ in range(50):
        pool = make_pool()
        for lease in [pool.lease() for _ in range(3)]:
            lease.release()
        run_together(pool.close, pool.close)
        stats = assert_quiet(pool, leased=0, idle=0)
        assert stats.destroyed == 3
    assert len(factory.destroyed) == 150


def test_the_second_closer_returns_at_the_end_too(make_pool: MakePool, factory: Factory) -> None:
    """P71, G9: a close that finds another one destroying returns when all is destroyed."""
    gate = Gate()
    factory.before["destroy"] = lambda key, thing: gate.stop()
    pool = make_pool()
    for lease in [pool.lease() for _ in range(2)]:
        lease.release()
    alive_at_return: list[int] = []

    def close() -> None:
        pool.close()
        alive_at_return.append(factory.alive)

    with Threads() as threads:
        threads.start(close)
        gate.wait_arrived(1)
        second = threads.start(close)
        wait_asleep([second.thread])
        assert not second.ended
        gate.open()
    assert alive_at_return == [0, 0]
    assert_quiet(pool, leased=0, idle=0)


def test_close_while_clear_destroys(make_pool: MakePool, factory: Factory) -> None:
    """P72: close and clear at the same time end both, with everything destroyed once."""
    gate = Gate()
    factory.before["destroy"] = lambda key, thing: gate.stop()
    pool = make_pool()
    for lease in [pool.lease(key) for key in "AABB"]:
        lease.release()
    with Threads() as threads:
        clearing = threads.start(pool.clear)
        gate.wait_arrived(1)
        closing = threads.start(pool.close)
        wait_until(lambda: pool.closed, "the pool is closed")
        gate.open()
        clearing.result()
        closing.result()
    assert sorted(factory.numbers_destroyed()) == [1, 2, 3, 4]
    stats = assert_quiet(pool, leased=0, idle=0)
    assert stats.destroyed_for["cleared"] + stats.destroyed_for["closed"] == 4


def test_release_discard_and_close_at_once(make_pool: MakePool, factory: Factory) -> None:
    """P68, P71: leases that come back while close runs are destroyed once each, and close ends."""
    for _ in range(100):
        pool = make_pool()
        first, second, third = pool.lease(), pool.lease(), pool.acquire()
        run_together(first.release, second.discard, lambda p=pool, t=third: p.release(t), pool.close)
        assert assert_quiet(pool, leased=0, idle=0).destroyed == 3
    assert len(factory.destroyed) == 300
