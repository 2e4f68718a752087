"""Pinned memory in a pool: which it is, when it's freed, and what becomes of it with its context."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from respool import InvalidReleaseError, PoolExhaustedError, PoolLimits, PoolTimeoutError
from respool.buffers import (
    Allocator,
    BufferPool,
    HostAllocator,
    PageAlignedAllocator,
    PinnedAllocator,
    RegisteredAllocator,
)
from tests.helpers.cuda_driver import Capture
from tests.helpers.invariants import assert_quiet
from tests.helpers.threads import Threads, run_together, wait_until, wait_until_queued

if TYPE_CHECKING:
    from collections.abc import Iterator

    from respool.cuda._driver import Driver
    from tests.helpers.cuda_driver import FakeCuda

PAGE = mmap.PAGESIZE
SIZE = 4 * PAGE

BOTH = pytest.mark.parametrize("allocator", [PinnedAllocator, RegisteredAllocator])


@pytest.fixture
def held(fake: FakeCuda, stream: Any, driver: Driver) -> Iterator[None]:
    """The device stands still, with something to do: whatever frees pinned memory waits."""
    event = driver.create_event(2)
    fake.hold()
    driver.record_event(event, stream)
    yield
    fake.release()
    driver.destroy_event(event)


def test_registered_memory(fake: FakeCuda, driver: Driver, context_id: int) -> None:
    """C21: it's of whole pages, begins with one, is registered as long as it's mapped, for all contexts, and cleared."""
    allocator = RegisteredAllocator()
    assert isinstance(allocator, Allocator)
    pool = BufferPool(allocator, buffer_size=SIZE - 100)
    with pool.lease() as buffer:
        assert buffer.address % PAGE == 0
        assert (buffer.capacity, pool.stats().cost, fake.count("pinned_bytes")) == (SIZE, SIZE, SIZE)
        assert driver.checked("flags", driver.api.cuMemHostGetFlags, buffer.address) & 1
        assert set(bytes(buffer.view)) == {0}
        buffer.view[:] = b"x" * buffer.nbytes
    pool.close()
    assert (fake.count("registered"), fake.count("host_blocks")) == (0, 0)


def test_huge_pages(fake: FakeCuda, context_id: int) -> None:
    """C21: an aligned part of a larger mapping is registered as that part."""
    pool = BufferPool(RegisteredAllocator(huge_pages=True), buffer_size=1)
    with pool.lease() as buffer:
        assert buffer.address % buffer.capacity == 0
        assert fake.count("pinned_bytes") == buffer.capacity > PAGE
    pool.close()


def test_allocated_memory(fake: FakeCuda, driver: Driver, context_id: int) -> None:
    """C22: it's the driver's, pinned for all contexts, and promises no page to begin with."""
    allocator = PinnedAllocator()
    assert isinstance(allocator, Allocator)
    assert allocator.alignment < PAGE
    pool = BufferPool(allocator, buffer_size=SIZE)
    with pool.lease() as buffer:
        assert driver.checked("flags", driver.api.cuMemHostGetFlags, buffer.address) & 1
        buffer.view[:] = b"x" * SIZE
        assert fake.count("host_blocks") == 1
    pool.close()
    assert repr(allocator) == "PinnedAllocator()"
    assert (
        repr(RegisteredAllocator(huge_pages=True)) == "RegisteredAllocator(huge_pages=True, numa_node=None)"
    )


@BOTH
def test_what_is_charged(fake: FakeCuda, context_id: int, allocator: type) -> None:
    """C30: the charge is what is locked: whole pages, with an eighth of slack at most, not a power of two."""
    pool = BufferPool(allocator(), buffer_size=9 * PAGE)
    for nbytes in (1, PAGE, 9 * PAGE, 9 * PAGE + 1, 1_000_001):
        with pool.lease(nbytes) as buffer:
            assert pool.stats().cost == fake.count("pinned_bytes") == buffer.capacity
            assert buffer.capacity % PAGE == 0
            assert buffer.capacity <= max(nbytes * 9 / 8 + PAGE, PAGE)
        pool.clear()
        wait_until(lambda: pool.stats().size == 0, "the frees")
    pool.close()


@BOTH
def test_one_budget(fake: FakeCuda, context_id: int, allocator: type) -> None:
    """C27: 32 threads never pin more than the budget, whatever sizes they want; who can't be served in time is told."""
    pool = BufferPool(allocator(), buffer_size=SIZE, max_bytes=4 * SIZE)
    pool.prefill(4)
    held = [pool.acquire() for _ in range(4)]
    assert pool.try_acquire() is None
    for timeout in (0, 0.001):
        with pytest.raises(PoolTimeoutError):
            pool.acquire(timeout=timeout)
    with pytest.raises(PoolExhaustedError):
        pool.acquire(5 * SIZE)
    for buffer in held:
        pool.release(buffer)

    from respool.cuda import _driver

    driver = _driver.load()

    def use() -> None:
        driver.push_context(driver.retain_primary(0))
        for number in range(6):
            with pool.lease(SIZE if number % 2 else 2 * SIZE) as buffer:
                buffer.view[:1] = b"x"
        driver.pop_context()
        driver.release_primary(0)

    run_together(*[use] * 32)
    assert fake.count("pinned_peak") <= 4 * SIZE
    pool.close()
    assert fake.count("pinned_bytes") == 0


