"""Taking and giving back: the same names and the same meaning in every pool."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from respool import (
    InvalidReleaseError,
    LeaseLeakWarning,
    LeaseReleasedError,
    PoolTimeoutError,
)
from tests.helpers.invariants import assert_quiet
from tests.helpers.recorder import Recorder
from tests.helpers.threads import Threads, wait_until_queued

if TYPE_CHECKING:
    from tests.contract.factories import Subject

pytestmark = pytest.mark.usefixtures("no_backstop")


def test_a_lease_is_a_block(subject: Subject) -> None:
    """G6: `with pool.lease() as resource:` lends a resource and takes it back; the next one gets it again."""
    pool = subject.make(max_size=1)
    lease = pool.lease(*subject.key)
    assert not lease.released
    with lease as resource:
        assert lease.resource is resource
        assert pool.stats().leased == 1
    assert lease.released
    with pool.lease(*subject.key, timeout=0) as again:
        assert again is resource
    stats = assert_quiet(pool, leased=0, idle=1)
    assert (stats.acquired, stats.created, stats.reused) == (2, 1, 1)


@pytest.mark.parametrize("end", ["release", "discard", "detach", "with"])
def test_a_spent_lease(subject: Subject, end: str) -> None:
    """P35, P41, P42: release again does nothing, everything else is LeaseReleasedError; a stale lease stays so."""
    pool = subject.make(max_size=1)
    lease = pool.lease(*subject.key)
    if end == "with":
        with lease:
            pass
    else:
        getattr(lease, end)()
    before = assert_quiet(pool, leased=0, idle=1 if end in {"release", "with"} else 0)
    lease.release()
    for call in (lambda: lease.resource, lease.discard, lease.detach, lease.__enter__):
        with pytest.raises(LeaseReleasedError):
            call()
    assert pool.stats() == before
    with pool.lease(*subject.key, timeout=0):
        lease.release()
        assert pool.stats().leased == 1


def test_detach_frees_the_room(subject: Subject) -> None:
    """P50: a detached resource is the caller's: not counted, not destroyed, not taken back."""
    pool = subject.make(max_size=1)
    resource = pool.lease(*subject.key).detach()
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.size, stats.cost, stats.detached, stats.destroyed) == (0, 0, 1, 0)
    with pytest.raises(InvalidReleaseError):
        pool.release(resource)
    with pool.lease(*subject.key) as other:
        assert other is not resource
    pool.close()
    assert pool.stats().destroyed == 1


def test_the_fast_tier(subject: Subject) -> None:
    """G6: acquire and try_acquire give the bare resource; release keeps it, discard does not."""
    pool = subject.make(max_size=1)
    resource = pool.acquire(*subject.key)
    assert pool.try_acquire(*subject.key) is None
    pool.release(resource)
    assert pool.try_acquire(*subject.key) is resource
    pool.discard(resource)
    stats = assert_quiet(pool, leased=0, idle=0)
    assert stats.destroyed_for["discarded"] == 1


@pytest.mark.parametrize("call", ["release", "discard"])
def test_release_mistakes(subject: Subject, call: str) -> None:
    """P37 to P40: foreign, idle, another pool's, and what a lease holds: refused, nothing changes."""
    pool, other = subject.make(max_size=2), subject.make()
    idle, foreign = pool.acquire(*subject.key), other.acquire(*subject.key)
    lease = pool.lease(*subject.key)
    pool.release(idle)
    before = pool.stats()
    for stranger in (idle, foreign, lease.resource, object(), None):
        with pytest.raises(InvalidReleaseError):
            getattr(pool, call)(stranger)
    assert pool.stats() == before
    assert other.stats().leased == 1
    assert not lease.released
    lease.release()
    other.release(foreign)
    assert_quiet(pool, leased=0, idle=2)


