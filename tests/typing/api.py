"""The public API as type checkers see it. Never run; checked by mypy --strict and basedpyright.

`assert_type` fails the check when a type isn't inferred as it should be; an ignore that is not needed fails it too
(mypy's warn_unused_ignores), so each ignored line is a proof that the mistake on it is found.
"""

from __future__ import annotations

import array
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, assert_type

import numpy as np

import respool.io
from respool import (
    ALL,
    BoundPool,
    Lease,
    LeaseGroup,
    LoggingObserver,
    PoolError,
    PoolLimits,
    PoolObserver,
    PoolStats,
    PoolTimeoutError,
    ResourcePool,
    __version__,
)
from respool.buffers import (
    Allocator,
    Buffer,
    BufferLease,
    BufferLeaseGroup,
    BufferPool,
    HostAllocator,
    PageAlignedAllocator,
    PinnedAllocator,
    RegisteredAllocator,
)
from respool.cuda import CudaEvent, CudaEventPool


class Connection:
    """A resource."""

    def __init__(self, host: str) -> None:
        self.host = host

    def close(self) -> bool:
        """End it."""
        return True


# --- a pool with keys: both type variables come from the create hook

keyed = ResourcePool(Connection, limits=PoolLimits(max_size=4, max_per_key=len), name="connections")
assert_type(keyed, ResourcePool[str, Connection])

with keyed.lease("host") as connection:
    assert_type(connection, Connection)
with keyed.lease("host", 5) as connection:
    assert_type(connection.host, str)
with keyed.lease("host", timeout=None) as connection:
    pass

lease = keyed.lease("host")
assert_type(lease, Lease[str, Connection])
assert_type(lease.key, str)
assert_type(lease.resource, Connection)
assert_type(lease.released, bool)
assert_type(lease.release(), None)
assert_type(lease.discard(), None)
assert_type(lease.detach(), Connection)
assert_type(keyed.try_lease("host"), Lease[str, Connection] | None)

assert_type(keyed.acquire("host"), Connection)
assert_type(keyed.acquire("host", timeout=1.5), Connection)
assert_type(keyed.try_acquire("host"), Connection | None)
assert_type(keyed.release(connection), None)
assert_type(keyed.discard(connection), None)

