"""`BoundEasyHandlePool`: an `EasyHandlePool` for one origin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._group import lent_many
from ._lease import acquired, give_back, lent, throw_away

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.bound import BoundPool
    from respool.stats import PoolStats

    from ._easy import EasyHandle
    from ._group import EasyLeaseGroup
    from ._lease import EasyLease
    from .origin import Origin


class BoundEasyHandlePool:
    """An `EasyHandlePool` for one origin; made by `EasyHandlePool.bind`.  Methods as there, without the key."""

    __module__ = "respool.curl"
    __slots__ = ("__weakref__", "_pool", "_url")

    def __init__(self, pool: BoundPool[Origin, EasyHandle], url: str | None) -> None:
        self._pool = pool
        self._url = url

    @property
    def key(self) -> Origin:
        """The origin that this is bound to."""
        return self._pool.key

    def lease(self, timeout: float | None = None) -> EasyLease:
        """Lease a handle."""
        return lent(self._pool.lease(timeout), self._url)

    def try_lease(self) -> EasyLease | None:
        """Lease a handle that can be had without waiting, or return None."""
        lease = self._pool.try_lease()
        return None if lease is None else lent(lease, self._url)

    def lease_many(self, n: int, timeout: float | None = None) -> EasyLeaseGroup:
        """Lease several handles at once: all of them or none."""
        return lent_many(self._pool.lease_many(n, timeout), self._url)

    def acquire(self, timeout: float | None = None) -> EasyHandle:
        """Take a bare handle."""
        return acquired(self._pool, self._pool.acquire(timeout), self._url)

    def try_acquire(self) -> EasyHandle | None:
        """Take a bare handle that can be had without waiting, or return None."""
        handle = self._pool.try_acquire()
        return None if handle is None else acquired(self._pool, handle, self._url)

    def release(self, handle: EasyHandle, when: Callable[[], object] | None = None) -> None:
        """Give a bare handle back."""
        give_back(self._pool, handle, when)

    def discard(self, handle: EasyHandle) -> None:
        """Destroy a bare handle."""
        throw_away(self._pool, handle)

    def prefill(self, n: int) -> int:
        """Create up to `n` more idle handles now; return how many were created."""
        return self._pool.prefill(n)

    def clear(self) -> int:
        """Destroy the idle handles of this origin."""
        return self._pool.clear()

    def stats(self) -> PoolStats:
        """Return a snapshot of this origin's counters."""
        return self._pool.stats()

    def __repr__(self) -> str:
        return repr(self._pool).replace("respool.BoundPool", "respool.curl.BoundEasyHandlePool", 1)
