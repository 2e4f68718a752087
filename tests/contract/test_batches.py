"""Several at once: `lease_many` means the same in every pool."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest

from respool import (
    LeaseLeakWarning,
    LeaseReleasedError,
    PoolClosedError,
    PoolError,
    PoolExhaustedError,
    PoolTimeoutError,
)
from tests.helpers.forks import in_child
from tests.helpers.invariants import assert_quiet
from tests.helpers.threads import Threads, run_together, wait_until_queued

if TYPE_CHECKING:
    from tests.contract.factories import Subject

pytestmark = pytest.mark.usefixtures("no_backstop")


def test_a_group_is_a_block(subject: Subject) -> None:
    """P99: `with pool.lease_many(n) as resources:` lends n different ones and takes them all back."""
    pool = subject.make(max_size=3)
    for face, key in ((pool, subject.key), (pool.bind(*subject.key), ())):
        group = face.lease_many(3, *key)
        with group as resources:
            assert isinstance(resources, tuple)
            assert group.resources == resources
            assert len({id(resource) for resource in resources}) == 3
            assert (pool.stats().leased, group.released) == (3, False)
        assert group.released
    stats = assert_quiet(pool, leased=0, idle=3)
    assert (stats.acquired, stats.created, stats.reused) == (6, 3, 3)


@pytest.mark.parametrize("end", ["release", "discard", "with"])
def test_a_spent_group(subject: Subject, end: str) -> None:
    """P35, P41, P42: release again does nothing, everything else is LeaseReleasedError."""
    pool = subject.make()
    group = pool.lease_many(2, *subject.key)
    if end == "with":
        with group:
            pass
    else:
        getattr(group, end)()
    before = assert_quiet(pool, leased=0, idle=0 if end == "discard" else 2)
    group.release()
    for call in (lambda: group.resources, group.discard, group.__enter__):
        with pytest.raises(LeaseReleasedError):
            call()
    assert pool.stats() == before


def test_all_or_none(subject: Subject) -> None:
    """P99: where not all can be had in time, none is held, and what was idle is idle."""
    pool = subject.make(max_size=3)
    with pool.lease(*subject.key):
        pool.lease(*subject.key).release()
        before = pool.stats()
        for timeout in (0, 0.001):
            with pytest.raises(PoolTimeoutError):
                pool.lease_many(3, *subject.key, timeout=timeout)
        after = pool.stats()
        assert (after.leased, after.idle, after.size) == (before.leased, before.idle, before.size)
        pool.lease_many(2, *subject.key, timeout=0).release()
    assert_quiet(pool, leased=0, idle=3)


def test_more_than_ever(subject: Subject) -> None:
    """P101: more than any limit allows is PoolExhaustedError at once, counted as rejected."""
    pool = subject.make(max_size=2)
    with pytest.raises(PoolExhaustedError):
        pool.lease_many(3, *subject.key)
    assert pool.stats().rejected == 1
    assert_quiet(pool, leased=0, idle=0)


@pytest.mark.parametrize("n", [0, -1, True, 1.5, "1", None], ids=repr)
def test_senseless_numbers(subject: Subject, n: Any) -> None:
    """P11: what is no number of resources is a ValueError or TypeError, bound or not; nothing changes."""
    pool = subject.make()
    for call in (lambda: pool.lease_many(n, *subject.key), lambda: pool.bind(*subject.key).lease_many(n)):
        with pytest.raises((TypeError, ValueError)):
            call()
    assert_quiet(pool, leased=0, idle=0)


def test_it_waits_for_all_in_its_turn(subject: Subject) -> None:
    """P99, G4: a group waits until there's enough, and nobody who comes later passes it."""
    pool = subject.make(max_size=2)
    first, second = pool.lease(*subject.key), pool.lease(*subject.key)
    with Threads() as threads:
        many = threads.start(pool.lease_many, 2, *subject.key)
        wait_until_queued(pool, 1)
        single = threads.start(pool.lease, *subject.key)
        wait_until_queued(pool, 2)
        first.release()
        assert pool.try_lease(*subject.key) is None
        assert pool.stats().waiters == 2
        second.release()
        group = many.result()
        assert not single.ended
        group.release()
        single.result().release()
    assert_quiet(pool, leased=0, idle=2)


def test_groups_that_compete(subject: Subject) -> None:
    """P100: threads that each want several of too few all get them, again and again; nobody holds some while waiting."""
    pool = subject.make(max_size=3)

    def use() -> None:
        for _ in range(20):
            with pool.lease_many(2, *subject.key) as resources:
                assert len({id(one) for one in resources}) == 2

    run_together(*[use] * 4)
    stats = assert_quiet(pool, leased=0)
    assert stats.acquired == 160


def test_discard(subject: Subject) -> None:
    """P19: discarding a group destroys all of it, and there's room for who waits."""
    pool = subject.make(max_size=2)
    group = pool.lease_many(2, *subject.key)
    with Threads() as threads:
        waiting = threads.start(pool.lease_many, 2, *subject.key)
        wait_until_queued(pool, 1)
        group.discard()
        waiting.result().release()
    stats = assert_quiet(pool, leased=0, idle=2)
    assert stats.destroyed_for["discarded"] == 2


def test_an_error_in_the_body(subject: Subject) -> None:
    """P48: it comes out unchanged, and the rooms are free."""
    pool = subject.make(max_size=2)
    error = ValueError("body")
    with pytest.raises(ValueError, match="body") as caught, pool.lease_many(2, *subject.key):
        raise error
    assert caught.value is error
    pool.lease_many(2, *subject.key, timeout=0).release()
    assert_quiet(pool, leased=0, idle=2)


def test_a_dropped_group(subject: Subject) -> None:
    """P45: a group that is dropped gives its rooms back; each resource counts as leaked and is destroyed."""
    pool = subject.make(max_size=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pool.lease_many(2, *subject.key)
        assert pool.stats().leaked == 2
        pool.lease_many(2, *subject.key, timeout=0).release()
    assert [warning.category for warning in caught] == [LeaseLeakWarning] * 2
    stats = assert_quiet(pool, leased=0, idle=2)
    assert stats.destroyed_for["leaked"] == 2


def test_close(subject: Subject) -> None:
    """P67, P68: close wakes who waits for several, and what a group has is destroyed when it comes back."""
    pool = subject.make(max_size=2)
    group = pool.lease_many(2, *subject.key)
    with Threads() as threads:
        waiting = threads.start(pool.lease_many, 2, *subject.key)
        wait_until_queued(pool, 1)
        with pytest.raises(PoolTimeoutError):
            pool.close(timeout=0)
        assert isinstance(waiting.error(), PoolClosedError)
    with pytest.raises(PoolClosedError):
        pool.lease_many(2, *subject.key)
    group.release()
    stats = assert_quiet(pool, leased=0, idle=0)
    assert stats.destroyed_for["closed"] == 2


def test_a_fork(subject: Subject) -> None:
    """P75, P76: a child's release of an inherited group is a no-op; the parent's group is as before."""
    pool = subject.make(max_size=2)
    group = pool.lease_many(2, *subject.key)

    def child() -> None:
        group.release()
        if subject.case.creates_after_fork:
            pool.lease_many(2, *subject.key, timeout=0).release()
        else:
            with pytest.raises(PoolError):
                pool.lease_many(2, *subject.key, timeout=0)
        assert_quiet(pool, leased=0, idle=2 if subject.case.creates_after_fork else 0)

    in_child(child)
    assert (pool.stats().leased, group.released) == (2, False)
    group.release()
    assert_quiet(pool, leased=0, idle=2)
