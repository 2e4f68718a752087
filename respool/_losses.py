"""What becomes of guards that were lost: by a lease that was dropped, or by a call that an interrupt ended.

A lost guard's finaliser has put it on the bell; it stands for its record still.  Its phase says what has to
be given back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from respool._booking import Booking
from respool._free import FREE_THREADED, snapshot
from respool._slot import (
    ASKING,
    CHECKING,
    CONDEMNED,
    CREATING,
    DESTROYING,
    GONE,
    LEAVING,
    LIMBO,
    PENDING,
    QUARANTINED,
    QUEUED,
    READY,
    RESETTING,
    VOID,
    Guard,
    Record,
    is_referenced_elsewhere,
    silence,
)
from respool._work import ABANDONED

if TYPE_CHECKING:
    from respool._work import Work

__all__ = ["Losses"]


class Losses(Booking):
    """The part of the locked section that deals with lost guards."""

    __slots__ = ()

    def new_guard(self) -> Guard:
        """Give a guard that stands for nothing yet."""
        if FREE_THREADED:
            try:
                return self.spare.pop()
            except IndexError:
                pass
        return self.guards()

    def put_away(self, guard: Guard) -> None:
        """Let a guard go that nobody else has ever seen."""
        silence(guard)
        if FREE_THREADED:  # to be used again: its note would send others the slow way for nothing
            self.spare.append(guard)

    def settle_lost_locked(self, work: Work) -> None:
        gate = self.gate
        # Of a copy, since finalisers may append to the original at any moment.
        for lost in snapshot(gate):
            if lost is None:  # MARK
                continue
            # Known references: the two deques' and the loop's.  Where there are others, it's in somebody's hands: the
            # collector calls a cycle's finalisers in any order, and another of them has given it back, or is at it.
            if is_referenced_elsewhere([lost], 3):
                self.suspects.append(lost)
            else:
                self._settle_one_locked(lost, work)
            gate.remove(lost)
        for suspect in self.suspects.copy():
            if not is_referenced_elsewhere([suspect], 3):
                self._settle_one_locked(suspect, work)
                self.suspects.remove(suspect)
            elif self._came_back_locked(suspect):
                self.suspects.remove(suspect)

    def _came_back_locked(self, suspect: Guard) -> bool:
        """See whether another finaliser of the same cycle has released the lease properly: then there's no leak."""
        record = getattr(suspect, "record", VOID)  # an interrupt may have come before it got one
        row, phase = record.row, record.phase
        if phase in {GONE, LIMBO}:
            return True
        places = {READY: row.idle, PENDING: row.pending, QUARANTINED: row.stuck}
        place = places.get(phase)
        if place is None:
            return False  # in the middle of a hook, or of its end
        try:
            place.remove(suspect)
        except ValueError:
            return False  # its lease isn't cleared yet, or somebody has it in hand already
        # A finaliser runs once for an object.  The resource needs a new body, or its next leak would be
        # silent.
        guard = self._rebody(suspect)
        place.append(guard)
        return True

    def _rebody(self, lost: Guard) -> Guard:
        guard = self.guards()
        # In one straight line: at any moment exactly one of the two stands for the record.
        guard.record = lost.record
        lost.record = VOID
        return guard

    def _settle_one_locked(  # noqa: C901, PLR0912 - a table: what each phase means
        self, lost: Guard, work: Work
    ) -> None:
        """Give back what a lost guard stood for."""
        record: Record = getattr(lost, "record", VOID)
        phase = record.phase
        accounts = self.accounts
        if phase is not GONE and phase is not QUEUED and record.row.dead:
            pass  # a row with a room is never dropped: it's from before a fork, and this is the child
        elif phase is QUEUED:
            ticket = record.holder
            if ticket is not None:
                self.withdraw_locked(ticket)
                record.holder = None  # which refers to it
            record.phase = GONE
            self.drop_resource_locked(record, work)  # of an adopt() that was cut short
            self.tidy_locked(record.row, work)
        elif phase is CREATING:
            ticket = record.holder
            if ticket is not None and ticket.batch is not None:
                self.withdraw_locked(ticket)
            if record.resource is None:
                accounts.unmade(record)
                self.tidy_locked(record.row, work)
            else:  # pragma: no cover - made, but an interrupt came before anybody was told
                accounts.made(record)
                self._condemn_lost_locked(lost, "discarded", work)
        elif phase is READY and record.deferred:  # pragma: no cover - by interrupts only
            # An ask that was cut short after the yes: nobody has leaked it.
            accounts.undefer(record)
            self._condemn_lost_locked(lost, "discarded", work)
        elif phase is READY:
            lane = record.row
            frames = record.holder if self.track else None
            accounts.leak(record)
            work.leaks.append((lane.key, frames))
            # Also where its world is gone: `_destroy` sees to that.
            self._condemn_lost_locked(lost, "leaked", work)
        elif phase in {CHECKING, RESETTING, CONDEMNED}:  # pragma: no cover - by interrupts only
            accounts.undefer(record)
            self._condemn_lost_locked(lost, "discarded" if phase is not CONDEMNED else record.reason, work)
        elif phase in {PENDING, ASKING}:  # pragma: no cover - by interrupts only
            record.phase = PENDING
            self.defer_locked(self._rebody(lost), work, [None, None])
        elif phase is QUARANTINED:  # pragma: no cover - by interrupts only
            self.stick_locked(self._rebody(lost), work, [None, None])
        elif phase is LEAVING:  # pragma: no cover - by interrupts only
            (accounts.abandoned if record.reason is ABANDONED else accounts.taken_out)(record)
            self.drop_resource_locked(record, work)
            self.tidy_locked(record.row, work)
        elif phase is DESTROYING:  # pragma: no cover - by interrupts only: the hook was begun
            accounts.going(record)
            accounts.gone(record)
            self.drop_resource_locked(record, work)
            self.tidy_locked(record.row, work)

    def _condemn_lost_locked(self, lost: Guard, reason: str, work: Work) -> None:
        self.accounts.condemn(lost.record, reason)
        self.accounts.going(lost.record)
        work.condemned.append(self._rebody(lost))
