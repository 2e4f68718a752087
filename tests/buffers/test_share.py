"""`share`: several faces, for several kinds of memory and sizes, on one budget and one queue."""

from __future__ import annotations

import copy
import gc
import mmap
import pickle
from typing import Any

import pytest

from respool import PoolClosedError, PoolExhaustedError, PoolLimits, PoolTimeoutError
from respool.buffers import BufferPool, HostAllocator, PageAlignedAllocator
from tests.helpers.invariants import assert_quiet
from tests.helpers.recorder import Recorder
from tests.helpers.threads import Threads, run_together, wait_until_queued

from .allocators import Books

PAGE = mmap.PAGESIZE


def test_each_face_has_its_memory() -> None:
    """A face gives memory of its own allocator, in its own size, and both count against one budget."""
    one, two = Books(), Books()
    with BufferPool(one, buffer_size=100, max_bytes=1000) as pool:
        other = pool.share(two, buffer_size=200)
        with pool.lease() as a, other.lease() as b, other.lease(100) as c:
            assert (a.nbytes, b.nbytes, c.nbytes) == (100, 200, 100)
            assert (one.asked, two.asked) == ([100], [200, 104])
            assert pool.stats() == other.stats()
            assert pool.stats().cost == 404
            assert other.limits is pool.limits
            assert (pool.stats(100).leased, other.stats(100).leased, other.stats(None).leased) == (1, 1, 1)
        assert_quiet(pool, leased=0, idle=3)
    assert (one.out, two.out) == (0, 0)


def test_what_is_left_out_is_as_before() -> None:
    """A face without an allocator, or without a size, has that of the face that it was asked of."""
    books = Books()
    with BufferPool(books, buffer_size=100) as pool:
        with pool.lease() as buffer:
            pass
        with pool.share().lease() as same:
            assert same is buffer
        larger = pool.share(buffer_size=300)
        with larger.lease() as other, larger.lease(100) as small:
            assert other.nbytes == 300
            assert small.nbytes == 100
        elsewhere = larger.share(HostAllocator())
        assert elsewhere.buffer_size == 300


def test_faces_with_one_allocator_use_each_others_buffers() -> None:
    """The same allocator is the same memory, whichever way a face came to it."""
    books = Books()
    with BufferPool(books, buffer_size=100) as pool:
        other = pool.share(HostAllocator()).share(books)
        with pool.lease() as buffer:
            pass
        with other.lease() as again:
            assert again is buffer


def test_one_budget() -> None:
    """P91, P92: idle memory of one kind gives way to another; what is more than the budget is refused by any face."""
    one, two, recorder = Books(), Books(), Recorder()
    with BufferPool(one, buffer_size=100, max_bytes=300, observer=recorder) as pool:
        other = pool.share(two, buffer_size=200)
        pool.prefill(3)
        with other.lease() as buffer:
            assert buffer.nbytes == 200
            assert (one.out, two.out, pool.stats().cost) == (1, 1, 300)
            with pytest.raises(PoolTimeoutError):
                pool.lease(200, timeout=0)
        assert [event.key.allocator for event in recorder.of("destroyed")] == [one, one]
        with pytest.raises(PoolExhaustedError):
            other.lease(301)
        for refused in (lambda: pool.share(two, buffer_size=301), lambda: other.set_buffer_size(301)):
            with pytest.raises(PoolExhaustedError, match="max_bytes=300"):
                refused()


def test_one_queue() -> None:
    """P12, P93: who waits at one face is served before who came later at another."""
    with BufferPool(HostAllocator(), buffer_size=160, max_bytes=160) as pool:
        other = pool.share(PageAlignedAllocator(), buffer_size=1) if PAGE <= 160 else pool.share(Books())
        held = pool.lease()
        order: list[int] = []

        def take(me: int, face: BufferPool) -> None:
            with face.lease():
                order.append(me)

        with Threads() as threads:
            for me, face in enumerate((other, pool, pool, other, pool)):
                threads.start(take, me, face)
                wait_until_queued(pool, me + 1)  # type: ignore[arg-type]  # any pool will do
            assert other.try_lease() is None
            held.release()
        assert order == [0, 1, 2, 3, 4]
        assert_quiet(pool, leased=0)


