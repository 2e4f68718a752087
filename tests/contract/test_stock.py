"""The stock: prefill, forget, reap, resize and limits on time mean the same in every pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from respool import PoolClosedError, PoolExhaustedError, PoolLimits
from tests.helpers.clocks import without_reaper
from tests.helpers.invariants import assert_quiet
from tests.helpers.recorder import Recorder
from tests.helpers.threads import Threads, wait_until, wait_until_queued

if TYPE_CHECKING:
    from tests.contract.factories import Subject

pytestmark = pytest.mark.usefixtures("no_backstop")


def test_prefill(subject: Subject) -> None:
    """P51: prefill creates idle ones, as many as limits allow and no more; they're what is lent next."""
    pool = subject.make(max_size=4)
    assert pool.prefill(2, *subject.key) == 2
    assert pool.bind(*subject.key).prefill(1) == 1
    assert pool.prefill(5, *subject.key) == 1
    assert pool.prefill(1, *subject.key) == 0
    assert pool.prefill(0, *subject.key) == 0
    pool.lease_many(4, *subject.key, timeout=0).release()
    stats = assert_quiet(pool, leased=0, idle=4)
    assert (stats.created, stats.acquired) == (4, 4)


@pytest.mark.parametrize("n", [-1, True, 1.5, "1", None], ids=repr)
def test_prefill_with_no_number(subject: Subject, n: Any) -> None:
    """P11: what is no number of resources is a ValueError or TypeError, bound or not; nothing changes."""
    pool = subject.make()
    for call in (lambda: pool.prefill(n, *subject.key), lambda: pool.bind(*subject.key).prefill(n)):
        with pytest.raises((TypeError, ValueError)):
            call()
    assert_quiet(pool, leased=0, idle=0)


def test_prefill_keeps_no_more_than_may_lie_idle(subject: Subject) -> None:
    """P51: prefill stops at max_idle too."""
    pool = subject.make(max_idle=2)
    assert pool.prefill(5, *subject.key) == 2
    stats = assert_quiet(pool, leased=0, idle=2)
    assert (stats.created, stats.destroyed) == (2, 0)


def test_prefill_passes_nobody(subject: Subject) -> None:
    """G4: while somebody waits, prefill creates nothing."""
    pool = subject.make(max_size=2)
    group = pool.lease_many(2, *subject.key)
    with Threads() as threads:
        waiting = threads.start(pool.lease_many, 2, *subject.key)
        wait_until_queued(pool, 1)
        assert pool.prefill(2, *subject.key) == 0
        group.release()
        waiting.result().release()
    assert_quiet(pool, leased=0, idle=2)


def test_forget(subject: Subject) -> None:
    """G8: what is idle is abandoned at once, what is leased when it comes back, nothing is destroyed; later ones stay."""
    recorder = Recorder()
    pool = subject.make(max_size=4, observer=recorder)
    lease, bare, group = (
        pool.lease(*subject.key),
        pool.acquire(*subject.key),
        pool.lease_many(1, *subject.key),
    )
    pool.prefill(1, *subject.key)
    assert pool.forget(*subject.key) == 1
    assert pool.stats().size == 3
    with pool.lease(*subject.key, timeout=0) as new:
        assert not any(new is old for old in (lease.resource, bare, *group.resources))
    lease.release()
    pool.release(bare)
    group.release()
    stats = assert_quiet(pool, leased=0, idle=1)
    assert (stats.abandoned, stats.destroyed) == (4, 0)
    assert recorder.of("destroyed") == []
    assert pool.forget(*subject.key) == 1
    assert pool.forget(*subject.key) == 0


def test_forget_gives_room(subject: Subject) -> None:
    """G8: the rooms of what is abandoned go to who waits."""
    pool = subject.make(max_size=1)
    lease = pool.lease(*subject.key)
    with Threads() as threads:
        waiting = threads.start(pool.lease, *subject.key)
        wait_until_queued(pool, 1)
        assert pool.forget(*subject.key) == 0
        lease.release()
        waiting.result().release()
    stats = assert_quiet(pool, leased=0, idle=1)
    assert (stats.created, stats.abandoned) == (2, 1)


def test_forget_one_of_several(keyed: Subject) -> None:
    """G8: other kinds are left alone."""
    pool = keyed.make()
    for key in keyed.keys[:3]:
        pool.prefill(1, *key)
    assert pool.forget(*keyed.keys[1]) == 1
    assert [pool.stats(*key).idle for key in keyed.keys[:3]] == [1, 0, 1]
    assert_quiet(pool, leased=0, idle=2)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [({"idle_timeout": 10}, "idle"), ({"max_lifetime": 10, "lifetime_jitter": 0}, "lifetime")],
    ids=["idle_timeout", "max_lifetime"],
)
def test_reap(
    subject: Subject, monkeypatch: pytest.MonkeyPatch, limits: dict[str, float], reason: str
) -> None:
    """P57: reap destroys just what has lain idle, or lived, for long enough, tells how many, and why is counted."""
    clock = without_reaper(monkeypatch)
    recorder = Recorder()
    pool = subject.make(observer=recorder, **limits)
    pool.prefill(2, *subject.key)
    clock.advance(9)
    assert pool.reap() == 0
    pool.prefill(1, *subject.key)
    clock.advance(1)
    assert pool.reap() == 2
    assert recorder.details("destroyed") == [reason] * 2
    assert_quiet(pool, leased=0, idle=1)
    clock.advance(10)
    assert pool.reap() == 1
    assert_quiet(pool, leased=0, idle=0)


