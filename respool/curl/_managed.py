"""What manages an `EasyHandlePool`, as opposed to using it: its stock, its limits, its end.

The part of `EasyHandlePool` that its users call now and then.  All of it is `respool.ResourcePool`'s work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from respool._composed import Composed
from respool._keys import ALL, All

from ._targets import Target, read_key, read_target

if TYPE_CHECKING:
    from respool.limits import PoolLimits
    from respool.pool import ResourcePool
    from respool.stats import PoolStats

    from ._easy import EasyHandle
    from .origin import Origin


class Managed(Composed):
    """The methods of a pool of handles that look after it."""

    __slots__ = ()

    _pool: ResourcePool[Origin, EasyHandle]

    def prefill(self, n: int, key: Target) -> int:
        """Make up to `n` more idle handles now, as far as limits allow, and as long as nobody waits for the room.

        Their connections are made by their first transfers.

        Parameters
        ----------
        n : int
            How many at most.
        key : str or Origin
            What for.

        Returns
        -------
        int
            How many were made.

        Raises
        ------
        PoolClosedError
            The pool is closed.
        """
        origin = read_target(key)[0]
        return self._pool.prefill(n, origin)

    def clear(self, key: Target | All = ALL) -> int:
        """Destroy idle handles, of one origin or all, and leased ones as they come back; how many idle."""
        return self._pool.clear(read_key(key))

    def forget(self, key: Target) -> int:
        """Abandon all handles of an origin without the pool's destroying them.

        What is idle, pending or quarantined goes at once, what is leased when it's given back.  An abandoned
        handle closes its connection when nobody refers to it any more.

        Returns
        -------
        int
            How many went at once.
        """
        return self._pool.forget(read_target(key)[0])

    def resize(self, limits: PoolLimits) -> None:
        """Put other limits in force, all of them; as `ResourcePool.resize`.

        Raises
        ------
        TypeError
            It's no `PoolLimits`.
        PoolClosedError
            The pool is closed.
        """
        self._pool.resize(limits)

    def stats(self, key: Target | All = ALL) -> PoolStats:
        """Return a snapshot of the counters, of one origin or all."""
        return self._pool.stats(read_key(key))

    def __reduce_ex__(self, protocol: object) -> Any:  # noqa: ANN401 - it never returns
        raise TypeError(
            "an EasyHandlePool can't be pickled or copied: its connections belong to this process"
        )
