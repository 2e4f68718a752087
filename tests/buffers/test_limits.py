"""Other limits, time, and changing them: `resize`, `reap`, `release(when)` where sizes and memory make a difference."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from respool import PoolClosedError, PoolExhaustedError, PoolLimits, PoolTimeoutError
from respool.buffers import BufferPool, HostAllocator
from tests.helpers.clocks import without_reaper
from tests.helpers.invariants import assert_quiet
from tests.helpers.threads import Threads, wait_until, wait_until_queued
from tests.helpers.whens import When

from .allocators import Books

if TYPE_CHECKING:
    from respool.buffers._memory import BufferKind


class TestResize:
    """The budget is a limit of its own."""

    def test_the_budget_stays(self) -> None:
        """Resize without max_bytes changes the other limits and leaves the budget, also by `dataclasses.replace`."""
        with BufferPool(HostAllocator(), buffer_size=16, max_bytes=64) as pool:
            pool.resize(PoolLimits(max_size=3))
            assert pool.limits == PoolLimits(max_size=3, max_cost=64)
            pool.resize(dataclasses.replace(pool.limits, max_idle=2))
            assert pool.limits == PoolLimits(max_size=3, max_idle=2, max_cost=64)
            assert pool.prefill(5) == 2

    def test_another_budget(self) -> None:
        """P63, P64: a larger budget serves who waits, none is none, and a smaller one frees idle buffers at once."""
        books = Books()
        with BufferPool(books, buffer_size=100, max_bytes=200) as pool:
            held = pool.lease()
            with Threads() as threads:
                waiting = threads.start(pool.lease, 200)
                wait_until_queued(pool, 1)  # type: ignore[arg-type]  # any pool will do
                pool.resize(PoolLimits(), max_bytes=300)
                waiting.result().release()
            pool.resize(PoolLimits(), max_bytes=None)
            assert pool.limits == PoolLimits()
            pool.lease(10_000).release()
            pool.resize(PoolLimits(), max_bytes=250)
            assert (pool.stats().cost, pool.stats().leased) == (100, 1)
            held.release()
            assert_quiet(pool, leased=0, idle=1)

    @pytest.mark.parametrize("max_bytes", [0, True, 1.5, "1"])
    def test_no_budget(self, max_bytes: Any) -> None:
        """P11: a budget that is none is refused, and nothing changes."""
        with BufferPool(HostAllocator(), buffer_size=16, max_bytes=64) as pool:
            with pytest.raises((TypeError, ValueError), match="max_bytes"):
                pool.resize(PoolLimits(), max_bytes=max_bytes)
            assert pool.limits.max_cost == 64

    def test_contradictions(self) -> None:
        """A max_cost that isn't the budget, and a budget with no room for one buffer, are refused; nothing changes."""
        with BufferPool(HostAllocator(), buffer_size=32, max_bytes=64) as pool:
            with pytest.raises(ValueError, match="max_bytes"):
                pool.resize(PoolLimits(max_cost=128))
            with pytest.raises(ValueError, match="max_bytes"):
                pool.resize(PoolLimits(max_cost=64), max_bytes=128)
            with pytest.raises(PoolExhaustedError):
                pool.resize(PoolLimits(), max_bytes=31)
            with pytest.raises(TypeError, match="PoolLimits"):
                pool.resize(64)  # type: ignore[arg-type]  # that is the point
            assert pool.limits == PoolLimits(max_cost=64)
            pool.resize(PoolLimits(max_cost=128), max_bytes=128)
            assert pool.limits == PoolLimits(max_cost=128)
        with pytest.raises(PoolClosedError):
            pool.resize(PoolLimits())

    def test_what_has_become_impossible(self) -> None:
        """A waiter whose request is now more than the whole budget is refused at once."""
        with BufferPool(HostAllocator(), buffer_size=16, max_bytes=160) as pool:
            held = pool.lease(160)
            with Threads() as threads:
                waiting = threads.start(pool.lease, 160)
                wait_until_queued(pool, 1)  # type: ignore[arg-type]  # any pool will do
                pool.resize(PoolLimits(), max_bytes=64)
                error = waiting.error()
                assert isinstance(error, PoolExhaustedError)
                assert str(error) == "a buffer of 160 bytes is more than max_bytes=64"
            held.release()
            assert_quiet(pool, leased=0, idle=0)


class TestTime:
    """Idle buffers don't stay for ever, if they need not."""

    def test_idle_timeout(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """P57: buffers of all sizes that lay idle for long enough are freed by reap, others stay."""
        clock = without_reaper(monkeypatch)
        books = Books()
        with BufferPool(books, buffer_size=16, limits=PoolLimits(idle_timeout=10)) as pool:
            pool.lease(1000).release()
            pool.lease().release()
            clock.advance(9)
            pool.lease().release()
            clock.advance(2)
            assert pool.reap() == 1
            assert books.freed == [bytearray]
            stats = assert_quiet(pool, leased=0, idle=1)
            assert (stats.cost, stats.destroyed_for["idle"]) == (16, 1)

    def test_nobody_has_to_call(self) -> None:
        """P57: with an idle_timeout, memory goes back to the system while nobody uses the pool."""
        books = Books()
        with BufferPool(books, buffer_size=16, limits=PoolLimits(idle_timeout=0.001)) as pool:
            pool.lease(1000).release()
            wait_until(lambda: books.out == 0, "the end of idle memory")

    def test_max_per_key_by_function(self) -> None:
        """P02: a max_per_key function is asked with what buffers of one kind have in common."""
        asked: list[BufferKind] = []
        allocator = HostAllocator()

        def cap(kind: BufferKind) -> int | None:
            asked.append(kind)
            return 1 if kind.capacity > 100 else None

        with BufferPool(allocator, buffer_size=16, limits=PoolLimits(max_per_key=cap)) as pool:
            with pool.lease(200), pool.lease(), pool.lease(), pytest.raises(PoolTimeoutError):
                pool.lease(200, timeout=0)
            assert {kind.capacity for kind in asked} == {16, 208}
            assert {kind.allocator for kind in asked} == {allocator}


class TestDeferred:
    """Buffers that something still writes to."""

    def test_not_reused_before_it_is_free(self) -> None:
        """G8: memory that is given back with a `when` counts and is neither reused nor freed before that says yes."""
        books = Books()
        with BufferPool(books, buffer_size=100, max_bytes=200) as pool:
            first, second = When(), When()
            lease, bare = pool.lease(), pool.acquire()
            memory = lease.resource
            lease.release(first)
            pool.release(bare, second)
            assert (pool.stats().pending, pool.stats().cost) == (2, 200)
            for nbytes in (None, 200):
                assert pool.try_lease(nbytes) is None
            assert pool.clear() == 0
            assert books.freed == []
            second.free = True
            with pool.lease(timeout=5):
                assert books.out == 2
            first.free = True
            pool.reap()
            assert_quiet(pool, leased=0, idle=1)
            assert books.out == 1
            assert first.misuse == second.misuse == []
            with pytest.raises(ValueError, match="freed"):
                memory.view  # noqa: B018 - it's a property that raises

    def test_waiters_get_it(self) -> None:
        """G8: who waits for another size gets the memory as soon as `when` says so."""
        books = Books()
        with BufferPool(books, buffer_size=100, max_bytes=200) as pool:
            when = When(after=5)
            pool.lease_many(2).release(when)
            with pool.lease(200, timeout=20) as buffer:
                assert buffer.nbytes == 200
            assert when.misuse == []
            assert books.most_out == 2
