"""BoundPool: a pool for one key; and `Face`, the fast tier's way back, which it shares with ResourcePool.

The fast way is straight-line code from the look at `gate` or `due` on; `respool.lease` says why.
"""

# ruff: noqa: SLF001, TRY300 - a pool fills its leases in; an `else` block would put a jump into the fast way

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from respool._free import FREE_THREADED
from respool._slot import PENDING
from respool.errors import safe_repr
from respool.group import take_group
from respool.lease import MadeLease

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool._lifecycle import Core
    from respool._slot import Record
    from respool._work import Lane
    from respool.group import LeaseGroup
    from respool.lease import Lease
    from respool.pool import ResourcePool
    from respool.stats import PoolStats

__all__ = ["BoundPool", "Face"]

K = TypeVar("K")
T = TypeVar("T")


class Face(Generic[K, T]):
    """What a pool and a bound pool share: giving back on the fast tier."""

    __slots__ = ("_by_id", "_core")

    _by_id: dict[int, Record]
    _core: Core

    def release(self, resource: T, when: Callable[[], object] | None = None) -> None:
        """Give back a resource that `acquire` or `try_acquire` gave.  Only its holder may: on this tier the pool can't tell who calls.

        Once the resource is in other hands, a second release can't be told from theirs and takes it away
        from them; use leases where that can't be ruled out.  Never blocks on a lock that is held while
        anything slow runs, and may be called from any thread, from a signal handler or a finaliser.  A reset
        hook, or the destroy of what must go, runs here; what these raise is reported to the observer, not
        raised.

        Parameters
        ----------
        resource
            The resource, recognised by identity.
        when
            Tells whether the resource is free, if it isn't free at once, as `Lease.release` says.

        Raises
        ------
        InvalidReleaseError
            The resource isn't of this pool, or is idle, or a lease holds it.
        Exception
            What `when` raises in this call; the caller still holds the resource then.
        TypeError
            `when` can't be called.
        """
        try:
            record = self._by_id[id(resource)]
        except KeyError:
            record, _ = self._core.claim(resource)
        guard = record.guard
        if guard is None:
            record, guard = self._core.claim(resource)
        lane = record.lane
        if lane.due or when is not None:
            self._release_slowly(resource, when)
            return
        record.guard = None
        use = lane.use
        if use.last is not lane:
            use.last = lane
            use.tick += 1
            use.news[lane] = None
        record.stamp = use.tick
        lane.idle.append(guard)

    def _release_slowly(self, resource: T, when: Callable[[], object] | None) -> None:
        core = self._core
        record, guard = core.claim(resource)
        if when is not None and not core.is_free(record, when):
            record, guard = core.claim(resource)  # somebody may have given it back while `when` was asked
            if FREE_THREADED:
                core.defer_for_good(record, when)
                return
            # In one straight line: a resource that is in use yet may at no moment look like one that was leaked.
            record.when = when
            record.phase = PENDING
            record.guard = None
            core.defer(guard)
            return
        if when is not None:
            record, guard = core.claim(resource)
        if FREE_THREADED:
            guard = core.claim_for_good(record)
        record.guard = None
        core.give_back(guard, record)

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
        if FREE_THREADED:
            guard = self._core.claim_for_good(record)
        record.guard = None
        self._core.discard(guard, record)


class BoundPool(Face[K, T]):
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
        lease: MadeLease[K, T] = MadeLease()  # before the look at `gate`, as in `ResourcePool.lease`
        if timeout is None and not lane.gate:
            try:
                lease._guard = guard = lane.idle.pop()
                lease._record = record = guard.record
                record.uses += 1
                return lease
            except IndexError:
                pass
        hand: Any = self._core.take(self._living_lane(), timeout, True)  # noqa: FBT003 - it waits
        return hand.lease(lease)  # type: ignore[no-any-return]

    def try_lease(self) -> Lease[K, T] | None:
        """Lease a resource if that is possible at once, as `ResourcePool.try_lease` does."""
        hand = self._core.take(self._living_lane(), None, False)  # noqa: FBT003 - it doesn't wait
        return None if hand is None else hand.lease(MadeLease())

    def lease_many(self, n: int, timeout: float | None = None) -> LeaseGroup[K, T]:
        """Lease several resources at once, as `ResourcePool.lease_many` does."""
        return take_group(self._core, self._living_lane(), n, timeout)

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
        hand: Any = self._core.take(self._living_lane(), timeout, True)  # noqa: FBT003 - it waits
        guard = hand.guard  # what `Hand.bare` does, written out: this is the way of a validating pool
        record = guard.record
        if FREE_THREADED:
            record.held = [guard]
        else:
            record.guard = guard
        hand.guard = None
        record.uses += 1
        return record.resource  # type: ignore[no-any-return]

    def try_acquire(self) -> T | None:
        """Acquire the bare resource if that is possible at once, as `ResourcePool.try_acquire` does."""
        hand = self._core.take(self._living_lane(), None, False)  # noqa: FBT003 - it doesn't wait
        return None if hand is None else hand.bare()

    def prefill(self, n: int) -> int:
        """Create up to `n` more idle resources now, as `ResourcePool.prefill` does."""
        return self._core.prefill(self._living_lane(), n)

    def clear(self) -> int:
        """Destroy this key's resources, as `ResourcePool.clear` does."""
        return self._pool.clear(self.key)

    def stats(self) -> PoolStats:
        """Take a snapshot of this key's numbers."""
        return self._pool.stats(self.key)

    def __repr__(self) -> str:
        return f"<respool.BoundPool of {safe_repr(self.key)} on {self._core.describe()}>"
