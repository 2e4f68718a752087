"""The budget of bytes, running out of memory, and forks."""

from __future__ import annotations

import mmap
import subprocess
import sys

import pytest

from respool import (
    LeaseLeakWarning,
    PoolExhaustedError,
    PoolLimits,
    PoolTimeoutError,
)
from respool.buffers import BufferPool, HostAllocator, PageAlignedAllocator
from tests.helpers.invariants import assert_quiet
from tests.helpers.recorder import Recorder
from tests.helpers.threads import Threads, run_together, wait_until_queued

from .allocators import Books

PAGE = mmap.PAGESIZE


class TestBudget:
    """P91 to P98 as far as one size goes; `test_sizes` has several."""

    def test_cost_is_bytes(self) -> None:
        """stats().cost is the bytes charged: sizes rounded up to the alignment."""
        with BufferPool(buffer_size=PAGE + 1, max_bytes=10 * PAGE) as pool:
            with pool.lease() as a, pool.lease() as b:
                assert a.capacity == b.capacity == 2 * PAGE
                assert pool.stats().cost == 4 * PAGE
            assert pool.stats().cost == 4 * PAGE
            pool.clear()
            assert pool.stats().cost == 0

    def test_full(self) -> None:
        """A full budget: try_ gives None, timeout=0 raises, a wait ends in PoolTimeoutError or a buffer."""
        with BufferPool(HostAllocator(), buffer_size=64, max_bytes=100) as pool:
            held = pool.lease()
            assert pool.try_lease() is None
            assert pool.try_acquire() is None
            with pytest.raises(PoolTimeoutError) as caught:
                pool.lease(timeout=0)
            assert caught.value.limits.max_cost == 100
            assert isinstance(caught.value, TimeoutError)
            with Threads() as threads:
                waiting = threads.start(pool.acquire)
                wait_until_queued(pool._pool, 1)
                held.release()
                pool.release(waiting.result())
            assert pool.stats().created == 1

    def test_many_threads_share_a_budget(self) -> None:
        """P96: 8 threads on a budget of three never have more than three, and all are served."""
        books = Books()
        with BufferPool(books, buffer_size=10, max_bytes=39) as pool:

            def use() -> None:
                for _ in range(200):
                    with pool.lease() as buffer:
                        buffer.view[:] = b"x" * 10
                        assert pool.stats().cost <= 39

            run_together(*[use] * 8)
            assert books.most_out <= 3
            stats = pool.stats()
            assert (stats.acquired, stats.leased, stats.waiters) == (1600, 0, 0)
            assert stats.cost == 10 * stats.size
        assert books.out == 0

    def test_charge_is_given_back_exactly(self) -> None:
        """P95: an allocator that changes its mind about alignment changes no charge."""
        books = Books(alignment=16)
        with BufferPool(books, buffer_size=17, max_bytes=64) as pool:
            with pool.lease():
                books.alignment = 1
                assert pool.stats().cost == 32
            with pool.lease(), pool.lease():
                assert pool.stats().cost == 64
            pool.clear()
            assert pool.stats().cost == 0
        assert books.asked == [32, 32]

    def test_leak_gives_the_bytes_back(self) -> None:
        """P98: a lease dropped without release gives its bytes back, and its memory is freed."""
        books = Books()
        recorder = Recorder()
        with BufferPool(books, buffer_size=10, max_bytes=10, observer=recorder, track_leases=True) as pool:
            lease = pool.lease()
            del lease
            with pytest.warns(LeaseLeakWarning):
                pool.release(pool.acquire())
            stats = pool.stats()
            assert (stats.leaked, stats.cost, books.out) == (1, 10, 1)

    def test_more_limits(self) -> None:
        """Other limits hold beside the budget."""
        with (
            BufferPool(HostAllocator(), buffer_size=8, limits=PoolLimits(max_size=1, max_waiters=0)) as pool,
            pool.lease(),
        ):
            assert pool.try_lease() is None
            with pytest.raises(PoolExhaustedError):
                pool.lease()


