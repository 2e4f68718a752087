"""The acting side: resources that are given back before they're free.

A release with a `when` leaves its resource *pending*: it counts, and nobody has it until `when` says that it's free.
Nobody is told when that will be, so it's asked: by acquires that find nothing idle, by one of those who sleep, by
`reap`, by a waiting close, and by the background thread of a pool that has one.

Each `when` is asked by one thread at a time, and never again once it has said yes: what it speaks for may be in
other use by then.  So whoever asks takes the guard out of the row first.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from respool._release import Releasing
from respool._slot import PENDING, READY
from respool._work import DEFERRED, LOST, STUCK
from respool.errors import safe_repr

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool._slot import Guard, Record
    from respool._work import Lane

__all__ = ["ASK", "Deferring"]

ASK: Final = 4
"""How many pending resources are asked by one acquire, or in one turn of a poller."""


class _Asking:
    """What one call is asking.  Frames that run the user's code refer to guards through this only."""

    __slots__ = ("guards",)

    def __init__(self) -> None:
        self.guards: deque[Guard] = deque()


class Deferring(Releasing):
    """What becomes of resources that are given back but not free yet."""

    __slots__ = ()

    def is_free(self, record: Record, when: Callable[[], object]) -> bool:
        """Ask for the first time, on behalf of the holder, who keeps the resource if this raises."""
        if not callable(when):
            raise TypeError(f"when must be callable or None, got {safe_repr(when)}")
        if record.lane is LOST:
            return True  # from before a fork: its release does nothing
        try:
            return bool(when())
        except BaseException as error:
            self.hooks.failed(record.row, record.row.key, "when", error)
            raise

    def defer(self, guard: Guard) -> None:
        """Keep a resource that isn't free yet.  Its holder has let go of it, having set `when` and the phase before."""
        guard.record.holder = None
        self.post(DEFERRED, guard)

    def ask(self, lane: Lane | None, most: int, *, others: bool) -> int:
        """Ask whether pending resources are free, those of `lane` first, then, where `others` says so, of all rows in turn.

        Gives the number of those that are free now.
        """
        asking = _Asking()
        free = 0
        try:
            self.under_lock(self._take_pending_locked, asking, lane, most, others)
            while asking.guards:
                free += self._ask_one(asking)
        finally:
            while asking.guards:  # an interrupt: these were not asked
                self.inbox.append([DEFERRED, asking.guards.popleft()])
            self.pump()
        return free

    def _take_pending_locked(self, asking: _Asking, lane: Lane | None, most: int, others: bool) -> None:  # noqa: FBT001 - passed on by `under_lock`
        if lane is not None:
            self._take_from_locked(lane, most, asking)
        if others:
            while self.deferring and len(asking.guards) < most:
                row = next(iter(self.deferring))
                self.deferring.move_to_end(row)
                self._take_from_locked(row, 1, asking)

    def _take_from_locked(self, row: Lane, most: int, asking: _Asking) -> None:
        pending = row.pending
        while pending and most:
            asking.guards.append(pending.popleft())
            most -= 1
        if not pending:
            self.deferring.pop(row, None)

    def _ask_one(self, asking: _Asking) -> bool:
        """Ask the first in hand, and see where it goes.

        It's taken out of the hand before it goes there: lost on the way it is found again, while in two places at
        once it would come to two holders.
        """
        hooks = self.hooks
        record = asking.guards[0].record
        failure: BaseException | None = None
        free = False
        try:
            hooks.enter(record)
            try:
                free = bool(record.when())  # type: ignore[misc]  # it's pending, so there is one
            except BaseException as error:  # noqa: BLE001 - raised again below, if it's no Exception
                failure = error
            hooks.leave(record)
            if record.phase is not PENDING:  # it has forked, and this is the child
                asking.guards.popleft()
            elif free:
                record.when = None
                record.phase = READY
                self.give_back(asking.guards.popleft(), record)
            elif failure is None:
                self.inbox.append(
                    [DEFERRED, asking.guards.popleft()]
                )  # behind the others, so as to hide none of them
            elif isinstance(failure, Exception):
                self.inbox.append([STUCK, asking.guards.popleft()])
                if record.holder is not STUCK:  # reported once
                    record.holder = STUCK
                    hooks.failed(record.row, record.row.key, "when", failure)
            else:
                raise failure
        finally:
            failure = None  # or it would refer to itself by way of this frame
        return free
