"""One event in its holder's hands: record, query, wait, time, and captures."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest

from respool import LeaseReleasedError
from respool.cuda import CudaError, CudaEvent, CudaEventPool, WrongContextError
from tests.helpers.cuda_driver import Capture, create_context
from tests.helpers.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.cuda._driver import Driver
    from tests.helpers.cuda_driver import FakeCuda


class Streamlike:
    """What has `__cuda_stream__`, as the streams of other libraries have."""

    def __init__(self, answer: object, *, closed: bool = False) -> None:
        self.answer, self.is_closed = answer, closed

    def __cuda_stream__(self) -> object:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_record_query_synchronize(fake: FakeCuda, event: CudaEvent, stream: Any) -> None:
    """C14: a query is False while work is pending and True after it; synchronize waits for it."""
    fake.hold()
    event.record(stream)
    assert event.is_done() is False
    with Threads() as threads:
        task = threads.start(event.synchronize)
        assert not task.ended
        fake.release()
        task.result()
    assert event.is_done() is True


@pytest.mark.parametrize("code", [1, 400, 999, 4242])
def test_other_codes_of_a_query(fake: FakeCuda, event: CudaEvent, code: int) -> None:
    """C14: any other code is a CudaError of a query, and never taken for done or pending."""
    event.record()
    fake.fail("cuEventQuery", code)
    with pytest.raises(CudaError) as failed:
        event.is_done()
    assert (failed.value.code, failed.value.call) == (code, "cuEventQuery")
    assert event.is_done()


def test_not_recorded_is_done(fake: FakeCuda, pool: CudaEventPool, stream: Any) -> None:
    """C09: an event that its holder has not recorded is done, with no call; an earlier holder's work is never told of."""
    bound = pool.bind()
    for take, give in (
        (pool.acquire, pool.release),
        (pool.try_acquire, pool.release),
        (bound.acquire, bound.release),
        (bound.try_acquire, bound.release),
    ):
        earlier = pool.acquire()
        fake.hold()
        earlier.record(stream)
        pool.release(earlier)
        event = take()
        assert event is earlier
        calls = fake.calls("cuEventQuery"), fake.calls("cuEventSynchronize"), fake.calls("cuStreamWaitEvent")
        assert event.is_done()
        event.synchronize()
        event.wait(stream)
        assert calls == (
            fake.calls("cuEventQuery"),
            fake.calls("cuEventSynchronize"),
            fake.calls("cuStreamWaitEvent"),
        )
        event.record(stream)
        assert not event.is_done()
        fake.release()
        assert event.is_done()
        give(event)
    with pool.lease_many(1) as (event,):
        assert event is earlier
        assert event.is_done()
    assert fake.count("events_made") == 1


def test_released_while_pending(fake: FakeCuda, pool: CudaEventPool, stream: Any, driver: Driver) -> None:
    """C08: an event is given back at once while its work is pending, with no call; the next holder's record is what counts."""
    other = driver.create_stream()
    event = pool.acquire()
    fake.hold(stream)
    event.record(stream)
    queries = fake.calls("cuEventQuery") + fake.calls("cuEventSynchronize")
    pool.release(event)
    assert fake.calls("cuEventQuery") + fake.calls("cuEventSynchronize") == queries
    assert pool.acquire() is event
    event.record(other)
    assert event.is_done()
    pool.release(event)
    fake.release(stream)
    driver.destroy_stream(other)


def test_a_wait_keeps_its_meaning(fake: FakeCuda, pool: CudaEventPool, stream: Any, driver: Driver) -> None:
    """C10: a stream waits for what the event stood for when it was told to; recording it again changes nothing."""
    waiting, other = driver.create_stream(), driver.create_stream()
    fake.hold(stream)
    with pool.lease() as event:
        event.record(stream)
        event.wait(waiting)
    with pool.lease() as again:
        assert again is event
        again.record(other)
        assert again.is_done()
        assert not driver.stream_is_done(waiting)
    fake.release(stream)
    assert driver.stream_is_done(waiting)
    for one in (waiting, other):
        driver.destroy_stream(one)