keyed.lease(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - the key is a str
keyed.release("host")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - a key is no resource
keyed.lease("host", timeout="5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

assert_type(keyed.lease_many(3, "host"), LeaseGroup[str, Connection])
with keyed.lease_many(3, "host", 1.5) as group:
    assert_type(group, tuple[Connection, ...])
assert_type(keyed.lease_many(3, "host").resources, tuple[Connection, ...])
assert_type(keyed.adopt(connection, "host"), None)
assert_type(keyed.prefill(3, "host"), int)
assert_type(keyed.forget("host"), int)
assert_type(keyed.reap(), int)
assert_type(keyed.resize(PoolLimits(max_size=2)), None)
assert_type(keyed.release(connection, lambda: True), None)
assert_type(keyed.lease("host").release(when=lambda: True), None)

keyed.adopt(connection)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue] - the key is missing

bound = keyed.bind("host")
assert_type(bound.lease_many(2), LeaseGroup[str, Connection])
assert_type(bound.prefill(2), int)
assert_type(bound, BoundPool[str, Connection])
assert_type(bound.acquire(), Connection)
assert_type(bound.acquire(1), Connection)
assert_type(bound.try_acquire(), Connection | None)
assert_type(bound.lease(timeout=1), Lease[str, Connection])
assert_type(bound.try_lease(), Lease[str, Connection] | None)
assert_type(bound.release(connection), None)
assert_type(bound.clear(), int)
assert_type(bound.stats(), PoolStats)

# --- a pool of one kind: the key is None and may be left out


def make(key: None) -> Connection:
    """Create hook of a pool without keys."""
    return Connection(str(key))


plain: ResourcePool[None, Connection] = ResourcePool(make)
assert_type(plain.lease(), Lease[None, Connection])
assert_type(plain.lease(timeout=3), Lease[None, Connection])
assert_type(plain.try_lease(), Lease[None, Connection] | None)
assert_type(plain.acquire(), Connection)
assert_type(plain.try_acquire(), Connection | None)
assert_type(plain.bind(None), BoundPool[None, Connection])
assert_type(plain.lease_many(2), LeaseGroup[None, Connection])
assert_type(plain.prefill(2), int)
assert_type(plain.forget(), int)
with plain.lease() as connection:
    assert_type(connection, Connection)

# --- a create hook that's a lambda doesn't tell the key's type: it's taken as it comes, unless it's said

untold = ResourcePool(create=lambda _key: [1])
assert_type(untold.lease(), Lease[None, list[int]])
assert_type(untold.acquire(), list[int])
with untold.lease() as numbers:
    assert_type(numbers, list[int])
with untold.lease("any") as numbers:
    assert_type(numbers, list[int])
with ResourcePool(lambda _key: bytearray(4096), limits=PoolLimits(max_size=2)) as scratch:
    assert_type(scratch.acquire(), bytearray)

told = ResourcePool[str, list[int]](lambda _key: [1], limits=PoolLimits(max_size=2))
assert_type(told.lease("host"), Lease[str, list[int]])
told.lease(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - the key is a str
annotated: ResourcePool[str, list[int]] = ResourcePool(lambda _key: [1])
annotated.lease(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - likewise

# --- hooks of every kind, and what they may not be


def destroy(key: str, resource: Connection) -> bool:
    """What it returns is of no matter."""
    return bool(key) and resource.close()


def validate(key: str, resource: Connection) -> bool:
    """Must tell."""
    return resource.host == key


class Observer(PoolObserver):
    """Overrides what it is interested in."""

    def destroyed(self, pool: ResourcePool[str, Connection], key: str, reason: str) -> None:
        """See why."""


full = ResourcePool(
    Connection,
    destroy,
    validate,
    reset=lambda _key, resource: resource.close(),
    cost=len,
    limits=PoolLimits(max_size=1, max_per_key=None, max_idle=0, max_cost=100, max_waiters=0),
    name="full",
    observer=Observer(),
    discard_on_error=True,
    at_exit="leak",
    track_leases=True,
)
assert_type(full, ResourcePool[str, Connection])

ResourcePool(Connection, at_exit="keep")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
ResourcePool(Connection, limits=4)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
PoolLimits(4)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue] - keywords only
PoolLimits(max_size="4")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

# --- the rest of a pool's face

assert_type(full.clear(), int)
assert_type(full.clear("host"), int)
assert_type(full.clear(ALL), int)
assert_type(full.stats(), PoolStats)
assert_type(full.stats("host"), PoolStats)
assert_type(full.stats(ALL), PoolStats)
assert_type(plain.stats(None), PoolStats)
assert_type(full.close(), None)
assert_type(full.close(timeout=1), None)
assert_type(full.limits, PoolLimits)
assert_type(full.closed, bool)
with full as entered:
    assert_type(entered, ResourcePool[str, Connection])

full.closed = True  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue] - read-only
PoolLimits().max_size = 4  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue] - frozen

stats = full.stats()
assert_type(stats.idle, int)
assert_type(stats.wait_seconds, float)
assert_type(stats.destroyed_for, Mapping[str, int])
assert_type(stats.hook_errors["create"], int)

version: str = __version__
LoggingObserver().leaked(full, "host", None)


def timed_out(error: PoolTimeoutError) -> tuple[object, int]:
    """The attributes of a timeout; it is caught as either of its bases."""
    base: PoolError = error
    standard: TimeoutError = error
    del base, standard
    assert_type(error.waiters, int)
    assert_type(error.limits, PoolLimits | None)
    return error.key, error.leased + error.idle + error.pending + error.creating


# --- buffers


