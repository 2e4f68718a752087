"""Fixtures for tests of CUDA: the fake driver, and a context on it; each test ends with nothing left over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers import cuda_driver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from respool.buffers import BufferPool
    from respool.cuda import CudaEvent, CudaEventPool
    from respool.cuda._driver import Driver
    from tests.helpers.cuda_driver import FakeCuda

PAGE = 4096


@pytest.fixture
def fake(loaded_fake: FakeCuda, request: pytest.FixtureRequest) -> Iterator[FakeCuda]:
    """The fake driver as in a new process; at the end nothing may be left, nor have been done that mustn't.

    ``@pytest.mark.leaves("stale", "events")`` names counters that a test deliberately leaves other than zero.
    """
    loaded_fake.reset()
    yield loaded_fake
    meant = {name for marker in request.node.iter_markers("leaves") for name in marker.args}
    left = loaded_fake.leftovers()
    loaded_fake.reset()
    assert {name: n for name, n in left.items() if name not in meant} == {}


@pytest.fixture
def driver(fake: FakeCuda) -> Driver:
    """The driver module's face on the fake."""
    from respool.cuda import _driver

    return _driver.load()


@pytest.fixture
def context_id(driver: Driver) -> Iterator[int]:
    """The primary context of device 0, current on this thread."""
    driver.push_context(driver.retain_primary(0))
    yield driver.context_id()
    driver.pop_context()
    driver.release_primary(0)


@pytest.fixture
def pool(context_id: int) -> Iterator[CudaEventPool]:
    """A pool of events, with the primary context current."""
    from respool.cuda import CudaEventPool

    with CudaEventPool() as pool:
        yield pool


@pytest.fixture
def stream(driver: Driver, context_id: int) -> Iterator[Any]:
    """A stream of the primary context."""
    stream = driver.create_stream()
    yield stream
    driver.destroy_stream(stream)


@pytest.fixture
def event(pool: CudaEventPool) -> Iterator[CudaEvent]:
    """An event of the primary context."""
    with pool.lease() as event:
        yield event


@pytest.fixture
def second(driver: Driver, context_id: int) -> Iterator[Any]:
    """A second context, not current."""
    context = cuda_driver.create_context(driver, 1)
    driver.pop_context()
    yield context
    driver.checked("cuCtxDestroy", driver.api.cuCtxDestroy, context)


@pytest.fixture
def shared_events(context_id: int) -> Iterator[CudaEventPool]:
    """The process's pool of events; all that were lent are back at the end."""
    from respool.cuda import CudaEventPool

    shared = CudaEventPool.shared()
    yield shared
    assert shared.stats().leased == 0
    shared.close()


@pytest.fixture
def pinned_buffers(shared_events: CudaEventPool) -> Iterator[BufferPool]:
    """A pool of two pinned buffers of a page.  It has a thread, which asks what is pending whenever it likes."""
    from respool.buffers import BufferPool, RegisteredAllocator

    pool = BufferPool(RegisteredAllocator(), buffer_size=PAGE, max_bytes=2 * PAGE)
    yield pool
    pool.close(timeout=20)


@pytest.fixture
def plain_buffers(shared_events: CudaEventPool) -> Iterator[BufferPool]:
    """A pool of two ordinary buffers of a page: what is pending is asked by calls only."""
    from respool.buffers import BufferPool

    pool = BufferPool(buffer_size=PAGE, max_bytes=2 * PAGE)
    yield pool
    pool.close(timeout=20)
