"""Leases that belong to cyclic garbage, given back by finalisers that the collector runs (P77, G5, G7)."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from tests.helpers.invariants import assert_quiet
from tests.helpers.storms import weather
from tests.helpers.threads import Threads
from tests.helpers.whens import When, hold

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.resources import Factory, MakePool

pytestmark = pytest.mark.usefixtures("no_backstop")


class Garbage:
    """Cyclic garbage whose finaliser ends a lease."""

    def __init__(self, end: Callable[[], object]) -> None:
        self.me = self
        self.end = end

    def __del__(self) -> None:
        self.end()


@pytest.mark.parametrize("end", ["release", "discard", "detach"])
def test_the_collector_gives_back_inside_stats(make_pool: MakePool, end: str) -> None:
    """P77, G5: garbage that owns a lease properly is collected while stats() runs: no leak, no deadlock."""
    pool = make_pool()
    thresholds = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(300):
            Garbage(getattr(pool.lease("A"), end))
            pool.stats()
            pool.stats("A")
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    pool.lease("A").release()
    stats = assert_quiet(pool, leased=0)
    assert stats.leaked == 0
    assert stats.acquired == 301


@pytest.mark.slow
def test_the_collector_gives_back_anywhere(make_pool: MakePool) -> None:
    """P77: with a collection at nearly every allocation, in four threads, all comes back and none leaks."""
    pool = make_pool()

    def work(key: str) -> None:
        for number in range(150):
            Garbage(getattr(pool.lease(key), "discard" if number % 5 == 0 else "release"))
            with pool.lease(key) as thing:
                assert thing.alive
            pool.release(pool.acquire(key))
            pool.stats(key)
            if number % 10 == 0:
                pool.clear(key)

    thresholds = gc.get_threshold()
    gc.set_threshold(1)
    try:
        with Threads() as threads:
            for key in "AABB":
                threads.start(work, key)
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    pool.lease("A").release()
    stats = assert_quiet(pool, keys="AB", leased=0)
    assert stats.leaked == 0


@pytest.mark.parametrize("owner_first", [True, False])
def test_a_finaliser_that_releases_is_no_leak(make_pool: MakePool, owner_first: bool) -> None:  # noqa: FBT001
    """P77, G7: garbage that releases its lease properly is no leak, in whichever order the finalisers run.

    The resource is good afterwards, and losing it for real is still seen.
    """
    pool = make_pool(max_size=1)
    for _ in range(3):
        if owner_first:
            garbage = Garbage(int)
            garbage.end = pool.lease("A").release
        else:
            garbage = Garbage(pool.lease("A").release)
        del garbage
        gc.collect()
        with pool.lease("A", timeout=0) as thing:
            assert thing.number == 1
        assert_quiet(pool, leased=0, idle=1)
    assert pool.stats().leaked == 0
    with weather():
        pool.lease("A")
        with pool.lease("A", timeout=5) as thing:
            assert thing.number == 2
    assert pool.stats().leaked == 1


@pytest.mark.parametrize("way", ["lease", "group"])
@pytest.mark.parametrize("answer", ["yes", "not yet", "raises"])
@pytest.mark.parametrize("owner_first", [True, False])
def test_a_finaliser_that_defers_is_no_leak(
    make_pool: MakePool,
    factory: Factory,
    owner_first: bool,  # noqa: FBT001
    answer: str,
    way: str,
) -> None:
    """P77, G7, G8: garbage whose finaliser gives back with a `when` is no leak either, in whichever order the finalisers run."""
    pool = make_pool(max_size=2)
    for _ in range(3):
        when = When(free=answer == "yes")
        garbage = Garbage(int) if owner_first else None
        held = hold(pool, way)
        if garbage is None:
            garbage = Garbage(int)
        garbage.end = lambda release=held.release, when=when: release(when)
        number = len(held.things)
        del garbage, held
        gc.collect()
        if answer == "raises":
            when.errors = [OSError("not yet") for _ in range(number)]
        pool.reap()
        if answer != "yes":
            stats = pool.stats()
            assert (stats.pending, stats.quarantined)[answer == "raises"] == number
        when.free = True
        pool.reap()
        pool.reap()
        assert_quiet(pool, leased=0, idle=number)
        assert when.misuse == []
    pool.lease_many(2, "A", timeout=0).release()
    assert (pool.stats().leaked, factory.destroyed) == (0, [])
    with weather():
        pool.lease_many(2, "A")
        pool.lease_many(2, "A", timeout=5).release()
    assert pool.stats().leaked == 2


@pytest.mark.parametrize("end", ["release", "discard", "deferred", "detach"])
def test_others_settle_while_a_finaliser_gives_back(make_pool: MakePool, factory: Factory, end: str) -> None:
    """P77, G1, G6, G7: while the finaliser's own hook runs, another thread books what the collector noted: it's in the finaliser's hands."""
    pool = make_pool(max_size=2, reset=factory.reset)

    def others_settle(*_: object) -> None:
        with Threads() as threads:
            threads.start(pool.reap)
            threads.start(lambda: pool.lease("B", timeout=0).discard())

    def when() -> bool:
        others_settle()
        return True

    for _ in range(3):
        lease = pool.lease("A")
        ends = {
            "release": lease.release,
            "discard": lease.discard,
            "deferred": lambda lease=lease: lease.release(when),
            "detach": lease.detach,
        }
        Garbage(ends[end])
        factory.before["reset"] = factory.before["destroy"] = lambda key, *_: key == "A" and others_settle()
        del lease, ends
        gc.collect()
        factory.before.clear()
        stats = assert_quiet(pool, keys="AB", leased=0, idle=int(end in {"release", "deferred"}))
        assert stats.leaked == 0
        assert sorted(thing.number for thing in factory.destroyed) == sorted(
            {thing.number for thing in factory.destroyed}
        )
    pool.lease_many(2, "A", timeout=0).release()
