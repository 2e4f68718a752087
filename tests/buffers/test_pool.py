"""`BufferPool`: construction, and every method of its face."""

from __future__ import annotations

import gc
import mmap

import pytest

from respool import (
    InvalidReleaseError,
    PoolClosedError,
    PoolExhaustedError,
    PoolLimits,
    PoolTimeoutError,
)
from respool.buffers import BufferPool, HostAllocator

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

    def test_text(self) -> None:
        """Where text is taken for a size is said to whoever gives it here."""
        with pytest.raises(TypeError, match=r"respool\.io\.Config"):
            BufferPool(buffer_size="4MiB")  # type: ignore[arg-type]

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