class TestOutOfMemory:
    """When the allocator has none."""

    def test_text(self) -> None:
        """MemoryError says the size, the budget and the allocator's own text, and gives the room back."""

        def none(nbytes: int) -> bytearray:
            raise MemoryError("nothing left")

        books = Books(none)
        with BufferPool(books, buffer_size=100, max_bytes=150) as pool:
            with pytest.raises(
                MemoryError, match=r"100 bytes \(budget max_bytes=150, 0 in existence\): nothing left"
            ) as caught:
                pool.lease()
            assert isinstance(caught.value.__cause__, MemoryError)
            assert pool.stats().size == pool.stats().cost == 0
            assert pool.stats().hook_errors["create"] == 1
            books.make = bytearray
            with pool.lease() as buffer:
                assert buffer.nbytes == 100

    @pytest.mark.parametrize("allocator", [HostAllocator(), PageAlignedAllocator()])
    def test_told_once(self, allocator: HostAllocator | PageAlignedAllocator) -> None:
        """What the package's own allocators say adds nothing, and is left to the error's cause."""
        with BufferPool(allocator, buffer_size=1 << 60) as pool, pytest.raises(MemoryError) as caught:
            pool.lease()
        assert str(caught.value) == (
            f"can't allocate a buffer of {1 << 60} bytes (budget max_bytes=None, 0 in existence)"
        )
        assert isinstance(caught.value.__cause__, MemoryError)

    def test_idle_ones_are_freed_first(self) -> None:
        """When there's no memory, idle buffers of all sizes and kinds are freed, and it's tried once more."""
        books, other = Books(), Books()
        left = [3 * 1024]

        def scarce(nbytes: int) -> bytearray:
            if nbytes > left[0] - 1024 * books.out - 1024 * other.out:
                raise MemoryError("nothing left")
            return bytearray(nbytes)

        books.make = other.make = scarce
        recorder = Recorder()
        with BufferPool(books, buffer_size=1024, observer=recorder) as pool:
            face = pool.share(other)
            held = pool.lease()
            pool.lease(900).release()
            face.lease().release()
            with pool.lease(2000) as large:
                assert large.nbytes == 2000
                assert recorder.details("destroyed") == ["evicted", "evicted"]
                assert (books.out, other.out) == (2, 0)
                left[0] = 0
                with pytest.raises(MemoryError, match="nothing left") as caught:
                    face.lease()
                assert caught.value.__cause__ is not None
            held.release()
            stats = assert_quiet(pool, leased=0, idle=2)
            assert (stats.destroyed, stats.hook_errors["create"]) == (2, 1)

    def test_asked_once_where_nothing_is_idle(self) -> None:
        """P24: with nothing to free, the allocator isn't asked a second time."""

        def none(nbytes: int) -> bytearray:
            calls.append(nbytes)
            raise MemoryError

        calls: list[int] = []
        with BufferPool(Books(none), buffer_size=100) as pool:
            with pytest.raises(MemoryError, match="out of memory"):
                pool.lease()
            assert calls == [100]
            pool.close()

    def test_next_waiter_tries(self) -> None:
        """A waiter behind one whose allocation failed is served."""
        books = Books()
        with BufferPool(books, buffer_size=100, max_bytes=100) as pool:
            held = pool.lease()
            with Threads() as threads:
                waiting = threads.start(pool.acquire)
                wait_until_queued(pool._pool, 1)

                def once(nbytes: int) -> bytearray:
                    books.make = bytearray
                    raise MemoryError

                books.make = once
                second = threads.start(pool.acquire)
                wait_until_queued(pool._pool, 2)
                held.discard()
                assert isinstance(waiting.error(), MemoryError)
                pool.release(second.result())

    def test_limit_of_the_process(self) -> None:
        """With a real limit (RLIMIT_AS): leases until there's no more, then one error, then all goes on."""
        code = """
import resource
from respool.buffers import BufferPool
with BufferPool(buffer_size=256 << 20, max_bytes=1 << 50) as pool:
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, resource.RLIM_INFINITY))
    held = []
    try:
        while True:
            held.append(pool.lease())
    except MemoryError as error:
        message = str(error)
    count = len(held)
    assert 1 <= count < 8, count
    assert f"budget max_bytes={1 << 50}, {count} in existence" in message, message
    assert pool.stats().cost == count * (256 << 20)
    held.pop().discard()
    with pool.lease() as buffer:
        buffer.view[-1] = 1
    for lease in held:
        lease.release()
print("done")
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


class TestFork:
    """P73 to P76 as far as memory goes."""

    def test_child_has_its_own(self) -> None:
        """P73, P75: a child makes its own buffers; what it inherited it may drop, and the parent keeps its bytes."""
        code = """
import os
from respool.buffers import BufferPool
pool = BufferPool(buffer_size=4096, max_bytes=8192)
with pool.lease() as idle:
    idle.view[:6] = b"parent"
held = pool.lease()
second = pool.lease()
second.release()
held.resource.view[:6] = b"parent"
child = os.fork()
if not child:
    held.release()
    assert pool.stats().size == 0
    with pool.lease() as one, pool.lease() as two:
        one.view[:5] = b"child"
        two.view[:5] = b"child"
        assert pool.stats().cost == 8192
    pool.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert bytes(held.resource.view[:6]) == b"parent"
held.release()
assert pool.stats().idle == 2
pool.close()
print("done")
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
