"""`CudaEventPool`: CUDA events kept by context, to be recorded again instead of created anew.

This module owns the pool's face, as far as events are lent; ``_managed`` has the rest of it.  Limits, waiting and integrity
are `respool.ResourcePool`'s, of which it's composed.  Which context is meant is ``context``'s, how events come and go
``_source``'s.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from respool.limits import PoolLimits
from respool.pool import ResourcePool

from ._managed import Managed
from ._source import Source
from .context import current_id, id_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.bound import BoundPool
    from respool.group import LeaseGroup
    from respool.lease import Lease
    from respool.observers import PoolObserver

    from .event import CudaEvent

__all__ = ["CudaEventPool"]


class CudaEventPool(Managed):
    """A pool of CUDA events, one stack of idle ones for each context.

    Parameters
    ----------
    limits : PoolLimits
        As for `ResourcePool`; keys are ids of contexts.  The default sets no limit.
    timing : bool
        Whether `CudaEvent.elapsed_ms` can be asked.  Such events are dearer, so it's one kind a pool.
    name : str
        What the pool is called in messages.
    observer : PoolObserver, optional
        Told what happens; None logs hook errors and leaks.  It sees the `ResourcePool` within.
    track_leases : bool
        Keep the stack of each acquire, for reports of leaks and timeouts.

    Notes
    -----
    Wherever a ``context`` is asked for, None is the one that is current on the calling thread, an int is an id
    (``cuCtxGetId``), and a ``CUcontext`` or a context of cuda.core stands for its id.  Ids are never given to another
    context, as handles are.  The pool never chooses or makes a context itself.  An event that is to be created in a context
    that isn't current is created with that context current for a moment; the pool knows those that it, or another pool, has
    seen current, or was given.

    An event may be given back while work is pending that it was recorded for, and is the next holder's at once: what it
    stands for then is up to the next record, and who waits for it on a stream already goes on waiting for what it stood for.

    Events of a context that is gone are never destroyed or handed out again.  This is seen when the pool is cleared,
    resized, reaped or closed, when the next context is seen under the same handle, and by `forget`.  After an error
    that leaves a context useless (an illegal address, say) its idle events are abandoned, and acquires raise the
    driver's error, saying since when it has been so.

    The first use that needs the driver says what is missing, if it is.  A child of a fork starts with an empty pool; CUDA
    can't be used there if the parent has used it.  Nothing is destroyed when the interpreter exits.

    There is no ``adopt``: of an event made elsewhere nobody knows what is recorded on it.  A detached event is the
    caller's, to be destroyed by its `handle`.

    Thread safety: every method may be called from any thread; an event is for one holder at a time.

    Examples
    --------
    >>> from respool.cuda import CudaEventPool
    >>> pool = CudaEventPool.shared()
    >>> with pool.lease() as event:  # doctest: +SKIP
    ...     event.record(stream)
    ...     event.synchronize()
    """

    __module__ = "respool.cuda"
    __slots__ = ()

    def __init__(
        self,
        *,
        limits: PoolLimits = PoolLimits(),  # noqa: B008 - frozen, so sharing it is no harm
        timing: bool = False,
        name: str = "events",
        observer: PoolObserver | None = None,
        track_leases: bool = False,
    ) -> None:
        source = Source(timing=bool(timing))
        # The hooks don't refer to this object: a pool that did would be found dropped only by the collector.
        self._pool = ResourcePool(
            source.make,
            source.end,
            limits=limits,
            name=name,
            observer=observer,
            at_exit="leak",
            track_leases=track_leases,
        )
        source.serve(self._pool._core)  # noqa: SLF001 - the other half of the pool within
        self._source = source

    @classmethod
    def shared(cls) -> CudaEventPool:
        """Return the pool of this process: the same one each time, and a new one after its close or in a forked child.

        It has no limits, until it's given some by `resize`, and no timing.
        """
        return _shared()

    def lease(self, context: object = None, timeout: float | None = None) -> Lease[int, CudaEvent]:
        """Lease an event: ``with pool.lease() as event:`` gives it back at the block's end.

        Parameters
        ----------
        context
            Of which context; the calling thread's current one by default.
        timeout : float, optional
            Seconds to wait for room; None waits for ever, 0 doesn't wait.

        Returns
        -------
        Lease
            It owns the event until released, discarded or detached.

        Raises
        ------
        NoContextError
            No context is current.
        CudaError
            The context is gone (709) or broken; no event could be created; or the process has been forked (3).
        CudaUnavailableError
            CUDA can't be used here.
        PoolTimeoutError, PoolExhaustedError, PoolClosedError
            As for `ResourcePool.lease`.
        TypeError, ValueError
            It's no context, or one that has never been seen; `timeout` is no time.
        """
        return self._pool.lease(current_id() if context is None else id_of(context), timeout)

    def try_lease(self, context: object = None) -> Lease[int, CudaEvent] | None:
        """Lease an event that can be had without waiting, or return None."""
        return self._pool.try_lease(id_of(context))

    def lease_many(
        self, n: int, context: object = None, timeout: float | None = None
    ) -> LeaseGroup[int, CudaEvent]:
        """Lease several events of one context at once: all of them or none.

        Nothing is held while waiting, so two such calls never wait for each other.

        Parameters
        ----------
        n : int
            How many, at least 1.
        context, timeout
            As for `lease`.

        Returns
        -------
        LeaseGroup
            Release it, or use it as a context manager, which gives the tuple of the events.

        Raises
        ------
        PoolExhaustedError
            So many are more than any limit allows, or the queue is full.
        Exception
            As for `lease`.
        """
        return self._pool.lease_many(n, id_of(context), timeout)

    def acquire(self, context: object = None, timeout: float | None = None) -> CudaEvent:
        """Take a bare event, to be given back by `release` or `discard`; else as `lease`."""
        return self._pool.acquire(current_id() if context is None else id_of(context), timeout)

    def try_acquire(self, context: object = None) -> CudaEvent | None:
        """Take a bare event that can be had without waiting, or return None."""
        return self._pool.try_acquire(id_of(context))

    def release(self, event: CudaEvent, when: Callable[[], object] | None = None) -> None:
        """Give a bare event back, from whatever thread; no driver call is made.

        Parameters
        ----------
        event : CudaEvent
            The event.
        when : callable, optional
            Tells whether it's free, if it isn't free at once; see `Lease.release`.  What is still to be done on the device is no
            reason to wait: it may be recorded again at any time.

        Raises
        ------
        InvalidReleaseError
            It isn't the caller's to give: foreign, idle, given back before or held by a lease.
        """
        self._pool.release(event, when)

    def discard(self, event: CudaEvent) -> None:
        """Destroy a bare event instead of keeping it; raises as `release` does."""
        self._pool.discard(event)

    def bind(self, context: object = None) -> BoundPool[int, CudaEvent]:
        """Return this pool for one context, which is looked up now, once: the hot path, for code that owns its context.

        Its acquires that find an idle event make no driver call at all, and don't look which context is current.
        """
        return self._pool.bind(id_of(context))

    def __repr__(self) -> str:
        return repr(self._pool).replace("respool.ResourcePool", "respool.cuda.CudaEventPool", 1)


# A chain of boxes, each with a pool and, once that is closed, the next box.  Without a lock, which a fork could leave taken and
# a signal handler wait for: what is put into a box first stays.
_first: dict[str, Any] = {}
_kept: list[dict[str, Any]] = []


def _shared() -> CudaEventPool:
    global _first  # noqa: PLW0603 - from whichever closed pool on, the chain leads to the one that is in use
    if not _kept:
        _kept.append({})
        os.register_at_fork(after_in_child=_after_fork_in_child)
    box = _first
    while True:
        found: CudaEventPool | None = box.get("pool")
        pool: CudaEventPool = box.setdefault("pool", CudaEventPool()) if found is None else found
        if not pool.closed:
            return pool
        box = box.setdefault("next", {})
        _first = box


def _after_fork_in_child() -> None:
    global _first  # noqa: PLW0603 - see above
    _kept.append(_first)
    _first = {}
