"""What manages a pool, as opposed to using it: its stock, its limits, its end.

The part of `ResourcePool` that its users call now and then.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, TypeVar, overload

from respool import _process
from respool._keys import ALL, All
from respool.bound import Face
from respool.errors import PoolTimeoutError
from respool.stats import PoolStats

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from respool._work import Lane
    from respool.limits import PoolLimits

__all__ = ["Managed"]

K = TypeVar("K")
T = TypeVar("T")


class Managed(Face[K, T]):
    """The methods of a pool that look after it."""

    __slots__ = ()

    # -- the stock -------------------------------------------------------------------------------------

    @overload
    def adopt(self: Managed[None, T], resource: T, key: None = None) -> None: ...
    @overload
    def adopt(self, resource: T, key: K) -> None: ...
    def adopt(self, resource: T, key: Any = None) -> None:
        """Put a resource that was made elsewhere under the pool, as idle.  It's the pool's from then on.

        Parameters
        ----------
        resource
            The resource: not None, and not one that the pool holds already.
        key
            Which kind of resource it is.

        Raises
        ------
        PoolExhaustedError
            There's no room for it, or somebody waits: it stays the caller's.
        PoolError
            It's None, or in the pool already.
        PoolClosedError
            The pool is closed.
        """
        self._core.adopt(self._core.lane_of(key), resource)

    @overload
    def prefill(self: Managed[None, T], n: int, key: None = None) -> int: ...
    @overload
    def prefill(self, n: int, key: K) -> int: ...
    def prefill(self, n: int, key: Any = None) -> int:
        """Create up to `n` more idle resources now, as far as limits allow, and as long as nobody waits for the room.

        Parameters
        ----------
        n
            How many at most.
        key
            Which kind of resource.

        Returns
        -------
        int
            How many were created.

        Raises
        ------
        Exception
            What the create hook raises; those created before it stay.
        PoolClosedError
            The pool is closed.
        """
        return self._core.prefill(self._core.lane_of(key), n)

    @overload
    def forget(self: Managed[None, T], key: None = None) -> int: ...
    @overload
    def forget(self, key: K) -> int: ...
    def forget(self, key: Any = None) -> int:
        """Abandon all resources of a key without destroying them: their world is gone, a device that was reset, say.

        What is idle, pending or quarantined goes at once, what is leased when it's given back.

        Parameters
        ----------
        key
            Whose resources.

        Returns
        -------
        int
            How many went at once.
        """
        return self._of_known(key, self._core.forget)

    def reap(self) -> int:
        """Destroy what `idle_timeout` and `max_lifetime` ask for, and ask all that is pending or quarantined by its `when`.

        Pools with limits on time are reaped by a background thread as well; nobody has to call this.

        Returns
        -------
        int
            How many were destroyed.
        """
        return self._core.reap()

    def resize(self, limits: PoolLimits) -> None:
        """Put other limits in force, all of them.

        Where there's more room now, those who wait are served.  Where there's less, nothing is taken away from
        anybody: idle resources beyond the limits are destroyed before this returns, leased ones when they're given
        back, and nobody is served with a resource that is too many.

        Parameters
        ----------
        limits
            The new limits.

        Raises
        ------
        TypeError
            It's no `PoolLimits`.
        PoolClosedError
            The pool is closed.
        Exception
            What a `max_per_key` function raises for a key that is in use; the old limits stay in force.
        """
        self._core.resize(limits)

    def clear(self, key: K | All = ALL) -> int:
        """Destroy idle resources now, and leased ones (and those being created) when they are given back.

        Parameters
        ----------
        key
            Whose resources; those of all keys by default.

        Returns
        -------
        int
            How many idle ones were destroyed.
        """
        return self._core.clear(None) if key is ALL else self._of_known(key, self._core.clear)

    def _of_known(self, key: object, act: Callable[[Lane], int]) -> int:
        """Act on a key's row, if it has one."""
        lane = self._core.known_lane(key)
        if lane is None:
            self._core.pump()  # an ordinary call: what is left over is done now
            return 0
        return act(lane)

    def close(self, timeout: float | None = None) -> None:
        """Close the pool: hand out nothing any more, wake those who wait with `PoolClosedError`, and wait until all has come back and is destroyed.

        Parameters
        ----------
        timeout
            Seconds to wait for what is out; None waits for ever.

        Raises
        ------
        PoolTimeoutError
            Something is still out.  The pool is closed all the same; calling again goes on waiting.

        Notes
        -----
        May be called again, and from several threads: all return at the end.  From inside a hook of this
        pool it returns without waiting.
        """
        self._core.close(timeout)

    def stats(self, key: K | All = ALL) -> PoolStats:
        """Take a snapshot of the numbers.

        Parameters
        ----------
        key
            Whose numbers; the totals by default.

        Returns
        -------
        PoolStats
            For a key that has no resource and no waiter: zeros.
        """
        core = self._core
        if key is ALL:
            return core.stats(None)
        lane = core.known_lane(key)
        return PoolStats() if lane is None else core.stats(lane)

    @property
    def name(self) -> str:
        """The name of the pool, for messages."""
        return self._core.name

    @property
    def limits(self) -> PoolLimits:
        """The limits of the pool."""
        return self._core.limits

    @property
    def closed(self) -> bool:
        """Whether the pool has been closed."""
        return self._core.closed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._core.close(0)
        except PoolTimeoutError:
            pass  # what is out is destroyed when it comes back

    def __repr__(self) -> str:
        return f"<respool.{type(self).__name__} {self._core.describe()}>"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a pool can't be pickled or copied: its resources belong to this process")

    def __del__(self, exiting: Callable[[], bool] = _process.exiting) -> None:
        # As an argument: without the interpreter lock this may run after the modules' names are gone.
        core = getattr(self, "_core", None)
        if core is None or core.closed or exiting():
            return
        size = core.drop()
        if size:
            warnings.warn(
                f"pool {core.name} was dropped without close(), with {size} resources",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )
