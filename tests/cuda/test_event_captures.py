"""Events and stream captures: recorded in one, or asked while one is open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from respool.cuda import CudaError, CudaEvent, CudaEventPool
from tests.helpers.cuda_driver import Capture

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.cuda._driver import Driver
    from tests.helpers.cuda_driver import FakeCuda


def test_recorded_in_a_capture(fake: FakeCuda, pool: CudaEventPool, driver: Driver, stream: Any) -> None:
    """C46: recorded in a capture, an event is never queried; given back it's destroyed, and the capture ends well."""
    event = pool.acquire()
    capture = Capture(driver, stream)
    event.record(stream)
    queries = fake.calls("cuEventQuery") + fake.calls("cuEventSynchronize")
    for ask in (event.is_done, event.synchronize):
        with pytest.raises(CudaError) as captured:
            ask()
        assert captured.value.code == 907
    pool.release(event)
    assert fake.calls("cuEventQuery") + fake.calls("cuEventSynchronize") == queries
    assert (pool.num_free_events(), fake.count("events")) == (0, 0)
    assert capture.end() == 0
    assert fake.count("violations") == 0
    stats = pool.stats()
    assert (stats.size, stats.destroyed) == (0, 1)


@pytest.mark.parametrize("way", ["lease", "bound", "group"])
def test_every_way_back_from_a_capture(
    fake: FakeCuda, pool: CudaEventPool, driver: Driver, stream: Any, way: str
) -> None:
    """C46: whichever way it comes back, it's destroyed, and the others of a group are kept."""
    give_back: Callable[[], None]
    if way == "lease":
        lease = pool.lease()
        event, give_back = lease.resource, lease.release
    elif way == "bound":
        bound = pool.bind()
        event = bound.acquire()
        give_back = lambda: bound.release(event)  # noqa: E731 - one of three
    else:
        group = pool.lease_many(2)
        event, give_back = group.resources[1], group.release
    capture = Capture(driver, stream)
    event.record(stream)
    give_back()
    assert capture.end() == 0
    assert pool.num_free_events() == (way == "group")
    assert pool.stats().destroyed == 1


def test_recorded_otherwise_after_a_capture(
    fake: FakeCuda, pool: CudaEventPool, driver: Driver, stream: Any
) -> None:
    """C46: the last record decides: recorded on a stream that isn't captured, the event is as any other, and is kept."""
    other = driver.create_stream()
    event = pool.acquire()
    capture = Capture(driver, stream)
    event.record(stream)
    event.record(stream)
    event.record(other)
    assert event.is_done()
    assert capture.end() == 0
    pool.release(event)
    assert pool.num_free_events() == 1
    assert pool.acquire() is event
    pool.release(event)
    driver.destroy_stream(other)


def test_cleared_during_a_capture(fake: FakeCuda, pool: CudaEventPool, driver: Driver, stream: Any) -> None:
    """C46: what the pool was cleared of stays so, before and during a capture: recorded otherwise, it's still destroyed."""
    other = driver.create_stream()
    before, during = pool.acquire(), pool.acquire()
    pool.clear()
    later = pool.acquire()
    pool.release(during)
    during = pool.acquire()
    capture = Capture(driver, stream)
    for event in (before, during, later):
        event.record(stream)
    assert pool.clear() == 0
    for event in (before, during, later):
        event.record(other)
    assert capture.end() == 0
    for event in (before, during, later):
        pool.release(event)
    assert (pool.num_free_events(), pool.stats().size) == (0, 0)
    driver.destroy_stream(other)


def test_a_wait_joins_the_capture(fake: FakeCuda, pool: CudaEventPool, driver: Driver, stream: Any) -> None:
    """C46: a captured event makes another stream a part of the capture, as ever."""
    other = driver.create_stream()
    with pool.lease() as fork, pool.lease() as join:
        capture = Capture(driver, stream)
        fork.record(stream)
        fork.wait(other)
        assert driver.capture_status(other) == 1
        join.record(other)
        join.wait(stream)
        assert capture.end() == 0
    assert pool.stats().size == 0
    driver.destroy_stream(other)


def test_a_record_in_a_capture_that_fails(
    fake: FakeCuda, pool: CudaEventPool, driver: Driver, stream: Any
) -> None:
    """C46: where the driver refuses the record, the event is as before, and is kept."""
    capture = Capture(driver, stream)
    with pool.lease() as event:
        fake.fail("cuEventRecord", 901)
        with pytest.raises(CudaError) as refused:
            event.record(stream)
        assert refused.value.code == 901
        assert event.is_done()
    assert capture.end() == 0
    assert pool.num_free_events() == 1


def test_a_query_leaves_captures_alone(fake: FakeCuda, event: CudaEvent, driver: Driver, stream: Any) -> None:
    """C45: is_done of an event does no harm to a capture that is open elsewhere, and the thread's mode is as before."""
    other = driver.create_stream()
    event.record(other)
    capture = Capture(driver, stream)
    assert event.is_done()
    api = driver.api
    assert int(api.cuThreadExchangeStreamCaptureMode(api.CUstreamCaptureMode(0))[1]) == 0
    assert capture.end() == 0
    driver.destroy_stream(other)


@pytest.mark.leaves("violations")
def test_a_synchronize_during_a_capture(
    fake: FakeCuda, event: CudaEvent, driver: Driver, stream: Any
) -> None:
    """C45: waiting while a capture is open is refused by the driver, and told."""
    other = driver.create_stream()
    event.record(other)
    capture = Capture(driver, stream)
    with pytest.raises(CudaError, match="capture"):
        event.synchronize()
    assert capture.end() == 901
    driver.destroy_stream(other)
