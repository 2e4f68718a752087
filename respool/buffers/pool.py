"""`BufferPool`: reusable buffers of one size under one budget of bytes.

This module owns the hooks that make and free a `Buffer`, and the buffer pool's face.
Limits, waiting and integrity are `respool.ResourcePool`'s, of which it's composed; memory
is the allocator's.
"""

from __future__ import annotations

import dataclasses
import operator
import weakref
from typing import TYPE_CHECKING, Any, Self

from respool.buffers.buffer import Buffer
from respool.buffers.host import PageAlignedAllocator
from respool.errors import PoolError, PoolExhaustedError
from respool.limits import PoolLimits
from respool.pool import ResourcePool

if TYPE_CHECKING:
    from types import TracebackType

    from respool.bound import BoundPool
    from respool.buffers.host import Allocator
    from respool.lease import Lease
    from respool.observers import PoolObserver
    from respool.stats import PoolStats

DEFAULT_BUFFER_SIZE = 4 << 20


class BufferPool:
    """A bounded pool of reusable buffers, all of one size.

    Parameters
    ----------
    allocator : Allocator, optional
        Where memory comes from; a `PageAlignedAllocator` by default.  The pool uses it
        and doesn't own it: one allocator may serve several pools.
    buffer_size : int
        Bytes in each buffer, ≥ 1.  4 MiB by default.
    max_bytes : int, optional
        Most bytes in existence at any moment, over idle, leased and half-made buffers; each
        is charged its size rounded up to the allocator's alignment.  None: no bound.
    limits : PoolLimits
        Further limits, as for `ResourcePool`.  Its ``max_cost`` must be left out, as that's
        what `max_bytes` is for.
    name : str
        What the pool is called in messages.
    observer : PoolObserver, optional
        Told what happens; None logs hook errors and leaks.  It sees the `ResourcePool`
        within, whose key is the buffer size.
    track_leases : bool
        Keep the stack of each acquire, for reports of leaks and timeouts.

    Raises
    ------
    TypeError, ValueError
        A size that isn't a positive int, ``limits.max_cost`` given, an allocator without
        ``allocate``, ``free`` and a positive ``alignment``.
    PoolExhaustedError
        A single buffer is more than `max_bytes`: it could never be had.

    Notes
    -----
    Waiting is first come, first served, as in `ResourcePool`; ``stats().cost`` is in bytes.

    Memory that the allocator returns too short, read-only, not C-contiguous or not aligned
    is freed, and the acquire raises `PoolError`.  `MemoryError` is raised again with the
    budget in its text, and its room is given back.

    A view still held when a buffer is freed is no error.  The bytes leave the budget, and
    where the allocator's memory lives as long as its views (`PageAlignedAllocator`,
    `HostAllocator`), the view stays safe to touch.

    Thread safety: every method may be called from any thread.

    Examples
    --------
    >>> from respool.buffers import BufferPool
    >>> with BufferPool(buffer_size=1 << 16, max_bytes=1 << 20) as pool:
    ...     with pool.lease() as buffer:
    ...         buffer.view[:5] = b"hello"
    ...         buffer.nbytes
    65536
    """

    __module__ = "respool.buffers"

    __slots__ = ("__weakref__", "_buffer_size", "_pool")

    def __init__(
        self,
        allocator: Allocator | None = None,
        *,
        buffer_size: int = DEFAULT_BUFFER_SIZE,
        max_bytes: int | None = None,
        limits: PoolLimits = PoolLimits(),  # noqa: B008 - frozen, so sharing it is no harm
        name: str = "buffers",
        observer: PoolObserver | None = None,
        track_leases: bool = False,
    ) -> None:
        if limits.max_cost is not None:
            raise ValueError(f"limits.max_cost={limits.max_cost} can't be given: say max_bytes")
        self._buffer_size = _size("buffer_size", buffer_size)
        budget = None if max_bytes is None else _size("max_bytes", max_bytes)
        memory = _Memory(PageAlignedAllocator() if allocator is None else allocator, budget)
        capacity = memory.capacity(self._buffer_size)
        if budget is not None and capacity > budget:
            raise PoolExhaustedError(
                f"a buffer of {self._buffer_size} bytes (charged {capacity}) is more than max_bytes={budget}"
            )
        # The hooks are _Memory's and not this object's: a pool that referred to its own
        # face would be found dropped only by the collector.
        self._pool: ResourcePool[int, Buffer] = ResourcePool(
            memory.create,
            memory.destroy,
            cost=memory.capacity,
            limits=dataclasses.replace(limits, max_cost=budget),
            name=name,
            observer=observer,
            track_leases=track_leases,
        )

    def lease(self, *, timeout: float | None = None) -> Lease[int, Buffer]:
        """Lease a buffer: ``with pool.lease() as buffer:`` gives it back at the block's end.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for room; None waits for ever, 0 doesn't wait.

        Returns
        -------
        Lease
            It owns its `Buffer` until released, discarded or detached.  A detached buffer is
            the caller's for good: it's not freed through the allocator, but lives and dies
            with the references to it.

        Raises
        ------
        PoolTimeoutError
            No room came free in time.
        PoolExhaustedError
            ``limits.max_waiters`` others wait already.
        PoolClosedError
            The pool is closed.
        MemoryError
            The allocator has no memory.
        PoolError
            The allocator returned something unusable.
        """
        return self._pool.lease(self._buffer_size, timeout)

    def try_lease(self) -> Lease[int, Buffer] | None:
        """Lease a buffer if one can be had without waiting, else return None; see `lease`."""
        return self._pool.try_lease(self._buffer_size)

    def acquire(self, *, timeout: float | None = None) -> Buffer:
        """Take a bare buffer, which the caller must hand to `release` or `discard`; see `lease`.

        A buffer released twice can't always be told from one that its next holder gives
        back, so prefer `lease` outside hot paths.
        """
        return self._pool.acquire(self._buffer_size, timeout)

    def try_acquire(self) -> Buffer | None:
        """Take a bare buffer if one can be had without waiting, else return None; see `acquire`."""
        return self._pool.try_acquire(self._buffer_size)

    def release(self, buffer: Buffer) -> None:
        """Give back a buffer had from `acquire` or `try_acquire`.

        Raises
        ------
        InvalidReleaseError
            It isn't this pool's, or isn't out, or a lease holds it.
        """
        self._pool.release(buffer)

    def discard(self, buffer: Buffer) -> None:
        """Free a buffer had from `acquire` or `try_acquire` instead of keeping it; raises as `release`."""
        self._pool.discard(buffer)

    def bind(self) -> BoundPool[int, Buffer]:
        """Return the pool's methods bound to its buffer size, for hot paths."""
        return self._pool.bind(self._buffer_size)

    def clear(self) -> int:
        """Free idle buffers now and leased ones when they come back; return how many were idle."""
        return self._pool.clear()

    def close(self, timeout: float | None = None) -> None:
        """Refuse new acquires, free idle buffers, and wait for leased ones.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for what is out; None waits for ever.

        Raises
        ------
        PoolTimeoutError
            Buffers are still out.  The pool is closed all the same, each is freed as it
            comes back, and calling again goes on waiting.
        """
        self._pool.close(timeout)

    def stats(self) -> PoolStats:
        """Return a snapshot of the pool's counts; ``cost`` is in bytes."""
        return self._pool.stats()

    @property
    def limits(self) -> PoolLimits:
        """The limits in force; `max_bytes` is their ``max_cost``."""
        return self._pool.limits

    @property
    def closed(self) -> bool:
        """Whether `close` has begun."""
        return self._pool.closed

    @property
    def buffer_size(self) -> int:
        """Bytes in each buffer."""
        return self._buffer_size

    def __enter__(self) -> Self:
        self._pool.__enter__()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._pool.__exit__(exc_type, exc, traceback)

    def __repr__(self) -> str:
        return f"<BufferPool of {self._buffer_size} bytes each: {self._pool!r}>"


