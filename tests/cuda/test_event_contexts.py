"""Contexts that end, come back under their handle, or break: what becomes of their events."""

from __future__ import annotations

import logging
import signal
from typing import TYPE_CHECKING, Any

import pytest

from respool import LeaseLostError, PoolLimits
from respool.cuda import CudaError, CudaEvent, CudaEventPool, NoContextError
from tests.helpers.cuda_driver import create_context
from tests.helpers.invariants import assert_quiet
from tests.helpers.recorder import Recorder
from tests.helpers.threads import Threads, wait_until_queued

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from respool.cuda._driver import Driver
    from tests.helpers.cuda_driver import FakeCuda

EVENT_CALLS = ("cuEventDestroy", "cuEventQuery", "cuEventRecord", "cuEventSynchronize")


def destroy(driver: Driver, context: Any) -> None:
    """End a context."""
    driver.checked("cuCtxDestroy", driver.api.cuCtxDestroy, context)


def event_calls(fake: FakeCuda) -> dict[str, int]:
    """How often the driver has been called about an event that exists."""
    return {name: fake.calls(name) for name in EVENT_CALLS}


@pytest.fixture
def pool(fake: FakeCuda) -> Iterator[CudaEventPool]:
    """A pool, with no context current."""
    with CudaEventPool() as pool:
        yield pool


def test_a_handle_that_is_given_out_again(fake: FakeCuda, pool: CudaEventPool, driver: Driver) -> None:
    """C04: a new context under the handle of a dead one gets new events; the old ones reach no call of the driver."""
    first = create_context(driver)
    old = pool.acquire()
    pool.release(old)
    destroy(driver, first)
    calls = event_calls(fake)
    second = create_context(driver)
    assert int(second) == int(first)
    new = pool.acquire()
    assert new is not old
    assert new.context_id > old.context_id
    stats = pool.stats()
    assert (stats.reused, stats.abandoned, stats.size) == (0, 0, 2)
    pool.reap()
    assert (pool.stats().abandoned, pool.stats().size) == (1, 1)
    assert event_calls(fake) == calls
    pool.release(new)
    pool.close()
    destroy(driver, second)


def test_an_unseen_context_under_the_handle(fake: FakeCuda, pool: CudaEventPool, driver: Driver) -> None:
    """C04: a dead context's id is 709, although another one, that nobody has seen yet, has its handle: none of its events is made."""
    first = create_context(driver)
    bound = pool.bind()
    driver.pop_context()
    destroy(driver, first)
    second = create_context(driver)
    driver.pop_context()
    assert int(second) == int(first)
    for take in (bound.acquire, lambda: pool.acquire(bound.key), lambda: pool.prefill(1, bound.key)):
        with pytest.raises(CudaError) as gone:
            take()
        assert gone.value.code == 709
    assert fake.count("events_made") == 0
    destroy(driver, second)


@pytest.mark.parametrize("how", ["reap", "clear", "resize", "close", "block", "forget"])
def test_idle_events_of_a_dead_context(fake: FakeCuda, pool: CudaEventPool, driver: Driver, how: str) -> None:
    """C18: they're abandoned by whatever sweeps the pool, counted so, and the driver is told nothing of them."""
    context = create_context(driver)
    pool.prefill(3)
    number = driver.context_id()
    destroy(driver, context)
    calls = event_calls(fake)
    if how == "forget":
        assert pool.forget(number) == 3
        assert pool.forget(number) == 0
    elif how == "block":
        with pool:
            pass
    elif how == "resize":
        pool.resize(PoolLimits(max_idle=0))
    else:
        assert getattr(pool, how)() in {0, None}
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.abandoned, stats.destroyed, stats.size) == (3, 0, 0)
    assert event_calls(fake) == calls


def test_evicted_from_a_dead_context(fake: FakeCuda, driver: Driver) -> None:
    """C18: where their room is needed for another context, no call is made either."""
    first = create_context(driver)
    with CudaEventPool(limits=PoolLimits(max_size=2)) as pool:
        pool.prefill(2)
        destroy(driver, first)
        calls = event_calls(fake)
        second = create_context(driver)
        pool.prefill(1)
        event = pool.acquire()
        assert event_calls(fake) == calls
        pool.release(event)
        pool.close()
        destroy(driver, second)


def uses(event: CudaEvent) -> list[tuple[str, Callable[[], object]]]:
    """What a holder may do with a recorded event."""
    return [
        ("record", event.record),
        ("is_done", event.is_done),
        ("synchronize", event.synchronize),
        ("wait", lambda: event.wait(None)),
    ]


