"""Buffers given back after a stream where something fails: never idle too early, and no event is lost."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from respool import InvalidReleaseError, PoolObserver
from respool.buffers import BufferPool
from respool.cuda import CudaError, NoContextError
from tests.helpers.checkpoints import Interrupt, every_checkpoint, interrupt
from tests.helpers.cuda_driver import Capture
from tests.helpers.threads import wait_until

if TYPE_CHECKING:
    from respool.cuda import CudaEventPool
    from respool.cuda._driver import Driver
    from tests.helpers.cuda_driver import FakeCuda

SIZE = 4096


@pytest.mark.parametrize("function", ["cuEventRecord", "cuEventCreate"])
def test_a_record_that_fails(fake: FakeCuda, plain_buffers: BufferPool, stream: Any, function: str) -> None:
    """C37: the stream is waited for instead, and the error told; the buffer is idle, the event back."""
    buffer = plain_buffers.acquire()
    fake.fail(function, 999)
    with pytest.raises(CudaError) as failed:
        plain_buffers.release_after(buffer, stream)
    assert failed.value.code == 999
    assert fake.calls("cuStreamSynchronize") == 1
    assert (plain_buffers.stats().idle, plain_buffers.stats().size) == (1, 1)


@pytest.mark.parametrize("way", ["bare", "group"])
def test_a_record_and_a_wait_that_fail(
    fake: FakeCuda, plain_buffers: BufferPool, stream: Any, way: str
) -> None:
    """C37: where the stream can't be waited for either, the buffer is quarantined, and stays charged."""
    fake.fail("cuEventRecord", 999)
    fake.fail("cuStreamSynchronize", 999)
    if way == "bare":
        buffer = plain_buffers.acquire()
        with pytest.raises(CudaError):
            plain_buffers.release_after(buffer, stream)
        with pytest.raises(InvalidReleaseError):
            plain_buffers.release(buffer)
    else:
        with pytest.raises(CudaError), plain_buffers.lease_many(1, stream=stream):
            pass
    for _ in range(2):
        stats = plain_buffers.stats()
        assert (stats.quarantined, stats.idle, stats.pending, stats.cost) == (1, 0, 0, SIZE)
        plain_buffers.reap()
    assert plain_buffers.forget() == 1


def test_a_failure_behind_an_exception(fake: FakeCuda, plain_buffers: BufferPool, stream: Any) -> None:
    """C37: an exception that leaves the block is what the caller gets; what failed then is a note of it."""
    fake.fail("cuEventRecord", 999)
    with pytest.raises(LookupError) as failed, plain_buffers.lease(stream=stream):
        raise LookupError
    assert "999" in failed.value.__notes__[0]
    assert plain_buffers.stats().idle == 1


@pytest.mark.leaves("registered", "pinned_bytes", "events", "streams", "stale")
def test_a_broken_context(
    fake: FakeCuda, driver: Driver, pinned_buffers: BufferPool, shared_events: CudaEventPool, context_id: int
) -> None:
    """C39: after a sticky error what is pending is quarantined, neither idle nor freed, its event is let go, acquires fail."""
    stream = driver.create_stream()  # which can't be destroyed any more
    fake.hold()
    pinned_buffers.lease().release_after(stream)
    fake.break_context(context_id, 719)
    with pytest.raises(CudaError) as failed:
        pinned_buffers.lease()
    assert failed.value.code == 719
    wait_until(lambda: pinned_buffers.stats().quarantined == 1, "the quarantine")
    stats = pinned_buffers.stats()
    assert (stats.idle, stats.pending, stats.destroyed) == (0, 0, 0)
    assert shared_events.stats().leased == 0


def test_a_query_that_fails(
    fake: FakeCuda, plain_buffers: BufferPool, shared_events: CudaEventPool, stream: Any
) -> None:
    """C39: an error of a query that passes: the buffer is quarantined with its event, until reap() hears that it's done."""
    fake.fail("cuEventQuery", 999, times=0)
    plain_buffers.lease().release_after(stream)
    assert plain_buffers.stats().pending == 1
    plain_buffers.reap()
    assert (plain_buffers.stats().quarantined, shared_events.stats().leased) == (1, 1)
    fake.clear_faults()
    driver_done = shared_events.stats().idle
    plain_buffers.reap()
    assert (plain_buffers.stats().idle, plain_buffers.stats().quarantined) == (1, 0)
    assert shared_events.stats().idle == driver_done + 1


