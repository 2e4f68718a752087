"""``respool bench buffers:pinning``: what pinned memory costs, made and freed each time or lent by a pool.

This module owns the list of what is measured and the targets that the results are held to.
"""

from __future__ import annotations

import ctypes
import dataclasses
import mmap
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from respool.buffers import BufferPool, PinnedAllocator, RegisteredAllocator
from respool.cli.bench import _gpu
from respool.cli.bench._measure import Contender, bars, cheaper, measure
from respool.cli.bench._peers import load
from respool.cli.bench._results import Missing, Result
from respool.cuda._driver import PORTABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from respool.cli.bench._gpu import Gpu
    from respool.cli.bench._measure import Effort
    from respool.cli.bench._results import Bars, Claim

_SIZES = (64 << 10, 4 << 20, 64 << 20)
UNIT = "BufferPool of registered memory, bound: acquire+release"
PINNED = "BufferPool of allocated memory, bound: acquire+release"
ALLOCATE = "cuMemHostAlloc + cuMemFreeHost"
REGISTER = "map, touch, cuMemHostRegister + cuMemHostUnregister, unmap"
#: By size, how many times dearer it is, at least, to make and free such memory.
_CHEAPER = {4 << 20: 1_000.0, 64 << 20: 20_000.0}
#: Fewer than elsewhere: a turn of the largest takes long.
_ROUNDS = 10


def steps(effort: Effort) -> int:
    """Tell how often `run` will call `tick`."""
    return len(_SIZES) * effort.runs * min(_ROUNDS, effort.rounds)


def run(effort: Effort, tick: Callable[[], object]) -> Result:
    """Measure, and hold the results to the targets."""
    gpu = _gpu.Gpu(effort.device)
    shorter = dataclasses.replace(effort, repeats=effort.runs, rounds=min(_ROUNDS, effort.rounds))
    sections: list[Bars] = []
    claims: list[Claim] = []
    missing: dict[str, Missing] = {}
    for full in _SIZES:
        size = effort.scaled(full)
        title = f"{size:,} bytes"
        with ExitStack() as ends:
            others = _others(gpu, size)
            missing |= {one.name: one for one in others if isinstance(one, Missing)}
            contenders = [
                *_own(size, ends),
                *_driver(gpu, size, ends),
                *(one for one in others if isinstance(one, Contender)),
            ]
            seconds = measure(contenders, shorter, tick=tick)
        sections.append(bars(title, UNIT, contenders, seconds))
        if full in _CHEAPER:
            claims += [
                cheaper(title, ours, theirs, seconds, _CHEAPER[full])
                for ours, theirs in ((PINNED, ALLOCATE), (UNIT, REGISTER))
            ]
    return Result(
        name="buffers:pinning",
        title="Pinned memory",
        what=(
            "One thread has pinned memory and gives it up again: allocates it by the driver and frees it, or maps it, touches it, registers it and "
            "undoes all that, or takes it from a pool where it's idle. No stream has anything to do meanwhile; what freeing costs where one "
            "has is in the bench `buffers:standstill`."
        ),
        repeats=shorter.repeats,
        sections=sections,
        claims=claims,
        missing=list(missing.values()),
        packages=_gpu.PACKAGES,
        facts=gpu.facts(),
        quick=effort.quick,
    )


def _own(size: int, ends: ExitStack) -> Sequence[Contender]:
    registered = BufferPool(RegisteredAllocator(), buffer_size=size, name="registered")
    allocated = BufferPool(PinnedAllocator(), buffer_size=size, name="allocated")
    for pool in (registered, allocated):
        ends.callback(pool.close)  # which waits: nothing is freed while the next size is measured
    pair = "buffer = pool.acquire(); pool.release(buffer)"
    block = "with pool.lease() as buffer:\n    pass"
    made = (
        (UNIT, pair, registered.bind()),
        ("BufferPool of registered memory: acquire+release", pair, registered),
        ("with BufferPool.lease(), registered memory", block, registered),
        (PINNED, pair, allocated.bind()),
        ("with BufferPool.lease(), allocated memory", block, allocated),
    )
    return [
        Contender(name=name, role="respool", statement=statement, names={"pool": of})
        for name, statement, of in made
    ]


def _driver(gpu: Gpu, size: int, ends: ExitStack) -> Sequence[Contender]:
    """Make and free by way of cuda.bindings, as a program does that keeps nothing."""
    api = gpu.driver.api
    address, pages = _gpu.touched(size, ends)
    names: dict[str, Any] = {
        "register": api.cuMemHostRegister,
        "unregister": api.cuMemHostUnregister,
        "size": pages,
    }
    fresh = f"""\
memory = mmap(-1, size)
anchor = char(memory)
address = addressof(anchor)
memset(address, 0, size)
register(address, size, {PORTABLE})
unregister(address)
del anchor
memory.close()
"""
    return (
        Contender(
            name=ALLOCATE,
            role="peer",
            statement=f"code, address = allocate(size, {PORTABLE}); free(address)",
            names={"allocate": api.cuMemHostAlloc, "free": api.cuMemFreeHost, "size": size},
        ),
        Contender(
            name=REGISTER,
            role="peer",
            statement=fresh,
            names={
                **names,
                "mmap": mmap.mmap,
                "char": ctypes.c_char.from_buffer,
                "addressof": ctypes.addressof,
                "memset": ctypes.memset,
            },
        ),
        Contender(
            name="cuMemHostRegister + cuMemHostUnregister of memory that is kept",
            role="peer",
            statement=f"register(address, size, {PORTABLE}); unregister(address)",
            names={**names, "address": address},
        ),
    )


def _others(gpu: Gpu, size: int) -> Sequence[Contender | Missing]:
    makers: dict[str, Callable[[Gpu, int], Contender]] = {
        "cuda.core: LegacyPinnedMemoryResource.allocate + close": _cuda_core,
        "CuPy: PinnedMemoryPool.malloc": _cupy,
        "PyTorch: torch.empty(pin_memory=True)": _torch,
    }
    found: list[Contender | Missing] = []
    for name, make in makers.items():
        try:
            one = dataclasses.replace(make(gpu, size), name=name)
            one.timer().timeit(1)
            found.append(one)
        except ImportError as error:
            found.append(Missing(name=name, why=str(error)))
        except Exception as error:  # noqa: BLE001 - a peer that changed is a gap in the table, not the end of it
            found.append(Missing(name=name, why=f"{type(error).__name__}: {error}"))
        finally:
            gpu.make_current()
    return found


def _peer(statement: str, **names: object) -> Contender:
    return Contender(name="", role="peer", statement=statement, names=names)


def _cuda_core(gpu: Gpu, size: int) -> Contender:
    core = load("cuda.core")
    core.Device(gpu.number).set_current()
    memory = core.LegacyPinnedMemoryResource()
    return _peer("memory.allocate(size).close()", memory=memory, size=size)


def _cupy(gpu: Gpu, size: int) -> Contender:
    cuda = load("cupy").cuda
    cuda.Device(gpu.number).use()
    pool = cuda.PinnedMemoryPool()
    return _peer("memory = pool.malloc(size); del memory", pool=pool, size=size)


def _torch(gpu: Gpu, size: int) -> Contender:
    torch = load("torch")
    torch.cuda.set_device(gpu.number)
    return _peer(
        "memory = empty(size, dtype=kind, pin_memory=True); del memory",
        empty=torch.empty,
        kind=torch.uint8,
        size=size,
    )