@pytest.mark.leaves("stale")
@pytest.mark.parametrize("first", range(4))
def test_held_when_its_context_ends(fake: FakeCuda, pool: CudaEventPool, driver: Driver, first: int) -> None:
    """C19: using it is LeaseLostError, from the second time on without a call; its release is silent, and it's never lent again."""
    context = create_context(driver)
    stream = driver.create_stream()
    lease, bare = pool.lease(), pool.acquire()
    bound = pool.bind()
    event = lease.resource
    for one in (event, bare):
        one.record(stream)
    number = event.context_id
    destroy(driver, context)
    with pytest.raises(LeaseLostError, match="destroyed") as lost:
        uses(event)[first][1]()
    assert isinstance(lost.value.__cause__, CudaError)
    assert lost.value.__cause__.code == 709
    calls = event_calls(fake), fake.calls("cuStreamIsCapturing"), fake.calls("cuStreamWaitEvent")
    for one in (event, bare):
        for name, use in uses(one):
            with pytest.raises(LeaseLostError):
                use()
            assert name
    lease.release()
    pool.release(bare)
    assert calls == (event_calls(fake), fake.calls("cuStreamIsCapturing"), fake.calls("cuStreamWaitEvent"))
    with pytest.raises(CudaError) as gone:
        bound.acquire()
    assert gone.value.code == 709
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.abandoned, stats.destroyed) == (2, 0)
    assert pool.num_free_events(number) == 0


def test_given_back_after_its_context_ended(fake: FakeCuda, pool: CudaEventPool, driver: Driver) -> None:
    """C19: a release without a look makes no call; what was given back so is swept away later, or destroyed without a call."""
    context = create_context(driver)
    lease, bare, other = pool.lease(), pool.acquire(), pool.acquire()
    number = bare.context_id
    destroy(driver, context)
    calls = event_calls(fake), fake.calls("cuCtxGetId")
    lease.release()
    pool.release(bare)
    assert calls == (event_calls(fake), fake.calls("cuCtxGetId"))
    pool.discard(other)
    assert event_calls(fake) == calls[0]
    assert pool.num_free_events(number) == 2
    pool.reap()
    assert_quiet(pool, leased=0, idle=0)
    assert event_calls(fake) == calls[0]


@pytest.mark.leaves("stale")
def test_709_that_is_not_its_contexts(fake: FakeCuda, driver: Driver, context_id: int) -> None:
    """C19: a 709 while the event's own context lives is told as it is, and costs nobody anything."""
    with CudaEventPool() as pool, pool.lease() as event:
        fake.fail("cuEventRecord", 709)
        with pytest.raises(CudaError) as failed:
            event.record()
        assert failed.value.code == 709
        event.record()
        assert event.is_done()


@pytest.mark.leaves("stale")
def test_forgotten_while_held(fake: FakeCuda, driver: Driver, context_id: int) -> None:
    """C18, C19: after forget() a held event reaches no call of the driver any more, nor when it's given back."""
    pool = CudaEventPool()
    lease, bare = pool.lease(), pool.acquire()
    lease.resource.record()
    pool.prefill(1)
    calls = event_calls(fake)
    assert pool.forget(context_id) == 1
    for event in (lease.resource, bare):
        for _, use in uses(event):
            with pytest.raises(LeaseLostError, match="gone"):
                use()
    new = pool.acquire()
    assert new not in {lease.resource, bare}
    lease.release()
    pool.discard(bare)
    assert event_calls(fake) == calls
    pool.discard(new)
    stats = assert_quiet(pool, leased=0, idle=0)
    assert stats.abandoned == 3
    driver.checked("reset", driver.api.cuDevicePrimaryCtxReset, 0)
    driver.retain_primary(0)
    pool.close()


def test_forget_by_default(fake: FakeCuda, driver: Driver) -> None:
    """C18: without an id it's the current context's events that are forgotten; without one, NoContextError."""
    pool = CudaEventPool()
    with pytest.raises(NoContextError):
        pool.forget()
    context = create_context(driver)
    pool.prefill(2)
    assert pool.forget() == 2
    destroy(driver, context)
    pool.close()


def test_a_device_that_is_reset(fake: FakeCuda, driver: Driver, context_id: int) -> None:
    """C20: after a reset acquires are CudaError 709; retained again, the same handle has new events under a new key."""
    with CudaEventPool() as pool:
        old = pool.acquire()
        pool.release(old)
        driver.checked("reset", driver.api.cuDevicePrimaryCtxReset, 0)
        calls = event_calls(fake)
        for take in (pool.acquire, pool.lease, pool.bind, pool.num_free_events):
            with pytest.raises(CudaError) as gone:
                take()
            assert gone.value.code == 709
        driver.retain_primary(0)
        with pool.lease() as new:
            assert new.context_id > context_id
            new.record()
            assert new.is_done()
        with pool.lease() as again:
            assert again is new
        pool.reap()
        assert pool.stats().abandoned == 1
        assert fake.calls("cuEventDestroy") == calls["cuEventDestroy"]
    assert fake.count("crashes") == 0