def test_what_is_abandoned(
    fake: FakeCuda, plain_buffers: BufferPool, shared_events: CudaEventPool, stream: Any
) -> None:
    """C35: the event of a pending buffer that is abandoned goes back to its pool."""
    fake.hold()
    plain_buffers.lease().release_after(stream)
    assert shared_events.stats().leased == 1
    assert plain_buffers.forget() == 1
    assert (shared_events.stats().leased, shared_events.stats().leaked) == (0, 0)
    fake.release()


def test_a_captured_stream(fake: FakeCuda, driver: Driver, plain_buffers: BufferPool, stream: Any) -> None:
    """C47: after a stream that is being captured it's refused before anything is recorded; the lease stays."""
    lease = plain_buffers.lease(stream=stream)
    capture = Capture(driver, stream)
    with pytest.raises(CudaError, match="captured") as refused:
        lease.release_after(stream)
    assert refused.value.code == 900
    with pytest.raises(CudaError), lease:
        pass
    assert not lease.released
    assert fake.calls("cuEventRecord") == 0
    assert capture.end() == 0
    lease.release_after(stream)
    assert lease.released


@pytest.mark.parametrize("code", [900, 907])
def test_a_query_that_is_not_allowed(
    fake: FakeCuda, plain_buffers: BufferPool, stream: Any, code: int
) -> None:
    """C48: 900 or 907 from a query means not yet: counted, not raised, and the buffer stays pending."""
    fake.fail("cuEventQuery", code, times=0)
    plain_buffers.lease().release_after(stream)
    with plain_buffers.lease():
        stats = plain_buffers.stats()
        assert (stats.pending, stats.quarantined, stats.leased) == (1, 0, 1)
        assert stats.hook_errors["when"] == fake.calls("cuEventQuery") > 1
    fake.clear_faults()
    plain_buffers.reap()
    assert (plain_buffers.stats().idle, plain_buffers.stats().pending) == (2, 0)


@pytest.mark.parametrize("bad", [True, -1, "stream"])
def test_no_stream(plain_buffers: BufferPool, bad: Any) -> None:
    """C47: what is no stream is refused, by a lease before there is one, and by a release whose lease stays."""
    for take in (plain_buffers.lease, plain_buffers.try_lease, plain_buffers.bind().lease):
        with pytest.raises((TypeError, ValueError)):
            take(stream=bad)
    assert plain_buffers.stats().created == 0
    lease = plain_buffers.lease()
    with pytest.raises((TypeError, ValueError)):
        lease.release_after(bad)
    assert not lease.released
    lease.release()


def test_another_context_is_current(
    driver: Driver, plain_buffers: BufferPool, stream: Any, second: Any
) -> None:
    """C32: a buffer is given back after a stream of a context that isn't current; the event is of the stream's."""
    lease = plain_buffers.lease()
    driver.push_context(second)
    lease.release_after(stream)
    driver.pop_context()
    plain_buffers.reap()
    assert plain_buffers.stats().idle == 1


def test_no_context(driver: Driver, plain_buffers: BufferPool, stream: Any) -> None:
    """C32: without a current context the stream's own is used; the default stream is of none then, and the lease stays."""
    first, second = plain_buffers.lease(), plain_buffers.lease()
    context = driver.pop_context()
    try:
        first.release_after(stream)
        with pytest.raises(NoContextError):
            second.release_after(None)
    finally:
        driver.push_context(context)
    assert (first.released, second.released) == (True, False)
    second.release_after(None)
    plain_buffers.reap()
    assert plain_buffers.stats().idle == 2


@pytest.mark.filterwarnings("ignore::respool.LeaseLeakWarning")  # of the event in hand
@pytest.mark.parametrize("way", ["lease", "bare"])
def test_interrupts(fake: FakeCuda, shared_events: CudaEventPool, stream: Any, way: str) -> None:
    """C35: an interrupt anywhere in a release after a stream leaves no buffer idle that is in use, and takes no room."""
    shared_events.prefill(1)
    for visit in every_checkpoint():
        pool = BufferPool(buffer_size=SIZE, max_bytes=SIZE, observer=PoolObserver())
        held = pool.lease() if way == "lease" else pool.acquire()
        fake.hold()
        with visit:
            with contextlib.suppress(Interrupt):
                if way == "lease":
                    visit.run(lambda: held.release_after(stream), interrupt)  # noqa: B023 - run at once
                else:
                    visit.run(lambda: pool.release_after(held, stream), interrupt)  # noqa: B023 - likewise
            stats = pool.stats()
            assert stats.idle == 0
            assert stats.pending + stats.leased == 1
            if stats.leased:  # it came before anything had been done
                if way == "lease":
                    held.release_after(stream)
                else:
                    pool.release_after(held, stream)
            fake.release()
            fake.settle()
            pool.reap()
            with pool.lease(timeout=0):
                pass
            pool.close(timeout=20)
