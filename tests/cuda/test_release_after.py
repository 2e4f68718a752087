"""Buffers given back after a stream: never reused while a copy may read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from respool import InvalidReleaseError, PoolLimits, PoolTimeoutError
from respool.buffers import BufferLease, BufferLeaseGroup
from tests.helpers.threads import Threads, wait_until, wait_until_queued

if TYPE_CHECKING:
    from collections.abc import Iterator

    from respool.buffers import Buffer, BufferPool
    from respool.cuda import CudaEventPool
    from respool.cuda._driver import Driver
    from tests.helpers.cuda_driver import FakeCuda

SIZE = 4096


@pytest.fixture
def device(driver: Driver, context_id: int) -> Iterator[int]:
    """Device memory of a buffer's size."""
    address = int(driver.checked("cuMemAlloc", driver.api.cuMemAlloc, SIZE))
    yield address
    driver.checked("cuMemFree", driver.api.cuMemFree, address)


def read_back(driver: Driver, device: int) -> bytes:
    """What the device memory holds."""
    data = bytearray(SIZE)
    driver.checked("cuMemcpyDtoH", driver.api.cuMemcpyDtoH, data, device, SIZE)
    return bytes(data)


WAYS = ["lease", "block", "failed block", "try block", "bare", "bound", "bound block", "group", "group block"]


class Copying:
    """A copy from a buffer, which is given back after it in one of the ways there are."""

    def __init__(self, pool: BufferPool, driver: Driver, stream: Any, device: int) -> None:
        self.pool, self.driver, self.stream, self.device = pool, driver, stream, device

    def submit(self, buffer: Buffer) -> Buffer:
        """Submit it."""
        buffer.view[:] = b"a" * SIZE
        self.driver.to_device(self.device, buffer.address, SIZE, self.stream)
        return buffer

    def in_block(self, block: Any) -> Buffer:
        """Submit it in a with-block."""
        with block as held:
            return self.submit(held[0] if isinstance(held, tuple) else held)

    def give_back(self, way: str) -> Buffer:  # noqa: PLR0911 - a list of ways
        """Take a buffer, submit the copy and give the buffer back."""
        pool, stream = self.pool, self.stream
        bound = pool.bind()
        if way == "block":
            return self.in_block(pool.lease(stream=stream))
        if way == "try block":
            return self.in_block(pool.try_lease(stream=stream))
        if way == "bound block":
            return self.in_block(bound.lease(stream=stream))
        if way == "group block":
            return self.in_block(bound.lease_many(1, stream=stream))
        if way == "failed block":
            lease = pool.lease(stream=stream)
            buffer = self.submit(lease.resource)
            with pytest.raises(LookupError), lease:
                raise LookupError
            return buffer
        if way in {"bare", "bound"}:
            face: Any = bound if way == "bound" else pool
            buffer = self.submit(face.acquire())
            face.release_after(buffer, stream)
            with pytest.raises(InvalidReleaseError):
                face.release_after(buffer, stream)
            return buffer
        held = pool.lease_many(1) if way == "group" else bound.lease()
        buffer = self.submit(held.resources[0] if isinstance(held, BufferLeaseGroup) else held.resource)
        held.release_after(stream)
        held.release_after(stream)  # spent: nothing
        return buffer


@pytest.mark.parametrize("way", WAYS)
def test_not_reused_before_the_copy_is_over(  # noqa: PLR0917 - fixtures
    fake: FakeCuda, driver: Driver, pinned_buffers: BufferPool, stream: Any, device: int, way: str
) -> None:
    """C35: a buffer given back after a stream is nobody's until its copy is over; the device gets the bytes of then."""
    pool = pinned_buffers
    fake.hold()
    buffer = Copying(pool, driver, stream, device).give_back(way)
    assert fake.calls("cuEventRecord") == 1
    assert pool.stats().pending == 1
    with pool.lease() as other:
        assert other is not buffer
        other.view[:] = b"b" * SIZE
        with pytest.raises(PoolTimeoutError):
            pool.lease(timeout=0)
        fake.release()
        with pool.lease() as again:
            assert again is buffer
            again.view[:] = b"c" * SIZE
    assert read_back(driver, device) == b"a" * SIZE
    stats = pool.stats()
    assert (stats.idle, stats.leased, stats.pending, stats.created) == (2, 0, 0, 2)


def test_what_is_done_is_idle(plain_buffers: BufferPool, shared_events: CudaEventPool, stream: Any) -> None:
    """C35: after a stream that has nothing left to do, a buffer is idle at once, and so is its event, which serves again."""
    for _ in range(3):
        with plain_buffers.lease(stream=stream):
            pass
        assert (plain_buffers.stats().idle, plain_buffers.stats().pending) == (1, 0)
    stats = shared_events.stats()
    assert (stats.created, stats.reused, stats.idle) == (1, 2, 1)


def test_no_event_is_waited_for(
    fake: FakeCuda, plain_buffers: BufferPool, shared_events: CudaEventPool, stream: Any
) -> None:
    """C35: where the shared pool of events has none to give, a fresh one is made, and destroyed afterwards."""
    shared_events.resize(PoolLimits(max_size=1))
    fake.hold()
    with shared_events.lease():
        plain_buffers.lease().release_after(stream)
    assert (plain_buffers.stats().pending, fake.count("events")) == (1, 2)
    fake.release()
    fake.settle()
    plain_buffers.reap()
    assert (plain_buffers.stats().idle, fake.count("events")) == (1, 1)


