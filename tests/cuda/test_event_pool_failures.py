"""What goes wrong in the pool of events: calls that fail, bad arguments, leases that are dropped."""

from __future__ import annotations

import gc
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from respool import (
    InvalidReleaseError,
    LeaseLeakWarning,
    PoolLimits,
)
from respool.cuda import CudaError, CudaEventPool
from tests.helpers.cuda_driver import create_context
from tests.helpers.invariants import assert_quiet
from tests.helpers.threads import Threads, wait_until_queued

if TYPE_CHECKING:
    from respool.cuda._driver import Driver
    from tests.helpers.cuda_driver import FakeCuda


@pytest.mark.parametrize(
    ("bad", "error"),
    [(True, TypeError), (0, ValueError), (-3, ValueError), ("1", TypeError), (1.0, TypeError)],
    ids=repr,
)
def test_what_is_no_context(fake: FakeCuda, pool: CudaEventPool, bad: Any, error: type[Exception]) -> None:
    """C01: what is no context is a TypeError or ValueError; nothing is created."""
    for use in (
        pool.lease,
        pool.acquire,
        pool.try_lease,
        pool.try_acquire,
        pool.bind,
        pool.stats,
        pool.clear,
        pool.forget,
        pool.num_free_events,
    ):
        with pytest.raises(error):
            use(bad)
    assert fake.count("events_made") == 0


def test_a_context_that_nobody_has_seen(fake: FakeCuda, pool: CudaEventPool, driver: Driver) -> None:
    """C01: an id that belongs to no context that was seen, or a null handle, is a ValueError; counts of it are zero."""
    with pytest.raises(ValueError, match="has been seen"):
        pool.acquire(1 << 40)
    with pytest.raises(ValueError, match="no context"):
        pool.acquire(driver.CUcontext(0))
    assert pool.num_free_events(1 << 40) == pool.forget(1 << 40) == pool.clear(1 << 40) == 0
    assert_quiet(pool, leased=0, idle=0)


@pytest.mark.parametrize("code", [2, 999, 4242])
def test_create_fails(fake: FakeCuda, context_id: int, code: int) -> None:
    """C13: whatever code creating gives, it's a CudaError with it; rooms, counts and waiters are as if nothing had been."""
    with CudaEventPool(limits=PoolLimits(max_size=1)) as pool:
        fake.fail("cuEventCreate", code)
        with pytest.raises(CudaError) as failed:
            pool.acquire()
        assert (failed.value.code, failed.value.call) == (code, "cuEventCreate")
        assert_quiet(pool, leased=0, idle=0)
        held = pool.acquire(timeout=0)
        with Threads() as threads:
            first = threads.start(pool.acquire, context_id)
            wait_until_queued(pool, 1)
            second = threads.start(pool.acquire, context_id)
            wait_until_queued(pool, 2)
            fake.fail("cuEventCreate", code)
            pool.discard(held)
            assert isinstance(first.error(), CudaError)
            pool.release(second.result())
        stats = assert_quiet(pool, leased=0, idle=1)
        assert stats.hook_errors["create"] == 2


@pytest.mark.parametrize("function", ["cuCtxGetId", "cuCtxGetCurrent", "cuCtxPushCurrent"])
@pytest.mark.parametrize("code", [1, 4242])
def test_other_calls_that_fail_on_the_way(
    fake: FakeCuda, driver: Driver, context_id: int, second: Any, *, function: str, code: int
) -> None:
    """C13: so do all other calls on the way to an event, and the next try is as if nothing had been."""
    from respool.cuda import context

    with CudaEventPool() as pool:
        wanted = second if function == "cuCtxPushCurrent" else None
        context._handles.clear()  # as if neither had been seen
        fake.fail(function, code)
        with pytest.raises(CudaError) as failed:
            pool.acquire(wanted)
        assert (failed.value.code, failed.value.call) == (code, function)
        assert driver.context_id() == context_id
        pool.release(pool.acquire(wanted))
        assert_quiet(pool, leased=0, idle=1)


def test_a_pop_that_fails(fake: FakeCuda, driver: Driver, context_id: int) -> None:
    """C13: where the context of before can't be made current again, that is told."""
    other = create_context(driver, 1)
    driver.pop_context()
    with CudaEventPool() as pool:
        fake.fail("cuCtxPopCurrent", 1)
        with pytest.raises(CudaError) as failed:
            pool.acquire(other)
        assert failed.value.call == "cuCtxPopCurrent"
        assert_quiet(pool, leased=0, idle=0)
    assert fake.count("events") == 0
    driver.pop_context()
    driver.checked("cuCtxDestroy", driver.api.cuCtxDestroy, other)


@pytest.mark.leaves("events")
def test_destroy_fails(fake: FakeCuda, pool: CudaEventPool, caplog: pytest.LogCaptureFixture) -> None:
    """C13: a destroy that fails is logged and counted, never raised from a release."""
    event = pool.acquire()
    fake.fail("cuEventDestroy", 999, times=1)
    pool.discard(event)
    assert "CUDA_ERROR_UNKNOWN" in caplog.text
    stats = assert_quiet(pool, leased=0, idle=0)
    assert stats.hook_errors["destroy"] == 1
    pool.discard(pool.acquire())  # the fake still has the first one, whose handle nobody knows any more
    assert fake.count("events") == 1


def test_what_is_not_the_callers(fake: FakeCuda, pool: CudaEventPool, context_id: int) -> None:
    """G6: an event of another pool, an idle one, or one that a lease holds can't be given back."""
    with CudaEventPool(timing=True) as timed, timed.lease() as foreign, pool.lease() as leased:
        idle = pool.acquire()
        pool.release(idle)
        for event in (foreign, leased, idle):
            for way in (pool.release, pool.discard, pool.bind().release):
                with pytest.raises(InvalidReleaseError):
                    way(event)
    assert_quiet(pool, leased=0, idle=2)


def test_dropped_leases(fake: FakeCuda, pool: CudaEventPool) -> None:
    """C53: leases that the collector finds, wherever it runs, give their rooms back; their events are destroyed."""
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LeaseLeakWarning)

            def drop() -> None:
                for _ in range(40):
                    cycle: list[Any] = [pool.lease()]
                    cycle.append(cycle)
                    del cycle
                    pool.stats()

            with Threads() as threads:
                for _ in range(2):
                    threads.start(in_context, pool, drop)
            gc.collect()
            pool.reap()
    finally:
        gc.set_threshold(*threshold)
    stats = assert_quiet(pool, leased=0)
    assert (stats.leaked, stats.destroyed_for["leaked"]) == (80, 80)
    assert fake.count("events") == stats.idle


def in_context(pool: CudaEventPool, call: Any) -> None:
    """Run a call with the primary context of device 0 current, as the test's own thread has it."""
    from respool.cuda import _driver

    driver = _driver.load()
    driver.push_context(driver.retain_primary(0))
    try:
        call()
    finally:
        driver.pop_context()
        driver.release_primary(0)
