"""The pool of events: which context's, one by one, many at once, from many threads."""

from __future__ import annotations

import gc
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from respool import (
    BoundPool,
    LeaseLeakWarning,
    PoolClosedError,
    PoolLimits,
    PoolTimeoutError,
)
from respool.cuda import CudaEventPool, NoContextError
from tests.helpers.clocks import without_reaper
from tests.helpers.invariants import assert_quiet
from tests.helpers.threads import Threads, run_together, wait_until_queued

if TYPE_CHECKING:
    from respool.cuda import CudaEvent
    from respool.cuda._driver import Driver
    from tests.helpers.cuda_driver import FakeCuda


def test_no_current_context(fake: FakeCuda, driver: Driver) -> None:
    """C01: without a current context it's NoContextError, and neither an event nor a context is made."""
    with CudaEventPool() as pool:
        for take in (
            pool.lease,
            pool.try_lease,
            pool.acquire,
            pool.try_acquire,
            pool.bind,
            pool.num_free_events,
            lambda: pool.lease_many(2),
            lambda: pool.prefill(1),
        ):
            with pytest.raises(NoContextError):
                take()
        assert (fake.calls("cuEventCreate"), fake.count("contexts"), pool.stats().created) == (0, 0, 0)


def test_last_in_first_out(fake: FakeCuda, pool: CudaEventPool) -> None:
    """C02: what was given back last is handed out next; nothing is created while something is idle."""
    first, second = pool.acquire(), pool.acquire()
    pool.release(first)
    pool.release(second)
    with pool.lease() as event:
        assert event is second
        assert pool.acquire() is first
    pool.release(first)
    stats = assert_quiet(pool, leased=0, idle=2)
    assert (stats.created, stats.reused, fake.count("events_made")) == (2, 2, 2)


def test_each_context_has_its_own(
    fake: FakeCuda, pool: CudaEventPool, driver: Driver, context_id: int, second: Any
) -> None:
    """C03: events of one context aren't handed out in another; idle ones are counted by context."""
    event = pool.acquire()
    pool.release(event)
    driver.push_context(second)
    other = pool.acquire()
    assert other is not event
    assert other.context_id == driver.context_id() != event.context_id
    stream = driver.create_stream()
    other.record(stream)
    pool.release(other)
    assert (pool.num_free_events(), pool.num_free_events(context_id), pool.total_free_events()) == (1, 1, 2)
    assert pool.num_free_events(second) == pool.num_free_events(other.context_id) == 1
    assert pool.stats(second).idle == pool.stats(context_id).idle == 1
    driver.destroy_stream(stream)
    assert pool.clear(second) == 1
    driver.pop_context()


def test_given_back_elsewhere(
    fake: FakeCuda, pool: CudaEventPool, driver: Driver, context_id: int, second: Any
) -> None:
    """C05: released where another context, or none, is current, an event goes back to its own, with no call."""
    lease, bare = pool.lease(), pool.acquire()
    calls = fake.calls("cuCtxGetId"), fake.calls("cuCtxGetCurrent")

    def elsewhere() -> None:
        lease.release()

    with Threads() as threads:
        threads.start(elsewhere).result()
    driver.push_context(second)
    pool.release(bare)
    assert calls == (fake.calls("cuCtxGetId"), fake.calls("cuCtxGetCurrent"))
    driver.pop_context()
    assert pool.num_free_events(context_id) == 2


def test_a_context_that_is_not_current(
    fake: FakeCuda, pool: CudaEventPool, driver: Driver, context_id: int, second: Any
) -> None:
    """C03: asked for by id or object, an event is created in its context, and the current one is as before."""
    with pool.lease(second) as event:
        number = event.context_id
        assert number != context_id
        assert driver.context_id() == context_id
    with pool.lease(number) as again:
        assert again is event
    bound = pool.bind(second)
    assert (bound.key, bound.lease().key) == (number, number)
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeaseLeakWarning)
        assert pool.prefill(2, second) == 2
    assert driver.context_id() == context_id

    def without_a_context() -> None:
        bound.lease_many(3).release()
        with pytest.raises(NoContextError):
            driver.context_id()

    with Threads() as threads:
        threads.start(without_a_context)


def test_many_threads(fake: FakeCuda, context_id: int, stream: Any) -> None:
    """C15: 32 threads take and give back without end: nobody shares an event, and in the end all are idle."""
    with CudaEventPool() as pool:
        bound = pool.bind()
        held: dict[int, CudaEvent] = {}

        def use() -> None:
            for number in range(60):
                if number % 3 == 0:
                    with bound.lease() as event:
                        assert held.setdefault(event.handle, event) is event
                        del held[event.handle]
                elif number % 3 == 1:
                    event = pool.acquire(context_id)
                    assert held.setdefault(event.handle, event) is event
                    event.record(stream)
                    assert event.is_done() in {True, False}
                    del held[event.handle]
                    pool.release(event)
                else:
                    with bound.lease_many(3) as events:
                        for event in events:
                            assert event.handle not in held
                            held[event.handle] = event
                        for event in events:
                            del held[event.handle]

        run_together(*[use] * 32)
        stats = assert_quiet(pool, leased=0)
        assert stats.idle == stats.created == fake.count("events") == pool.total_free_events()
        assert stats.acquired == 32 * 20 * 5


def test_a_slow_create_delays_nobody(fake: FakeCuda, pool: CudaEventPool, context_id: int) -> None:
    """C16: while a thread stands in cuEventCreate, others take idle events, give back, and read the counts."""
    pool.prefill(2)
    one, two = pool.acquire(), pool.acquire()
    with Threads() as threads, fake.latch("cuEventCreate") as latch:
        slow = threads.start(pool.acquire, context_id)
        latch.wait_inside()
        pool.release(one)
        with pool.lease() as event:
            assert event is one
            event.record()
        assert pool.stats().creating == 1
        assert pool.num_free_events() == pool.total_free_events() == 1
        pool.release(two)
        latch.open()
        pool.release(slow.result())
    assert_quiet(pool, leased=0, idle=3)


