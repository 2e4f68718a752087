"""Giving back what isn't free yet: `release(when=...)` means the same in every pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from respool import PoolClosedError, PoolTimeoutError
from tests.helpers.invariants import assert_quiet
from tests.helpers.recorder import Recorder
from tests.helpers.threads import Threads, wait_until, wait_until_queued
from tests.helpers.whens import When

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contract.factories import Subject

pytestmark = pytest.mark.usefixtures("no_backstop")


class Held(NamedTuple):
    """What somebody holds in one of the ways: how to give it back."""

    resources: tuple[Any, ...]
    release: Callable[..., None]


WAYS = ("lease", "pool", "bound", "group", "bound group")


def hold(subject: Subject, pool: Any, way: str) -> Held:
    """Take a resource in one of the ways, as a group two."""
    face, key = (pool.bind(*subject.key), ()) if "bound" in way else (pool, subject.key)
    if way == "lease":
        lease = pool.lease(*key)
        return Held((lease.resource,), lease.release)
    if "group" in way:
        group = face.lease_many(2, *key)
        return Held(group.resources, group.release)
    resource = face.acquire(*key)
    return Held((resource,), lambda *when: face.release(resource, *when))


@pytest.mark.parametrize("way", WAYS)
def test_free_at_once(subject: Subject, way: str) -> None:
    """G8: a `when` that says yes is asked once, and the resource is idle."""
    pool = subject.make()
    held = hold(subject, pool, way)
    when = When(free=True)
    held.release(when)
    assert when.asked == 1
    assert_quiet(pool, leased=0, idle=len(held.resources))


@pytest.mark.parametrize("way", WAYS)
def test_pending_until_when_says_yes(subject: Subject, way: str) -> None:
    """G8: a resource that isn't free counts, is nobody's, and is handed out once `when` has said yes, not earlier."""
    pool = subject.make(max_size=2)
    held = hold(subject, pool, way)
    count = len(held.resources)
    when = When()
    held.release(when)
    stats = pool.stats()
    assert (stats.pending, stats.leased, stats.idle, stats.size) == (count, 0, 0, count)
    others = [pool.acquire(*subject.key, timeout=0) for _ in range(2 - count)]
    assert not any(one is other for one in held.resources for other in others)
    assert pool.try_lease(*subject.key) is None
    with pytest.raises(PoolTimeoutError) as caught:
        pool.lease(*subject.key, timeout=0)
    assert caught.value.pending == count
    when.free = True
    lease = pool.lease(*subject.key, timeout=20)
    assert any(lease.resource is one for one in held.resources)
    lease.release()
    for other in others:
        pool.release(other)
    pool.reap()
    assert_quiet(pool, leased=0, idle=2)
    assert when.misuse == []


@pytest.mark.parametrize("way", WAYS)
def test_when_raises_at_once(subject: Subject, way: str) -> None:
    """G8: what `when` raises in release goes to the caller, who still holds the resource; so with what can't be called."""
    pool = subject.make()
    held = hold(subject, pool, way)
    mine = ZeroDivisionError("mine")
    when = When()
    when.errors.append(mine)
    with pytest.raises(ZeroDivisionError) as caught:
        held.release(when)
    assert caught.value is mine
    with pytest.raises(TypeError, match="when"):
        held.release(5)
    stats = pool.stats()
    assert (stats.leased, stats.hook_errors["when"]) == (len(held.resources), 1)
    held.release()
    assert_quiet(pool, leased=0, idle=len(held.resources))


@pytest.mark.parametrize("way", WAYS)
def test_when_raises_later(subject: Subject, way: str) -> None:
    """G8: a `when` that fails later leaves its resource quarantined: counted, told of once, asked again by reap."""
    recorder = Recorder()
    pool = subject.make(observer=recorder)
    held = hold(subject, pool, way)
    count = len(held.resources)
    when = When()
    held.release(when)
    when.errors += [ZeroDivisionError() for _ in range(2 * count)]
    for _ in range(2):
        assert pool.reap() == 0
        stats = pool.stats()
        assert (stats.quarantined, stats.pending, stats.size) == (count, 0, count)
    assert len(recorder.of("hook_failed")) == count
    with pool.lease(*subject.key, timeout=0) as other:
        assert not any(other is one for one in held.resources)
    when.free = True
    pool.reap()
    assert_quiet(pool, leased=0, idle=count + 1)
    assert when.misuse == []


