"""What can happen to a pool, as the engine books it, on one thread: acquires, and what becomes of them and of what they got.

Each method is one event: the books are told as the engine tells them, with the fast way's few lines written out, the model is
told the same, and both are compared. No method refers to an idle resource's guard while others are served: what is lost then would
go unnoticed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from respool._rows import CLOSED, IMPOSSIBLE, LEFT, SERVED, SHUT
from respool._slot import GONE, QUEUED, silence
from tests.core.accounting_stock import Stock
from tests.core.accounting_twin import MARK, Claim

if TYPE_CHECKING:
    from respool._slot import Guard


class Pool(Stock):
    """A twin with all that its users can do."""

    # -- acquiring -------------------------------------------------------------------------------------

    def acquire(
        self,
        key: str,
        cost: int = 1,
        count: int | None = None,
        *,
        wait: bool = True,
        slow: bool = False,
        evicts: bool = True,
    ) -> None:
        """Somebody wants a resource, or several at once where `count` says so.

        Idle ones are had by the fast way, else it's in line; at once in line where a note at the gate says so.
        """
        if not self.settled:
            self.settle()
        row = self.row(key)
        if not (row.gate or slow) and len(row.idle) >= (count or 1):
            self._hit(key, cost, [row.idle.pop() for _ in range(count or 1)])
            return
        if not self.model.fits_ever(key, cost, count or 1):
            self._tidy(row)
            return
        claim = Claim(row, cost, self.guards, count, evicts=evicts)
        entered = self._enter(claim)
        claim.waiter = self.model.arrive(key, cost, count or 1, evicts=evicts)
        if not entered:
            self.model.go(claim.waiter)
            self.settle()
            return
        self.waiting.append(claim)
        condemned = self.settle()
        while condemned and not wait and claim in self.waiting:
            for guard in condemned:
                self.destroyed(guard, later=True)
            condemned = self.settle()
        if not wait and claim in self.waiting:
            self.time_out(claim)

    def _hit(self, key: str, cost: int, guards: list[Guard]) -> None:
        waiter = self.model.arrive(key, cost, len(guards))
        assert self.model.serve() == ([], [])
        assert waiter.got == [self.things[guard.record] for guard in guards], (
            "a hit that passes others, or of the wrong one"
        )
        for guard in guards:
            self._hand_out(guard)
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
        self._return_all(claim)

    def _return_all(self, claim: Claim) -> None:
        """All that a claim was given goes back."""
        row = claim.ticket.record.row
        guards = claim.take()
        while guards:
            self._come_back(guards.pop())
        for record in claim.rooms():
            self.tell(self.accounts.unmade, record)
            self.model.unmade(self.things.pop(record))
        for guard in claim.own:
            silence(guard)
        self._tidy(row)

    def _out_of_line(self, claim: Claim, state: str, woken: list[None]) -> None:
        assert (claim.ticket.state, claim.woken) == (state, woken)
        self.waiting.remove(claim)
        self.model.go(claim.waiter)

    def time_out(self, claim: Claim, *, later: bool = False) -> None:
        """Somebody leaves the line."""
        self._end(claim)
        self._out_of_line(claim, LEFT, [])
        self.settle(later=later)

    def create_ends(self, claim: Claim, *, good: bool, later: bool = False) -> None:
        """The create hook of somebody who was given a room returns, or raises."""
        self.creating.remove(claim)
        (record,) = claim.records
        thing = self.things[record]
        if not good:
            self._return_all(claim)
        else:
            self.tell(self.accounts.made, record)
            self.model.made(thing)
            if hasattr(claim, "waiter"):
                self._hand_out(claim.own.pop())
            else:  # ahead of time
                self._come_back(claim.own.pop())
        self.settle(later=later)

    def pass_on(self, claim: Claim, *, later: bool = False) -> None:
        """Somebody who was served doesn't come for it: an interrupt, or too late."""
        for kind in (self.creating, self.offered, self.batches):
            if claim in kind:
                kind.remove(claim)
        if hasattr(claim, "waiter"):
            assert claim.ticket.state is SERVED
            self._end(claim)
        else:
            self._return_all(claim)
        self.settle(later=later)

    def take_offer(self, claim: Claim, *, valid: bool, destroyed_first: bool = False) -> None:
        """Somebody takes the idle one they were served with; if it proves invalid, they're in line again."""
        self.offered.remove(claim)
        (guard,) = claim.take()
        if valid:
            claim.records[0].phase = GONE
            silence(claim.own.pop())
            self._hand_out(guard)
            return
        self._doom(guard, "invalid")
        if destroyed_first:
            self.destroyed(guard, later=True)
        self._again(claim)
        self.settle()

    def _again(self, claim: Claim) -> None:
        row: Any = self.row(claim.waiter.key)
        for record in claim.records:
            record.row = record.lane = row
        self.model.come_back(claim.waiter)
        if self._enter(claim):
            self.waiting.append(claim)
        else:
            self.model.go(claim.waiter)

    # -- several at once -------------------------------------------------------------------------------

    def finish_batch(self, claim: Claim, *, made: int | None = None, later: bool = False) -> None:
        """Somebody creates what is missing of the several they were served with, and has them all.

        Where `made` is given, creating fails after so many, and all goes back.
        """
        self.batches.remove(claim)
        guards = claim.take()
        rooms = claim.rooms()
        for record in rooms[:made]:
            self.tell(self.accounts.made, record)
            self.model.made(self.things[record])
            guards.append(next(guard for guard in claim.own if guard.record is record))
            claim.own.remove(guards[-1])
        if claim.rooms():
            while guards:
                self._come_back(guards.pop())
            self._return_all(claim)
            self.settle(later=later)
            return
        for guard in claim.own:
            guard.record.phase = GONE
            silence(guard)
        for guard in guards:
            self._hand_out(guard)

    def refuse_batch(self, claim: Claim, pick: int, *, destroyed_first: bool = False) -> None:
        """One of the idle ones of several proves invalid: the others go back, and their claimant into line again."""
        self.batches.remove(claim)
        guards = claim.take()
        guard = guards.pop(pick % len(guards))
        self._doom(guard, "invalid")
        del guard
        if destroyed_first:
            self.destroyed(self.dying[-1], later=True)
        while guards:
            self._come_back(guards.pop())
        for record in claim.rooms():
            self.tell(self.accounts.unmade, record)
            self.model.unmade(self.things.pop(record))
            record.phase = QUEUED
        self._tidy(claim.ticket.record.row)
        self._again(claim)
        self.settle()

    # -- others' doing ---------------------------------------------------------------------------------

    def fail(self, key: str) -> None:
        """All who wait for a key are woken to fail."""
        if not self.settled:
            self.settle()
        if key not in self.rows:
            return
        self.tell(self.accounts.fail, self.rows[key])
        for claim in [claim for claim in self.waiting if claim.waiter.key == key]:
            self._out_of_line(claim, CLOSED, [None])
            self._return_all(claim)
        self.settle()

    def resize(
        self,
        max_size: int | None,
        max_cost: int | None,
        max_idle: int | None,
        caps: dict[str, int | None],
    ) -> None:
        """Other limits are put in force; who waits for what they rule out is woken to be told."""
        accounts = self.accounts
        refused = self.model.resize(max_size, max_cost, max_idle, caps)
        self.gate.append(MARK)
        self.calm = self.gate if max_idle is None else SHUT
        accounts.max_size, accounts.max_cost = max_size, max_cost
        accounts.shrunk = True
        accounts.counted = False
        for key, row in self.rows.items():
            row.cap = caps.get(key)
            accounts.over[row] = None
            row.calm_gate = row.calm_due = self.calm
            if row.queue:
                self.tell(accounts.stir, row)
            else:
                row.gate = row.due = self.calm
        for claim in [claim for claim in self.waiting if claim.waiter in refused]:
            self.tell(accounts.refuse, claim.ticket, IMPOSSIBLE)
            self._out_of_line(claim, IMPOSSIBLE, [None])
            self._return_all(claim)
        self.settle()

    # -- the end ---------------------------------------------------------------------------------------

    def end(self) -> None:
        """Everybody gives up, and everything goes."""
        self.in_steps.clear()
        self.in_matching.clear()
        self.settle()
        for key in list(self.rows):
            self.fail(key)
        for claim in self.creating + self.offered + self.batches:
            self.pass_on(claim, later=True)
        for guard in self.held.copy():
            self.discard(guard, later=True)
        self.ask_again(later=True)
        while self.pending:
            self.ask(0, "yes", later=True)
        for key in list(self.rows):
            self.clear(key, later=True)
        for guard in self.dying.copy():
            self.destroyed(guard, later=True)
        self.settle()
        assert self.accounts.size == self.accounts.quarantined == len(self.kept)
        for key in list(self.rows):
            self.forget(key)
        assert not self.rows
        assert (self.accounts.size, self.accounts.cost, self.accounts.quarantined) == (0, 0, 0)
