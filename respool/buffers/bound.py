"""`BoundBufferPool`: a `BufferPool` for one size."""

# ruff: noqa: SLF001 - a bound pool is the other half of its pool

from __future__ import annotations

from typing import TYPE_CHECKING

from respool.buffers._after import give_back_bare_after
from respool.buffers.leases import NO_STREAM, check_stream, group_of, lease_of
from respool.errors import PoolExhaustedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.bound import BoundPool
    from respool.buffers._managed import Managed
    from respool.buffers._memory import Asked, BufferKind
    from respool.buffers.buffer import Buffer
    from respool.buffers.leases import BufferLease, BufferLeaseGroup
    from respool.stats import PoolStats


class BoundBufferPool:
    """A `BufferPool` for one size; made by `BufferPool.bind`.  Methods as there, without the size.

    One that was bound without a size follows `BufferPool.set_buffer_size`.  Keeps its pool alive.
    """

    __module__ = "respool.buffers"
    __slots__ = ("__weakref__", "_face", "_fixed", "_now")

    def __init__(self, face: Managed, nbytes: int | None) -> None:
        self._face = face
        self._fixed = nbytes is not None
        asked = face._asked(nbytes)
        # Replaced as a whole, so that no thread sees the halves of two.
        self._now = asked, face._pool.bind(asked.kind)

    def _bound(self) -> tuple[Asked, BoundPool[BufferKind, Buffer]]:
        """Give the size, and the pool bound to its kind."""
        now = self._now
        usual = self._face._usual
        if now[0] is not usual and not self._fixed:
            now = self._now = usual, self._face._pool.bind(usual.kind)
        return now

    @property
    def key(self) -> BufferKind:
        """What its buffers have in common: an object with their ``capacity`` and ``allocator``."""
        return self._bound()[0].kind

    @property
    def nbytes(self) -> int:
        """The size that this is bound to, in bytes."""
        return self._bound()[0].nbytes

    def lease(self, timeout: float | None = None, *, stream: object = NO_STREAM) -> BufferLease:
        """Lease a buffer."""
        asked, pool = self._bound()
        check_stream(stream)
        try:
            lease = (
                pool.lease(timeout)
                if self._face._valid is None
                else self._face._checked(pool.lease, timeout=timeout)
            )
        except PoolExhaustedError as error:
            raise self._face._told(error, asked) from None
        lease._record.resource._nbytes = asked.nbytes
        if not self._fixed and asked is not self._face._usual:
            self._face._catch_up(asked)
        return lease_of(lease, stream)

    def try_lease(self, *, stream: object = NO_STREAM) -> BufferLease | None:
        """Lease a buffer if one can be had without waiting, else return None."""
        asked, pool = self._bound()
        check_stream(stream)
        try:
            lease = (
                pool.try_lease()
                if self._face._valid is None
                else self._face._checked(pool.try_lease, waits=False)
            )
        except PoolExhaustedError as error:
            raise self._face._told(error, asked) from None
        if lease is None:
            return None
        lease._record.resource._nbytes = asked.nbytes
        if not self._fixed and asked is not self._face._usual:
            self._face._catch_up(asked)
        return lease_of(lease, stream)

    def lease_many(
        self, n: int, timeout: float | None = None, *, stream: object = NO_STREAM
    ) -> BufferLeaseGroup:
        """Lease several buffers at once: all of them or none."""
        asked, pool = self._bound()
        check_stream(stream)
        try:
            group = (
                pool.lease_many(n, timeout)
                if self._face._valid is None
                else self._face._checked(pool.lease_many, n, timeout=timeout)
            )
        except PoolExhaustedError as error:
            raise self._face._told(error, asked, n) from None
        for buffer in group.resources:
            buffer._nbytes = asked.nbytes
        if not self._fixed and asked is not self._face._usual:
            self._face._catch_up(asked)
        return group_of(group, stream)

    def acquire(self, timeout: float | None = None) -> Buffer:
        """Take a bare buffer."""
        asked, pool = self._bound()
        try:
            buffer = (
                pool.acquire(timeout)
                if self._face._valid is None
                else self._face._checked(pool.acquire, timeout=timeout)
            )
        except PoolExhaustedError as error:
            raise self._face._told(error, asked) from None
        buffer._nbytes = asked.nbytes
        if not self._fixed and asked is not self._face._usual:
            self._face._catch_up(asked, buffer)
        return buffer

    def try_acquire(self) -> Buffer | None:
        """Take a bare buffer if one can be had without waiting, else return None."""
        asked, pool = self._bound()
        try:
            buffer = (
                pool.try_acquire()
                if self._face._valid is None
                else self._face._checked(pool.try_acquire, waits=False)
            )
        except PoolExhaustedError as error:
            raise self._face._told(error, asked) from None
        if buffer is not None:
            buffer._nbytes = asked.nbytes
            if not self._fixed and asked is not self._face._usual:
                self._face._catch_up(asked, buffer)
        return buffer

    def release(self, buffer: Buffer, when: Callable[[], object] | None = None) -> None:
        """Give a bare buffer back."""
        self._face._pool.release(buffer, when)

    def release_after(self, buffer: Buffer, stream: object) -> None:
        """Give a bare buffer back once all is done that a CUDA stream has been given so far."""
        give_back_bare_after(self._face._pool, buffer, stream)

    def discard(self, buffer: Buffer) -> None:
        """Free a bare buffer instead of keeping it."""
        self._face._pool.discard(buffer)

    def prefill(self, n: int) -> int:
        """Create up to `n` more idle buffers now; return how many were created."""
        return self._bound()[1].prefill(n)

    def clear(self) -> int:
        """Free the buffers of this size."""
        return self._bound()[1].clear()

    def stats(self) -> PoolStats:
        """Return a snapshot of this size's counts."""
        return self._bound()[1].stats()

    def __repr__(self) -> str:
        return f"<BoundBufferPool of {self.nbytes} bytes each: {self._face._pool!r}>"
