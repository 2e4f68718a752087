"""Pinned memory and its context: used elsewhere, and what becomes of it when that ends."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any

import pytest

from respool.buffers import (
    BufferPool,
    PinnedAllocator,
    RegisteredAllocator,
)
from respool.cuda import NoContextError
from tests.helpers.clocks import Clock
from tests.helpers.cuda_driver import create_context
from tests.helpers.invariants import assert_quiet
from tests.helpers.threads import wait_until

if TYPE_CHECKING:
    from respool.cuda._driver import Driver
    from tests.helpers.cuda_driver import FakeCuda

PAGE = mmap.PAGESIZE
SIZE = 4 * PAGE

BOTH = pytest.mark.parametrize("allocator", [PinnedAllocator, RegisteredAllocator])


def destroy(driver: Driver, context: Any) -> None:
    """End a context."""
    driver.checked("cuCtxDestroy", driver.api.cuCtxDestroy, context)


@BOTH
def test_no_context(fake: FakeCuda, driver: Driver, allocator: type) -> None:
    """C01: pinned memory without a current context is NoContextError; nothing is mapped or charged."""
    with BufferPool(allocator(), buffer_size=SIZE) as pool:
        for take in (pool.lease, pool.acquire, pool.try_lease, lambda: pool.prefill(1)):
            with pytest.raises(NoContextError):
                take()
        assert_quiet(pool, leased=0, idle=0)
        assert pool.stats().cost == 0


@BOTH
def test_used_in_another_context(fake: FakeCuda, driver: Driver, second: Any, allocator: type) -> None:
    """C32: memory of one context is lent where another one is current, and its own decides on its life."""
    pool = BufferPool(allocator(), buffer_size=SIZE)
    pool.prefill(1)
    driver.push_context(second)
    with pool.lease() as buffer:
        stream, device = driver.create_stream(), driver.checked("cuMemAlloc", driver.api.cuMemAlloc, SIZE)
        buffer.view[:] = b"7" * SIZE
        driver.to_device(device, buffer.address, SIZE, stream)
        driver.synchronize_stream(stream)
        driver.destroy_stream(stream)
        driver.checked("cuMemFree", driver.api.cuMemFree, device)
    driver.pop_context()
    assert pool.stats().created == 1
    pool.close()


@BOTH
def test_a_context_that_ends(fake: FakeCuda, driver: Driver, context_id: int, allocator: type) -> None:
    """C31: what is idle is dropped, without a call, when it's next asked for, and its bytes are free; others take its place."""
    context = create_context(driver)
    pool = BufferPool(allocator(), buffer_size=SIZE, max_bytes=2 * SIZE)
    pool.prefill(2)
    driver.pop_context()
    destroy(driver, context)
    calls = fake.calls("cuMemFreeHost"), fake.calls("cuMemHostUnregister")
    old = pool.stats().created
    with pool.lease(timeout=20) as new, pool.lease(timeout=20):
        new.view[:] = b"x" * SIZE
        assert pool.stats().created == old + 2
    assert calls == (fake.calls("cuMemFreeHost"), fake.calls("cuMemHostUnregister"))
    assert pool.stats().destroyed_for["discarded"] == 2
    pool.close()
    assert fake.count("bad_frees") == 0


@BOTH
@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize("way", ["lease", "try_lease", "acquire", "try_acquire", "lease_many"])
def test_every_way_of_taking(
    fake: FakeCuda, driver: Driver, context_id: int, *, allocator: type, way: str, bound: bool
) -> None:
    """C31: whichever way it's asked for, what lost its context is thrown away, and what is had is good."""
    pool = BufferPool(allocator(), buffer_size=SIZE)
    face = pool.bind() if bound else pool
    context = create_context(driver)
    pool.prefill(3)
    driver.pop_context()
    destroy(driver, context)
    many = way == "lease_many"
    taken = getattr(face, way)(*([2] if many else []), **({} if "try" in way else {"timeout": 20}))
    held = taken.resources if many else [getattr(taken, "resource", taken)]
    for buffer in held:
        buffer.view[:] = b"g" * SIZE
    if "acquire" in way:
        face.release(taken)
    else:
        taken.release()
    pool.close()
    stats = pool.stats()
    made = 3 + len(held) + many  # a group goes as a whole, the new one beside the last old one too
    assert (stats.created, stats.destroyed, stats.leaked) == (made, made, 0)
    assert fake.count("bad_frees") == 0


