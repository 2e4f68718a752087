"""Events and pinned memory on a real GPU: what the fake driver shows of respool must be true of the real one.

Only ``pytest -m gpu`` runs these, as one process can have one driver: scripts/gpu does, among other things.  What may end the process, or
leaves the device useless for it, is in test_real_gpu_process.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import pytest

from respool import PoolClosedError
from respool.buffers import BufferPool, PinnedAllocator, RegisteredAllocator
from respool.cuda import CudaError, CudaEventPool, WrongContextError
from tests.helpers.cuda_driver import Capture, create_context
from tests.helpers.invariants import assert_quiet
from tests.helpers.threads import Threads, run_together, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from respool.cuda._driver import Driver

pytestmark = pytest.mark.gpu

SIZE = 1 << 20

BOTH = pytest.mark.parametrize("allocator", [PinnedAllocator, RegisteredAllocator])


class Held:
    """A stream that stands still until told to go on: it waits for a word in pinned memory."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.stream = driver.create_stream()
        self._address = driver.host_alloc(4096)
        self._word = ctypes.c_uint32.from_address(self._address)
        self._word.value = self._turn = 0

    def hold(self) -> None:
        """Let it do nothing that it's given from now on."""
        api = self._driver.api
        self._turn += 1
        flag = api.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ
        seen = self._driver.checked("pointer", api.cuMemHostGetDevicePointer, self._address, 0)
        self._driver.checked("hold", api.cuStreamWaitValue32, self.stream, seen, self._turn, flag)

    def go(self) -> None:
        """End `hold`."""
        self._word.value = self._turn

    def close(self) -> None:
        """Give all of it back."""
        self.go()
        self._driver.synchronize_stream(self.stream)
        self._driver.destroy_stream(self.stream)
        self._driver.host_free(self._address)


@pytest.fixture
def driver() -> Driver:
    """The real driver."""
    from respool.cuda import _driver

    return _driver.load()


@pytest.fixture
def context_id(driver: Driver) -> Iterator[int]:
    """The primary context of device 0, current on this thread, and of use at the end of the test too."""
    handle = driver.retain_primary(0)
    driver.push_context(handle)
    yield driver.context_id()
    driver.checked("cuCtxGetId", driver.cuCtxGetId, None)
    driver.pop_context()
    driver.release_primary(0)


@pytest.fixture
def held(driver: Driver, context_id: int) -> Iterator[Held]:
    """A stream that can be held."""
    held = Held(driver)
    yield held
    held.close()


def test_reuse(context_id: int) -> None:
    """An event is created once, and had again by the next one who asks."""
    with CudaEventPool() as pool:
        with pool.lease() as event:
            handle = event.handle
        for _ in range(100):
            with pool.lease() as event:
                assert event.handle == handle
        assert (pool.stats().created, pool.stats().reused, pool.num_free_events()) == (1, 100, 1)
        assert event.context_id == context_id
        batch = pool.lease_many(64)
        assert len({event.handle for event in batch.resources}) == 64
        batch.release()
    assert pool.stats().destroyed == 64


def test_record_and_query(held: Held) -> None:
    """An event is done when its stream has got there, and not before."""
    with CudaEventPool() as pool, pool.lease() as event:
        assert event.is_done()
        held.hold()
        event.record(held.stream)
        assert not event.is_done()
        held.go()
        event.synchronize()
        assert event.is_done()


def test_wait(held: Held, driver: Driver) -> None:
    """A stream that was told to wait for an event does so, though that is given back and recorded again meanwhile."""
    waiting, free = driver.create_stream(), driver.create_stream()
    with CudaEventPool() as pool:
        held.hold()
        with pool.lease() as event:
            event.record(held.stream)
            event.wait(waiting)
        with pool.lease() as again:
            assert again is event
            assert again.is_done()  # its holder hasn't recorded it
            again.record(free)
            again.synchronize()
        assert not driver.stream_is_done(waiting)
        held.go()
        driver.synchronize_stream(waiting)
    for one in (waiting, free):
        driver.destroy_stream(one)


def test_close_while_pending(held: Held) -> None:
    """Events that are pending are destroyed at once: a close doesn't wait for the device."""
    pool = CudaEventPool()
    held.hold()
    batch = pool.lease_many(3)
    for event in batch.resources:
        event.record(held.stream)
    batch.release()
    pool.close()
    assert_quiet(pool, leased=0, idle=0)
    with pytest.raises(PoolClosedError):
        pool.acquire()


def test_two_contexts(driver: Driver, context_id: int, held: Held) -> None:
    """Events go back to their own context's; a stream of another one is WrongContextError, and harms nothing."""
    with CudaEventPool() as pool:
        first = pool.acquire()
        other = create_context(driver)
        other_id = driver.context_id()
        assert other_id != context_id
        second = pool.acquire()
        with pytest.raises(WrongContextError):
            second.record(held.stream)
        assert second.is_done()
        first.record(held.stream)  # whichever is current
        first.synchronize()
        pool.release(first)
        pool.release(second)
        assert (pool.num_free_events(), pool.num_free_events(context_id)) == (1, 1)
        assert pool.acquire() is second
        pool.release(second)
        pool.clear(other_id)
        driver.checked("cuCtxDestroy", driver.api.cuCtxDestroy, other)
        assert pool.total_free_events() == 1


def test_timing(driver: Driver, context_id: int) -> None:
    """Events with timing can be timed."""
    stream = driver.create_stream()
    with CudaEventPool(timing=True) as pool, pool.lease_many(2) as (start, end):
        start.record(stream)
        end.record(stream)
        end.synchronize()
        assert start.elapsed_ms(end) >= 0
    driver.destroy_stream(stream)


