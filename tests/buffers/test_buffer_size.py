"""`set_buffer_size`: old buffers go, whoever holds or awaits them, and those of other sizes stay."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any

import pytest

from respool import PoolClosedError, PoolExhaustedError
from respool.buffers import BufferPool, HostAllocator
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet
from tests.helpers.threads import Threads, run_together, wait_until_queued
from tests.helpers.whens import When

from .allocators import Books

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = mmap.PAGESIZE


def test_old_ones_are_not_handed_out_any_more() -> None:
    """P65: idle buffers of the old size are freed at once and counted, leased ones when they come back; other sizes stay."""
    books = Books()
    with BufferPool(books, buffer_size=100) as pool:
        held, bare = pool.lease(), pool.acquire()
        pool.prefill(3)
        pool.prefill(2, 1000)
        assert pool.set_buffer_size(200) == 3
        assert pool.buffer_size == 200
        assert (pool.stats().idle, pool.stats().leased) == (2, 2)
        with pool.lease() as new:
            assert (new.nbytes, new.capacity) == (200, 200)
        held.release()
        pool.release(bare)
        stats = assert_quiet(pool, leased=0, idle=3)
        assert (stats.cost, stats.destroyed_for["cleared"]) == (2 * 1024 + 200, 5)
        assert books.out == 3


def test_the_same_memory_serves_on() -> None:
    """P65: where old and new size take the same memory, no buffer is thrown away, and the next one has the new length."""
    with BufferPool(buffer_size=PAGE) as pool:
        with pool.lease() as buffer:
            pass
        assert pool.set_buffer_size(PAGE - 96) == 0
        with pool.lease() as again:
            assert again is buffer
            assert len(again.view) == PAGE - 96


def test_to_and_fro() -> None:
    """P65: going back to an earlier size starts with new buffers, and those held meanwhile are not kept."""
    books = Books()
    with BufferPool(books, buffer_size=100) as pool:
        held = pool.lease()
        pool.set_buffer_size(200)
        pool.lease().release()
        assert pool.set_buffer_size(100) == 1
        held.release()
        assert_quiet(pool, leased=0, idle=0)
        pool.lease().release()
        assert_quiet(pool, leased=0, idle=1)
        assert books.asked == [100, 200, 100]


@pytest.mark.parametrize(
    ("nbytes", "error"),
    [(0, ValueError), (True, TypeError), (2.0, TypeError), (1001, PoolExhaustedError)],
)
def test_refused_sizes(nbytes: Any, error: type[Exception]) -> None:
    """P11, P92: what is no size, or more than the whole budget, is refused at once and changes nothing."""
    with BufferPool(Books(), buffer_size=100, max_bytes=1000) as pool:
        pool.prefill(2)
        with pytest.raises(error):
            pool.set_buffer_size(nbytes)
        assert pool.buffer_size == 100
        assert_quiet(pool, leased=0, idle=2)


def test_room_for_who_waits() -> None:
    """P19: the memory of old buffers is there for those who wait."""
    with BufferPool(HostAllocator(), buffer_size=112, max_bytes=240) as pool:
        held = pool.lease()
        pool.lease().release()
        with Threads() as threads:
            waiting = threads.start(pool.lease, 240)
            wait_until_queued(pool, 1)  # type: ignore[arg-type]  # any pool will do
            assert pool.set_buffer_size(16) == 1
            assert not waiting.ended
            held.release()
            with waiting.result() as buffer:
                assert buffer.nbytes == 240


TAKES: dict[str, Callable[[BufferPool], Any]] = {
    "lease": lambda pool: pool.lease(),
    "bound": lambda pool: pool.bind().lease(),
    "lease_many": lambda pool: pool.lease_many(1),
    "bound many": lambda pool: pool.bind().lease_many(1),
    "acquire": lambda pool: pool.acquire(),
    "bound acquire": lambda pool: pool.bind().acquire(),
}


@pytest.mark.parametrize("take", TAKES)
def test_while_somebody_waits(take: str) -> None:
    """P65: who waited already gets the size that it asked for, and what it got isn't kept when it comes back."""
    with BufferPool(HostAllocator(), buffer_size=112, max_bytes=112) as pool:
        held = pool.lease()
        with Threads() as threads:
            waiting = threads.start(TAKES[take], pool)
            wait_until_queued(pool, 1)  # type: ignore[arg-type]  # any pool will do
            pool.set_buffer_size(64)
            held.release()
            hold = waiting.result()
        buffer = hold.resources[0] if "many" in take else getattr(hold, "resource", hold)
        assert buffer.nbytes == 112
        pool.release(buffer) if hold is buffer else hold.release()
        assert_quiet(pool, leased=0, idle=0)
        with pool.lease() as new:
            assert new.nbytes == 64


