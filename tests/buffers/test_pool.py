"""`BufferPool`: construction, the budget of bytes, and every method of its face."""

from __future__ import annotations

import gc
import mmap
import subprocess
import sys
import warnings

import pytest

from respool import (
    InvalidReleaseError,
    LeaseLeakWarning,
    PoolClosedError,
    PoolError,
    PoolExhaustedError,
    PoolLimits,
    PoolTimeoutError,
)
from respool.buffers import BufferPool, HostAllocator, PageAlignedAllocator
from tests.helpers.recorder import Recorder
from tests.helpers.threads import Threads, run_together, wait_until_queued

from .allocators import Books

PAGE = mmap.PAGESIZE


class TestConstruction:
    """What can be asked for, and what can't."""

    def test_defaults(self) -> None:
        """Page-aligned buffers of 4 MiB without a bound."""
        with BufferPool() as pool:
            assert pool.buffer_size == 4 << 20
            assert pool.limits == PoolLimits()
            with pool.lease() as buffer:
                assert buffer.address % PAGE == 0
                assert buffer.nbytes == buffer.capacity == 4 << 20

    @pytest.mark.parametrize("what", ["buffer_size", "max_bytes"])
    @pytest.mark.parametrize("value", [0, -1, -(1 << 40)])
    def test_not_positive(self, what: str, value: int) -> None:
        """A size below 1 is a ValueError that says which and what."""
        with pytest.raises(ValueError, match=f"{what} must be 1 or more, not {value}"):
            BufferPool(**{what: value})  # type: ignore[arg-type]

    @pytest.mark.parametrize("what", ["buffer_size", "max_bytes"])
    @pytest.mark.parametrize("value", [True, 1.5, float("nan"), "4MiB"])
    def test_no_int(self, what: str, value: object) -> None:
        """A size that is no int is a TypeError that says which and what."""
        with pytest.raises(TypeError, match=f"{what} must be an int, not {value!r}"):
            BufferPool(**{what: value})  # type: ignore[arg-type]

    def test_numpy_int(self) -> None:
        """Whatever counts as an int for Python does here."""
        import numpy as np

        with BufferPool(buffer_size=np.int64(5)) as pool, pool.lease() as buffer:  # type: ignore[arg-type]
            assert buffer.nbytes == 5

    def test_max_cost_is_max_bytes(self) -> None:
        """limits.max_cost given is a ValueError; max_bytes appears as it."""
        with pytest.raises(ValueError, match="max_bytes"):
            BufferPool(limits=PoolLimits(max_cost=1 << 30))
        with BufferPool(buffer_size=PAGE, max_bytes=8 * PAGE, limits=PoolLimits(max_idle=1)) as pool:
            assert pool.limits == PoolLimits(max_cost=8 * PAGE, max_idle=1)

    @pytest.mark.parametrize(("size", "budget"), [(PAGE + 1, PAGE), (1, PAGE - 1), (5 * PAGE, 5 * PAGE - 1)])
    def test_more_than_the_budget(self, size: int, budget: int) -> None:
        """P92: a buffer that, rounded up to whole pages, is more than the whole budget is refused at once."""
        with pytest.raises(PoolExhaustedError, match=f"max_bytes={budget}"):
            BufferPool(buffer_size=size, max_bytes=budget)

    def test_no_allocator(self) -> None:
        """An object that can't allocate is a TypeError that says what it lacks."""

        class NoFree:
            alignment = 1

            def allocate(self, nbytes: int) -> bytearray:
                return bytearray(nbytes)

        with pytest.raises(TypeError, match=r"free\(\)"):
            BufferPool(NoFree())  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"allocate\(\)"):
            BufferPool(bytearray)  # type: ignore[arg-type]

    @pytest.mark.parametrize("alignment", [0, -8, True, 1.0, None])
    def test_bad_alignment(self, alignment: object) -> None:
        """An alignment that isn't a positive int is refused when the pool is made."""
        with pytest.raises((TypeError, ValueError), match="alignment"):
            BufferPool(Books(alignment=alignment))  # type: ignore[arg-type]

    def test_one_allocator_for_two_pools(self) -> None:
        """An allocator may serve several pools."""
        books = Books()
        with (
            BufferPool(books, buffer_size=3) as one,
            BufferPool(books, buffer_size=5) as two,
            one.lease() as small,
            two.lease() as large,
        ):
            assert (small.nbytes, large.nbytes) == (3, 5)
        assert books.out == 0


class TestBudget:
    """P91 to P98 as far as one size goes."""

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


