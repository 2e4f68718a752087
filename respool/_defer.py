"""The acting side: resources that are given back before they're free.

A release with a `when` leaves its resource *pending*: it counts, and nobody has it until `when` says that it's free.
Nobody is told when that will be, so it's asked: by acquires that find nothing idle, by one of those who sleep, by
`reap`, by a waiting close, and by the background thread of a pool that has one.

Each `when` is asked by one thread at a time, and never again once it has said yes: what it speaks for may be in
other use by then.  So whoever asks takes the guard out of the row first.
"""

from __future__ import annotations

from collections import deque
from itertools import islice, repeat
from typing import TYPE_CHECKING, Final

from respool._release import Releasing
from respool._slot import ASKING, GONE, PENDING, READY, Record
from respool._work import DEFERRED, LOST, STUCK, UNTIL
from respool.errors import safe_repr

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool._slot import Guard
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

    def is_free(self, record: Record, when: Callable[[], object], count: int = 1) -> bool:
        """Ask for the first time, on behalf of the holder, who keeps what it has (so many of a key) if this raises."""
        if not callable(when):
            raise TypeError(f"when must be callable or None, got {safe_repr(when)}")
        if record.lane is LOST:
            return True  # from before a fork: its release does nothing
        hooks = self.hooks
        # Marks stand for the resources, whose own records are not to be touched: somebody else may be giving them back.
        marks = [Record(record.row) for _ in range(count)]
        try:
            for mark in marks:
                mark.phase = ASKING
                hooks.enter(mark)
            # Where `when` has forked, this may be the child by now.
            return bool(when()) or record.lane is LOST
        except BaseException as error:
            hooks.failed(record.row, record.row.key, "when", error)
            raise
        finally:
            for mark in reversed(marks):
                mark.phase = GONE
                hooks.leave(mark)

    def defer(self, guard: Guard) -> None:
        """Keep a resource that isn't free yet.  Its holder has let go of it, having set `when` and the phase before."""
        guard.record.holder = None
        self.post(DEFERRED, guard)

    def defer_until(  # pragma: no cover - without the interpreter lock: the session free_threaded
        self, hold: list[Guard], when: Callable[[], object]
    ) -> bool:
        """Do the same without the interpreter lock, for what is in `hold`; tell whether anything was.

        What an interrupt lost between the claim and the note would look like a leak, and be destroyed before it's free.
        So the guard goes from one place to the other within a single call of C code.
        """
        claimed = islice(iter(hold.pop, None), 1)
        try:
            try:
                self.inbox.extend(map(list, zip(repeat(UNTIL), zip(claimed, repeat(when)))))
            finally:
                self.pump()
        except IndexError:
            return False
        return True

    def defer_for_good(
        self, record: Record, when: Callable[[], object]
    ) -> None:  # pragma: no cover - without the interpreter lock: the session free_threaded
        """Do so on the fast tier, for the one of several who comes first."""
        if not self.defer_until(record.held, when):
            raise self.given_back(record)

    def ask(self, lane: Lane | None, most: int, *, others: bool) -> int:
        """Ask whether pending resources are free, up to `most` of them; give the number of those that are now.

        Those of `lane`; where `others` says so, those of all rows in turn as well.  They're taken one at a time, so that
        a slow `when` keeps nobody from asking the others.
        """
        asking = _Asking()
        free = 0
        try:
            for turn in range(most):
                own = lane if not others or turn % 2 == 0 else None
                self.under_lock(self._take_pending_locked, asking, own, others)
                if not asking.guards:  # what isn't free goes behind the others only below
                    break
                free += self._ask_one(asking)
        finally:
            while asking.guards:  # an interrupt: it was not asked
                self._put_back(asking)
            self.pump()
        return free

    def ask_all(self) -> None:
        """Ask all that is pending now, each once: row by row, since within a row what isn't free goes behind the others.

        Over all rows at once, one found free meanwhile would bring those back into the turn that had been asked, and
        there'd be none left for others.
        """
        for lane, number in self.under_lock(self._deferring_locked):
            self.ask(lane, number, others=False)

    def _deferring_locked(self) -> list[tuple[Lane, int]]:
        return [(lane, len(lane.pending or ())) for lane in self.deferring]

    def _take_pending_locked(self, asking: _Asking, lane: Lane | None, others: bool) -> None:  # noqa: FBT001 - passed on by `under_lock`
        if (lane is None or not lane.pending) and others and self.deferring:
            lane = next(iter(self.deferring))
            self.deferring.move_to_end(lane)
        if lane is not None and lane.pending:
            asking.guards.append(lane.pending.popleft())
            if not lane.pending:
                self.deferring.pop(lane, None)

    def _put_back(self, asking: _Asking) -> None:
        """Let go of what isn't free.

        It's taken out of the hand before it goes anywhere: lost on the way it's found again, while in two places at
        once it would come to two holders.
        """
        record = asking.guards[0].record
        if record.phase is ASKING:
            record.phase = PENDING
        self.inbox.append([DEFERRED, asking.guards.popleft()])

    def _ask_one(self, asking: _Asking) -> bool:
        """Ask the one in hand, and see where it goes."""
        hooks = self.hooks
        record = asking.guards[0].record
        failure: BaseException | None = None
        free = False
        record.phase = ASKING
        try:
            hooks.enter(record)
            try:
                free = bool(record.when())  # type: ignore[misc]  # it's pending, so there is one
            except BaseException as error:  # noqa: BLE001 - raised again below, if it's no Exception
                failure = error
            hooks.leave(record)
            if (
                record.phase is not ASKING
            ):  # pragma: no cover - in a forked child, whose tracer sees no frame begun before
                asking.guards.popleft()
                return False
            if free:
                record.when = None
                record.holder = None
                record.phase = READY
                self.give_back(asking.guards.popleft(), record)
                return True
            if isinstance(failure, Exception):
                record.phase = PENDING
                self.inbox.append([STUCK, asking.guards.popleft()])
            else:
                self._put_back(asking)
            if failure is not None and (record.holder is not STUCK or not isinstance(failure, Exception)):
                record.holder = STUCK if isinstance(failure, Exception) else record.holder  # reported once
                hooks.failed(record.row, record.row.key, "when", failure)
            if failure is not None and not isinstance(failure, Exception):
                raise failure
        finally:
            failure = None  # or it would refer to itself by way of this frame
        return False