def test_one_event_for_a_group(
    fake: FakeCuda, plain_buffers: BufferPool, shared_events: CudaEventPool, stream: Any
) -> None:
    """C35: a group is given back after a stream as a whole, with one event; an exception in its block changes nothing."""
    fake.hold()
    group = plain_buffers.lease_many(2, stream=stream)
    with pytest.raises(LookupError), group:
        raise LookupError
    assert (plain_buffers.stats().pending, shared_events.stats().leased) == (2, 1)
    fake.release()
    fake.settle()
    plain_buffers.reap()
    assert (plain_buffers.stats().idle, shared_events.stats().idle) == (2, 1)


def test_given_back_otherwise_in_the_block(fake: FakeCuda, plain_buffers: BufferPool, stream: Any) -> None:
    """C35: a lease with a stream that is released, discarded or detached in its block is left alone at the end."""
    with plain_buffers.lease(stream=stream) as buffer:
        pass
    for way in ("release", "discard", "detach"):
        lease = plain_buffers.lease(stream=stream)
        with lease:
            getattr(lease, way)()
    assert fake.calls("cuEventRecord") == 1
    stats = plain_buffers.stats()
    assert (stats.leased, stats.detached, stats.destroyed_for["discarded"]) == (0, 1, 1)
    del buffer


def test_kinds_of_leases(plain_buffers: BufferPool, stream: Any) -> None:
    """C35: leases of buffers are `respool.Lease`s and can't be made by hand; the event and stream are nobody's to see."""
    from respool import Lease, LeaseGroup

    with pytest.raises(TypeError, match="made by a pool"):
        BufferLease()
    with pytest.raises(TypeError, match="made by a pool"):
        BufferLeaseGroup()
    one, several = plain_buffers.lease(stream=stream), plain_buffers.lease_many(1, stream=stream)
    assert isinstance(one, Lease)
    assert isinstance(one, BufferLease)
    assert isinstance(several, LeaseGroup)
    assert isinstance(several, BufferLeaseGroup)
    assert plain_buffers.try_lease(stream=stream) is None
    one.release()
    several.release()


def test_recorded_before_it_is_seen(
    fake: FakeCuda, driver: Driver, pinned_buffers: BufferPool, shared_events: CudaEventPool, stream: Any
) -> None:
    """C36: while the record is being made, nobody else gets the buffer."""
    buffer = pinned_buffers.acquire()
    shared_events.prefill(1)

    def give_back() -> None:
        driver.push_context(driver.retain_primary(0))
        pinned_buffers.release_after(buffer, stream)
        driver.pop_context()
        driver.release_primary(0)

    with Threads() as threads, fake.latch("cuEventRecord") as latch:
        task = threads.start(give_back)
        latch.wait_inside()
        with pinned_buffers.lease() as other:
            assert other is not buffer
            assert pinned_buffers.try_lease() is None
        latch.open()
        task.result()


def test_no_host_functions(fake: FakeCuda, plain_buffers: BufferPool, stream: Any) -> None:
    """C38: events are asked; no function of the host is ever queued on a stream."""
    with plain_buffers.lease(stream=stream):
        pass
    plain_buffers.reap()
    assert fake.calls("cuLaunchHostFunc") == 0
    assert fake.calls("cuEventRecord") == 1


def test_a_stream_that_is_slow(
    fake: FakeCuda, driver: Driver, plain_buffers: BufferPool, stream: Any
) -> None:
    """C40: a buffer behind a stream that is done is reusable, though an older one waits for another stream."""
    slow = driver.create_stream()
    fake.hold(slow)
    first, second = plain_buffers.lease(), plain_buffers.lease()
    wanted = second.resource
    fake.hold(stream)
    first.release_after(slow)
    second.release_after(stream)
    assert plain_buffers.stats().pending == 2
    assert plain_buffers.try_lease() is None
    fake.release(stream)
    driver.synchronize_stream(stream)
    lease = plain_buffers.try_lease()
    assert lease is not None
    assert lease.resource is wanted
    lease.release()
    fake.release(slow)
    driver.synchronize_stream(slow)
    driver.destroy_stream(slow)


def test_waiting_for_what_is_pending(
    fake: FakeCuda, driver: Driver, plain_buffers: BufferPool, stream: Any
) -> None:
    """C41: who waits while all is pending asks by itself, keeps to its timeout, and needs no other thread to be served."""
    fake.hold()
    for lease in [plain_buffers.lease(), plain_buffers.lease()]:
        lease.release_after(stream)
    with pytest.raises(PoolTimeoutError) as failed:
        plain_buffers.lease(timeout=0.01)
    assert failed.value.pending == 2

    def wait() -> None:
        plain_buffers.lease().release()

    with Threads() as threads:
        task = threads.start(wait)
        wait_until_queued(plain_buffers, 1)  # type: ignore[arg-type]  # it asks for the stats only
        asked = fake.calls("cuEventQuery")
        wait_until(lambda: fake.calls("cuEventQuery") > asked, "the waiter's asking")
        fake.release()
        task.result()