def test_given_back_through_any_face() -> None:
    """A bare buffer may be given back through any face, and goes back to its own memory."""
    one, two = Books(), Books()
    with BufferPool(one, buffer_size=100) as pool:
        other = pool.share(two)
        buffer, second = pool.acquire(), other.acquire()
        other.release(buffer)
        pool.discard(second)
        assert pool.acquire() is buffer
        pool.release(buffer)
        assert (one.out, two.out) == (1, 0)


def test_set_buffer_size_is_a_faces_own() -> None:
    """P65: changing the usual size of one face leaves the other face's memory alone."""
    one, two = Books(), Books()
    with BufferPool(one, buffer_size=100) as pool:
        other = pool.share(two)
        pool.prefill(2)
        other.prefill(2)
        assert other.set_buffer_size(200) == 2
        assert (pool.buffer_size, other.buffer_size) == (100, 200)
        assert pool.stats(None).idle == 2


def test_clear() -> None:
    """P65: clear without a size is for all memory, by any face; with one, for the face's own."""
    one, two = Books(), Books()
    with BufferPool(one, buffer_size=100) as pool:
        other = pool.share(two)
        pool.prefill(2)
        other.prefill(2)
        assert other.clear(500) == 0
        assert other.clear(None) == 2
        assert other.clear() == 2
        assert (one.out, two.out) == (0, 0)


def test_the_end() -> None:
    """P67: a pool is closed by whichever face is closed."""
    books = Books()
    pool = BufferPool(Books(), buffer_size=100)
    other = pool.share(books)
    other.lease().release()
    with other:
        pass
    assert pool.closed
    assert books.out == 0
    with pytest.raises(PoolClosedError):
        pool.lease()


def test_dropped_without_close() -> None:
    """G11: the pool lives as long as one of its faces; dropped without close, it warns once, without the collector."""
    pool = BufferPool(HostAllocator(), buffer_size=100, name="shared")
    other = pool.share(Books())
    del pool
    other.lease().release()
    gc.disable()
    try:
        with pytest.warns(ResourceWarning, match="shared"):
            del other
    finally:
        gc.enable()


def test_memory_that_another_kind_has() -> None:
    """P26: memory that a buffer of another allocator has is refused, too."""
    memory = bytearray(100)
    one, two = Books(lambda n: memory), Books(lambda n: memory)
    with BufferPool(one, buffer_size=100) as pool:
        other = pool.share(two)
        with pool.lease(), pytest.raises(Exception, match="in use already"):
            other.lease()


def test_under_load() -> None:
    """P93, P96: threads at several faces stay within one budget, and all goes back to where it came from."""
    one, two = Books(), Books()
    with BufferPool(one, buffer_size=64, max_bytes=500, limits=PoolLimits(max_size=6)) as pool:
        other = pool.share(two, buffer_size=128)

        def use(seed: int) -> None:
            for turn in range(150):
                face = (pool, other)[(seed + turn) % 2]
                with face.lease((None, 300)[turn % 7 == seed % 7]) as buffer:
                    buffer.view[:] = bytes([seed]) * buffer.nbytes
                    assert pool.stats().cost <= 500
                    assert set(buffer.view) == {seed}

        run_together(*[lambda seed=seed: use(seed) for seed in range(6)])  # type: ignore[misc]
        assert_quiet(pool, leased=0)
    assert (one.out, two.out) == (0, 0)


@pytest.mark.parametrize("how", [pickle.dumps, copy.copy, copy.deepcopy])
def test_nothing_is_pickled_or_copied(how: Any) -> None:
    """Pickling or copying a pool or a kind of buffers is a TypeError; its PoolTimeoutError can be pickled."""
    with BufferPool(HostAllocator(), buffer_size=16, max_bytes=16) as pool:
        for thing in (pool, pool.bind().key):
            with pytest.raises(TypeError, match="pickled or copied"):
                how(thing)
        with pool.lease(), pytest.raises(PoolTimeoutError) as caught:
            pool.lease(timeout=0)
        again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own
        assert "16 bytes of HostAllocator()" in str(again)