class TestFace:
    """Each method does what the pool below does."""

    def test_fast_tier(self) -> None:
        """acquire, try_acquire, release and discard handle bare buffers."""
        books = Books()
        with BufferPool(books, buffer_size=8, max_bytes=16) as pool:
            one, two = pool.acquire(timeout=1), pool.try_acquire()
            assert two is not None
            assert two is not one
            pool.release(one)
            assert pool.acquire() is one
            pool.discard(one)
            pool.release(two)
            stats = pool.stats()
            assert (stats.idle, stats.destroyed_for["discarded"], books.out) == (1, 1, 1)
            with pytest.raises(InvalidReleaseError):
                pool.release(two)
            with pytest.raises(InvalidReleaseError):
                pool.discard(one)

    def test_bind(self) -> None:
        """Bind gives the pool without its key: the same buffers, the same books."""
        with BufferPool(HostAllocator(), buffer_size=8) as pool:
            bound = pool.bind()
            buffer = bound.acquire()
            bound.release(buffer)
            with bound.lease() as again:
                assert again is buffer
            assert pool.stats().acquired == 2

    def test_release_of_a_leased_one(self) -> None:
        """What a lease holds can't be released behind its back."""
        with (
            BufferPool(HostAllocator(), buffer_size=8) as pool,
            pool.lease() as buffer,
            pytest.raises(InvalidReleaseError),
        ):
            pool.release(buffer)

    def test_foreign(self) -> None:
        """A buffer of another pool is refused, and both go on."""
        with (
            BufferPool(HostAllocator(), buffer_size=8) as one,
            BufferPool(HostAllocator(), buffer_size=8) as two,
        ):
            buffer = one.acquire()
            with pytest.raises(InvalidReleaseError):
                two.release(buffer)
            one.release(buffer)

    def test_clear(self) -> None:
        """Clear frees idle ones now and tells how many; leased ones are freed when they come back."""
        books = Books()
        with BufferPool(books, buffer_size=8) as pool:
            with pool.lease():
                with pool.lease():
                    pass
                assert pool.clear() == 1
                assert books.out == 1
            assert books.out == 0

    def test_close(self) -> None:
        """After close nothing is handed out; what's out is freed as it comes back."""
        books = Books()
        pool = BufferPool(books, buffer_size=8)
        assert not pool.closed
        lease = pool.lease()
        with pytest.raises(PoolTimeoutError):
            pool.close(timeout=0)
        assert pool.closed
        for refused in (pool.lease, pool.try_lease, pool.acquire, pool.try_acquire):
            with pytest.raises(PoolClosedError):
                refused()
        lease.release()
        assert books.out == 0
        pool.close()

    @pytest.mark.parametrize("timeout", [-1, float("nan")])
    def test_bad_timeout(self, timeout: float) -> None:
        """A timeout that is none is a ValueError, also where a buffer is idle."""
        with BufferPool(HostAllocator(), buffer_size=8) as pool:
            with pool.lease():
                pass
            with pytest.raises(ValueError, match="timeout"):
                pool.lease(timeout=timeout)
            with pytest.raises(ValueError, match="timeout"):
                pool.acquire(timeout=timeout)

    def test_repr(self) -> None:
        """The repr tells the size of a buffer and the pool's state."""
        with BufferPool(HostAllocator(), buffer_size=8, name="mine") as pool:
            assert repr(pool) == f"<BufferPool of 8 bytes each: {pool._pool!r}>"
            assert "mine" in repr(pool)

    def test_dropped_without_close(self) -> None:
        """A pool dropped without close warns at once, without the collector's help, and runs no hook."""
        books = Books()
        pool = BufferPool(books, buffer_size=8)
        with pool.lease():
            pass
        gc.disable()
        try:
            with pytest.warns(ResourceWarning, match="buffers"):
                del pool
        finally:
            gc.enable()
        assert books.freed == []


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


