"""ResourcePool: the documented face of a pool.  Argument checks and the fast way; all else is the engine's.

The fast way of an acquire, here and in `respool.bound`, is straight-line code from the pop on: no call, so
no interrupt, until the resource is the caller's.
"""

# ruff: noqa: SLF001 - a pool fills its leases in; an `else` block would put a jump into the fast way

from __future__ import annotations

import itertools
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Literal, overload

from respool import _process
from respool._destroyer import Destroyer
from respool._free import FREE_THREADED
from respool._hooks import Hooks
from respool._lifecycle import Core
from respool._managed import Managed
from respool.bound import BoundPool
from respool.errors import safe_repr
from respool.group import take_group
from respool.lease import MadeLease
from respool.limits import PoolLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import TypeVar

    from respool.group import LeaseGroup
    from respool.lease import Lease
    from respool.observers import PoolObserver

    # A create hook that is a lambda doesn't tell what its key is: then it may be anything.
    K = TypeVar("K", default=Any)
    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    K = TypeVar("K")
    T = TypeVar("T")

__all__ = ["ResourcePool"]

_NO_LIMITS = PoolLimits()
_numbers = itertools.count(1)


class ResourcePool(Managed[K, T]):
    """A pool of resources by key, with limits, first come first served.

    Parameters
    ----------
    create
        ``create(key)`` makes a resource: a new object each time, never None.  What it raises reaches the
        acquirer.
    destroy
        ``destroy(key, resource)`` ends one.  What it raises is reported and the resource counts as gone,
        unless it raises `Quarantine`.
    validate
        ``validate(key, resource)`` tells whether an idle resource is still good, before it's handed out.
        False, or an exception: it's destroyed and the next one is tried.
    reset
        ``reset(key, resource)`` is run on release, before anyone else can have the resource.  If it raises,
        the resource is destroyed.
    cost
        ``cost(key)`` tells what a resource costs, an int in any unit (bytes, say), counted against
        ``limits.max_cost``.  1 each when None.
    limits
        What the pool may hold; no limits by default.
    name
        For messages.
    observer
        Told what happens.  None is a `LoggingObserver`.
    discard_on_error
        Leaving a lease's with-block by an exception discards the resource.
    destroy_in
        "caller": destroy runs in whichever call makes it necessary.  "background": in a daemon thread of the pool,
        for hooks that may block, as freeing pinned memory does.
    at_exit
        "destroy": idle resources of a pool that is open when the interpreter exits are destroyed.  "leak":
        they're left to the process's end.
    track_leases
        Keep the stack of each acquire, for the reports of leaks and timeouts.  Costs some microseconds each.

    Raises
    ------
    TypeError, ValueError
        A parameter makes no sense.

    Notes
    -----
    Keys must be hashable.  A pool of one kind leaves them out: the key is None then.  Hooks, the observer
    and the keys' ``__hash__`` and ``__eq__`` are never called under a lock of the pool.  All methods may be
    called from any thread.  A resource may be unhashable and equal to others: it's known by identity.

    Also a context manager: leaving it is ``close()`` without waiting or raising.
    """

    __module__ = "respool"
    __slots__ = ("__weakref__", "_gate", "_rows")

    def __init__(
        self,
        create: Callable[[K], T],
        destroy: Callable[[K, T], object] | None = None,
        validate: Callable[[K, T], bool] | None = None,
        *,
        reset: Callable[[K, T], object] | None = None,
        cost: Callable[[K], int] | None = None,
        limits: PoolLimits = _NO_LIMITS,
        name: str | None = None,
        observer: PoolObserver | None = None,
        discard_on_error: bool = False,
        at_exit: Literal["destroy", "leak"] = "destroy",
        destroy_in: Literal["caller", "background"] = "caller",
        track_leases: bool = False,
    ) -> None:
        if not isinstance(limits, PoolLimits):
            raise TypeError(f"limits must be a PoolLimits, got {safe_repr(limits)}")
        if at_exit not in {"destroy", "leak"}:
            raise ValueError(f"at_exit must be 'destroy' or 'leak', got {safe_repr(at_exit)}")
        if destroy_in not in {"caller", "background"}:
            raise ValueError(f"destroy_in must be 'caller' or 'background', got {safe_repr(destroy_in)}")
        if not isinstance(name, str | None):
            raise TypeError(f"name must be a str, got {safe_repr(name)}")
        inbox: deque[list[Any]] = deque()
        hooks = Hooks(create, destroy, validate, reset, cost, observer, inbox)
        name = f"{type(self).__name__}-{next(_numbers)}" if name is None else name
        self._core = Core(
            hooks,
            inbox,
            limits=limits,
            name=name,
            at_exit=at_exit,
            destroyer=Destroyer(name) if destroy_in == "background" else None,
            discard_on_error=bool(discard_on_error),
            track=bool(track_leases),
        )
        self._by_id = self._core.by_id
        self._rows = self._core.keys.rows
        if self._core.destroyer is not None:
            self._core.destroyer.serve(self._core)
        hooks.serve(weakref.ref(self))
        _process.register(self._core)

    # -- leases ----------------------------------------------------------------------------------------

    @overload
    def lease(
        self: ResourcePool[None, T], key: None = None, timeout: float | None = None
    ) -> Lease[None, T]: ...
    @overload
    def lease(self, key: K, timeout: float | None = None) -> Lease[K, T]: ...
    def lease(self, key: Any = None, timeout: float | None = None) -> Lease[Any, T]:
        """Lease a resource: an idle one, else a new one where there is room, else the next in turn.

        Parameters
        ----------
        key
            Which kind of resource; None in a pool of one kind.
        timeout
            Seconds to wait at most, over waiting, validating and creating; None or infinity waits for ever.
            0 takes what can be had at once, without queueing.  A thread that holds the last resource and
            leases again without a timeout waits for itself, for ever.

        Returns
        -------
        Lease
            Release it, or use it as a context manager.

        Raises
        ------
        PoolTimeoutError
            Nothing could be had in time.
        PoolExhaustedError
            The resource costs more than the pool may hold, or the queue is full.
        PoolClosedError
            The pool is closed.
        PoolReentrancyError
            Waiting would be for ever (see the class), or the call interrupts the pool itself.
        TypeError, ValueError
            The key can't be hashed; the timeout is negative, NaN, or no number.
        """
        lane = None
        # Made before the look at `gate`: a call in between would let in somebody who begins to wait, or closes the pool.
        lease: MadeLease[Any, T] = MadeLease()
        try:
            lane = self._rows[key]
            if timeout is None and not lane.gate:
                lease._guard = guard = lane.idle.pop()
                lease._record = record = guard.record
                record.uses += 1
                return lease
        except (LookupError, TypeError):
            pass
        core = self._core
        hand: Any = core.take(core.lane_of(key) if lane is None else lane, timeout, True)  # noqa: FBT003 - it waits
        return hand.lease(lease)  # type: ignore[no-any-return]

    @overload
    def try_lease(self: ResourcePool[None, T], key: None = None) -> Lease[None, T] | None: ...
    @overload
    def try_lease(self, key: K) -> Lease[K, T] | None: ...
    def try_lease(self, key: Any = None) -> Lease[Any, T] | None:
        """Lease a resource if that is possible at once: never queues and never passes those who wait.

        Parameters
        ----------
        key
            Which kind of resource; None in a pool of one kind.

        Returns
        -------
        Lease | None
            None where nothing can be had at once.

        Raises
        ------
        PoolExhaustedError, PoolClosedError, PoolReentrancyError, TypeError
            As `lease` does.
        """
        core = self._core
        hand = core.take(core.lane_of(key), None, False)  # noqa: FBT003 - it doesn't wait
        return None if hand is None else hand.lease(MadeLease())

    @overload
    def lease_many(
        self: ResourcePool[None, T], n: int, key: None = None, timeout: float | None = None
    ) -> LeaseGroup[None, T]: ...
    @overload
    def lease_many(self, n: int, key: K, timeout: float | None = None) -> LeaseGroup[K, T]: ...
    def lease_many(self, n: int, key: Any = None, timeout: float | None = None) -> LeaseGroup[Any, T]:
        """Lease several resources of one key at once: all of them or none.

        Nothing is held while waiting, so two such calls never wait for each other.  It has one place in the queue;
        those behind it don't pass it.

        Parameters
        ----------
        n
            How many, at least 1.
        key
            Which kind of resource; None in a pool of one kind.
        timeout
            Seconds to wait at most, as in `lease`.

        Returns
        -------
        LeaseGroup
            Release it, or use it as a context manager, which gives the tuple of the resources.

        Raises
        ------
        PoolExhaustedError
            So many are more than any limit allows, or the queue is full.
        PoolTimeoutError, PoolClosedError, PoolReentrancyError, TypeError, ValueError
            As `lease` does.
        """
        return take_group(self._core, self._core.lane_of(key), n, timeout)

    # -- the fast tier ---------------------------------------------------------------------------------

    @overload
    def acquire(self: ResourcePool[None, T], key: None = None, timeout: float | None = None) -> T: ...
    @overload
    def acquire(self, key: K, timeout: float | None = None) -> T: ...
    def acquire(self, key: Any = None, timeout: float | None = None) -> T:
        """Acquire the bare resource, for hot paths and for those who write their own guards.

        Nothing sees to its return: pair it with `release` or `discard` in a ``try`` / ``finally``.
        Parameters and errors are those of `lease`.

        Parameters
        ----------
        key
            Which kind of resource; None in a pool of one kind.
        timeout
            Seconds to wait at most.

        Returns
        -------
        T
            The resource.
        """
        lane = None
        try:
            lane = self._rows[key]
            if timeout is None and not lane.gate:
                guard = lane.idle.pop()
                record = guard.record
                record.guard = guard
                record.uses += 1
                return record.resource  # type: ignore[no-any-return]
        except (LookupError, TypeError):
            pass
        core = self._core
        hand: Any = core.take(core.lane_of(key) if lane is None else lane, timeout, True)  # noqa: FBT003 - it waits
        guard = hand.guard  # what `Hand.bare` does, written out: this is the way of a validating pool
        record = guard.record
        if FREE_THREADED:
            record.held = [guard]
        else:
            record.guard = guard
        hand.guard = None
        record.uses += 1
        return record.resource  # type: ignore[no-any-return]

    @overload
    def try_acquire(self: ResourcePool[None, T], key: None = None) -> T | None: ...
    @overload
    def try_acquire(self, key: K) -> T | None: ...
    def try_acquire(self, key: Any = None) -> T | None:
        """Acquire the bare resource if that is possible at once: never queues and never passes those who wait.

        Parameters
        ----------
        key
            Which kind of resource; None in a pool of one kind.

        Returns
        -------
        T | None
            None where nothing can be had at once.
        """
        core = self._core
        hand = core.take(core.lane_of(key), None, False)  # noqa: FBT003 - it doesn't wait
        return None if hand is None else hand.bare()

    def bind(self, key: K) -> BoundPool[K, T]:
        """Give this pool for one key, whose hash is paid once.

        Parameters
        ----------
        key
            The key that all calls of the bound pool are for.

        Returns
        -------
        BoundPool
            The same resources, limits and queue.
        """
        return BoundPool(self, key)