def test_streams_of_cuda_core(driver: Driver, context_id: int) -> None:
    """Streams of cuda.core are streams."""
    core = pytest.importorskip("cuda.core", reason="needs cuda.core")
    device = core.Device(0)
    device.set_current()
    stream = device.create_stream()
    with CudaEventPool() as pool, pool.lease() as event:
        for one in (stream, None, 0):
            event.record(one)
            event.synchronize()
            event.wait(one)
    stream.close()


def test_threads(driver: Driver, context_id: int) -> None:
    """Sixteen threads share a pool, each with a stream; no event is in two hands."""
    handle = driver.retain_primary(0)
    with CudaEventPool() as pool:

        def use() -> None:
            driver.set_context(handle)
            stream = driver.create_stream()
            bound = pool.bind()
            for _ in range(200):
                event = bound.acquire()
                event.record(stream)
                event.synchronize()
                assert event.is_done()
                bound.release(event)
            driver.destroy_stream(stream)

        run_together(*[use] * 16)
        assert pool.stats().created <= 16
        assert_quiet(pool, leased=0, idle=pool.stats().created)
    driver.release_primary(0)


@BOTH
def test_copies(driver: Driver, context_id: int, held: Held, allocator: Any) -> None:
    """Pinned memory reaches the device and comes back; a buffer with a copy under way goes to nobody else."""
    device = driver.checked("cuMemAlloc", driver.api.cuMemAlloc, SIZE)
    address, content = int(device), bytes(range(256)) * (SIZE // 256)
    with CudaEventPool() as events, BufferPool(allocator(), buffer_size=SIZE, max_bytes=2 * SIZE) as pool:
        source, event = pool.acquire(), events.acquire()
        source.view[:] = content
        held.hold()
        driver.to_device(address, source.address, SIZE, held.stream)
        event.record(held.stream)
        pool.release(source, event.is_done)
        target = pool.acquire()
        assert target.address != source.address
        assert pool.try_acquire() is None  # the one that is read yet isn't free
        driver.to_host(target.address, address, SIZE, held.stream)
        held.go()
        driver.synchronize_stream(held.stream)
        assert bytes(target.view) == content
        pool.release(target)
        wait_until(lambda: (pool.reap(), pool.stats().idle)[1] == 2, "the buffer that was read")
        events.release(event)
    driver.checked("cuMemFree", driver.api.cuMemFree, device)


@BOTH
def test_freed_in_the_background(held: Held, allocator: Any) -> None:
    """Memory that is given up while a stream is busy is freed when that goes on; who gives it up doesn't wait."""
    pool = BufferPool(allocator(), buffer_size=SIZE)
    buffer, kept = pool.acquire(), pool.acquire()
    held.hold()
    pool.discard(buffer)
    pool.release(kept)
    assert pool.acquire() is kept
    assert pool.stats().destroying == 1  # as long as the stream is held, it can't have been
    pool.release(kept)
    held.go()
    pool.close()
    assert pool.stats().size == 0


def test_freeing_waits(driver: Driver, held: Held) -> None:
    """A bare cuMemFreeHost comes back only when the stream that was busy is done: what the pool is there to hide."""
    address = driver.host_alloc(SIZE)
    context = driver.retain_primary(0)
    gone_on: list[bool] = []
    seen: list[bool] = []

    def free() -> None:
        driver.set_context(context)
        driver.host_free(address)
        seen.append(bool(gone_on))

    held.hold()
    with Threads() as threads:
        threads.start(free)
        gone_on.append(True)
        held.go()
    assert seen == [True]
    driver.release_primary(0)


def test_recorded_in_a_capture(driver: Driver, context_id: int) -> None:
    """Recorded in a capture, an event is never queried; given back it's destroyed, and the capture ends well."""
    stream = driver.create_stream()
    with CudaEventPool() as pool:
        event = pool.acquire()
        capture = Capture(driver, stream)
        event.record(stream)
        with pytest.raises(CudaError) as captured:
            event.is_done()
        assert captured.value.code == 907
        pool.release(event)
        assert capture.end() == 0
        assert (pool.num_free_events(), pool.stats().destroyed) == (0, 1)
    driver.destroy_stream(stream)


@BOTH
def test_while_a_capture_is_open(driver: Driver, context_id: int, held: Held, allocator: Any) -> None:
    """Pools create, ask and allocate while some stream is captured in the global mode, and the capture ends well."""
    stream = driver.create_stream()
    with CudaEventPool() as pool:
        held.hold()
        event = pool.acquire()
        event.record(held.stream)
        capture = Capture(driver, stream)
        assert not event.is_done()
        other = pool.acquire()
        buffers = BufferPool(allocator(), buffer_size=SIZE)
        with buffers.lease() as buffer:
            buffer.view[:5] = b"hello"
        held.go()
        buffers.close()
        assert capture.end() == 0
        event.synchronize()
        pool.release(event)
        pool.release(other)
    driver.destroy_stream(stream)


@BOTH
def test_budget(driver: Driver, context_id: int, allocator: Any) -> None:
    """Sixteen threads with sizes of their own never have more pinned bytes than the budget, and leave none."""
    context = driver.retain_primary(0)
    budget = 4 * SIZE
    most: list[int] = []
    with BufferPool(allocator(), buffer_size=SIZE, max_bytes=budget) as pool:

        def use(size: int) -> None:
            driver.set_context(context)
            for turn in range(20):
                with pool.lease(size) as buffer:
                    buffer.view[:1] = bytes([turn])
                    most.append(pool.stats().cost)

        run_together(*[lambda size=size: use(size) for size in (SIZE, SIZE // 2, 100_000, 5) * 4])
        assert max(most) <= budget
    pool.close()  # waits for what is freed in the background
    assert (pool.stats().size, pool.stats().cost) == (0, 0)
    driver.release_primary(0)
