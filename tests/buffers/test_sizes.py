"""Buffers of several sizes: classes, whose buffers serve whom, and one budget over all of them."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from respool import PoolExhaustedError, PoolLimits, PoolTimeoutError
from respool.buffers import BufferPool, HostAllocator, PageAlignedAllocator
from respool.buffers._sizes import size_class
from tests.helpers.invariants import assert_quiet
from tests.helpers.recorder import Recorder
from tests.helpers.threads import Threads, run_together, wait_until_queued

from .allocators import Books

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no failure."""

PAGE = mmap.PAGESIZE

TAKES: dict[str, Callable[[BufferPool, int | None], Any]] = {
    "lease": lambda pool, nbytes: pool.lease(nbytes),
    "try_lease": lambda pool, nbytes: pool.try_lease(nbytes),
    "lease_many": lambda pool, nbytes: pool.lease_many(1, nbytes),
    "acquire": lambda pool, nbytes: pool.acquire(nbytes),
    "try_acquire": lambda pool, nbytes: pool.try_acquire(nbytes),
    "bind": lambda pool, nbytes: pool.bind(nbytes).lease(),
}
"""Ways of taking a buffer; each gives what holds it."""


class TestClasses:
    """How much more than was asked for."""

    @PATIENT
    @given(nbytes=st.integers(1, 1 << 50), alignment=st.sampled_from([1, 16, 1000, PAGE, 2 << 20]))
    def test_slack(self, nbytes: int, alignment: int) -> None:
        """A class is enough, aligned, its own class, and at most an eighth or less than one alignment more."""
        found = size_class(nbytes, alignment)
        assert found >= nbytes
        assert found % alignment == 0
        assert (found - nbytes) * 8 <= nbytes or found - nbytes < alignment
        assert size_class(found, alignment) == found
        assert size_class(nbytes + 1, alignment) >= found

    @PATIENT
    @given(power=st.integers(4, 40), alignment=st.sampled_from([1, 16, PAGE]))
    def test_there_are_few(self, power: int, alignment: int) -> None:
        """From one power of two to the next there are eight classes, so that similar sizes find each other's buffers."""
        first, last = alignment << power, alignment << (power + 1)
        found = {size_class(nbytes, alignment) for nbytes in range(first + 1, last + 1, max(1, first // 997))}
        assert len(found) <= 8
        assert last in {size_class(last, alignment), *found}

    @pytest.mark.parametrize("allocator", [HostAllocator(), PageAlignedAllocator()], ids=repr)
    @pytest.mark.parametrize("nbytes", [1, 15, 4095, 4096, 4097, 100_000, 999_999, 10_000_001])
    def test_what_is_had(self, allocator: Any, nbytes: int) -> None:
        """A buffer has the size asked for, memory of its class, and is charged just that."""
        with BufferPool(allocator, buffer_size=1 << 20) as pool, pool.lease(nbytes) as buffer:
            assert buffer.nbytes == len(buffer.view) == nbytes
            assert buffer.capacity == pool.stats().cost
            slack = buffer.capacity - nbytes
            assert 0 <= slack <= nbytes / 8 or slack < allocator.alignment
            buffer.view[-1] = 7
            assert buffer.view[-1] == 7

    @pytest.mark.parametrize("take", TAKES)
    @pytest.mark.parametrize(
        ("nbytes", "error"),
        [(0, ValueError), (-1, ValueError), (True, TypeError), (1.5, TypeError), ("1", TypeError)],
    )
    def test_no_size(self, take: str, nbytes: Any, error: type[Exception]) -> None:
        """P11: what is no size is refused by every method that takes one, with its value in the text; nothing changes."""
        with BufferPool(HostAllocator(), buffer_size=16) as pool:
            with pytest.raises(error, match=rf"nbytes must be .*{nbytes!r}"):
                TAKES[take](pool, nbytes)
            for call in (pool.clear, pool.forget, pool.stats, lambda bad: pool.prefill(1, bad)):
                with pytest.raises(error, match="nbytes"):
                    call(nbytes)
            assert_quiet(pool, leased=0, idle=0)

    @pytest.mark.parametrize("take", TAKES)
    def test_every_way_takes_a_size(self, take: str) -> None:
        """Each way of taking a buffer gives the size asked for, and without one the usual size."""
        with BufferPool(HostAllocator(), buffer_size=160) as pool:
            for nbytes in (1000, None, 3):
                hold = TAKES[take](pool, nbytes)
                buffer = hold.resources[0] if take == "lease_many" else getattr(hold, "resource", hold)
                assert buffer.nbytes == len(buffer.view) == (nbytes or 160)
                pool.release(hold) if hold is buffer else hold.release()


class TestReuse:
    """Whose buffers serve whom."""

    def test_one_class_one_stack(self) -> None:
        """A buffer serves any size of its class, and is as long as each holder asked for."""
        books = Books()
        with BufferPool(books, buffer_size=16) as pool:
            with pool.lease(1000) as first:
                assert first.nbytes == 1000
            with pool.lease(1020) as second:
                assert second is first
                assert (second.nbytes, len(second.view), second.capacity) == (1020, 1020, 1024)
            with pool.lease(1025) as other:
                assert other is not first
            assert books.asked == [1024, 1152]

    def test_the_usual_ones_serve_what_they_fit(self) -> None:
        """A size whose class is no smaller than a usual buffer is served by that, and it's itself again afterwards."""
        books = Books()
        with BufferPool(books, buffer_size=1001) as pool:
            with pool.lease() as usual:
                assert usual.capacity == 1001
            with pool.lease(999) as shorter:
                assert shorter is usual
                assert len(shorter.view) == 999
            with pool.lease() as again:
                assert again is usual
                assert len(again.view) == 1001
            with pool.lease(900) as smaller, pool.lease(1002) as larger:
                assert usual not in {smaller, larger}
            with pool.lease(1001) as same:
                assert same is usual
            assert books.asked == [1001, 960, 1024]

    def test_numbers_by_size(self) -> None:
        """P65: stats and clear take a size, None for the usual one, and without one mean all."""
        with BufferPool(HostAllocator(), buffer_size=16) as pool:
            with pool.lease(), pool.lease(1000), pool.lease(1000):
                assert (pool.stats(1000).leased, pool.stats(None).leased, pool.stats().leased) == (2, 1, 3)
            assert pool.stats(1010).cost == 2048
            assert pool.stats(5000).size == 0
            assert pool.clear(1024) == 2
            assert pool.clear(None) == 1
            assert pool.clear() == 0

    def test_forget(self) -> None:
        """Forget leaves a size's buffers alone without freeing them, idle ones now and leased ones on release."""
        books = Books()
        with BufferPool(books, buffer_size=16) as pool:
            held = pool.lease(1000)
            pool.prefill(2, 1000)
            pool.prefill(1)
            assert pool.forget(1000) == 2
            held.release()
            stats = assert_quiet(pool, leased=0, idle=1)
            assert (stats.abandoned, stats.destroyed, stats.cost) == (3, 0, 16)
            assert (books.freed, books.out) == ([], 4)
        assert len(books.freed) == 1

    def test_prefill_and_lease_many(self) -> None:
        """P99: prefill makes buffers of a size, and lease_many takes them all in one go."""
        books = Books()
        with BufferPool(books, buffer_size=16, max_bytes=3 * 1024 + 100) as pool:
            assert pool.prefill(5, 1000) == 3
            with pool.lease_many(3, 1010) as buffers:
                assert [len(buffer.view) for buffer in buffers] == [1010] * 3
                assert len({buffer.address for buffer in buffers}) == 3
                with pytest.raises(PoolTimeoutError):
                    pool.lease_many(2, 1000, timeout=0)
            with pytest.raises(PoolExhaustedError):
                pool.lease_many(4, 1000)
            assert books.asked == [1024] * 3

    def test_bound(self) -> None:
        """A pool bound to a size takes and tells of buffers of that size."""
        with BufferPool(HostAllocator(), buffer_size=16) as pool:
            bound = pool.bind(1000)
            assert bound.prefill(2) == 2
            assert (bound.nbytes, bound.key.capacity) == (1000, 1024)
            with bound.lease() as buffer:
                assert len(buffer.view) == 1000
                assert bound.stats() == pool.stats(1000)
            with bound.lease_many(2) as buffers:
                assert [len(buffer.view) for buffer in buffers] == [1000] * 2
            tried = bound.try_lease()
            assert tried is not None
            tried.discard()
            bare = bound.try_acquire()
            assert bare is not None
            bound.discard(bare)
            assert bound.clear() == 0
            assert "1000 bytes" in repr(bound)


class TestAskedAgain:
    """What was found for a size before holds only as long as it's true."""

    def test_after_another_budget(self) -> None:
        """P92: a size whose class fitted the old budget is had within a smaller one that it fits itself."""
        with BufferPool(Books(), buffer_size=16) as pool:
            pool.lease(1000).release()
            pool.resize(PoolLimits(), max_bytes=1010)
            with pool.lease(1000) as buffer:
                assert buffer.capacity == 1000

    def test_after_another_usual_size(self) -> None:
        """P65: a size that was served by usual buffers isn't served by those of the old usual size."""
        with BufferPool(Books(), buffer_size=1001) as pool:
            with pool.lease(999) as buffer:
                assert buffer.capacity == 1001
            pool.set_buffer_size(16)
            with pool.lease(999) as buffer:
                assert buffer.capacity == 1024

    def test_true_is_no_size(self) -> None:
        """P11: True is refused also where 1 was asked for."""
        with BufferPool(Books(), buffer_size=16) as pool:
            pool.lease(1).release()
            with pytest.raises(TypeError):
                pool.lease(nbytes=True)

    def test_many_sizes(self) -> None:
        """P61: whatever number of sizes is asked for, each gets what it asked for, and little is remembered."""
        with BufferPool(Books(), buffer_size=16, max_bytes=20_000) as pool:
            for nbytes in [*range(1, 1000, 7)] * 2:
                with pool.lease(nbytes) as buffer:
                    assert buffer.nbytes == nbytes
            assert len(pool._recent) <= 64


class TestOneBudget:
    """P91 to P97: one budget over all sizes."""

    def test_idle_ones_of_other_sizes_give_way(self) -> None:
        """P91: idle buffers go, the least recently used first and no more than needed, and the budget is never passed."""
        books, recorder = Books(), Recorder()
        with BufferPool(books, buffer_size=30, max_bytes=100, observer=recorder) as pool:
            for nbytes in (10, 30, 40):
                pool.lease(nbytes).release()
            assert pool.stats().cost == 80
            with pool.lease(50):
                assert [event.key.capacity for event in recorder.of("destroyed")] == [10, 30]
                assert (pool.stats().cost, pool.stats().idle) == (92, 1)
                other = pool.try_lease(15)
                assert other is not None
                other.release()
            assert recorder.details("destroyed")[:2] == ["evicted", "evicted"]

    def test_more_than_the_budget(self) -> None:
        """P92: a size that is more than the whole budget is refused at once, also by try_, and holds up nobody."""
        step = HostAllocator().alignment
        with BufferPool(HostAllocator(), buffer_size=16, max_bytes=100) as pool, pool.lease(96):
            for refused in (pool.lease, pool.try_lease, pool.acquire, pool.try_acquire):
                with pytest.raises(PoolExhaustedError) as caught:
                    refused(101)
                charged = -(-101 // step) * step
                assert (
                    str(caught.value)
                    == f"a buffer of 101 bytes (charged {charged}) is more than max_bytes=100"
                )
            assert pool.stats().rejected == 4
            assert pool.stats().waiters == 0

    def test_several_are_more_than_the_budget(self) -> None:
        """P92: several that are together more than the budget are refused in words of the buffer pool's own."""
        with BufferPool(Books(), buffer_size=40, max_bytes=100) as pool:
            told = "3 buffers of 40 bytes are more than max_bytes=100"
            for refused in (pool.lease_many, pool.bind().lease_many):
                with pytest.raises(PoolExhaustedError) as caught:
                    refused(3)
                assert str(caught.value) == told
            with pytest.raises(PoolExhaustedError, match="3 buffers of 38 bytes"):
                pool.lease_many(3, 38)
            assert pool.stats().rejected == 3

    def test_bound_to_more_than_the_budget(self) -> None:
        """P92: a pool bound to more than the budget says it on each take."""
        with BufferPool(Books(), buffer_size=40, max_bytes=100) as pool:
            bound = pool.bind(101)
            for refused in (bound.lease, bound.try_lease, bound.acquire, bound.try_acquire):
                with pytest.raises(PoolExhaustedError) as caught:
                    refused()
                assert str(caught.value) == "a buffer of 101 bytes (charged 104) is more than max_bytes=100"
            assert pool.stats().rejected == 4

    def test_other_limits(self) -> None:
        """P92: what another limit refuses is told by that limit's name."""
        limits = PoolLimits(max_size=2)
        with BufferPool(Books(), buffer_size=40, max_bytes=1000, limits=limits) as pool:
            with pytest.raises(PoolExhaustedError, match="max_size=2"):
                pool.lease_many(3)
            with pytest.raises(PoolExhaustedError, match="max_size=2"):
                pool.bind(50).lease_many(3)

    @pytest.mark.parametrize("nbytes", [97, 98, 99, 100])
    def test_only_the_class_is_more_than_the_budget(self, nbytes: int) -> None:
        """P92: a size that fits is had, also where its class would not fit."""
        books = Books()
        with BufferPool(books, buffer_size=10, max_bytes=100) as pool, pool.lease(nbytes) as buffer:
            assert (buffer.nbytes, buffer.capacity) == (nbytes, nbytes)

    def test_a_large_request_is_served_in_its_turn(self) -> None:
        """P93: a large request that waits isn't starved by small ones that keep coming, idle buffers for them or not."""
        with BufferPool(HostAllocator(), buffer_size=16, max_bytes=160) as pool:
            held = [pool.lease() for _ in range(9)]
            pool.lease().release()
            with Threads() as threads:
                large = threads.start(pool.lease, 128)
                wait_until_queued(pool, 1)  # type: ignore[arg-type]  # any pool will do
                small = [threads.start(pool.lease) for _ in range(3)]
                wait_until_queued(pool, 4)  # type: ignore[arg-type]
                for lease in held[:7]:
                    assert pool.try_lease() is None
                    assert not large.ended
                    lease.release()
                with large.result() as buffer:
                    assert buffer.nbytes == 128
                    assert (pool.stats().waiters, pool.stats().cost) == (3, 160)
                for task in small:
                    task.result().release()
            for lease in held[7:]:
                lease.release()
            assert_quiet(pool, leased=0)

    def test_threads_evict_only_what_is_needed(self) -> None:
        """P96: several threads that find the budget full of another size free just as much as they need, together."""
        books = Books()
        with BufferPool(books, buffer_size=10, max_bytes=200) as pool:
            pool.prefill(20)
            leases = run_together(*[lambda: pool.lease(20)] * 4)
            stats = pool.stats()
            assert (stats.destroyed_for["evicted"], stats.idle, stats.cost) == (8, 12, 200)
            for lease in leases:
                lease.release()

    def test_sizes_that_nobody_asks_for_any_more(self) -> None:
        """P97: a budget full of sizes that have gone out of use is used by those that are in use, in the end by these alone."""
        books = Books()
        with BufferPool(books, buffer_size=10, max_bytes=1000) as pool:
            for nbytes in range(20, 420, 40):
                pool.lease(nbytes).release()
            for _ in range(3):
                leases = [pool.lease(timeout=0) for _ in range(100)]
                assert pool.stats().cost == 1000
                for lease in leases:
                    lease.release()
            assert {pool.stats(nbytes).size for nbytes in range(20, 420, 40)} == {0}
            assert pool.stats(None).idle == 100

    def test_under_load(self) -> None:
        """P93, P96, P98: threads that take all sizes at random stay within the budget, nobody waits for ever, all goes back."""
        books = Books()
        with BufferPool(books, buffer_size=64, max_bytes=1000, limits=PoolLimits(max_idle=10)) as pool:

            def use(seed: int) -> None:
                for turn in range(150):
                    nbytes = (None, 17, 100, 333, 1000)[(seed + turn * 7) % 5]
                    if turn % 10 == seed % 10:
                        with pool.lease_many(2, 100) as buffers:
                            assert len(buffers) == 2
                    with pool.lease(nbytes) as buffer:
                        buffer.view[:] = bytes([seed]) * len(buffer.view)
                        assert pool.stats().cost <= 1000
                        assert set(buffer.view) == {seed}

            run_together(*[lambda seed=seed: use(seed) for seed in range(6)])  # type: ignore[misc]
            assert_quiet(pool, leased=0)
        assert books.out == 0
