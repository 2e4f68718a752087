"""What an allocator of a user may return, and what becomes of it."""

from __future__ import annotations

import mmap
import warnings

import pytest

from respool import (
    PoolError,
)
from respool.buffers import BufferPool, PageAlignedAllocator
from tests.helpers.recorder import Recorder

from .allocators import Books

PAGE = mmap.PAGESIZE


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