def test_no_timing_by_default(fake: FakeCuda, pool: CudaEventPool, driver: Driver) -> None:
    """C06: events are created without timing: the driver refuses to time them, and so do they themselves, without a call."""
    first, second = pool.acquire(), pool.acquire()
    first.record()
    second.record()
    assert not first.timing
    with pytest.raises(WrongContextError):
        driver.elapsed_ms(first.handle, second.handle)
    calls = fake.calls("cuEventElapsedTime")
    with pytest.raises(ValueError, match="timing=True"):
        first.elapsed_ms(second)
    assert fake.calls("cuEventElapsedTime") == calls
    pool.release(first)
    pool.release(second)


def test_timing(fake: FakeCuda, context_id: int, stream: Any) -> None:
    """C07: a pool with timing makes events that can be timed; of what isn't recorded or isn't done they say so."""
    with CudaEventPool(timing=True) as pool, pool.lease_many(2) as (start, end):
        assert start.timing
        with pytest.raises(ValueError, match="not been recorded"):
            start.elapsed_ms(end)
        start.record(stream)
        fake.hold()
        end.record(stream)
        with pytest.raises(CudaError) as early:
            start.elapsed_ms(end)
        assert early.value.code == 600
        assert "synchronize()" in str(early.value)
        fake.release()
        end.synchronize()
        assert start.elapsed_ms(end) >= 0
        assert start.elapsed_ms(end) == -end.elapsed_ms(start)
        with pytest.raises(TypeError, match="CudaEvent"):
            start.elapsed_ms(end.handle)  # type: ignore[arg-type]


def test_a_stream_of_another_context(fake: FakeCuda, event: CudaEvent, driver: Driver, stream: Any) -> None:
    """C12: recording there is WrongContextError; the event is as before, recorded or not, and of use."""
    other = create_context(driver, 1)
    elsewhere = driver.create_stream()
    driver.pop_context()
    with pytest.raises(WrongContextError) as wrong:
        event.record(elsewhere)
    assert wrong.value.code == 400
    queries = fake.calls("cuEventQuery")
    assert event.is_done()
    assert fake.calls("cuEventQuery") == queries
    fake.hold(stream)
    event.record(stream)
    with pytest.raises(WrongContextError):
        event.record(elsewhere)
    assert not event.is_done()
    fake.release(stream)
    assert event.is_done()
    event.wait(elsewhere)
    driver.destroy_stream(elsewhere)
    driver.checked("cuCtxDestroy", driver.api.cuCtxDestroy, other)


def test_streams_of_all_kinds(fake: FakeCuda, event: CudaEvent, driver: Driver, stream: Any) -> None:
    """C12: None, 0, ints, the bindings' streams and whatever has __cuda_stream__ are streams of their context."""
    handle = int(stream)
    for one in (None, 0, handle, stream, driver.CUstream(0), Streamlike((0, handle)), Streamlike((0, 0))):
        event.record(one)
        event.synchronize()
        event.wait(one)
    fake.hold(stream)
    event.record(Streamlike((0, handle)))
    assert not event.is_done()
    fake.release(stream)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (True, TypeError),
        (-1, ValueError),
        (1 << 64, ValueError),
        (1.5, TypeError),
        ("stream", TypeError),
        (object(), TypeError),
        (Streamlike(None), TypeError),
        (Streamlike((0, -1)), TypeError),
        (Streamlike((1, 5)), TypeError),
        (Streamlike((0, True)), TypeError),
        (Streamlike(RuntimeError("gone"), closed=True), ValueError),
        (Streamlike((0, 0), closed=True), ValueError),
        (Streamlike(KeyError("mine")), KeyError),
    ],
)
def test_what_is_no_stream(fake: FakeCuda, event: CudaEvent, bad: Any, error: type[Exception]) -> None:
    """C12: what is no stream, or knows that it's closed, is a TypeError or ValueError before any call; nothing changes."""
    calls = fake.calls("cuEventRecord"), fake.calls("cuStreamWaitEvent"), fake.calls("cuStreamIsCapturing")
    for use in (event.record, event.wait):
        with pytest.raises(error):
            use(bad)
    assert event.is_done()
    assert calls == (
        fake.calls("cuEventRecord"),
        fake.calls("cuStreamWaitEvent"),
        fake.calls("cuStreamIsCapturing"),
    )


