"""What can happen to the resources of a pool, as the engine books it: given back in whatever way, destroyed, taken in, left behind.

Each method is one event, as in `tests.core.accounting_events`, which is about those who want resources. No method refers to an
idle resource's guard while others are served: what is lost then would go unnoticed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from respool._slot import CONDEMNED, DESTROYING, LEAVING, PENDING, READY, Record, silence
from tests.core.accounting_twin import Claim, Twin

if TYPE_CHECKING:
    from respool._rows import Row
    from respool._slot import Guard


class Stock(Twin):
    """A twin with all that can happen to its resources."""

    # -- coming back -----------------------------------------------------------------------------------

    def _hand_out(self, guard: Guard) -> None:
        guard.record.uses += 1
        self.model.use(self.things[guard.record])
        self.held.append(guard)

    def give_back(self, number: int = 0, *, later: bool = False) -> None:
        """A holder gives its resource back, by the fast way where nobody has to look."""
        if self.held[number].record.row.due:
            self._come_back(self.held.pop(number))
            self.settle(later=later)
        else:
            self._put_back(self.held.pop(number))
            self.check()

    def _come_back(self, guard: Guard) -> None:
        """Put one back so that who waits for it is looked at.  From here on only the idle stack may refer to its guard."""
        self.tell(self.accounts.stir, guard.record.row)
        self.accounts.idle += 1
        self._put_back(guard)

    def _put_back(self, guard: Guard) -> None:
        record = guard.record
        row = record.row
        use = row.use
        if use.last is not row:
            use.last = row
            use.tick += 1
            use.news[row] = None
        record.stamp = use.tick
        row.idle.append(guard)
        self.model.give_back(self.things[record])

    # -- given back, but not free yet ------------------------------------------------------------------

    def defer(self, number: int = 0, *, later: bool = False) -> None:
        """A holder gives its resource back, and it isn't free yet."""
        guard = self.held.pop(number)
        guard.record.phase = PENDING
        self.tell(self.accounts.defer, guard.record)
        self.model.defer(self.things[guard.record])
        self.pending.append(guard)
        self.settle(later=later)

    def ask(self, number: int, answer: str, *, later: bool = False) -> None:
        """A pending one is asked whether it's free.

        Its answer may be "yes"; "no"; "error", nobody can tell; "reset", yes, but its reset fails; or "stale", yes, but it's
        from before a clear.
        """
        guard = self.pending.pop(number)
        record = guard.record
        thing = self.things[record]
        if answer == "no":
            self.tell(self.accounts.defer, record)
            self.pending.append(guard)
        elif answer == "error":
            self.tell(self.accounts.stick, record)
            self.model.stick(thing)
            self.stuck.append(guard)
        elif answer == "stale":
            self.tell(self.accounts.undefer, record)
            self.tell(self.accounts.condemn, record, "cleared")
            self.model.doom(thing, "cleared")
            self.dying.append(guard)
        elif answer == "reset":
            self._doom(guard, "invalid")
        else:
            record.phase = READY
            self.tell(self.accounts.undefer, record)
            self.model.come_free(thing)
            self._come_back(guard)
        del guard
        self.settle(later=later)

    def ask_again(self, *, later: bool = False) -> None:
        """All of which nobody could tell when they're free are to be asked again."""
        while self.stuck:
            guard = self.stuck.pop(0)
            self.tell(self.accounts.unstick, guard.record)
            self.model.defer(self.things[guard.record])
            self.pending.append(guard)
        self.settle(later=later)

    # -- going -----------------------------------------------------------------------------------------

    def discard(self, guard: Guard, *, later: bool = False) -> None:
        """A holder has its resource destroyed: the hook begins."""
        self.held.remove(guard)
        self._doom(guard, "discarded")
        self.settle(later=later)

    def _doom(self, guard: Guard, reason: str) -> None:
        guard.record.reason = reason
        guard.record.phase = CONDEMNED
        self.tell(self.accounts.undefer, guard.record)
        self.tell(self.accounts.going, guard.record)
        self.model.doom(self.things[guard.record], reason)
        self.dying.append(guard)

    def detach(self, guard: Guard, *, later: bool = False) -> None:
        """A holder takes its resource out of the pool."""
        self.held.remove(guard)
        self.tell(self.accounts.taken_out, guard.record)
        self._tidy(guard.record.row)
        silence(guard)
        self.model.detach(self.things.pop(guard.record))
        self.settle(later=later)

    def drop(self, number: int, *, later: bool = False) -> None:
        """A holder drops its lease."""
        del self.held[number]
        assert len(self.lost) == 1
        self.settle_lost()
        self.settle(later=later)

    def clear(self, key: str, *, later: bool = False) -> None:
        """The idle ones of a key are to be destroyed."""
        self.accounts.counted = False
        for thing in self.model.idle(key):
            guard = self.rows[key].idle.popleft()
            assert self.things[guard.record] is thing
            self.tell(self.accounts.condemn, guard.record, "cleared")
            self.model.doom(thing, "cleared")
            self.dying.append(guard)
        self.settle(later=later)

    def destroyed(self, guard: Guard, *, kept: bool = False, later: bool = False) -> None:
        """A destroy hook has ended: the resource is gone, or can't be freed and is kept."""
        self.dying.remove(guard)
        record = guard.record
        record.phase = DESTROYING
        silence(guard)
        if kept:
            self.tell(self.accounts.stays, record)
            self.model.kept(self.things[record])
            self.kept.append(record)
        else:
            self.tell(self.accounts.gone, record)
            self._tidy(record.row)
            self.model.gone(self.things.pop(record))
        self.settle(later=later)

    # -- left behind -----------------------------------------------------------------------------------

    def forget(self, key: str, *, later: bool = False) -> None:
        """All of a key that nobody holds are left behind."""
        self.accounts.counted = False
        for record in [record for record in self.kept if self.things[record].key == key]:
            self.kept.remove(record)
            self._abandon(record)
        while key in self.rows and self.rows[key].idle:
            guard = self.rows[key].idle.popleft()
            self._abandon(guard.record)
            silence(guard)
        for hoard in (self.pending, self.stuck):
            for guard in [guard for guard in hoard if self.things[guard.record].key == key]:
                hoard.remove(guard)
                self._abandon(guard.record)
                silence(guard)
        self.settle(later=later)

    def leave_behind(self, guard: Guard, *, later: bool = False) -> None:
        """One that somebody gives back, or was about to destroy, is left behind instead."""
        (self.held if guard in self.held else self.dying).remove(guard)
        guard.record.phase = LEAVING
        self._abandon(guard.record)
        silence(guard)
        self.settle(later=later)

    def _abandon(self, record: Record) -> None:
        self.tell(self.accounts.abandoned, record)
        self._tidy(record.row)
        self.model.abandon(self.things.pop(record))

    # -- taken in --------------------------------------------------------------------------------------

    def _may_grow(self, row: Row, key: str, cost: int) -> bool:
        accounts, most = self.accounts, self.model.max_idle
        may = (
            not row.queue
            and not accounts.blocked
            and not accounts.shrunk
            and (row.cap is None or row.size < row.cap)
            and accounts.has_room(cost)
            and (most is None or sum(len(other.idle) for other in self.rows.values()) < most)
        )
        assert may == self.model.may_grow(key, cost)
        if not may:
            self._tidy(row)
        return may

    def adopt(self, key: str, cost: int = 1) -> None:
        """One that was made elsewhere becomes idle, if there's room and nobody waits."""
        if not self.settled:
            self.settle()
        row = self.row(key)
        if not self._may_grow(row, key, cost):
            return
        guard = self.guards()
        guard.record = Record(row)
        guard.record.cost = cost
        self.tell(self.accounts.adopt, guard.record)
        self.things[guard.record] = self.model.add(key, cost)
        self._come_back(guard)
        del guard
        self.settle()

    def prefill(self, key: str, cost: int = 1) -> None:
        """One is to be created ahead of time, if there's room and nobody waits: its create hook begins."""
        if not self.settled:
            self.settle()
        row = self.row(key)
        if not self._may_grow(row, key, cost):
            return
        claim = Claim(row, cost, self.guards)
        self.tell(self.accounts.reserve, claim.records[0])
        self.things[claim.records[0]] = self.model.reserve(key, cost)
        self.creating.append(claim)
        self.settle()
