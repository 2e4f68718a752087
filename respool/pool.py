"""ResourcePool and BoundPool: the documented face of a pool.  Argument checks and the fast way; all else is the engine's.

The fast way of an acquire, in both classes, is straight-line code from the pop on: no call, so no interrupt, until the resource is the caller's.
"""

from __future__ import annotations

import itertools
import warnings
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from respool import _process
from respool._hooks import Hooks
from respool._keys import ALL, All
from respool._lifecycle import Core
from respool.errors import PoolTimeoutError, safe_repr
from respool.lease import MadeLease, lane_engine
from respool.limits import PoolLimits
from respool.stats import PoolStats

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from respool._engine import Lane
    from respool._slot import Record
    from respool.lease import Lease
    from respool.observers import PoolObserver

__all__ = ["BoundPool", "ResourcePool"]

K = TypeVar("K")
T = TypeVar("T")

_NO_LIMITS = PoolLimits()
_numbers = itertools.count(1)


class _Face(Generic[K, T]):
    """What a pool and a bound pool share: giving back on the fast tier."""

    __slots__ = ("_by_id", "_core")

    _by_id: dict[int, Record]
    _core: Core

    def release(self, resource: T) -> None:
        """Give back a resource that `acquire` or `try_acquire` gave.  Only its holder may: on this tier the pool can't tell who calls.

        Once the resource is in other hands, a second release can't be told from theirs and takes it away from them; use leases where that can't be
        ruled out.  Never blocks on a lock that is held while anything slow runs, and may be called from any thread, from a signal handler or a
        finaliser.  A reset hook, or the destroy of what must go, runs here; what these raise is reported to the observer, not raised.

        Parameters
        ----------
        resource
            The resource, recognised by identity.

        Raises
        ------
        InvalidReleaseError
            The resource isn't of this pool, or is idle, or a lease holds it.
        """
        try:
            record = self._by_id[id(resource)]
        except KeyError:
            record, _ = self._core.claim(resource)
        guard = record.guard
        if guard is None:
            record, guard = self._core.claim(resource)
        lane = record.lane
        if lane.due:
            record.guard = None
            self._core.give_back(guard, record)
            return
        record.guard = None
        use = lane.use
        if use.last is not lane:
            use.last = lane
            use.tick += 1
        record.stamp = use.tick
        lane.idle.append(guard)

    def discard(self, resource: T) -> None:
        """Destroy a resource that `acquire` or `try_acquire` gave, instead of giving it back.

        Parameters
        ----------
        resource
            The resource, recognised by identity.

        Raises
        ------
        InvalidReleaseError
            The resource isn't of this pool, or is idle, or a lease holds it: only a holder discards.
        """
        record, guard = self._core.claim(resource)
        record.guard = None
        self._core.discard(guard, record)


class ResourcePool(_Face[K, T]):
    """A pool of resources by key, with limits, first come first served.

    Parameters
    ----------
    create
        ``create(key)`` makes a resource: a new object each time, never None.  What it raises reaches the acquirer.
    destroy
        ``destroy(key, resource)`` ends one.  What it raises is reported and the resource counts as gone, unless it raises `Quarantine`.
    validate
        ``validate(key, resource)`` tells whether an idle resource is still good, before it's handed out.  False, or an exception: it's destroyed and
        the next one is tried.
    reset
        ``reset(key, resource)`` is run on release, before anyone else can have the resource.  If it raises, the resource is destroyed.
    cost
        ``cost(key)`` tells what a resource costs, an int in any unit (bytes, say), counted against ``limits.max_cost``.  1 each when None.
    limits
        What the pool may hold; no limits by default.
    name
        For messages.
    observer
        Told what happens.  None is a `LoggingObserver`.
    discard_on_error
        Leaving a lease's with-block by an exception discards the resource.
    at_exit
        "destroy": idle resources of a pool that is open when the interpreter exits are destroyed.  "leak": they're left to the process's end.
    track_leases
        Keep the stack of each acquire, for the reports of leaks and timeouts.  Costs some microseconds each.

    Raises
    ------
    TypeError, ValueError
        A parameter makes no sense.

    Notes
    -----
    Keys must be hashable.  A pool of one kind leaves them out: the key is None then.  Hooks, the observer and the keys' ``__hash__`` and ``__eq__`` are
    never called under a lock of the pool.  All methods may be called from any thread.  A resource may be unhashable and equal to others: it's known by
    identity.

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
        track_leases: bool = False,
    ) -> None:
        if not isinstance(limits, PoolLimits):
            msg = f"limits must be a PoolLimits, got {safe_repr(limits)}"
            raise TypeError(msg)
        if at_exit not in {"destroy", "leak"}:
            msg = f"at_exit must be 'destroy' or 'leak', got {safe_repr(at_exit)}"
            raise ValueError(msg)
        if name is not None and not isinstance(name, str):
            msg = f"name must be a str, got {safe_repr(name)}"
            raise TypeError(msg)
        inbox: deque[list[Any]] = deque()
        hooks = Hooks(
            create=create,
            destroy=destroy,
            validate=validate,
            reset=reset,
            cost=cost,
            observer=observer,
            inbox=inbox,
        )
        self._core = Core(
            hooks,
            inbox,
            limits=limits,
            name=f"{type(self).__name__}-{next(_numbers)}" if name is None else name,
            at_exit=at_exit,
            discard_on_error=bool(discard_on_error),
            track=bool(track_leases),
        )
        self._by_id = self._core.by_id
        self._rows = self._core.keys.rows
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
            Seconds to wait at most, over waiting, validating and creating; None or infinity waits for ever.  0 takes what can be had at once, without
            queueing.  A thread that holds the last resource and leases again without a timeout waits for itself, for ever.

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
        try:
            lane = self._rows[key]
            if timeout is None and not lane.gate:
                lease: MadeLease[Any, T] = MadeLease()
                lease._guard = guard = lane.idle.pop()
                lease._record = record = guard.record
                record.uses += 1
                return lease
        except (LookupError, TypeError):
            pass
        return self._lease_slowly(key, timeout, wait=True)  # type: ignore[return-value]  # it waits

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
        return self._lease_slowly(key, None, wait=False)

    def _lease_slowly(self, key: Any, timeout: float | None, *, wait: bool) -> Lease[Any, T] | None:
        core = self._core
        hand = core.take(core.lane_of(key), timeout, wait=wait)
        return None if hand is None else hand.lease(MadeLease())  # type: ignore[no-any-return]

    # -- the fast tier ---------------------------------------------------------------------------------

    @overload
    def acquire(self: ResourcePool[None, T], key: None = None, timeout: float | None = None) -> T: ...
    @overload
    def acquire(self, key: K, timeout: float | None = None) -> T: ...
    def acquire(self, key: Any = None, timeout: float | None = None) -> T:
        """Acquire the bare resource, for hot paths and for those who write their own guards.

        Nothing sees to its return: pair it with `release` or `discard` in a ``try`` / ``finally``.  Parameters and errors are those of `lease`.

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
        return self._acquire_slowly(key, timeout, wait=True)  # type: ignore[return-value]  # it waits

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
        return self._acquire_slowly(key, None, wait=False)

    def _acquire_slowly(self, key: Any, timeout: float | None, *, wait: bool) -> T | None:
        core = self._core
        hand = core.take(core.lane_of(key), timeout, wait=wait)
        return None if hand is None else hand.bare()  # type: ignore[no-any-return]

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

    # -- upkeep ----------------------------------------------------------------------------------------

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
        core = self._core
        if key is ALL:
            return core.clear(None)
        lane = core.known_lane(key)
        return 0 if lane is None else core.clear(lane)

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
        May be called again, and from several threads: all return at the end.  From inside a hook of this pool it returns without waiting.
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

    def __enter__(self) -> ResourcePool[K, T]:
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
        msg = "a pool can't be pickled or copied: its resources belong to this process"
        raise TypeError(msg)

    def __del__(self) -> None:
        core = getattr(self, "_core", None)
        if core is None or core.closed or _process.exiting():
            return
        size = core.drop()
        if size:
            warnings.warn(
                f"pool {core.name} was dropped without close(), with {size} resources",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )


