"""Leases that belong to cyclic garbage, given back by finalisers that the collector runs (P77, G5, G7)."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from tests.helpers.invariants import assert_quiet
from tests.helpers.storms import weather
from tests.helpers.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.resources import MakePool

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