def test_a_full_pool(subject: Subject) -> None:
    """P07, P08, P10: try_ gives None and counts nowhere; a timeout is a PoolTimeoutError that tells the state."""
    pool = subject.make(max_size=1)
    with pool.lease(*subject.key):
        assert pool.try_lease(*subject.key) is None
        assert pool.try_acquire(*subject.key) is None
        for timeout in (0, 0.05):  # long enough to begin to wait
            with pytest.raises(PoolTimeoutError, match="leased") as caught:
                pool.lease(*subject.key, timeout=timeout)
            assert isinstance(caught.value, TimeoutError)
            assert (caught.value.leased, caught.value.limits) == (1, pool.limits)
            with pytest.raises(PoolTimeoutError):
                pool.acquire(*subject.key, timeout=timeout)
    stats = assert_quiet(pool, leased=0, idle=1)
    assert (stats.timeouts, stats.rejected, stats.waits) == (4, 0, 2)


@pytest.mark.parametrize("timeout", [-1, math.nan, True, "1"], ids=repr)
def test_senseless_timeouts(subject: Subject, timeout: Any) -> None:
    """P08: refused with the value in the text, on every call that takes one, hit or not."""
    pool = subject.make(max_size=1)
    for _ in ("room", "hit"):
        for call in (pool.lease, pool.acquire):
            with pytest.raises((TypeError, ValueError)) as caught:
                call(*subject.key, timeout=timeout)
            assert repr(timeout) in str(caught.value)
        pool.lease(*subject.key, timeout=math.inf).release()
    with pytest.raises((TypeError, ValueError)):
        pool.close(timeout=timeout)
    assert not pool.closed
    assert_quiet(pool, leased=0, idle=1)


@pytest.mark.parametrize("end", ["release", "discard", "detach", "fast release", "fast discard", "leak"])
def test_a_waiter_is_served(subject: Subject, end: str) -> None:
    """P12, P19, P45, P50: whatever ends a hold, the waiters are served, in the order of their arrival."""
    pool = subject.make(max_size=1)
    fast = pool.acquire(*subject.key) if "fast" in end else None
    leases = [] if fast is not None else [pool.lease(*subject.key)]
    served: list[int] = []

    def use(me: int) -> None:
        with pool.lease(*subject.key):
            served.append(me)

    with warnings.catch_warnings(), Threads() as threads:
        warnings.simplefilter("ignore", LeaseLeakWarning)
        for me in range(3):
            threads.start(use, me)
            wait_until_queued(pool, me + 1)
        if fast is not None:
            getattr(pool, end.split()[1])(fast)
        elif end == "leak":
            leases.clear()
        else:
            getattr(leases[0], end)()
    assert served == [0, 1, 2]
    assert_quiet(pool, leased=0, idle=1)


def test_an_error_in_the_body(subject: Subject) -> None:
    """P48, P49: it comes out unchanged, and the room is free while the traceback lives."""
    pool = subject.make(max_size=1)
    error = ValueError("body")
    with pytest.raises(ValueError, match="body") as caught, pool.lease(*subject.key):
        raise error
    assert caught.value is error
    pool.lease(*subject.key, timeout=0).release()
    assert_quiet(pool, leased=0, idle=1)


def test_a_leak(subject: Subject) -> None:
    """P45, P47: a dropped lease is counted and warned of once, and tells where it was acquired."""
    recorder = Recorder()
    pool = subject.make(max_size=1, track_leases=True, observer=recorder)

    def forgetful() -> None:
        pool.lease(*subject.key)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        forgetful()
        assert pool.stats().leaked == 1
        pool.lease(*subject.key).release()
    assert [warning.category for warning in caught] == [LeaseLeakWarning]
    assert "forgetful" in str(caught[0].message)
    assert recorder.details("destroyed") == ["leaked"]
    assert len(recorder.of("leaked")) == 1
    stats = assert_quiet(pool, leased=0, idle=1)
    assert (stats.leaked, stats.destroyed_for["leaked"]) == (1, 1)