def test_one_budget_over_both_kinds(fake: FakeCuda, context_id: int) -> None:
    """C28: idle memory of another kind or size makes room: it's freed in the background, and the acquire waits for it."""
    pool = BufferPool(RegisteredAllocator(), buffer_size=SIZE, max_bytes=2 * SIZE)
    other = pool.share(PinnedAllocator())
    host = pool.share(HostAllocator())
    pool.prefill(2)
    with other.lease() as buffer:
        assert (fake.count("registered"), fake.count("host_blocks")) == (1, 1)
        with host.lease(100), pytest.raises(PoolTimeoutError):
            pool.lease(timeout=0.001)
        assert buffer.nbytes == SIZE
    assert fake.count("pinned_peak") <= 2 * SIZE
    pool.close()


def test_slow_memory_in_a_pool_of_other_memory(fake: FakeCuda, context_id: int) -> None:
    """C60: a pool that frees in its callers takes no memory that may wait for a device; the other way round it works."""
    with BufferPool(PageAlignedAllocator(), buffer_size=SIZE) as pool:
        with pytest.raises(ValueError, match="make the pool with it"):
            pool.share(RegisteredAllocator())
        with pool.lease():
            pass


@BOTH
@pytest.mark.usefixtures("held")
def test_a_device_that_stands_still(fake: FakeCuda, context_id: int, allocator: type) -> None:
    """C60: no release, acquire of what is idle, try_acquire or stats waits for the device; who needs the room does, in time."""
    pool = BufferPool(allocator(), buffer_size=SIZE, max_bytes=3 * SIZE, limits=PoolLimits(max_idle=1))
    first, second, third = (pool.acquire() for _ in range(3))
    pool.release(first)
    pool.release(second)  # one too many: it's being freed
    wait_until(lambda: fake.count("free_waits") == 1, "the free that waits")
    stats = pool.stats()
    assert (stats.destroying, stats.idle, stats.cost) == (1, 1, 3 * SIZE)
    pool.release(third)
    assert pool.set_buffer_size(2 * SIZE) in {0, 1, 2}
    assert pool.try_acquire() is None
    with pytest.raises(PoolTimeoutError):
        pool.acquire(timeout=0.01)
    with Threads() as threads:
        task = threads.start(in_context, pool)
        wait_until_queued(pool, 1)
        fake.release()
        task.result()
    pool.close()
    assert fake.count("pinned_bytes") == 0


def in_context(pool: BufferPool) -> None:
    """Lease a buffer with the primary context of device 0 current, as the test's own thread has it."""
    from respool.cuda import _driver

    driver = _driver.load()
    driver.push_context(driver.retain_primary(0))
    try:
        pool.lease(timeout=20).release()
    finally:
        driver.pop_context()
        driver.release_primary(0)