@pytest.mark.parametrize("code", [700, 719])
def test_a_context_that_breaks(
    fake: FakeCuda, driver: Driver, context_id: int, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """C62: after a sticky error acquires raise it at once, saying since when; releases are silent, and close ends."""
    pool = CudaEventPool()
    bound = pool.bind()
    lease, bare = pool.lease(), pool.acquire()
    pool.prefill(2)
    for event in (lease.resource, bare):
        event.record()
    fake.break_context(context_id, code)
    with pytest.raises(CudaError) as first:
        bare.is_done()
    assert first.value.code == code
    assert "its 2 idle events are left to it" in caplog.text
    made = fake.calls("cuEventCreate")
    for take in (pool.acquire, pool.lease, pool.try_acquire, bound.acquire, bound.lease, bound.try_lease):
        with pytest.raises(CudaError) as again:
            take()
        assert again.value.code == code
        assert f"CUDA context {context_id} has failed so since" in str(again.value)
    assert fake.calls("cuEventCreate") == made
    for use in (bare.is_done, bare.record, bare.synchronize):
        with pytest.raises(CudaError) as held:
            use()
        assert held.value.code == code
    caplog.clear()
    calls = event_calls(fake)
    lease.release()
    pool.release(bare)
    pool.close()
    assert event_calls(fake) == calls
    assert caplog.records == []
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.abandoned, stats.destroyed) == (4, 0)
    driver.checked("reset", driver.api.cuDevicePrimaryCtxReset, 0)
    driver.retain_primary(0)
    with CudaEventPool() as new, new.lease() as event:
        event.record()
        assert event.is_done()


def test_a_broken_context_that_nobody_has_noticed(
    fake: FakeCuda, driver: Driver, context_id: int, caplog: pytest.LogCaptureFixture
) -> None:
    """C62: close finds out by itself, leaves the events where they are, and says so."""
    pool = CudaEventPool()
    pool.prefill(2)
    bare = pool.acquire()
    fake.break_context(context_id, 719)
    calls = event_calls(fake)
    pool.discard(bare)
    pool.close()
    assert event_calls(fake) == calls
    assert pool.stats().size == 0
    assert "its 1 idle events are left to it" in caplog.text
    driver.checked("reset", driver.api.cuDevicePrimaryCtxReset, 0)
    driver.retain_primary(0)


def test_waiters_of_a_broken_context(fake: FakeCuda, driver: Driver, context_id: int) -> None:
    """C62: who waits for an event of a broken context gets its error when the turn comes; other contexts go on."""
    other = create_context(driver, 1)
    driver.pop_context()
    with CudaEventPool(limits=PoolLimits(max_per_key=1)) as pool, pool.lease(other) as theirs:
        held = pool.acquire()
        held.record()
        with Threads() as threads:
            waiting = threads.start(pool.acquire, context_id)
            wait_until_queued(pool, 1)
            fake.break_context(context_id)
            with pytest.raises(CudaError):
                held.is_done()
            pool.release(held)
            assert getattr(waiting.error(), "code", None) == 700
        with pytest.raises(CudaError, match=f"context {context_id} has failed so"):
            theirs.record()  # on the default stream of what is current: the broken one
        driver.push_context(other)
        theirs.record()
        assert theirs.is_done()
        driver.pop_context()
    driver.checked("reset", driver.api.cuDevicePrimaryCtxReset, 0)
    driver.retain_primary(0)
    destroy(driver, other)


def test_an_observer_sees_no_destroy_of_what_is_left(
    fake: FakeCuda, driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    """C18: what is abandoned is told to nobody as destroyed, and a context that just ends is no news for the log."""
    recorder = Recorder()
    context = create_context(driver)
    pool = CudaEventPool(observer=recorder)
    pool.prefill(2)
    destroy(driver, context)
    with caplog.at_level(logging.DEBUG):
        pool.close()
    assert recorder.of("destroyed") == recorder.of("hook_failed") == []
    assert caplog.records == []


def test_a_signal_handler_that_finds_it_broken(
    fake: FakeCuda, driver: Driver, context_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C62: where the pool can't be told, as a handler interrupts its own locked section, it's told by the next sweep."""
    pool = CudaEventPool()
    pool.prefill(2)
    event = pool.acquire()
    event.record()
    core = pool._pool._core
    fake.break_context(context_id)
    found: list[BaseException] = []

    def handler(number: int, frame: object) -> None:
        try:
            event.is_done()
        except CudaError as error:
            found.append(error)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        core.under_lock(lambda: signal.raise_signal(signal.SIGUSR1))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert [getattr(error, "code", None) for error in found] == [700]
    assert pool.total_free_events() == 1
    pool.release(event)
    pool.close()
    assert pool.stats().abandoned == 2
    driver.checked("reset", driver.api.cuDevicePrimaryCtxReset, 0)
    driver.retain_primary(0)
