"""What special pools have in common that are made of a `ResourcePool`: all that needs no key.

They are composed, not derived, since their key parameter is another.  Each keeps to itself what it does with keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from respool.limits import PoolLimits
    from respool.pool import ResourcePool

__all__ = ["Composed"]


class Composed:
    """A pool that is made of another one."""

    __slots__ = ("__weakref__", "_pool")

    _pool: ResourcePool[Any, Any]

    def reap(self) -> int:
        """Destroy what ``idle_timeout`` and ``max_lifetime`` ask for, and ask what is pending; as `ResourcePool.reap`.

        Returns
        -------
        int
            How many were destroyed.
        """
        return self._pool.reap()

    def close(self, timeout: float | None = None) -> None:
        """Close the pool: nothing is handed out any more, what is idle is destroyed, what is leased as it comes back.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for what is out; None waits for ever.

        Raises
        ------
        PoolTimeoutError
            Something is still out.  The pool is closed all the same, and calling again goes on waiting.
        """
        self._pool.close(timeout)

    @property
    def name(self) -> str:
        """What the pool is called in messages."""
        return self._pool.name

    @property
    def limits(self) -> PoolLimits:
        """The limits in force."""
        return self._pool.limits

    @property
    def closed(self) -> bool:
        """Whether `close` has begun."""
        return self._pool.closed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.__exit__(kind, error, trace)
