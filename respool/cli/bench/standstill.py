"""``respool bench buffers:standstill``: who waits while some other stream of the context has work to do.

This module owns the list of what is measured and the targets that the results are held to.

A stream is held for a known time.  It uses none of the memory that is allocated, freed, taken or given back meanwhile.
"""

from __future__ import annotations

import mmap
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from respool.buffers import BufferPool, PinnedAllocator, RegisteredAllocator
from respool.buffers._sizes import aligned
from respool.cli.bench import _gpu
from respool.cli.bench._results import Bars, Claim, Result, Row, Spread
from respool.cuda import CudaEventPool
from respool.cuda._driver import DISABLE_TIMING, PORTABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.cli.bench._gpu import Gpu
    from respool.cli.bench._measure import Effort
    from respool.cli.bench._results import Role

_SIZE = 4 << 20
UNIT = "the time that a stream is held"
FREE = "cuMemFreeHost"
UNREGISTER = "cuMemHostUnregister"
HITS = {
    "BufferPool of registered memory: release, acquire, release": RegisteredAllocator,
    "BufferPool of allocated memory: release, acquire, release": PinnedAllocator,
}
DISCARD = "BufferPool of registered memory: discard, freed in the background"
EVENTS = "CudaEventPool: release, acquire, release"
#: Who waits, waits nearly as long as the hold; who doesn't, next to nothing.
_WAITS = 0.9
_AT_ONCE = 0.01


def steps(effort: Effort) -> int:
    """Tell how often `run` will call `tick`."""
    return effort.runs


def run(effort: Effort, tick: Callable[[], object]) -> Result:
    """Measure, and hold the results to the targets."""
    gpu = _gpu.Gpu(effort.device)
    seconds: dict[str, list[float]] = {}
    shares: dict[str, list[float]] = {}
    with ExitStack() as ends:
        holder = _gpu.Holder(gpu)
        ends.callback(holder.close)
        ways = _ways(gpu, effort.scaled(_SIZE), ends)
        for _ in range(effort.runs):
            for name, (_, prepare) in ways.items():
                took, share = holder.during(effort.run, prepare())
                seconds.setdefault(name, []).append(took)
                shares.setdefault(name, []).append(share)
            tick()
    rows = [
        Row(
            name=name,
            role=role,
            seconds=Spread(tuple(seconds[name])),
            ratio=Spread(tuple(shares[name])),
        )
        for name, (role, _) in ways.items()
    ]
    return Result(
        name="buffers:standstill",
        title="Pinned memory, while a stream is busy",
        what=(
            f"A stream of the context stands still for {effort.run:g} s, as one does that has a long kernel to run; it uses none of the memory here. "
            "Meanwhile another thread allocates pinned memory, frees it, or gives it back to a pool and takes it again. "
            "Freeing waits until every stream of the context stands idle, which no timing of allocate and free alone shows."
        ),
        repeats=effort.runs,
        sections=[Bars(title="One call, while another stream is held", unit=UNIT, rows=rows)],
        claims=[
            Claim(
                text=row.name,
                unit=f"x {UNIT}",
                figure=row.ratio,
                target=_WAITS if row.name in {FREE, UNREGISTER} else _AT_ONCE,
                at_most=row.name not in {FREE, UNREGISTER},
            )
            for row in rows
            if row.role == "respool" or row.name in {FREE, UNREGISTER}
        ],
        missing=[],
        packages=_gpu.PACKAGES,
        facts=gpu.facts(),
        quick=effort.quick,
    )


def _ways(gpu: Gpu, size: int, ends: ExitStack) -> dict[str, tuple[Role, Callable[[], Callable[[], object]]]]:
    """Give, by name, what makes ready and gives the call to be timed."""
    ways: dict[str, tuple[Role, Callable[[], Callable[[], object]]]] = {
        FREE: ("peer", lambda: _freeing(gpu, size)),
        UNREGISTER: ("peer", lambda: _unregistering(gpu, size, ends)),
        "cuMemHostAlloc": ("peer", lambda: _allocating(gpu, size, ends)),
        "cuEventCreate + cuEventDestroy": ("peer", lambda: _event(gpu)),
    }
    for name, allocator in HITS.items():
        pool = BufferPool(allocator(), buffer_size=size, name="bench")
        ends.callback(pool.close)
        ways[name] = ("respool", _hits(pool))
    pool = BufferPool(
        RegisteredAllocator(), buffer_size=size, max_bytes=aligned(size, mmap.PAGESIZE), name="bench"
    )
    ends.callback(pool.close)
    ways[DISCARD] = ("respool", _discarding(pool))
    events = ends.enter_context(CudaEventPool(name="bench"))
    ways[EVENTS] = ("respool", _hits(events))
    return ways


def _freeing(gpu: Gpu, size: int) -> Callable[[], object]:
    address = gpu.driver.host_alloc(size, PORTABLE)
    return lambda: gpu.driver.host_free(address)


def _allocating(gpu: Gpu, size: int, ends: ExitStack) -> Callable[[], object]:
    # Freed at the end: to free it here would be one more that waits.
    return lambda: ends.callback(gpu.driver.host_free, gpu.driver.host_alloc(size, PORTABLE))


def _unregistering(gpu: Gpu, size: int, ends: ExitStack) -> Callable[[], object]:
    address, pages = _gpu.touched(size, ends)
    gpu.driver.host_register(address, pages, PORTABLE)
    return lambda: gpu.driver.host_unregister(address)


def _event(gpu: Gpu) -> Callable[[], object]:
    driver = gpu.driver
    return lambda: driver.destroy_event(driver.create_event(DISABLE_TIMING))


def _hits(pool: BufferPool | CudaEventPool) -> Callable[[], Callable[[], object]]:
    own: Any = pool  # each gives and takes what's its own

    def prepare() -> Callable[[], object]:
        held = own.acquire()

        def act() -> None:
            own.release(held)
            own.release(own.acquire())

        return act

    return prepare


def _discarding(pool: BufferPool) -> Callable[[], Callable[[], object]]:
    def prepare() -> Callable[[], object]:
        buffer = pool.acquire()  # waits until the one before has been freed: there's room for one
        return lambda: pool.discard(buffer)

    return prepare