@pytest.mark.parametrize(
    "limits", [{"idle_timeout": 10}, {"max_lifetime": 10, "lifetime_jitter": 0}], ids=["idle", "lifetime"]
)
def test_nobody_gets_what_is_too_old(
    subject: Subject, monkeypatch: pytest.MonkeyPatch, limits: dict[str, float]
) -> None:
    """P57: an acquire that finds a resource too old destroys it and takes another, by every way of taking."""
    clock = without_reaper(monkeypatch)
    pool = subject.make(**limits)
    key = subject.key
    bound = pool.bind(*key)
    for take in (
        lambda: pool.lease(*key),
        lambda: pool.try_lease(*key),
        lambda: pool.lease_many(1, *key),
        bound.lease,
        bound.try_lease,
    ):
        with take() as resource:
            old = resource
        with take() as resource:
            assert resource == old
        clock.advance(10)
        with take() as resource:
            new = resource
        assert new != old
        pool.clear()
    for acquire in (lambda: pool.acquire(*key), lambda: pool.try_acquire(*key), bound.acquire):
        bare = acquire()
        pool.release(bare)
        clock.advance(10)
        other = acquire()
        assert other is not bare
        pool.discard(other)
    assert_quiet(pool, leased=0, idle=0)


def test_what_is_held_may_grow_old(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """P54: a leased resource outlives its lifetime, and is destroyed when it comes back."""
    clock = without_reaper(monkeypatch)
    pool = subject.make(max_lifetime=10, lifetime_jitter=0)
    lease = pool.lease(*subject.key)
    clock.advance(100)
    assert pool.reap() == 0
    lease.release()
    stats = assert_quiet(pool, leased=0, idle=0)
    assert stats.destroyed_for["lifetime"] == 1


@pytest.mark.parametrize("limit", ["idle_timeout", "max_lifetime"])
def test_nobody_has_to_reap(subject: Subject, limit: str) -> None:
    """P57: what has become too old goes by itself."""
    pool = subject.make(**{limit: 0.01})
    pool.prefill(3, *subject.key)
    wait_until(lambda: pool.stats().size == 0, "the end of what is too old")
    assert pool.stats().destroyed == 3


def test_growing(subject: Subject) -> None:
    """P63: more room serves who waits, at once."""
    pool = subject.make(max_size=1)
    lease = pool.lease(*subject.key)
    with Threads() as threads:
        waiting = [threads.start(pool.lease, *subject.key) for _ in range(2)]
        wait_until_queued(pool, 2)
        pool.resize(PoolLimits(max_size=3))
        others = [task.result() for task in waiting]
    assert (pool.limits.max_size, pool.stats().leased) == (3, 3)
    for one in (lease, *others):
        one.release()
    assert_quiet(pool, leased=0, idle=3)


def test_shrinking(subject: Subject) -> None:
    """P62, P64: idle ones beyond the new limits go before resize returns, leased ones when they come back."""
    recorder = Recorder()
    pool = subject.make(max_size=4, observer=recorder)
    leases = [pool.lease(*subject.key) for _ in range(3)]
    pool.prefill(1, *subject.key)
    pool.resize(PoolLimits(max_size=1))
    assert (pool.stats().idle, pool.stats().leased) == (0, 3)
    assert pool.try_lease(*subject.key) is None
    for lease in leases:
        lease.release()
    assert_quiet(pool, leased=0, idle=1)
    assert len(recorder.of("destroyed")) == 3


def test_all_limits_are_replaced(subject: Subject) -> None:
    """P62: resize puts all limits in force, so that those left out hold no longer."""
    pool = subject.make(max_size=1, max_waiters=0)
    pool.resize(PoolLimits(max_idle=1))
    limits = pool.limits
    assert (limits.max_size, limits.max_waiters, limits.max_idle) == (None, None, 1)
    pool.lease_many(3, *subject.key, timeout=0).release()
    assert_quiet(pool, leased=0, idle=1)


def test_what_becomes_impossible(subject: Subject) -> None:
    """P62, P101: who waits for more than new limits allow is refused at once, and the others are served."""
    pool = subject.make(max_size=3)
    lease = pool.lease(*subject.key)
    with Threads() as threads:
        many = threads.start(pool.lease_many, 3, *subject.key)
        wait_until_queued(pool, 1)
        single = threads.start(pool.lease, *subject.key)
        wait_until_queued(pool, 2)
        pool.resize(PoolLimits(max_size=2))
        assert isinstance(many.error(), PoolExhaustedError)
        single.result().release()
    lease.release()
    assert_quiet(pool, leased=0, idle=2)


def test_limits_that_are_none(subject: Subject) -> None:
    """P11: what is no PoolLimits is a TypeError; the old limits stay."""
    pool = subject.make(max_size=1)
    for bad in (None, 3, {"max_size": 3}):
        with pytest.raises(TypeError, match="PoolLimits"):
            pool.resize(bad)
    assert pool.limits.max_size == 1


def test_after_close(subject: Subject) -> None:
    """P67: prefill and resize of a closed pool are PoolClosedError; forget, clear, reap and stats work."""
    pool = subject.make()
    lease = pool.lease(*subject.key)
    with pool:
        pass
    with pytest.raises(PoolClosedError):
        pool.prefill(1, *subject.key)
    with pytest.raises(PoolClosedError):
        pool.resize(PoolLimits(max_size=5))
    assert pool.reap() == pool.clear() == pool.forget(*subject.key) == 0
    lease.release()
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.abandoned, stats.destroyed) == (1, 0)
    pool.close()
