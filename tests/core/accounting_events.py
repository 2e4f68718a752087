"""What can happen to a pool, as the engine books it, on one thread: acquires, and what becomes of them and of what they got.

Each method is one event: the books are told as the engine tells them, with the fast way's few lines written out, the model is
told the same, and both are compared. No method refers to an idle resource's guard while others are served: what is lost then would
go unnoticed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from respool._rows import CLOSED, LEFT, SERVED
from respool._slot import CONDEMNED, DESTROYING, GONE, silence
from tests.core.accounting_twin import MARK, Claim, Twin

if TYPE_CHECKING:
    from respool._slot import Guard


class Pool(Twin):
    """A twin with all that its users can do."""

    # -- acquiring -------------------------------------------------------------------------------------

    def acquire(self, key: str, cost: int = 1, *, wait: bool = True, slow: bool = False) -> None:
        """Somebody wants a resource: an idle one by the fast way, else in line; at once in line where a note at the gate says so."""
        if not self.settled:
            self.settle()
        row = self.row(key)
        if not (row.gate or slow):
            try:
                guard = row.idle.pop()
            except IndexError:
                pass
            else:
                self._hit(key, cost, guard)
                return
        possible = self.accounts.fits_ever(cost)
        assert possible == self.model.fits_ever(cost)
        if not possible:
            self._tidy(row)
            return
        claim = Claim(row, cost, self.guards)
        if not self._enter(claim):
            self.model.go(self.model.arrive(key, cost))
            self.settle()
            return
        claim.waiter = self.model.arrive(key, cost)
        self.waiting.append(claim)
        condemned = self.settle()
        while condemned and not wait and claim in self.waiting:
            for guard in condemned:
                self.destroyed(guard, later=True)
            condemned = self.settle()
        if not wait and claim in self.waiting:
            self.time_out(claim)

    def _hit(self, key: str, cost: int, guard: Guard) -> None:
        guard.record.uses += 1
        waiter = self.model.arrive(key, cost)
        assert self.model.serve() == []
        assert waiter.got is self.things[guard.record], "a hit that passes others, or of the wrong one"
        self.model.use(waiter.got)
        self.held.append(guard)
        self.check()

    def _enter(self, claim: Claim) -> bool:
        """Put a claim in line.  If that's interrupted, its acquire ends, and it's taken out."""
        self.gate.append(MARK)
        claim.woken.clear()
        if self.attempt(self.in_steps, self.accounts.enter, claim.ticket):
            return True
        self._end(claim)
        return False

    def _end(self, claim: Claim) -> None:
        self.tell(self.accounts.leave, claim.ticket)
        silence(claim.own)
        self._tidy(claim.record.row)

    def time_out(self, claim: Claim, *, later: bool = False) -> None:
        """Somebody leaves the line."""
        self.waiting.remove(claim)
        self._end(claim)
        assert (claim.ticket.state, claim.woken) == (LEFT, [])
        self.model.go(claim.waiter)
        self.settle(later=later)

    def create_ends(self, claim: Claim, *, good: bool, later: bool = False) -> None:
        """The create hook of somebody who was given a room returns, or raises."""
        self.creating.remove(claim)
        record = claim.record
        thing = self.things[record]
        if good:
            self.tell(self.accounts.made, record)
            self.model.made(thing)
            self._hand_out(claim.own)
            del claim.own
        else:
            self._give_up_room(claim)
        self.settle(later=later)

    def _give_up_room(self, claim: Claim) -> None:
        self.tell(self.accounts.unmade, claim.record)
        self._tidy(claim.record.row)
        silence(claim.own)
        self.model.unmade(self.things.pop(claim.record))

    def _hand_out(self, guard: Guard) -> None:
        guard.record.uses += 1
        self.model.use(self.things[guard.record])
        self.held.append(guard)

    def pass_on(self, claim: Claim, *, later: bool = False) -> None:
        """Somebody who was served doesn't come for it: an interrupt, or too late."""
        self.tell(self.accounts.leave, claim.ticket)
        assert claim.ticket.state is SERVED
        if claim in self.creating:
            self.creating.remove(claim)
            self._give_up_room(claim)
        else:
            self.offered.remove(claim)
            silence(claim.own)
            guard, claim.ticket.grant = claim.ticket.grant, None
            assert guard is not None
            self.tell(self.accounts.stir, guard.record.row)
            self._put_back(guard)
            del guard  # from here on only the idle stack may hold it, or its loss would go unnoticed
        self.settle(later=later)

    def take_offer(self, claim: Claim, *, valid: bool, destroyed_first: bool = False) -> None:
        """Somebody takes the idle one they were served with; if it proves invalid, they're in line again."""
        self.offered.remove(claim)
        guard, claim.ticket.grant = claim.ticket.grant, None
        assert guard is not None
        if valid:
            claim.record.phase = GONE
            silence(claim.own)
            self._hand_out(guard)
            return
        self._doom(guard, "invalid")
        if destroyed_first:
            self.destroyed(guard, later=True)
        row: Any = self.row(claim.waiter.key)
        claim.record.row = claim.record.lane = row
        self.model.come_back(claim.waiter)
        if self._enter(claim):
            self.waiting.append(claim)
        else:
            self.model.go(claim.waiter)
        self.settle()

    # -- giving back -----------------------------------------------------------------------------------

    def give_back(self, number: int = 0, *, later: bool = False) -> None:
        """A holder gives its resource back, by the fast way where nobody has to look."""
        row = self.held[number].record.row
        if row.due:
            self.tell(self.accounts.stir, row)
            self._put_back(self.held.pop(number))
            self.settle(later=later)
        else:
            self._put_back(self.held.pop(number))
            self.check()

    def _put_back(self, guard: Guard) -> None:
        record = guard.record
        row = record.row
        use = row.use
        if use.last is not row:
            use.last = row
            use.tick += 1
        record.stamp = use.tick
        row.idle.append(guard)
        self.model.give_back(self.things[record])

    def discard(self, guard: Guard, *, later: bool = False) -> None:
        """A holder has its resource destroyed: the hook begins."""
        self.held.remove(guard)
        self._doom(guard, "discarded")
        self.settle(later=later)

    def _doom(self, guard: Guard, reason: str) -> None:
        guard.record.reason = reason
        guard.record.phase = CONDEMNED
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
        else:
            self.tell(self.accounts.gone, record)
            self._tidy(record.row)
            self.model.gone(self.things.pop(record))
        self.settle(later=later)

    def fail(self, key: str) -> None:
        """All who wait for a key are woken to fail."""
        if not self.settled:
            self.settle()
        if key not in self.rows:
            return
        self.tell(self.accounts.fail, self.rows[key])
        for claim in self.waiting.copy():
            if claim.waiter.key == key:
                assert (claim.ticket.state, claim.woken) == (CLOSED, [None])
                self.waiting.remove(claim)
                silence(claim.own)
                self.model.go(claim.waiter)
        self._tidy(self.rows[key])
        self.settle()

    # -- the end ---------------------------------------------------------------------------------------

    def end(self) -> None:
        """Everybody gives up, and everything goes."""
        self.in_steps.clear()
        self.in_matching.clear()
        self.settle()
        for key in list(self.rows):
            self.fail(key)
        for claim in self.creating + self.offered:
            self.pass_on(claim, later=True)
        for guard in self.held.copy():
            self.discard(guard, later=True)
        for key in list(self.rows):
            self.clear(key, later=True)
        for guard in self.dying.copy():
            self.destroyed(guard, later=True)
        self.settle()
        assert self.accounts.size == self.accounts.quarantined
        assert all(row.quarantined for row in self.rows.values())