@BOTH
def test_a_handle_that_is_given_out_again(fake: FakeCuda, driver: Driver, allocator: type) -> None:
    """C31: memory of a dead context isn't taken for that of a new one that has its handle, whether anybody has seen that or not."""
    pool = BufferPool(allocator(), buffer_size=SIZE)
    first = create_context(driver)
    pool.lease().release()
    destroy(driver, first)
    second = create_context(driver)
    assert int(second) == int(first)
    calls = fake.calls("cuMemFreeHost"), fake.calls("cuMemHostUnregister")
    with pool.lease() as buffer:
        buffer.view[:] = b"n" * SIZE
        wait_until(lambda: pool.stats().destroyed == 1, "the end of the old one")
        assert calls == (fake.calls("cuMemFreeHost"), fake.calls("cuMemHostUnregister"))
    pool.close()
    destroy(driver, second)


def test_no_time_is_added(fake: FakeCuda, context_id: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """C31: the time that was lost with what lost its context is taken from the timeout."""
    pool = BufferPool(RegisteredAllocator(), buffer_size=SIZE)
    clock = Clock()
    monkeypatch.setattr("respool.buffers._managed.monotonic", lambda: clock.now)
    asked: list[float | None] = []
    bad = {"n": 4}

    def take(timeout: float | None) -> Any:
        asked.append(timeout)
        clock.advance(3)
        bad["n"] -= 1
        return pool._pool.acquire(pool._usual.kind)

    monkeypatch.setattr(pool, "_valid", lambda memory: bad["n"] <= 0)
    pool.release(pool._checked(take, timeout=10))
    assert asked == [10, 7, 4, 1]
    bad["n"] = 3
    asked.clear()
    pool.release(pool._checked(take))
    assert asked == [None] * 3
    pool.close()


def test_an_interrupt_during_the_look(
    fake: FakeCuda, context_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C31: an interrupt while a buffer is looked at costs nothing: a bare one goes back, a lease as one that was dropped."""
    pool = BufferPool(RegisteredAllocator(), buffer_size=SIZE)
    pool.prefill(1)

    def interrupted(memory: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(pool, "_valid", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pool.acquire()
    assert_quiet(pool, leased=0, idle=1)
    pool.close()


@BOTH
def test_held_when_its_context_ends(fake: FakeCuda, driver: Driver, context_id: int, allocator: type) -> None:
    """C31: what is held is given back silently, and lent to nobody again; new memory may come at its address meanwhile."""
    context = create_context(driver)
    pool = BufferPool(allocator(), buffer_size=SIZE)
    lease, bare = pool.lease(), pool.acquire()
    driver.pop_context()
    destroy(driver, context)
    new = [pool.acquire() for _ in range(4)]
    lease.release()
    pool.release(bare)
    again = [pool.acquire() for _ in range(2)]
    assert not any(one is bare for one in [*new, *again])
    for one in [*new, *again]:
        one.view[:] = b"x" * SIZE
        pool.release(one)
    pool.close()
    assert (fake.count("bad_frees"), fake.count("pinned_bytes")) == (0, 0)


def test_a_view_of_registered_memory(fake: FakeCuda, driver: Driver) -> None:
    """C61: a view that is kept beyond the context, and beyond the buffer, can be read and written."""
    context = create_context(driver)
    pool = BufferPool(RegisteredAllocator(), buffer_size=SIZE)
    buffer = pool.acquire()
    view = buffer.view
    view[:] = b"a" * SIZE
    destroy(driver, context)
    view[0] = 5
    pool.release(buffer)
    pool.close()
    assert (view[0], view[-1]) == (5, ord("a"))
    view[-1] = 6
    view.release()
