"""Lease: a resource in somebody's hands, and the one way to give it back that can do no harm.

The fast way is written out in `Lease.__exit__`, `Lease.release` and, for the fast tier, in `respool.pool`: a
few lines each that CPython can't interrupt, since threads switch and signals arrive at calls, loops and
function entries only.  With the interpreter lock that makes "look whether somebody waits, then push" one
step: nobody can begin to wait in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from respool._free import FREE_THREADED
from respool._slot import PENDING
from respool.errors import LeaseLostError, LeaseReleasedError, safe_repr

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from respool._slot import Guard, Record

__all__ = ["ClaimedLease", "Lease", "MadeLease"]

K = TypeVar("K")
T = TypeVar("T")


class Lease(Generic[K, T]):
    """A resource that its holder has for itself until the lease is released.

    A context manager: ``with pool.lease(key) as resource:`` gives it back at the end, whatever happens in
    the block.  Made by `ResourcePool.lease` and its kin only.

    Thread safety: any thread may release a lease, whichever acquired it.  The resource belongs to one
    holder; to share it is the holder's affair.

    A lease that is dropped without release gives its room back; its resource is destroyed, never reused,
    counted in ``stats().leaked``, and a `LeaseLeakWarning` tells of it.

    Attributes
    ----------
    key
        The key that was asked for.
    resource
        The leased resource.
    released
        Whether the lease is spent.
    """

    __module__ = "respool"
    __slots__ = ("__weakref__", "_guard", "_record")

    # The guard is the hold on the resource: None once the lease is spent.  The record stays, for `key` and
    # for messages.
    _guard: Guard | None
    _record: Record

    def __init__(self) -> None:
        raise TypeError("leases are made by a pool: call lease() or try_lease()")

    @property
    def key(self) -> K:
        """The key that was asked for; also of a spent lease."""
        return self._record.row.key  # type: ignore[no-any-return]  # typed by the pool

    @property
    def resource(self) -> T:
        """The leased resource.

        Raises
        ------
        LeaseReleasedError
            The lease is spent.
        LeaseLostError
            The lease was made before a fork, in the parent process.
        """
        if self._guard is None:
            raise self._spent("resource")
        resource = self._record.resource
        if resource is None:
            raise self._lost()
        return resource  # type: ignore[no-any-return]

    @property
    def released(self) -> bool:
        """Whether the lease is spent: released, discarded or detached."""
        return self._guard is None

    def release(self, when: Callable[[], object] | None = None) -> None:
        """Give the resource back.  A spent lease does nothing.

        Never blocks on a lock that is held while anything slow runs, and may be called from any thread, from
        a signal handler or a finaliser.  A reset hook, or the destroy of what must go, runs here; what these
        raise is reported to the observer, not raised.

        Parameters
        ----------
        when
            Tells whether the resource is free, if it isn't free at once: it's still in use by a GPU, say.  Must
            stay truthful until it has returned True.  It's asked once in this call, and, as long as it says no,
            now and then later, from any thread; until then the resource is pending: it counts against the limits,
            and nobody has it.

        Raises
        ------
        Exception
            What `when` raises in this call; the lease is still held then.
        TypeError
            `when` can't be called.
        """
        guard = self._guard
        if guard is None:
            return
        if when is not None:
            self._release_when(when)
            return
        self._guard = None
        record = self._record
        lane = record.lane
        if lane.due:
            lane_engine(record).give_back(guard, record)
            return
        use = lane.use
        if use.last is not lane:
            use.last = lane
            use.tick += 1
            use.news[lane] = None
        record.stamp = use.tick
        lane.idle.append(guard)

    def _release_when(self, when: Callable[[], object]) -> None:
        record = self._record
        engine = lane_engine(record)
        free = engine.is_free(record, when)
        guard = self._guard
        if guard is None:  # somebody else has released this lease while `when` was asked
            return
        if free:
            self._guard = None
            engine.give_back(guard, record)
            return
        # In one straight line: a resource that is in use yet may at no moment look like one that was leaked.
        record.when = when
        record.phase = PENDING
        self._guard = None
        engine.defer(guard)

    def discard(self) -> None:
        """Destroy the resource instead of keeping it: it's broken, say.

        Raises
        ------
        LeaseReleasedError
            The lease is spent.
        """
        guard = self._guard
        if guard is None:
            raise self._spent("discard")
        self._guard = None
        lane_engine(self._record).discard(guard, self._record)

    def detach(self) -> T:
        """Take the resource out of the pool for good: it's the caller's, who must dispose of it.  Its room is free at once.

        Raises
        ------
        LeaseReleasedError
            The lease is spent.
        LeaseLostError
            The lease was made before a fork, in the parent process.
        """
        if self._guard is None:
            raise self._spent("detach")
        resource = self.resource
        guard = self._guard
        if guard is None:  # pragma: no cover - a race: given back just now
            raise self._spent("detach")
        self._guard = None
        lane_engine(self._record).detach(guard, self._record)
        return resource

    def __enter__(self) -> T:
        if self._guard is None:
            raise self._spent("with")
        resource = self._record.resource
        if resource is None:
            raise self._lost()
        return resource  # type: ignore[no-any-return]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        guard = self._guard
        if guard is None:
            return
        self._guard = None
        record = self._record
        lane = record.lane
        if lane.due or kind is not None:
            engine = lane_engine(record)
            if kind is not None and engine.discard_on_error:
                engine.discard(guard, record)
            else:
                engine.give_back(guard, record)
            return
        use = lane.use
        if use.last is not lane:
            use.last = lane
            use.tick += 1
            use.news[lane] = None
        record.stamp = use.tick
        lane.idle.append(guard)

    def __repr__(self) -> str:
        if not hasattr(self, "_record"):  # a local variable of a call that fails, shown with its traceback
            return "<respool.Lease: not leased yet>"
        state = "released" if self._guard is None else "leased"
        name = lane_engine(self._record).name
        return f"<respool.Lease of {safe_repr(self._record.row.key)} from {name}: {state}>"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a lease can't be pickled or copied: it's the one hold on its resource")

    def _spent(self, what: str) -> LeaseReleasedError:
        return LeaseReleasedError(f"{what}: {self!r} was given back before")

    def _lost(self) -> LeaseLostError:
        return LeaseLostError(
            f"{self!r} was made before a fork, in the parent process: its resource is not for use here"
        )


class ClaimedLease(Lease[K, T]):  # pragma: no cover - without the interpreter lock: the session free_threaded
    """A lease without the interpreter lock: of several threads that give it back, the one that empties `_hold` does."""

    __slots__ = ("_hold",)

    _hold: list[Guard]

    @property
    def _guard(self) -> Guard | None:  # type: ignore[override]  # to be read only
        # Nothing but `_hold` refers to it, so that one who is interrupted while he has it in hand loses it as one
        # loses a lease: to the pool.
        return next(iter(self._hold), None)

    def _claim(self) -> Guard | None:
        try:
            return self._hold.pop()
        except IndexError:
            return None

    def release(self, when: Callable[[], object] | None = None) -> None:
        """Give the resource back, as `Lease.release` does."""
        if self._guard is not None and when is not None:
            self._release_when(when)
        elif (guard := self._claim()) is not None:
            lane_engine(self._record).give_back(guard, self._record)

    def _release_when(self, when: Callable[[], object]) -> None:
        record = self._record
        engine = lane_engine(record)
        if not engine.is_free(record, when):
            engine.defer_until(self._hold, when)
        elif (guard := self._claim()) is not None:
            engine.give_back(guard, record)

    def discard(self) -> None:
        """Destroy the resource, as `Lease.discard` does."""
        guard = self._claim()
        if guard is None:
            raise self._spent("discard")
        lane_engine(self._record).discard(guard, self._record)

    def detach(self) -> T:
        """Take the resource out of the pool, as `Lease.detach` does."""
        if self._guard is None:
            raise self._spent("detach")
        resource = self.resource
        guard = self._claim()
        if guard is None:
            raise self._spent("detach")
        lane_engine(self._record).detach(guard, self._record)
        return resource

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        guard = self._claim()
        if guard is not None:
            engine = lane_engine(self._record)
            spoilt = kind is not None and engine.discard_on_error
            (engine.discard if spoilt else engine.give_back)(guard, self._record)


if TYPE_CHECKING:
    _Base = Lease
else:
    _Base = ClaimedLease if FREE_THREADED else Lease


class MadeLease(_Base[K, T]):
    """What a pool makes: a Lease that can be made, without arguments, which is the cheapest way there is.

    The pool fills in the record and the guard.
    """

    __slots__ = ()
    __init__ = object.__init__  # takes no arguments


MadeLease.__name__ = MadeLease.__qualname__ = "Lease"
MadeLease.__module__ = "respool"


def lane_engine(record: Record) -> Any:  # noqa: ANN401 - `respool._lifecycle.Core`, which can't be imported from below
    """Find the pool that a record belongs to."""
    return record.row.engine