def test_a_spent_lease_asks_nothing(subject: Subject) -> None:
    """P35: release(when) of a spent lease or group does nothing."""
    pool = subject.make()
    when = When()
    for hold_ in (pool.lease(*subject.key), pool.lease_many(2, *subject.key)):
        hold_.release()
        hold_.release(when)
    assert when.asked == 0
    assert_quiet(pool, leased=0, idle=3)


def test_a_waiter_is_served(subject: Subject) -> None:
    """G8: who waits while only pending resources could serve gets one when it's free, without anybody's help."""
    pool = subject.make(max_size=1)
    when = When()
    lease = pool.lease(*subject.key)
    resource = lease.resource
    with Threads() as threads:
        waiting = threads.start(pool.lease, *subject.key, timeout=20)
        wait_until_queued(pool, 1)
        lease.release(when)
        wait_until(lambda: when.asked > 2, "the waiter's asking")
        assert not waiting.ended
        when.free = True
        served = waiting.result()
    assert served.resource is resource
    served.release()
    assert_quiet(pool, leased=0, idle=1)
    assert when.misuse == []


def test_clear(subject: Subject) -> None:
    """P65, G8: what is pending when the pool is cleared is destroyed once it's free, not before."""
    recorder = Recorder()
    pool = subject.make(observer=recorder)
    when = When()
    pool.lease(*subject.key).release(when)
    assert pool.clear() == 0
    assert pool.stats().pending == 1
    when.free = True
    pool.reap()
    assert_quiet(pool, leased=0, idle=0)
    assert recorder.details("destroyed") == ["cleared"]


def test_forget(subject: Subject) -> None:
    """G8: forget leaves pending and quarantined resources behind at once, and asks nobody."""
    recorder = Recorder()
    pool = subject.make(observer=recorder)
    pending, stuck = When(), When()
    for when in (pending, stuck):
        pool.lease(*subject.key).release(when)
    stuck.errors.append(ZeroDivisionError())
    pool.reap()
    asked = pending.asked, stuck.asked
    assert (pool.stats().pending, pool.stats().quarantined) == (1, 1)
    assert pool.forget(*subject.key) == 2
    assert (pending.asked, stuck.asked) == asked
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.size, stats.abandoned, stats.destroyed) == (0, 2, 0)


def test_close_waits_for_what_is_pending(subject: Subject) -> None:
    """G9: close destroys a pending resource once it's free, waits for it, and names it where that takes too long."""
    recorder = Recorder()
    pool = subject.make(observer=recorder)
    when = When()
    pool.lease(*subject.key).release(when)
    with pytest.raises(PoolTimeoutError, match="pending=1"):
        pool.close(timeout=0)
    assert recorder.of("destroyed") == []
    with pytest.raises(PoolClosedError):
        pool.lease(*subject.key)
    with Threads() as threads:
        closing = threads.start(pool.close)
        asked = when.asked
        wait_until(lambda: when.asked > asked + 2, "the closing thread's asking")
        assert not closing.ended
        when.free = True
        closing.result()
    assert recorder.details("destroyed") == ["closed"]
    assert_quiet(pool, leased=0, idle=0)
    assert when.misuse == []


def test_given_back_to_a_closed_pool(subject: Subject) -> None:
    """P68, G8: what is given back after close and isn't free yet is destroyed when it is."""
    pool = subject.make()
    lease = pool.lease(*subject.key)
    with pytest.raises(PoolTimeoutError):
        pool.close(timeout=0)
    when = When()
    lease.release(when)
    assert pool.stats().pending == 1
    when.free = True
    pool.close()
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.size, stats.destroyed) == (0, 1)


def test_close_leaves_what_is_quarantined(subject: Subject, caplog: pytest.LogCaptureFixture) -> None:
    """G9: close doesn't wait for a resource of which nobody can tell when it's free; it stays counted, and is logged."""
    pool = subject.make(observer=Recorder())
    when = When()
    pool.lease(*subject.key).release(when)
    when.errors += [ZeroDivisionError() for _ in range(9)]
    pool.reap()
    pool.close()
    assert (pool.stats().quarantined, pool.stats().size) == (1, 1)
    assert "quarantined" in caplog.text