@pytest.mark.leaves("contexts")  # which cuda.core retains for good
def test_cuda_core(fake: FakeCuda, driver: Driver, context_id: int) -> None:
    """C12: streams and contexts of cuda.core are taken as they are, and a closed stream is refused."""
    core = pytest.importorskip("cuda.core", reason="needs cuda.core")
    if not hasattr(core, "Device"):
        pytest.skip("needs a cuda.core whose names are not experimental")
    device = core.Device(0)
    device.set_current()
    stream = device.create_stream()
    with CudaEventPool() as pool:
        with pool.lease(stream.context) as event:
            assert event.context_id == context_id
            event.record(stream)
            event.synchronize()
            event.wait(stream)
            event.record(core.LEGACY_DEFAULT_STREAM)
            event.record(core.PER_THREAD_DEFAULT_STREAM)
            assert event.is_done()
            theirs = stream.record()
            assert driver.api.cuEventQuery(driver.CUevent(event.handle)) == driver.api.cuEventQuery(
                theirs.handle
            )
            theirs.close()
            stream.close()
            with pytest.raises(ValueError, match="closed"):
                event.record(stream)
        assert pool.num_free_events(context_id) == 1


@pytest.mark.parametrize(
    ("function", "use"),
    [
        ("cuEventRecord", lambda event, stream: event.record(stream)),
        ("cuStreamIsCapturing", lambda event, stream: event.record(stream)),
        ("cuEventSynchronize", lambda event, stream: event.synchronize()),
        ("cuStreamWaitEvent", lambda event, stream: event.wait(stream)),
        ("cuThreadExchangeStreamCaptureMode", lambda event, stream: event.is_done()),
    ],
)
@pytest.mark.parametrize("code", [1, 4242])
def test_calls_that_fail(
    fake: FakeCuda, pool: CudaEventPool, stream: Any, *, function: str, use: Callable[..., object], code: int
) -> None:
    """C14: whichever call fails, with a code that the bindings know or not, it's a CudaError with it, and nothing is lost."""
    with pool.lease() as event:
        event.record(stream)
        fake.fail(function, code)
        with pytest.raises(CudaError) as failed:
            use(event, stream)
        assert failed.value.code == code
        assert event.is_done()
    assert (pool.stats().leased, pool.num_free_events()) == (0, 1)


def test_a_time_that_fails(fake: FakeCuda, context_id: int) -> None:
    """C14: so does the time between two events."""
    with CudaEventPool(timing=True) as pool, pool.lease_many(2) as (start, end):
        start.record()
        end.record()
        for code in (1, 4242):
            fake.fail("cuEventElapsedTime", code)
            with pytest.raises(CudaError) as failed:
                start.elapsed_ms(end)
            assert failed.value.code == code


def test_after_it_was_destroyed(fake: FakeCuda, pool: CudaEventPool, stream: Any) -> None:
    """G6: an event that the pool has destroyed is LeaseReleasedError to use, without a call of the driver."""
    event = pool.acquire()
    event.record(stream)
    pool.discard(event)
    calls = fake.calls("cuEventRecord"), fake.calls("cuEventQuery")
    for use in (lambda: event.record(stream), event.is_done, event.synchronize, lambda: event.wait(stream)):
        with pytest.raises(LeaseReleasedError):
            use()
    assert calls == (fake.calls("cuEventRecord"), fake.calls("cuEventQuery"))


def test_detached(fake: FakeCuda, pool: CudaEventPool, driver: Driver, stream: Any) -> None:
    """G6: a detached event is its holder's, of use as before, and destroyed by its handle."""
    lease = pool.lease()
    lease.resource.record(stream)
    fake.hold(stream)
    lease.resource.record(stream)
    event = lease.detach()
    assert not event.is_done()
    fake.release(stream)
    assert event.is_done()
    capture = Capture(driver, stream)
    event.record(stream)
    assert capture.end() == 0
    event.record(stream)
    event.synchronize()
    assert pool.stats().size == 0
    driver.destroy_event(event.handle)


def test_what_it_shows(fake: FakeCuda, pool: CudaEventPool, event: CudaEvent, context_id: int) -> None:
    """C02: an event tells its handle and context; it can't be made by hand, pickled or copied."""
    assert event.handle
    assert event.context_id == context_id
    assert repr(event) == f"<respool.cuda.CudaEvent {event.handle:#x} of context {context_id}>"
    with pytest.raises(TypeError, match="CudaEventPool"):
        CudaEvent()
    for thing in (event, pool):
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(thing)
