"""`BufferPool`: reusable buffers of one or several sizes under one budget of bytes.

This module owns the buffer pool's face, as far as buffers are lent; `respool.buffers._managed` has
the rest of it.  Limits, waiting and integrity are `respool.ResourcePool`'s, of which it's composed;
sizes and memory are `respool.buffers._memory`'s.
"""

# ruff: noqa: SLF001 - a pool says how many bytes its buffers are lent for

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from respool.buffers._after import give_back_bare_after
from respool.buffers._managed import Managed
from respool.buffers._memory import Stock
from respool.buffers._sizes import check_size
from respool.buffers.bound import BoundBufferPool
from respool.buffers.host import PageAlignedAllocator
from respool.buffers.leases import (
    NO_STREAM,
    BufferLease,
    BufferLeaseGroup,
    check_stream,
    group_of,
    lease_of,
)
from respool.errors import PoolExhaustedError
from respool.limits import PoolLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.buffers.buffer import Buffer
    from respool.buffers.host import Allocator
    from respool.observers import PoolObserver

DEFAULT_BUFFER_SIZE = 4 << 20


class BufferPool(Managed):
    """A bounded pool of reusable buffers.

    Parameters
    ----------
    allocator : Allocator, optional
        Where memory comes from; a `PageAlignedAllocator` by default.  The pool uses it
        and doesn't own it: one allocator may serve several pools.
    buffer_size : int
        Bytes in a buffer that is asked for without a size, ≥ 1.  4 MiB by default.
    max_bytes : int, optional
        Most bytes in existence at any moment, over idle, leased and half-made buffers of
        all sizes.  None: no bound.
    limits : PoolLimits
        Further limits, as for `ResourcePool`.  Its ``max_cost`` must be left out, as that's
        what `max_bytes` is for.
    name : str
        What the pool is called in messages.
    observer : PoolObserver, optional
        Told what happens; None logs hook errors and leaks.  It sees the `ResourcePool`
        within, whose keys have the attributes ``capacity`` and ``allocator``.  So does a
        ``max_per_key`` function.
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
    A buffer of `buffer_size` is charged this size rounded up to the allocator's alignment.
    Other sizes are rounded up to a size class, so that similar ones can use each other's
    buffers: at most an eighth more than asked for, or less than one alignment (a page) more.

    Waiting is first come, first served, as in `ResourcePool`, over all sizes: a large request
    isn't starved by small ones, and idle buffers of sizes that nobody asks for give way, the
    least recently used first.  ``stats().cost`` is in bytes.

    Memory that the allocator returns too short, read-only, not C-contiguous or not aligned
    is freed, and the acquire raises `PoolError`.  Where the allocator raises `MemoryError`,
    all idle buffers are freed and it's asked once more; then `MemoryError` is raised with the
    budget in its text, and its room is given back.

    A view still held when a buffer is freed is no error.  The bytes leave the budget, and
    where the allocator's memory lives as long as its views (`PageAlignedAllocator`,
    `HostAllocator`), the view stays safe to touch.

    There is no ``adopt``: memory made elsewhere could not be freed by this pool's allocator.

    Thread safety: every method may be called from any thread.

    Examples
    --------
    >>> from respool.buffers import BufferPool
    >>> with BufferPool(buffer_size=1 << 16, max_bytes=1 << 20) as pool:
    ...     with pool.lease() as buffer:
    ...         buffer.view[:5] = b"hello"
    ...         buffer.nbytes
    ...     with pool.lease(100_000) as larger:
    ...         larger.nbytes, larger.capacity, pool.stats().cost
    65536
    (100000, 102400, 167936)
    """

    __module__ = "respool.buffers"

    __slots__ = ()

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
        check_size("buffer_size", buffer_size)
        budget = None if max_bytes is None else check_size("max_bytes", max_bytes)
        stock = Stock(slow=bool(getattr(allocator, "frees_slowly", False)))
        memory = stock.memory(PageAlignedAllocator() if allocator is None else allocator)
        usual = memory.usual(buffer_size, budget)
        pool = stock.new_pool(
            limits=dataclasses.replace(limits, max_cost=budget),
            name=name,
            observer=observer,
            track_leases=track_leases,
        )
        self._begin(pool, memory, usual)

    def share(self, allocator: Allocator | None = None, *, buffer_size: int | None = None) -> BufferPool:
        """Return another face on this pool, for another kind of memory, another size, or both.

        What is had through either counts against one budget, and waits in one queue.  Idle buffers of the one
        make room for the other.  `set_buffer_size` changes a face's own size; `limits`, `resize`, `close`, and
        `stats` and `clear` without a size, are the whole pool's, whichever face is asked.

        Parameters
        ----------
        allocator : Allocator, optional
            Where this face's memory comes from; that of the face it's asked of by default.  Faces with one
            allocator use each other's buffers.
        buffer_size : int, optional
            Bytes in a buffer that is asked for without a size; that of the face it's asked of by default.

        Returns
        -------
        BufferPool
            The face.  A buffer may be given back through any of them.

        Raises
        ------
        TypeError, ValueError, PoolExhaustedError
            As for a new pool.
        """
        memory = self._memory if allocator is None else self._memory.stock.memory(allocator)
        size = self.buffer_size if buffer_size is None else buffer_size
        face = BufferPool.__new__(BufferPool)
        face._begin(self._pool, memory, memory.usual(size, self.limits.max_cost))
        return face

    def lease(
        self, nbytes: int | None = None, timeout: float | None = None, *, stream: object = NO_STREAM
    ) -> BufferLease:
        """Lease a buffer: ``with pool.lease() as buffer:`` gives it back at the block's end.

        Parameters
        ----------
        nbytes : int, optional
            How many bytes, ≥ 1; `buffer_size` by default.
        timeout : float, optional
            Seconds to wait for room; None waits for ever, 0 doesn't wait.
        stream : optional
            A CUDA stream, as for `CudaEvent.record`: None or 0 for the legacy default stream, a handle, or what has
            ``__cuda_stream__``.  Leaving the with-block, by an exception too, gives the buffer back after it, as
            `BufferLease.release_after` does.  Should that fail while an exception leaves the block, it's a note of that.

        Returns
        -------
        BufferLease
            It owns its `Buffer` until released, discarded or detached.  A detached buffer is
            the caller's for good: it's not freed through the allocator, but lives and dies
            with the references to it.

        Raises
        ------
        PoolTimeoutError
            No room came free in time.
        PoolExhaustedError
            It's more than the whole budget, or ``limits.max_waiters`` others wait already.
        PoolClosedError
            The pool is closed.
        MemoryError
            The allocator has no memory.
        PoolError
            The allocator returned something unusable.
        TypeError, ValueError
            `nbytes` is no size, `timeout` no time, or `stream` no stream.
        CudaUnavailableError
            A `stream` is given, and CUDA can't be used here.
        """
        asked = self._usual if nbytes is None else self._asked(nbytes)
        check_stream(stream)
        try:
            lease = (
                self._pool.lease(asked.kind, timeout)
                if self._valid is None
                else self._checked(self._pool.lease, asked.kind, timeout=timeout)
            )
        except PoolExhaustedError as error:
            raise self._told(error, asked) from None
        lease._record.resource._nbytes = asked.nbytes
        if nbytes is None and asked is not self._usual:  # set_buffer_size came in between
            self._catch_up(asked)
        return lease_of(lease, stream)

    def try_lease(self, nbytes: int | None = None, *, stream: object = NO_STREAM) -> BufferLease | None:
        """Lease a buffer if one can be had without waiting, else return None; see `lease`."""
        asked = self._usual if nbytes is None else self._asked(nbytes)
        check_stream(stream)
        try:
            lease = (
                self._pool.try_lease(asked.kind)
                if self._valid is None
                else self._checked(self._pool.try_lease, asked.kind, waits=False)
            )
        except PoolExhaustedError as error:
            raise self._told(error, asked) from None
        if lease is None:
            return None
        lease._record.resource._nbytes = asked.nbytes
        if nbytes is None and asked is not self._usual:
            self._catch_up(asked)
        return lease_of(lease, stream)

    def lease_many(
        self,
        n: int,
        nbytes: int | None = None,
        timeout: float | None = None,
        *,
        stream: object = NO_STREAM,
    ) -> BufferLeaseGroup:
        """Lease several buffers of one size at once: all of them or none.

        Nothing is held while waiting, so two such calls never wait for each other.

        Parameters
        ----------
        n : int
            How many, at least 1.
        nbytes, timeout, stream
            As for `lease`.

        Returns
        -------
        BufferLeaseGroup
            Release it, or use it as a context manager, which gives the tuple of the buffers.

        Raises
        ------
        PoolExhaustedError
            So many are more than any limit allows, or the queue is full.
        Exception
            As for `lease`.
        """
        asked = self._usual if nbytes is None else self._asked(nbytes)
        check_stream(stream)
        try:
            group = (
                self._pool.lease_many(n, asked.kind, timeout)
                if self._valid is None
                else self._checked(self._pool.lease_many, n, asked.kind, timeout=timeout)
            )
        except PoolExhaustedError as error:
            raise self._told(error, asked, n) from None
        for buffer in group.resources:
            buffer._nbytes = asked.nbytes
        if nbytes is None and asked is not self._usual:
            self._catch_up(asked)
        return group_of(group, stream)

    def acquire(self, nbytes: int | None = None, timeout: float | None = None) -> Buffer:
        """Take a bare buffer, which the caller must hand to `release` or `discard`; see `lease`.

        A buffer released twice can't always be told from one that its next holder gives
        back, so prefer `lease` outside hot paths.
        """
        asked = self._usual if nbytes is None else self._asked(nbytes)
        try:
            buffer = (
                self._pool.acquire(asked.kind, timeout)
                if self._valid is None
                else self._checked(self._pool.acquire, asked.kind, timeout=timeout)
            )
        except PoolExhaustedError as error:
            raise self._told(error, asked) from None
        buffer._nbytes = asked.nbytes
        if nbytes is None and asked is not self._usual:
            self._catch_up(asked, buffer)
        return buffer

    def try_acquire(self, nbytes: int | None = None) -> Buffer | None:
        """Take a bare buffer if one can be had without waiting, else return None; see `acquire`."""
        asked = self._usual if nbytes is None else self._asked(nbytes)
        try:
            buffer = (
                self._pool.try_acquire(asked.kind)
                if self._valid is None
                else self._checked(self._pool.try_acquire, asked.kind, waits=False)
            )
        except PoolExhaustedError as error:
            raise self._told(error, asked) from None
        if buffer is not None:
            buffer._nbytes = asked.nbytes
            if nbytes is None and asked is not self._usual:
                self._catch_up(asked, buffer)
        return buffer

    def release(self, buffer: Buffer, when: Callable[[], object] | None = None) -> None:
        """Give back a buffer had from `acquire` or `try_acquire`, of whatever face of the pool.

        Parameters
        ----------
        buffer : Buffer
            The buffer.
        when : callable, optional
            Tells whether it's free, if it isn't free at once, as `Lease.release` says: a copy
            into or out of it is still under way, say.

        Raises
        ------
        InvalidReleaseError
            It isn't this pool's, or isn't out, or a lease holds it.
        Exception
            What `when` raises in this call; the buffer is still held then.
        """
        self._pool.release(buffer, when)

    def release_after(self, buffer: Buffer, stream: object) -> None:
        """Give a bare buffer back once all is done that a CUDA stream has been given so far; as `BufferLease.release_after`.

        Parameters
        ----------
        buffer : Buffer
            Had from `acquire` or `try_acquire`, of whatever face of the pool.
        stream
            As for `BufferLease.release_after`.

        Raises
        ------
        InvalidReleaseError
            It isn't this pool's, or isn't out, or a lease holds it.  Nothing is recorded.
        Exception
            As for `BufferLease.release_after`; where it says that the lease stays, the buffer is the caller's still.
        """
        give_back_bare_after(self._pool, buffer, stream)

    def discard(self, buffer: Buffer) -> None:
        """Free a buffer had from `acquire` or `try_acquire` instead of keeping it; raises as `release`."""
        self._pool.discard(buffer)

    def bind(self, nbytes: int | None = None) -> BoundBufferPool:
        """Return this face for one size, which is checked and looked up now, once.

        Parameters
        ----------
        nbytes : int, optional
            The size.  Without one it's `buffer_size`, also after `set_buffer_size`.
        """
        return BoundBufferPool(self, nbytes)

    def __repr__(self) -> str:
        return f"<BufferPool of {self.buffer_size} bytes each: {self._pool!r}>"