class TestUserAllocator:
    """What an allocator may return, and what becomes of it."""

    def test_larger_memory(self) -> None:
        """Memory larger than asked for is fine: the view is of the size asked, the charge as agreed."""
        books = Books(lambda nbytes: bytearray(2 * nbytes + 1))
        with BufferPool(books, buffer_size=10) as pool, pool.lease() as buffer:
            assert (buffer.view.nbytes, buffer.capacity, pool.stats().cost) == (10, 10, 10)

    def test_other_items_than_bytes(self) -> None:
        """Memory of larger items is seen as bytes."""
        import array

        books = Books(lambda nbytes: array.array("d", [0.0] * (nbytes // 8)))
        with BufferPool(books, buffer_size=80) as pool, pool.lease() as buffer:
            buffer.view[:] = b"\x01" * 80
            assert (buffer.view.nbytes, buffer.view.format) == (80, "B")

    def test_numpy_memory(self) -> None:
        """An ndarray is memory too, of any number of dimensions."""
        import numpy as np

        books = Books(lambda nbytes: np.zeros((2, nbytes // 2), np.uint8))
        with BufferPool(books, buffer_size=80) as pool, pool.lease() as buffer:
            buffer.view[:] = b"\x01" * 80
        assert books.out == 0

    @pytest.mark.parametrize(
        ("make", "text"),
        [
            (lambda n: bytearray(n - 1), "a bytearray of 4095 bytes, asked for 4096"),
            (lambda n: bytearray(0), "a bytearray of 0 bytes, asked for 4096"),
            (lambda n: bytes(n), "a bytes that is read-only"),  # noqa: PLW0108 - a function, like the others
            (lambda n: memoryview(bytearray(2 * n))[::2], "a memoryview that is not C-contiguous"),
            (lambda n: [0] * n, "a list, whose memory can't be viewed"),
            (lambda n: None, "a NoneType, whose memory can't be viewed"),
            (lambda n: mmap.mmap(-1, 1024), "a mmap of 1024 bytes, asked for 4096"),
        ],
    )
    def test_unusable(self, make: object, text: str) -> None:
        """Short, read-only, strided memory or none is a PoolError that says so; it's freed, and the room given back."""
        books = Books(make)  # type: ignore[arg-type]
        with BufferPool(books, buffer_size=4096, max_bytes=4096) as pool:
            for _ in range(2):
                with pytest.raises(PoolError, match=text):
                    pool.lease()
            assert books.out == 0
            assert len(books.freed) == 2
            assert pool.stats().size == pool.stats().cost == 0
            books.make = bytearray
            with pool.lease():
                pass

    def test_unaligned(self) -> None:
        """Memory that isn't aligned as promised is a PoolError with its address, and freed."""
        allocator = PageAlignedAllocator()
        books = Books(lambda n: memoryview(allocator.allocate(n + 1))[1:], alignment=PAGE)
        with BufferPool(books, buffer_size=PAGE) as pool:
            with pytest.raises(PoolError, match=rf"at 0x\w+001, not {PAGE}-byte aligned"):
                pool.lease()
            assert (books.out, len(books.freed)) == (0, 1)

    def test_unusable_and_free_fails(self) -> None:
        """The first error is told; that freeing failed too is a note on it."""
        books = Books(lambda n: b"")
        books.free_error = RuntimeError("can't free")
        with BufferPool(books, buffer_size=8) as pool, pytest.raises(PoolError, match="read-only") as caught:
            pool.lease()
        assert "can't free" in caught.value.__notes__[0]

    def test_same_memory_twice(self) -> None:
        """Memory that another buffer has is a PoolError, and isn't freed under its holder."""
        memory = bytearray(8)
        books = Books(lambda n: memory)
        with BufferPool(books, buffer_size=8) as pool:
            with pool.lease() as buffer:
                with pytest.raises(PoolError, match="in use already") as caught:
                    pool.lease()
                assert repr(buffer) in str(caught.value)
                assert books.freed == []
                buffer.view[:] = b"12345678"
            assert pool.stats().idle == 1
        assert len(books.freed) == 1

    def test_same_address_after_detach(self) -> None:
        """Memory of a detached buffer that has died may come again."""
        memory = bytearray(8)
        books = Books(lambda n: memory)
        with BufferPool(books, buffer_size=8) as pool:
            buffer = pool.lease().detach()
            with pytest.raises(PoolError, match="in use already"):
                pool.lease()
            del buffer
            with pool.lease() as again:
                again.view[0] = 1

    def test_allocate_raises(self) -> None:
        """An error of its own reaches the caller unchanged."""
        error = ZeroDivisionError("mine")

        def fail(nbytes: int) -> bytearray:
            raise error

        with BufferPool(Books(fail), buffer_size=8) as pool:
            with pytest.raises(ZeroDivisionError) as caught:
                pool.lease()
            assert caught.value is error
            assert pool.stats().size == 0

    def test_free_raises(self) -> None:
        """A free that fails is counted and reported; the caller's operation goes on and the bytes are back."""
        books = Books()
        recorder = Recorder()
        books.free_error = RuntimeError("can't free")
        with BufferPool(books, buffer_size=8, observer=recorder) as pool:
            pool.lease().discard()
            stats = pool.stats()
            assert (stats.cost, stats.hook_errors["destroy"]) == (0, 1)
            books.free_error = None
        assert len(recorder.of("hook_failed")) == 1

    def test_mapping_with_views_held(self) -> None:
        """A user's free that can't close a mapping fails as any hook does: nothing crashes, the view is safe."""
        books = Books(lambda n: mmap.mmap(-1, n))
        recorder = Recorder()
        with BufferPool(books, buffer_size=4096, observer=recorder) as pool:
            lease = pool.lease()
            view = lease.resource.view
            lease.discard()
            assert pool.stats().hook_errors["destroy"] == 1
            assert pool.stats().cost == 0
            view[0] = 1
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                view.release()

    def test_mapping_without_views(self) -> None:
        """The pool keeps no view or reference of its own that would keep a mapping from being closed."""
        books = Books(lambda n: mmap.mmap(-1, n))
        with BufferPool(books, buffer_size=4096) as pool:
            with pool.lease() as buffer:
                buffer.view[0] = 1
            pool.lease().discard()
            assert pool.stats().destroyed == 1
            assert not any(pool.stats().hook_errors.values())
            with pool.lease():
                pass
        assert books.out == 0
