"""The fake driver behaves as real ones were seen to: else tests on it would prove nothing."""

from __future__ import annotations

import ctypes
import mmap
from typing import TYPE_CHECKING, Any

import pytest

from respool.cuda import CudaError
from tests.helpers.cuda_driver import create_context
from tests.helpers.forks import in_child
from tests.helpers.threads import Threads, wait_until

if TYPE_CHECKING:
    from respool.cuda._driver import Driver
    from tests.helpers.cuda_driver import FakeCuda

SIZE = 8192


def code_of(answer: tuple[Any, ...]) -> int:
    """The code of a raw call."""
    return int(answer[0])


def test_handles_come_back_and_ids_do_not(fake: FakeCuda, driver: Driver) -> None:
    """A context made after another was destroyed has its handle and a new id; so do events, last in first out."""
    first = create_context(driver)
    one = driver.context_id()
    event = driver.create_event(2)
    driver.destroy_event(event)
    assert int(driver.create_event(2)) == int(event)
    driver.checked("cuCtxDestroy", driver.api.cuCtxDestroy, first)
    second = create_context(driver)
    assert int(second) == int(first)
    assert driver.context_id() > one
    assert not driver.is_alive(int(first), one)
    driver.checked("cuCtxDestroy", driver.api.cuCtxDestroy, second)


@pytest.mark.leaves("stale")
def test_an_event_of_a_destroyed_context_is_stale(fake: FakeCuda, driver: Driver) -> None:
    """Use of what belonged to a dead context is 709 and counted; the handle isn't given out again."""
    context = create_context(driver)
    event = driver.create_event(2)
    driver.checked("cuCtxDestroy", driver.api.cuCtxDestroy, context)
    assert code_of(driver.cuEventQuery(event)) == 709
    assert fake.count("stale") == 1
    assert fake.count("crashes") == 0


def test_a_reset_primary_context_revives_under_its_handle_with_a_new_id(
    fake: FakeCuda, driver: Driver, context_id: int
) -> None:
    """After a reset the current slot keeps the handle and calls give 709; retained again, it has another id."""
    handle = int(driver.api.cuCtxGetCurrent()[1])
    driver.checked("reset", driver.api.cuDevicePrimaryCtxReset, 0)
    assert int(driver.api.cuCtxGetCurrent()[1]) == handle
    assert code_of(driver.cuEventCreate(2)) == 709
    assert driver.retain_primary(0) == handle
    assert driver.context_id() > context_id


@pytest.mark.parametrize("registered", [True, False])
def test_a_copy_reads_pinned_memory_when_it_is_done(
    fake: FakeCuda, driver: Driver, context_id: int, *, registered: bool
) -> None:
    """Memory that is pinned and written again too early shows as wrong bytes on the device."""
    memory = mmap.mmap(-1, SIZE)
    view = (ctypes.c_char * SIZE).from_buffer(memory)
    address = ctypes.addressof(view) if registered else driver.host_alloc(SIZE)
    if registered:
        driver.host_register(address, SIZE)
    stream, device = driver.create_stream(), driver.checked("cuMemAlloc", driver.api.cuMemAlloc, SIZE)
    fake.hold()
    ctypes.memset(address, 1, SIZE)
    driver.to_device(device, address, SIZE, stream)
    ctypes.memset(address, 2, SIZE)
    fake.release()
    back = ctypes.create_string_buffer(SIZE)
    driver.checked("cuMemcpyDtoH", driver.api.cuMemcpyDtoH, back, device, SIZE)
    assert set(back.raw) == {2}
    (driver.host_unregister if registered else driver.host_free)(address)
    driver.checked("cuMemFree", driver.api.cuMemFree, device)
    driver.destroy_stream(stream)


@pytest.mark.leaves("faults")
def test_memory_unmapped_under_a_copy_breaks_the_context(
    fake: FakeCuda, driver: Driver, context_id: int
) -> None:
    """A copy that finds its source gone is a counted fault and a sticky 700, where a real one might crash."""
    memory = mmap.mmap(-1, SIZE)
    view = (ctypes.c_char * SIZE).from_buffer(memory)
    address = ctypes.addressof(view)
    driver.host_register(address, SIZE)
    stream, device = driver.create_stream(), driver.checked("cuMemAlloc", driver.api.cuMemAlloc, SIZE)
    fake.hold()
    driver.to_device(device, address, SIZE, stream)
    del view
    memory.close()
    fake.release()
    assert code_of(driver.api.cuStreamQuery(stream)) == 700
    assert code_of(driver.cuEventCreate(2)) == 700
    assert fake.count("faults") == 1


