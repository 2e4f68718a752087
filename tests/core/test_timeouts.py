"""Timeouts: one deadline for the whole acquire, and an error that tells the state (P08 to P10)."""

from __future__ import annotations

import math
import pickle
import time
from typing import TYPE_CHECKING

import pytest

from respool import PoolError, PoolTimeoutError
from tests.helpers.invariants import assert_quiet
from tests.helpers.threads import Threads, let_pass, wait_until_queued

if TYPE_CHECKING:
    from tests.helpers.recorder import Recorder
    from tests.helpers.resources import Factory, MakePool

pytestmark = pytest.mark.usefixtures("no_backstop")


def test_timeout_zero_is_one_attempt(make_pool: MakePool, recorder: Recorder) -> None:
    """P08: timeout=0 takes an idle one or creates where there is room, and never queues."""
    pool = make_pool(max_size=1, observer=recorder)
    lease = pool.lease(timeout=0)
    with pytest.raises(PoolTimeoutError):
        pool.lease(timeout=0)
    with pytest.raises(PoolTimeoutError):
        pool.acquire(timeout=0.0)
    lease.release()
    thing = pool.acquire(timeout=0)
    pool.release(thing)
    stats = assert_quiet(pool, leased=0, idle=1)
    assert (stats.timeouts, stats.waits, stats.acquired, stats.reused) == (2, 0, 2, 1)
    assert recorder.of("queued") == []


@pytest.mark.parametrize("timeout", [None, math.inf])
def test_no_timeout_waits_for_ever(make_pool: MakePool, timeout: float | None) -> None:
    """P08: None and infinity are no limit."""
    pool = make_pool(max_size=1)
    lease = pool.lease(timeout=timeout)
    with Threads() as threads:
        waiting = threads.start(pool.lease, timeout=timeout)
        wait_until_queued(pool, 1)
        lease.release()
        waiting.result().release()
    assert_quiet(pool, leased=0, idle=1)


def test_create_is_not_begun_after_the_deadline(make_pool: MakePool, factory: Factory) -> None:
    """P09: one deadline covers the whole acquire: what validate has used up is gone for create."""
    pool = make_pool(max_size=2, validate=factory.validate)
    with pool.lease() as thing:
        thing.healthy = False
    begun = time.monotonic()
    factory.before["validate"] = lambda key, thing: let_pass(begun + 0.2)
    with pytest.raises(PoolTimeoutError):
        pool.lease(timeout=0.1)
    assert time.monotonic() >= begun + 0.1
    assert factory.calls["create"] == 1
    stats = assert_quiet(pool, leased=0)
    assert stats.timeouts == 1


def test_validate_is_not_begun_after_the_deadline(make_pool: MakePool, factory: Factory) -> None:
    """P09: nor is the next idle one validated after the deadline."""
    pool = make_pool(validate=factory.validate)
    leases = [pool.lease() for _ in range(2)]
    for lease in leases:
        lease.resource.healthy = False
        lease.release()
    begun = time.monotonic()
    factory.before["validate"] = lambda key, thing: let_pass(begun + 0.2)
    with pytest.raises(PoolTimeoutError):
        pool.lease(timeout=0.1)
    assert factory.calls["validate"] <= 1
    assert factory.calls["create"] == 2
    factory.before.clear()
    assert_quiet(pool, leased=0)


def test_a_create_begun_in_time_serves_late(make_pool: MakePool, factory: Factory) -> None:
    """P09: a create begun before the deadline that succeeds after it serves its caller."""
    pool = make_pool()
    factory.before["create"] = lambda key: let_pass(time.monotonic() + 1.1)
    lease = pool.lease(timeout=1.0)
    assert lease.resource.number == 1
    lease.release()
    stats = assert_quiet(pool, leased=0, idle=1)
    assert stats.timeouts == 0


def test_the_timeout_error_tells_the_state(make_pool: MakePool) -> None:
    """P10: a PoolTimeoutError is a TimeoutError, and tells and has key, limits and counts."""
    pool = make_pool(max_size=3, max_per_key=2)
    leases = [pool.lease("A"), pool.lease("A")]
    pool.lease("B").release()
    with pytest.raises(TimeoutError) as caught:
        pool.lease("A", timeout=0)
    error = caught.value
    assert isinstance(error, PoolTimeoutError)
    assert isinstance(error, PoolError)
    assert error.key == "A"
    assert error.limits == pool.limits
    assert (error.pending, error.creating, error.waiters) == (0, 0, 0)
    assert error.leased == 2
    text = str(error)
    for word in ("'A'", "max_size=3", "max_per_key=2", "idle", "leased", "pending", "creating", "waiters"):
        assert word in text, text
    assert pool.stats().timeouts == pool.stats("A").timeouts == 1
    for lease in leases:
        lease.release()
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - made in this line
    assert (copy.key, copy.limits, copy.leased, str(copy)) == ("A", error.limits, 2, text)


def test_the_timeout_error_after_a_wait(make_pool: MakePool) -> None:
    """P10: the same after a real wait, which lasts no less than the timeout."""
    pool = make_pool(max_size=1)
    with pool.lease("A"):
        begun = time.monotonic()
        with pytest.raises(PoolTimeoutError, match="leased") as caught:
            pool.acquire("B", timeout=0.05)
        assert time.monotonic() >= begun + 0.05
    assert caught.value.key == "B"
    stats = assert_quiet(pool, keys=["A", "B"], leased=0, idle=1)
    assert (stats.timeouts, stats.waits) == (1, 1)
    assert stats.wait_seconds >= 0.05