class _Memory:
    """The hooks of a `BufferPool`: how a buffer is made and freed, and what it costs."""

    __slots__ = ("_alignment", "_allocator", "_budget", "_live")

    def __init__(self, allocator: Allocator, budget: int | None) -> None:
        for method in ("allocate", "free"):
            if not callable(getattr(allocator, method, None)):
                raise TypeError(f"{allocator!r} is no Allocator: it has no {method}() method")
        if not hasattr(allocator, "alignment"):
            raise TypeError(f"{allocator!r} is no Allocator: it has no alignment")
        self._alignment = _size("alignment", allocator.alignment)
        self._allocator = allocator
        self._budget = budget
        # By address, the buffer that has the memory there.  Weak, as a detached buffer dies
        # without any hook; its entry goes with it, before its memory does.
        self._live: dict[int, weakref.ref[Buffer]] = {}

    def capacity(self, nbytes: int) -> int:
        """Round up to the allocator's alignment: what one buffer is charged, in bytes."""
        return -(-nbytes // self._alignment) * self._alignment

    def create(self, nbytes: int) -> Buffer:
        """Get memory and wrap it, or free what can't be used."""
        capacity = self.capacity(nbytes)
        try:
            memory: Any = self._allocator.allocate(capacity)
        except MemoryError as error:
            # With buffers of one size there's no use in evicting idle ones and trying
            # again: an acquire comes here only when none is idle.
            raise MemoryError(
                f"can't allocate a buffer of {nbytes} bytes (budget max_bytes={self._budget}, "
                f"{len(self._live)} in existence): {str(error) or 'out of memory'}"
            ) from error
        try:
            buffer = Buffer(memory, nbytes=nbytes, capacity=capacity, alignment=self._alignment)
        except BaseException as error:
            self._free_unusable(memory, error)
            raise
        self._enter(buffer)
        return buffer

    def destroy(self, nbytes: int, buffer: Buffer) -> None:
        """Free a buffer's memory through its allocator."""
        del nbytes
        self._live.pop(buffer.address, None)
        # The one reference to the memory is handed on and not kept in a local: free may
        # wish to see it go.
        self._allocator.free(buffer._retire())  # noqa: SLF001 - the pool is the one that may

    def _enter(self, buffer: Buffer) -> None:
        """Refuse memory that another living buffer has: two holders would write to it."""
        address, live = buffer.address, self._live

        def drop(dead: weakref.ref[Buffer]) -> None:
            if live.get(address) is dead:
                del live[address]

        mine = weakref.ref(buffer, drop)
        found = live.setdefault(address, mine)
        if found is not mine:
            # Not freed: it's the other one's.
            raise PoolError(f"the allocator returned memory that is in use already, by {found()!r}")

    def _free_unusable(self, memory: object, error: BaseException) -> None:
        try:
            self._allocator.free(memory)
        except Exception as second:  # noqa: BLE001 - whatever free raises, the first error is the one to tell
            error.add_note(f"and freeing it failed too: {second!r}")


def _size(what: str, value: int) -> int:
    """Check that a number of bytes is a positive int."""
    if isinstance(value, bool):
        raise TypeError(f"{what} must be an int, not {value!r}")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} must be an int, not {value!r}") from None
    if number < 1:
        raise ValueError(f"{what} must be 1 or more, not {number}")
    return number