@pytest.mark.parametrize("take", ["try_lease", "try_acquire", "bound try_lease", "bound try_acquire"])
def test_while_it_is_made(take: str) -> None:
    """P65: a buffer that was being made when the size changed is handed out once, and not kept."""
    gate = Gate()

    def make(nbytes: int) -> bytearray:
        gate.stop()
        return bytearray(nbytes)

    with BufferPool(Books(make), buffer_size=112) as pool:
        face: Any = pool.bind() if "bound" in take else pool
        with Threads() as threads:
            taking = threads.start(getattr(face, take.removeprefix("bound ")))
            gate.wait_arrived()
            pool.set_buffer_size(64)
            gate.open()
            hold = taking.result()
        if "lease" in take:
            assert hold.resource.nbytes == 112
            hold.release()
        else:
            face.release(hold)
        assert_quiet(pool, leased=0, idle=0)


@pytest.mark.parametrize("take", ["acquire", "try_acquire", "bound acquire", "bound try_acquire"])
def test_an_interrupt_while_it_is_put_right(take: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """G3: an interrupt, after a bare buffer was had and before it's handed out, costs no room."""
    gate = Gate()

    def make(nbytes: int) -> bytearray:
        gate.stop()
        return bytearray(nbytes)

    def interrupt(face: BufferPool, kind: object) -> int:
        raise KeyboardInterrupt

    with BufferPool(Books(make), buffer_size=112) as pool:
        face: Any = pool.bind() if "bound" in take else pool
        with Threads() as threads:
            taking = threads.start(getattr(face, take.removeprefix("bound ")))
            gate.wait_arrived()
            pool.set_buffer_size(64)
            monkeypatch.setattr(BufferPool, "_retire", interrupt)
            gate.open()
            assert isinstance(taking.error(), KeyboardInterrupt)
        assert_quiet(pool, leased=0, idle=0)


def test_a_bound_pool_follows() -> None:
    """P65: a pool that was bound without a size goes along, one that was bound to a size stays."""
    with BufferPool(HostAllocator(), buffer_size=112) as pool:
        follows, stays = pool.bind(), pool.bind(112)
        follows.lease().release()
        pool.set_buffer_size(64)
        assert (follows.nbytes, stays.nbytes) == (64, 112)
        with follows.lease() as short, stays.lease() as long:
            assert (short.nbytes, long.nbytes) == (64, 112)
        assert_quiet(pool, leased=0, idle=2)


def test_pending_ones() -> None:
    """P65: a pending buffer of the old size is freed as soon as it's free, and not handed out."""
    books = Books()
    with BufferPool(books, buffer_size=100) as pool:
        when = When()
        pool.lease().release(when)
        assert pool.set_buffer_size(200) == 0
        assert pool.stats().pending == 1
        when.free = True
        pool.reap()
        assert_quiet(pool, leased=0, idle=0)
        assert (books.out, when.misuse) == (0, [])


def test_from_several_threads() -> None:
    """P65: whichever of several changes is the last, nothing of any other size is kept."""
    books = Books()
    with BufferPool(books, buffer_size=1) as pool:

        def use(start: int) -> None:
            for turn in range(40):
                pool.set_buffer_size(start + turn % 5)
                with pool.lease() as buffer:
                    assert len(buffer.view) == buffer.nbytes
                pool.release(pool.acquire())

        run_together(*[lambda start=start: use(start) for start in (100, 200, 300, 400)])  # type: ignore[misc]
        pool.set_buffer_size(7)
        assert_quiet(pool, leased=0, idle=0)
    assert books.out == 0


def test_after_close() -> None:
    """P68: the size of a closed pool may change, and nothing is handed out by it."""
    pool = BufferPool(HostAllocator(), buffer_size=100)
    pool.close()
    assert pool.set_buffer_size(50) == 0
    with pytest.raises(PoolClosedError):
        pool.lease()