@BOTH
def test_a_slow_allocation_delays_nobody(fake: FakeCuda, context_id: int, allocator: type) -> None:
    """C34: while one thread stands in the driver's allocation, others use what is idle."""
    pool = BufferPool(allocator(), buffer_size=SIZE)
    pool.prefill(1)
    taken = pool.acquire()
    name = "cuMemHostAlloc" if allocator is PinnedAllocator else "cuMemHostRegister"
    with Threads() as threads, fake.latch(name) as latch:
        slow = threads.start(in_context, pool)
        latch.wait_inside()
        pool.release(taken)
        pool.lease().release()
        assert (pool.stats().creating, pool.stats().idle) == (1, 1)
        latch.open()
        slow.result()
    pool.close()


def test_pages_are_touched_first(fake: FakeCuda, context_id: int) -> None:
    """C59: by the time the driver is asked to register memory, all its pages are there."""
    pool = BufferPool(RegisteredAllocator(), buffer_size=SIZE)
    with Threads() as threads, fake.latch("cuMemHostRegister") as latch:
        task = threads.start(in_context, pool)
        latch.wait_inside()
        (block,) = pool._memory.allocator._blocks.values()  # type: ignore[attr-defined]
        resident = (ctypes.c_ubyte * 4)()
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mincore(ctypes.c_void_p(block.address), ctypes.c_size_t(SIZE), resident) == 0
        assert [page & 1 for page in resident] == [1] * 4
        latch.open()
        task.result()
    pool.close()


def test_unregistered_before_it_is_unmapped(fake: FakeCuda, context_id: int) -> None:
    """C24: a registered buffer is unregistered first, and unmapped after that."""
    pool = BufferPool(RegisteredAllocator(), buffer_size=SIZE)
    buffer = pool.acquire()
    address = buffer.address
    with fake.latch("cuMemHostUnregister") as latch:
        pool.discard(buffer)
        del buffer
        latch.wait_inside()
        maps = Path("/proc/self/maps").read_text(encoding="ascii")
        ends = [line.split()[0].split("-") for line in maps.splitlines()]
        assert any(int(start, 16) <= address < int(stop, 16) for start, stop in ends)
        latch.open()
        pool.close()
    assert fake.count("unregister_unmapped") == fake.count("registered") == 0


def test_a_view_that_outlives_its_buffer(fake: FakeCuda, context_id: int) -> None:
    """C61: memory whose view is still held is unregistered when it's freed, and stays mapped until the view goes."""
    pool = BufferPool(RegisteredAllocator(), buffer_size=SIZE)
    buffer = pool.acquire()
    view, address = buffer.view, buffer.address
    pool.discard(buffer)
    pool.close()
    assert fake.count("registered") == 0
    view[:] = b"y" * SIZE
    del view
    maps = Path("/proc/self/maps").read_text(encoding="ascii")
    assert f"{address:x}-" not in maps


@BOTH
def test_given_back_twice(fake: FakeCuda, context_id: int, allocator: type) -> None:
    """C33: a spent lease's release does nothing, a second one on the fast tier is an error; there's one idle buffer."""
    pool = BufferPool(allocator(), buffer_size=SIZE)
    lease = pool.lease()
    lease.release()
    lease.release()
    bare = pool.acquire()
    pool.release(bare)
    with pytest.raises(InvalidReleaseError):
        pool.release(bare)
    assert_quiet(pool, leased=0, idle=1)
    pool.close()


@BOTH
def test_during_a_capture(
    fake: FakeCuda, driver: Driver, context_id: int, stream: Any, allocator: type
) -> None:
    """C45: allocating and freeing do no harm to a capture that is open; both happen in relaxed mode."""
    pool = BufferPool(allocator(), buffer_size=SIZE)
    pool.prefill(1)
    capture = Capture(driver, stream)
    with pool.lease(), pool.lease():
        pass
    pool.clear()
    pool.close()
    assert capture.end() == 0
    assert (fake.count("violations"), fake.count("pinned_bytes")) == (0, 0)
