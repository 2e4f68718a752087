"""One resource: what the pool knows of it (`Record`), the body that stands for holding it (`Guard`), and the phases it goes through.

Who holds a resource holds its *guard*: the idle stack, a `Lease`, or, on the fast tier, the record itself.
A guard that nobody holds any more has been lost: by a lease that was dropped, or by a call that was cut
short by an interrupt.  Its finaliser then notes it for the pool, which gives the room back. So no code path
has to catch the interrupt that could come between any two steps: holding a guard in a local variable is
enough.

The finaliser is made of C functions only.  An interrupt that is pending when a finaliser written in Python
is entered is raised in there, swallowed, and the note is never written; a C function runs to its end.
`functools.lru_cache` serves for what it is in C: a callable object that binds like a method.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from respool._free import FREE_THREADED

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool._work import Lane

__all__ = ["VOID", "Bell", "Guard", "Record", "guard_class", "is_referenced_elsewhere", "silence"]

# A resource's phases.  Between READY's two halves, idle and leased, it moves without the lock; all others
# change under it or by the one who holds the guard.
QUEUED: Final = "queued"  # no resource yet: the record of an acquire that waits for a room
CREATING: Final = "creating"  # it has a room; the create hook is about to run or runs
READY: Final = "ready"  # idle on its row's stack, or in somebody's hands
CHECKING: Final = "checking"  # in hand; the validate hook runs
RESETTING: Final = "resetting"  # given back; the reset hook runs
PENDING: Final = "pending"  # given back, but free only once its `when` has said so
ASKING: Final = (
    "asking"  # pending, and its `when` runs; or, for a mark alone, it's asked on behalf of its holder
)
CONDEMNED: Final = "condemned"  # to be destroyed by the one who holds the guard
DESTROYING: Final = "destroying"  # the destroy hook runs
QUARANTINED: Final = "quarantined"  # can't be freed, or nobody can tell when: keeps its room
LEAVING: Final = "leaving"  # detached, so the caller's from now on; or abandoned
GONE: Final = "gone"  # out of the books
LIMBO: Final = "limbo"  # made before a fork, in the parent: kept referenced, never used or destroyed here


_NOT_NEEDED: Final[list[Any]] = []


class Record:
    """What the pool knows of one resource.  The pool holds it as long as the resource has a room."""

    __slots__ = (
        "booked",
        "born",
        "cost",
        "deferred",
        "draw",
        "guard",
        "held",
        "holder",
        "lane",
        "outer",
        "phase",
        "reason",
        "resource",
        "row",
        "since",
        "stamp",
        "uses",
        "when",
    )

    def __init__(self, row: Lane) -> None:
        self.row = row
        # Where a release goes: the row itself, or a stand-in whose `due` is shut when it must not go back to
        # the idle stack unseen.
        self.lane: Any = row
        self.resource: Any = None
        self.phase = QUEUED
        self.cost = 0  # charged when the room was granted, given back as it was
        self.guard: Guard | None = None  # here while it's held on the fast tier
        # Without the interpreter lock the guard is in here instead, and whoever takes it out gives the resource back.
        self.held: list[Guard] = [] if FREE_THREADED else _NOT_NEEDED
        self.uses = 0  # times handed out; written by the holder only
        self.stamp = 0  # `Use.tick` when it was last given back
        self.reason = "leaked"  # why it is destroyed; what stands here until somebody knows better
        self.booked = False  # counted as being on its way out
        self.deferred = False  # counted as pending
        self.when: Callable[[], object] | None = (
            None  # tells when it's free; None unless it's given back but not free
        )
        # Where there are time limits: when it was made and last given back, by `time.monotonic`, and its share of
        # the lifetime's jitter, from [0, 1].
        self.born = self.since = self.draw = 0.0
        # The ticket while it's queued, the acquiring stack while it's leased and leases are tracked.
        self.holder: Any = None
        # While a hook runs on it: the record whose hook the thread was in before, on the same pool.
        self.outer: Record | None = None


VOID: Final = Record(None)  # type: ignore[arg-type]  # the record of guards that stand for nothing any more
VOID.phase = GONE


class Bell:
    """A C-level call that can be redirected: calling it calls what ``__call__`` was last set to."""

    __slots__ = ("__call__",)

    def __init__(self, target: Callable[[Any], object]) -> None:
        self.__call__ = target


class Guard:
    """Stands for holding the resource of its record.  Each pool has a subclass whose finaliser notes the loss on the pool's bell."""

    __slots__ = ("record",)

    record: Record


def guard_class(bell: Bell) -> type[Guard]:
    """Make the guard class of a pool: a guard that's lost is passed to `bell`, which so brings it back to life for the pool."""
    return type("Guard", (Guard,), {"__slots__": (), "__del__": lru_cache(maxsize=0)(bell)})


class _Silent(Guard):
    """A guard that notes nothing."""

    __slots__ = ()


def silence(guard: Guard) -> None:
    """Let a guard go without a note: its record is out of the books."""
    if FREE_THREADED:  # where a change of class stops all threads; so there is a note, which means nothing
        guard.record = VOID
    else:
        guard.__class__ = _Silent


def _count(guard: object) -> int:
    return sys.getrefcount(guard)


def _alone() -> int:
    held = [object()]
    return _count(held[0])


_ALONE = _alone()


def is_referenced_elsewhere(held: list[Guard], known: int = 0) -> bool:
    """Tell whether anything but the list `held` and `known` other references refers to the guard in it.

    The cyclic collector calls the finalisers of all of a cycle's objects before it clears any.  So a guard
    may note its loss although another finaliser of the same cycle is yet to release the lease that holds it.
    As long as that lease exists, the guard is referenced by it.
    """
    return _count(held[0]) > _ALONE + known
