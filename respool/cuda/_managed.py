"""What manages a `CudaEventPool`, as opposed to using it: its stock, its limits, its end.

The part of `CudaEventPool` that its users call now and then.  All of it is `respool.ResourcePool`'s work; here contexts are
turned into their ids, and those that are gone are forgotten before anything of theirs could be destroyed.
"""

# ruff: noqa: SLF001 - a special pool is the other half of the pool within

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from respool._composed import Composed
from respool._keys import ALL, All

from .context import id_of

if TYPE_CHECKING:
    from types import TracebackType

    from respool.limits import PoolLimits
    from respool.pool import ResourcePool
    from respool.stats import PoolStats

    from ._source import Source
    from .event import CudaEvent

__all__ = ["Managed"]


class Managed(Composed):
    """The methods of a pool of events that look after it."""

    __slots__ = ("_source",)

    _pool: ResourcePool[int, CudaEvent]
    _source: Source

    def prefill(self, n: int, context: object = None) -> int:
        """Create up to `n` more idle events now, as far as limits allow, and as long as nobody waits for the room.

        Parameters
        ----------
        n : int
            How many at most.
        context
            Of which context; the calling thread's current one by default.

        Returns
        -------
        int
            How many were created.

        Raises
        ------
        CudaError
            What the driver says; those created before stay.
        PoolClosedError
            The pool is closed.
        """
        return self._pool.prefill(n, id_of(context))

    def clear(self, context: object = ALL) -> int:
        """Destroy idle events now, and leased ones when they come back; of one context or all.

        Events of contexts that are gone are abandoned instead.

        Returns
        -------
        int
            How many idle ones were destroyed.
        """
        key = context if isinstance(context, All) else id_of(context)
        self._source.sweep()
        return self._pool.clear(key)

    def forget(self, context: object = None) -> int:
        """Abandon all events of a context without destroying them: it's gone, or going to be.

        What is idle, pending or quarantined goes at once, what is leased when it's given back; it can't be recorded or
        asked any more.  No driver call is made for any of them.

        Parameters
        ----------
        context
            Whose: its id, best of all, which is all that is left of one that is gone.

        Returns
        -------
        int
            How many went at once.
        """
        return self._source.forget(id_of(context))

    def reap(self) -> int:
        """Abandon what contexts have left that are gone; else as `ResourcePool.reap`.

        Returns
        -------
        int
            How many were destroyed.
        """
        self._source.sweep()
        return self._pool.reap()

    def resize(self, limits: PoolLimits) -> None:
        """Put other limits in force, all of them; as `ResourcePool.resize`.

        Raises
        ------
        TypeError
            It's no `PoolLimits`.
        PoolClosedError
            The pool is closed.
        """
        self._source.sweep()
        self._pool.resize(limits)

    def close(self, timeout: float | None = None) -> None:
        """Close the pool: nothing is handed out any more, what is idle is destroyed, what is leased as it comes back.

        It waits for events that are out, not for the device: pending ones may be destroyed.  Events of contexts that are
        gone or broken are abandoned.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for what is out; None waits for ever.

        Raises
        ------
        PoolTimeoutError
            Something is still out.  The pool is closed all the same, and calling again goes on waiting.
        """
        self._source.sweep()
        self._pool.close(timeout)

    def stats(self, context: object = ALL) -> PoolStats:
        """Return a snapshot of the counters, of one context or all."""
        return self._pool.stats(context if isinstance(context, All) else id_of(context))

    def num_free_events(self, context: object = None) -> int:
        """Give the number of idle events of a context, by default of the calling thread's current one."""
        lane = self._pool._core.known_lane(id_of(context))
        return 0 if lane is None else len(lane.idle)

    def total_free_events(self) -> int:
        """Give the number of idle events over all contexts."""
        core = self._pool._core
        count: int = core.under_lock(core.count_idle_locked)
        return count

    @property
    def timing(self) -> bool:
        """Whether the pool's events can be timed."""
        return self._source.timing

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._source.sweep()
        self._pool.__exit__(kind, error, trace)

    def __reduce_ex__(self, protocol: object) -> Any:  # noqa: ANN401 - it never returns
        raise TypeError("a CudaEventPool can't be pickled or copied: its events belong to this process")
