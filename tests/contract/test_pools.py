"""A pool from its making to its end: the same names and the same meaning in every pool."""

from __future__ import annotations

import gc
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from respool import (
    PoolClosedError,
    PoolError,
    PoolExhaustedError,
    PoolLimits,
    PoolStats,
    PoolTimeoutError,
)
from tests.helpers.forks import in_child
from tests.helpers.invariants import assert_quiet
from tests.helpers.recorder import Recorder
from tests.helpers.threads import Threads, run_together, wait_until_queued

if TYPE_CHECKING:
    from tests.contract.factories import Subject

pytestmark = pytest.mark.usefixtures("no_backstop")


def test_limits_are_kept_and_told(subject: Subject) -> None:
    """P06, P11: `limits` gives them back, read-only; max_waiters refuses who would have to queue."""
    pool = subject.make(max_size=2, max_idle=1, max_waiters=0)
    assert isinstance(pool.limits, PoolLimits)
    assert (pool.limits.max_size, pool.limits.max_idle, pool.limits.max_waiters) == (2, 1, 0)
    with pytest.raises(AttributeError):
        pool.limits = PoolLimits()
    leases = [pool.lease(*subject.key) for _ in range(2)]
    with pytest.raises(PoolExhaustedError):
        pool.lease(*subject.key)
    assert pool.stats().rejected == 1
    for lease in leases:
        lease.release()
    stats = assert_quiet(pool, leased=0, idle=1)
    assert stats.destroyed_for["surplus"] + stats.destroyed_for["idle"] == 1


def test_stats_is_a_frozen_snapshot(subject: Subject) -> None:
    """P103: a PoolStats does not change, by itself or by hand."""
    pool = subject.make()
    before = pool.stats()
    assert isinstance(before, PoolStats)
    assert (before.size, before.acquired) == (0, 0)
    pool.lease(*subject.key).release()
    assert (before.size, before.acquired) == (0, 0)
    assert (pool.stats().size, pool.stats().acquired) == (1, 1)
    with pytest.raises(AttributeError):
        before.size = 7


def test_repr_tells_class_name_and_state(subject: Subject) -> None:
    """G6: a pool's repr names its class and itself, and changes with its state."""
    pool = subject.make(name="the-name")
    text = repr(pool)
    assert subject.case.name in text
    assert "the-name" in text
    with pool.lease(*subject.key) as resource:
        assert repr(pool) != text
        assert repr(resource)
    pool.close()
    assert "closed" in repr(pool)


def test_clear(subject: Subject) -> None:
    """P65: idle ones go now and are counted, leased ones when they come back, later ones stay."""
    recorder = Recorder()
    pool = subject.make(max_size=3, observer=recorder)
    lease, other, fast = pool.lease(*subject.key), pool.lease(*subject.key), pool.acquire(*subject.key)
    other.release()
    assert pool.clear() == 1
    assert pool.stats().size == 2
    lease.release()
    pool.release(fast)
    assert_quiet(pool, leased=0, idle=0)
    assert recorder.details("destroyed") == ["cleared"] * 3
    pool.lease(*subject.key).release()
    assert_quiet(pool, leased=0, idle=1)


def test_close(subject: Subject) -> None:
    """P67 to P69, P71: waiters are woken, nothing is handed out, returned ones are destroyed, and it can be repeated."""
    pool = subject.make(max_size=2)
    lease, fast = pool.lease(*subject.key), pool.acquire(*subject.key)
    with Threads() as threads:
        waiting = threads.start(pool.lease, *subject.key)
        wait_until_queued(pool, 1)
        with pytest.raises(PoolTimeoutError, match="leased"):
            pool.close(timeout=0.001)
        assert isinstance(waiting.error(), PoolClosedError)
        assert pool.closed
        for call in (pool.lease, pool.try_lease, pool.acquire, pool.try_acquire):
            with pytest.raises(PoolClosedError):
                call(*subject.key)
        closing = threads.start(pool.close)
        lease.release()
        pool.release(fast)
        closing.result()
    pool.close()
    assert pool.clear() == 0
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.size, stats.destroyed) == (0, 2)


def test_a_pool_is_a_block(subject: Subject) -> None:
    """G9: leaving it closes without waiting; the body's exception comes out unchanged."""
    error = KeyError("body")
    pool = subject.make()
    lease = pool.lease(*subject.key)
    with pytest.raises(KeyError) as caught, pool as same:
        raise error if same is pool else AssertionError
    assert caught.value is error
    assert pool.closed
    lease.release()
    assert_quiet(pool, leased=0, idle=0)


def test_a_pool_dropped_without_close(subject: Subject) -> None:
    """G11: it warns, by its name, and runs no hook."""
    recorder = Recorder()
    pool = subject.make(name="forgotten", observer=recorder)
    pool.lease(*subject.key).release()
    subject.forget()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del pool
        gc.collect()
    assert any("forgotten" in str(warning.message) for warning in caught)
    assert all(issubclass(warning.category, ResourceWarning) for warning in caught)
    assert recorder.of("destroyed") == []


def test_bind(subject: Subject) -> None:
    """G6: a bound pool does the same without the key."""
    pool = subject.make(max_size=1)
    bound = pool.bind(*subject.key)
    with bound.lease() as resource:
        assert bound.try_lease() is None
        assert bound.try_acquire() is None
        with pytest.raises(PoolTimeoutError):
            bound.acquire(timeout=0)
        assert bound.stats().leased == 1
    assert bound.acquire() is resource
    bound.release(resource)
    assert bound.try_acquire() is resource
    bound.discard(resource)
    bound.lease().release()
    assert bound.clear() == 1
    assert_quiet(pool, leased=0, idle=0)


def test_an_observer_is_told(subject: Subject) -> None:
    """P107: what happens in the pool is told, with reasons and outcomes."""
    recorder = Recorder()
    pool = subject.make(max_size=1, observer=recorder)
    pool.lease(*subject.key).release()
    with pool.lease(*subject.key), pytest.raises(PoolTimeoutError):
        pool.lease(*subject.key, timeout=0.001)
    pool.clear()
    assert [event.kind for event in recorder.events] == ["created", "queued", "waited", "destroyed"]
    assert recorder.details("waited", 1) == ["timeout"]
    assert recorder.details("destroyed") == ["cleared"]


def test_a_fork(subject: Subject) -> None:
    """P73 to P76: the child starts empty and works, or says why not; what it inherited comes back as a no-op; the parent is as before."""
    pool = subject.make(max_size=2)
    lease, fast = pool.lease(*subject.key), pool.acquire(*subject.key)
    before = pool.stats()

    def child() -> None:
        assert pool.stats() == PoolStats(
            destroyed_for=dict.fromkeys(before.destroyed_for, 0),
            hook_errors=dict.fromkeys(before.hook_errors, 0),
        )
        lease.release()
        pool.release(fast)
        if not subject.case.creates_after_fork:
            with pytest.raises(PoolError):
                pool.lease(*subject.key)
            assert_quiet(pool, leased=0, idle=0)
            return
        leases = [pool.lease(*subject.key, timeout=0) for _ in range(2)]
        assert pool.try_lease(*subject.key) is None
        for mine in leases:
            mine.release()
        stats = assert_quiet(pool, leased=0, idle=2)
        assert stats.destroyed == 0

    in_child(child)
    assert pool.stats() == before
    lease.release()
    pool.release(fast)
    assert_quiet(pool, leased=0, idle=2)


@pytest.mark.slow
def test_many_threads(subject: Subject) -> None:
    """P01, P103, P108: under load no more exist than may, nobody shares one, and every use is counted."""
    pool = subject.make(max_size=3)
    in_use: list[Any] = []

    def use() -> None:
        for number in range(100):
            if number % 2:
                with pool.lease(*subject.key) as resource:
                    assert not any(other is resource for other in in_use)
                    in_use.append(resource)
                    in_use.remove(resource)
            else:
                resource = pool.acquire(*subject.key)
                pool.release(resource)

    run_together(*[use] * 8)
    stats = assert_quiet(pool, leased=0)
    assert (stats.acquired, stats.created + stats.reused) == (800, 800)
    assert stats.created <= 3


def test_each_key_has_its_own(keyed: Subject) -> None:
    """P02, P65: resources, counts and clear() are per key; the parts add up to the whole."""
    pool = keyed.make(max_per_key=1)
    first, second, third = keyed.keys[:3]
    with pool.lease(*first) as one, pool.lease(*second) as two:
        assert one is not two
        assert pool.try_lease(*first) is None
        assert (pool.stats(*first).leased, pool.stats(*third).size, pool.stats().leased) == (1, 0, 2)
    pool.lease(*third).release()
    assert pool.clear(*second) == 1
    assert pool.clear(*second) == 0
    with pool.lease(*first) as again:
        assert again is one
    assert_quiet(pool, leased=0, idle=2)
    assert pool.clear() == 2


def test_the_total_goes_round(keyed: Subject) -> None:
    """P03: a full pool gives a new key the room of what is idle for the longest."""
    recorder = Recorder()
    pool = keyed.make(max_size=2, observer=recorder)
    first, second, third = keyed.keys[:3]
    for key in (first, second, third):
        pool.lease(*key).release()
    assert recorder.details("destroyed") == ["evicted"]
    assert pool.stats(*first).idle == 0
    assert pool.stats(*second).idle == pool.stats(*third).idle == 1
    assert_quiet(pool, leased=0, idle=2)