class Mine:
    """An allocator of one's own needs no base class."""

    alignment: int = 64

    def allocate(self, nbytes: int) -> bytearray:
        """Get memory."""
        return bytearray(nbytes)

    def free(self, memory: object) -> None:
        """Give it back."""


allocators: list[Allocator] = [HostAllocator(), PageAlignedAllocator(huge_pages=True), Mine()]
buffers = BufferPool(allocators[0], buffer_size=4096, max_bytes=1 << 20)
with buffers.lease(timeout=1) as buffer:
    assert_type(buffer, Buffer)
    assert_type(buffer.view, memoryview)
    assert_type(buffer.address, int)
    assert_type(buffer.nbytes, int)
    assert_type(buffer.capacity, int)
with buffers.lease(stream=None) as buffer:
    assert_type(buffer, Buffer)
with buffers.lease_many(2, stream=7) as both:
    assert_type(both, tuple[Buffer, ...])
assert_type(buffers.lease(), BufferLease)
assert_type(buffers.try_lease(stream=7), BufferLease | None)
assert_type(buffers.lease_many(2), BufferLeaseGroup)
assert_type(buffers.bind().lease(stream=7), BufferLease)
buffers.lease().release_after(7)
buffers.release_after(buffers.acquire(), 7)
buffers.lease().release_after()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue] - which stream?
assert_type(buffers.acquire(), Buffer)
assert_type(buffers.try_acquire(), Buffer | None)
assert_type(buffers.stats(), PoolStats)
assert_type(buffers.clear(), int)

BufferPool(object())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - no allocator

# --- CUDA

with CudaEventPool(limits=PoolLimits(max_size=4), timing=True) as events:
    with events.lease(timeout=1) as event:
        assert_type(event, CudaEvent)
        assert_type(event.is_done(), bool)
        assert_type(event.handle, int)
        assert_type(event.elapsed_ms(event), float)
        buffers.lease().release(event.is_done)
    assert_type(events.try_acquire(), CudaEvent | None)
    assert_type(events.bind().acquire(), CudaEvent)
    with events.lease_many(2) as several:
        assert_type(several, tuple[CudaEvent, ...])
    assert_type(events.num_free_events(), int)
assert_type(CudaEventPool.shared(), CudaEventPool)
pinned: list[Allocator] = [PinnedAllocator(), RegisteredAllocator(huge_pages=True)]

# --- reading

file = respool.io.open("https://host/object", size=10)
assert_type(file, respool.io.File)
assert_type(file.size, int | None)
assert_type(file.read(), bytes)
assert_type(file.read(offset=1, size=2), bytes)
assert_type(file.read_into(bytearray(4), offset=1), int)
future = file.pread(memoryview(bytearray(4)))
assert_type(future.result(), int)
assert_type(file.read_many([(0, 1), (5, 2)]), list[bytes])
assert_type(file.buffered().read(), bytes)
respool.io.open(Path("object"))

# Whatever has a buffer is a destination.  numpy's arrays say so to type checkers from Python 3.12 on only.
numbers_32 = np.empty(10, dtype=np.float32)
assert_type(file.read_into(numbers_32), int)
assert_type(file.pread(numbers_32[:5]).result(), int)
file.read_into(array.array("d", [0.0]))
file.read_into(mmap.mmap(-1, 4096))
with buffers.lease() as buffer:
    file.read_into(buffer)
file.read_into("text")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - no buffer
file.pread([0] * 4)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - likewise
file.read(0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue] - a read says offset= and size=


async def awaited(handle: respool.io.File) -> None:
    """A read can be awaited from any loop."""
    assert_type(await handle.pread(bytearray(4)), int)


with respool.io.Session(respool.io.Config(task_size="4MiB", concurrency=4)) as session:
    with session.open("file:///object") as opened:
        assert_type(opened, respool.io.File)
    assert_type(session.stats(), dict[str, PoolStats])

choice: Literal["destroy", "leak"] = "leak"
ResourcePool(Connection, at_exit=choice)