def test_freeing_pinned_memory_waits_for_every_stream(
    fake: FakeCuda, driver: Driver, context_id: int
) -> None:
    """Memory that nothing uses can't be freed while a stream of its context stands still."""
    stream, address, event = driver.create_stream(), driver.host_alloc(SIZE), driver.create_event(2)
    fake.hold()
    driver.record_event(event, stream)
    with Threads() as threads:
        task = threads.start(lambda: driver.host_free(address))
        wait_until(lambda: fake.count("free_waits") == 1, "the free that waits")
        assert fake.count("host_blocks") == 1
        fake.release()
        task.result()
    assert fake.count("host_blocks") == 0
    driver.destroy_event(event)
    driver.destroy_stream(stream)


def test_an_event_shows_its_own_last_record(fake: FakeCuda, driver: Driver, context_id: int) -> None:
    """Never recorded is done; recorded is pending until its place in the stream is reached, step by step."""
    event, other, stream = driver.create_event(2), driver.create_event(2), driver.create_stream()
    assert code_of(driver.cuEventQuery(event)) == 0
    fake.hold()
    driver.record_event(other, stream)
    driver.record_event(event, stream)
    fake.step()
    assert [code_of(driver.cuEventQuery(e)) for e in (other, event)] == [0, 600]
    fake.step()
    assert code_of(driver.cuEventQuery(event)) == 0
    for e in (event, other):
        driver.destroy_event(e)
    driver.destroy_stream(stream)


@pytest.mark.leaves("violations")
def test_a_query_ruins_a_global_capture_unless_relaxed(
    fake: FakeCuda, driver: Driver, context_id: int
) -> None:
    """C45: outside relaxed mode a query gives 900 and ruins an open capture (901 at its end); within, nothing happens."""
    api, event, stream = driver.api, driver.create_event(2), driver.create_stream()
    for relaxed, ends in ((True, 0), (False, 901)):
        driver.checked("cuStreamBeginCapture", api.cuStreamBeginCapture, stream, api.CUstreamCaptureMode(0))
        if relaxed:
            with driver.relaxed():
                assert code_of(driver.cuEventQuery(event)) == 0
        else:
            assert code_of(driver.cuEventQuery(event)) == 900
        code, graph = api.cuStreamEndCapture(stream)
        assert int(code) == ends
        if not ends:
            driver.checked("cuGraphDestroy", api.cuGraphDestroy, graph)
    driver.destroy_event(event)
    driver.destroy_stream(stream)


@pytest.mark.leaves("violations")
def test_a_captured_event_must_not_be_queried_even_so(
    fake: FakeCuda, driver: Driver, context_id: int
) -> None:
    """An event recorded in an open capture gives 907 even in relaxed mode, and the capture is ruined."""
    api, event, stream = driver.api, driver.create_event(2), driver.create_stream()
    driver.checked("cuStreamBeginCapture", api.cuStreamBeginCapture, stream, api.CUstreamCaptureMode(0))
    driver.record_event(event, stream)
    with driver.relaxed():
        assert code_of(driver.cuEventQuery(event)) == 907
    assert code_of(api.cuStreamEndCapture(stream)) == 901
    assert code_of(driver.cuEventQuery(event)) == 1
    driver.record_event(event, stream)
    assert code_of(driver.cuEventQuery(event)) == 0
    driver.destroy_event(event)
    driver.destroy_stream(stream)


def test_faults_latches_and_limits(fake: FakeCuda, driver: Driver, context_id: int) -> None:
    """The nth call fails as asked, a latched function stands still, and memory beyond the limit is refused."""
    fake.fail("cuEventCreate", 2, nth=2)
    event = driver.create_event(2)
    with pytest.raises(CudaError, match="CUDA_ERROR_OUT_OF_MEMORY"):
        driver.create_event(2)
    with Threads() as threads, fake.latch("cuEventDestroy") as latch:
        task = threads.start(lambda: driver.destroy_event(event))
        latch.wait_inside()
        assert fake.count("events") == 1
        latch.open()
        task.result()
    assert fake.count("events") == 0
    fake.limit_pinned(SIZE)
    address = driver.host_alloc(SIZE)
    with pytest.raises(CudaError) as refused:
        driver.host_alloc(1)
    assert refused.value.code == 2
    driver.host_free(address)


@pytest.mark.leaves("fork_calls")
def test_a_child_of_a_fork_gets_3(fake: FakeCuda, driver: Driver, context_id: int) -> None:
    """C49: each call in the child of a process that had initialised CUDA gives 3."""
    assert in_child(lambda: [code_of(driver.cuEventCreate(2)), fake.count("fork_calls")]) == [3, 1]