class BoundPool(_Face[K, T]):
    """A pool for one key: the same resources, limits and queue, without the key in each call.

    Made by `ResourcePool.bind`.  Keeps its pool alive.  All methods may be called from any thread.

    Attributes
    ----------
    key
        The key that it is bound to.
    """

    __module__ = "respool"
    __slots__ = ("_lane", "_pool", "key")

    def __init__(self, pool: ResourcePool[K, T], key: K) -> None:
        self._pool = pool
        self._core = pool._core
        self._by_id = self._core.by_id
        self.key = key
        self._lane = self._core.lane_of(key)

    def _living_lane(self) -> Lane:
        lane = self._lane
        if lane.dead:  # the key had no resource and no waiter for a while
            lane = self._lane = self._core.lane_of(self.key)
        return lane

    def lease(self, timeout: float | None = None) -> Lease[K, T]:
        """Lease a resource, as `ResourcePool.lease` does."""
        lane = self._lane
        if timeout is None and not lane.gate:
            try:
                lease: MadeLease[K, T] = MadeLease()
                lease._guard = guard = lane.idle.pop()
                lease._record = record = guard.record
                record.uses += 1
                return lease
            except IndexError:
                pass
        return self._lease_slowly(timeout, wait=True)  # type: ignore[return-value]  # it waits

    def try_lease(self) -> Lease[K, T] | None:
        """Lease a resource if that is possible at once, as `ResourcePool.try_lease` does."""
        return self._lease_slowly(None, wait=False)

    def _lease_slowly(self, timeout: float | None, *, wait: bool) -> Lease[K, T] | None:
        hand = self._core.take(self._living_lane(), timeout, wait=wait)
        return None if hand is None else hand.lease(MadeLease())  # type: ignore[no-any-return]

    def acquire(self, timeout: float | None = None) -> T:
        """Acquire the bare resource, as `ResourcePool.acquire` does."""
        lane = self._lane
        if timeout is None and not lane.gate:
            try:
                guard = lane.idle.pop()
                record = guard.record
                record.guard = guard
                record.uses += 1
                return record.resource  # type: ignore[no-any-return]
            except IndexError:
                pass
        return self._acquire_slowly(timeout, wait=True)  # type: ignore[return-value]  # it waits

    def try_acquire(self) -> T | None:
        """Acquire the bare resource if that is possible at once, as `ResourcePool.try_acquire` does."""
        return self._acquire_slowly(None, wait=False)

    def _acquire_slowly(self, timeout: float | None, *, wait: bool) -> T | None:
        hand = self._core.take(self._living_lane(), timeout, wait=wait)
        return None if hand is None else hand.bare()  # type: ignore[no-any-return]

    def clear(self) -> int:
        """Destroy this key's resources, as `ResourcePool.clear` does."""
        return self._pool.clear(self.key)

    def stats(self) -> PoolStats:
        """Take a snapshot of this key's numbers."""
        return self._pool.stats(self.key)

    def __repr__(self) -> str:
        return f"<respool.BoundPool of {safe_repr(self.key)} on {self._core.describe()}>"