@pytest.mark.parametrize("how", ["clear", "close", "resize"])
def test_destroyed_while_pending(fake: FakeCuda, context_id: int, driver: Driver, how: str) -> None:
    """C11: idle events whose work is pending are destroyed at once: neither clear, resize nor close waits for the device."""
    stream = driver.create_stream()
    pool = CudaEventPool()
    with pool.lease_many(3) as events:
        fake.hold()
        for event in events:
            event.record(stream)
    synchronized = fake.calls("cuEventSynchronize") + fake.calls("cuStreamSynchronize")
    if how == "clear":
        assert pool.clear() == 3
    elif how == "resize":
        pool.resize(PoolLimits(max_idle=0))
    pool.close() if how == "close" else None
    assert fake.count("events") == 0
    assert fake.calls("cuEventSynchronize") + fake.calls("cuStreamSynchronize") == synchronized
    fake.release()
    pool.close()
    driver.destroy_stream(stream)


def test_close(fake: FakeCuda, context_id: int) -> None:
    """C57: close refuses newcomers, wakes waiters, and destroys what is leased as it comes back; again, it goes on waiting."""
    pool = CudaEventPool(limits=PoolLimits(max_size=2))
    lease, bare = pool.lease(), pool.acquire()
    bound = pool.bind()
    with Threads() as threads:
        waiting = threads.start(bound.acquire)
        wait_until_queued(pool, 1)
        with pytest.raises(PoolTimeoutError):
            pool.close(timeout=0)
        assert isinstance(waiting.error(), PoolClosedError)
        closing = threads.start(pool.close)
        for take in (pool.lease, pool.acquire, bound.acquire, bound.lease, lambda: pool.prefill(1)):
            with pytest.raises(PoolClosedError):
                take()
        bare.record()
        pool.release(bare)
        lease.release()
        closing.result()
    pool.close()
    assert fake.count("events") == 0
    assert pool.stats().destroyed_for["closed"] == 2


def test_reap(fake: FakeCuda, context_id: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """C58: what has lain idle for longer than the limit is destroyed by reap, which anyone may call."""
    clock = without_reaper(monkeypatch)
    with CudaEventPool(limits=PoolLimits(idle_timeout=10)) as pool:
        pool.prefill(2)
        clock.advance(9)
        assert pool.reap() == 0
        clock.advance(2)
        assert pool.reap() == 2
        assert fake.count("events") == pool.total_free_events() == 0


def test_binding_costs_no_call(fake: FakeCuda, pool: CudaEventPool, context_id: int) -> None:
    """C02: a bound pool is the core's own, and a hit and a release make no driver call at all."""
    bound = pool.bind()
    assert type(bound) is BoundPool
    assert bound.key == context_id
    bound.release(bound.acquire())
    calls = {name: fake.calls(name) for name in ("cuCtxGetId", "cuCtxGetCurrent", "cuEventCreate")}
    for _ in range(10):
        bound.release(bound.acquire())
        bound.lease().release()
        bound.lease_many(1).release()
    assert calls == {name: fake.calls(name) for name in calls}


def test_shared(fake: FakeCuda, context_id: int) -> None:
    """C02: there's one shared pool, whichever threads ask first; after its close, a new one."""
    pools = run_together(*[CudaEventPool.shared] * 8)
    pool = pools[0]
    assert all(one is pool for one in pools)
    assert (pool.name, pool.limits, pool.timing) == ("events", PoolLimits(), False)
    with pool.lease() as event:
        event.record()
    pool.close()
    again = run_together(*[CudaEventPool.shared] * 8)
    assert all(one is again[0] for one in again)
    assert not again[0].closed
    assert again[0] is not pool
    assert again[0].total_free_events() == 0
    again[0].close()


def test_two_kinds_are_two_pools(fake: FakeCuda, pool: CudaEventPool, context_id: int) -> None:
    """C07: timed and untimed events never stand in for each other."""
    with CudaEventPool(timing=True) as timed:
        with pool.lease() as plain, timed.lease() as precise:
            assert (plain.timing, precise.timing) == (False, True)
        with pool.lease() as again:
            assert again is plain
        assert (timed.timing, pool.timing) == (True, False)


@pytest.mark.leaves("events")
def test_what_it_shows(fake: FakeCuda, context_id: int) -> None:
    """C02: the pool's repr names its class and state, and it may be dropped without being used."""
    pool = CudaEventPool(name="mine", limits=PoolLimits(max_size=3))
    assert repr(pool).startswith("<respool.cuda.CudaEventPool mine idle=0 leased=0")
    del pool
    gc.collect()
    with CudaEventPool() as pool:
        pool.prefill(1)
    dropped = CudaEventPool(name="dropped")
    dropped.prefill(1)
    calls = fake.calls("cuEventDestroy")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del dropped
        gc.collect()
    assert ["dropped without close" in str(warning.message) for warning in caught] == [True]
    assert fake.calls("cuEventDestroy") == calls


def test_listeners_go_with_their_pool(fake: FakeCuda, driver: Driver, context_id: int) -> None:
    """C62: a pool that is gone isn't told of broken contexts any more, and nothing keeps it alive."""
    gc.collect()
    before = len(driver.broken._listeners)
    pool = CudaEventPool()
    pool.prefill(1)
    assert len(driver.broken._listeners) == before + 1
    pool.close()
    del pool
    gc.collect()
    assert len(driver.broken._listeners) == before
