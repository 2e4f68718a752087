"""The acting side: several resources at once, all or none.

Nothing is held while waiting: resources and rooms are granted to a batch in one step, when there are enough.  What
proves invalid afterwards makes the whole batch go back to its place in line, with nothing in hand.  Otherwise two
batches could wait for what the other one holds.
"""

from __future__ import annotations

from _thread import get_ident
from time import monotonic
from typing import TYPE_CHECKING

from respool import _stack
from respool._acquire import Acquiring
from respool._rows import Batch
from respool._slot import CREATING, GONE, QUEUED, Record
from respool._waiter import Armful, Hand, Waiter
from respool._work import UNUSED, Work
from respool.limits import check_number, check_timeout

if TYPE_CHECKING:
    from respool._slot import Guard
    from respool._work import Lane

__all__ = ["Batching"]


class Batching(Acquiring):
    """How several resources are acquired at once."""

    __slots__ = ()

    def take_many(self, lane: Lane, count: object, timeout: object) -> Armful:
        """Get so many resources of `lane`, ready."""
        armful = Armful()
        try:
            number = check_number("n", count, 1)
            seconds = check_timeout(timeout)
            wait = seconds != 0
            deadline = monotonic() + seconds if seconds else None
            self._take_many_in_line(lane, armful, number, seconds, deadline, wait=wait)
            if self.closed:  # close() came while something was created, say
                self.refuse_closed()
            if self.track:
                frames = _stack.capture()
                for guard in armful.guards:
                    guard.record.holder = (next(self.numbers), frames)
        except BaseException:
            self._let_all_go(armful, lane)
            raise
        return armful

    def _let_all_go(self, armful: Armful, lane: Lane) -> None:
        """End an acquire that failed: all that it has goes back."""
        work = Work()
        armful.pass_invalid(work.condemned)
        try:
            self.act(work)
        finally:
            armful.put_back(self.inbox)
            # The finalisers take the ticket out of line, and give back rooms.
            armful.own = []
            armful.spare = []
            self.inbox.append([UNUSED, lane])
            self.pump()

    def _take_many_in_line(
        self,
        lane: Lane,
        armful: Armful,
        count: int,
        seconds: float | None,
        deadline: float | None,
        *,
        wait: bool,
    ) -> None:
        self.be_in_time(lane, seconds, deadline)
        cost = self._cost_of(lane)
        self.under_lock(self._check_possible_locked, lane, cost, count)  # before so many records are made
        records = [Record(lane) for _ in range(count)]
        armful.open([self._guard_of(record) for record in records])
        for record in records:
            record.cost = cost
        first = records[0]
        ticket = Waiter(first, get_ident())
        ticket.batch = batch = Batch(records)
        ticket.count = count
        ticket.evicts = wait or self.destroyer is None
        first.holder = ticket
        try:
            while self.line_up(armful, ticket, seconds, deadline, wait=wait):
                armful.receive(batch)
                if self._all_pass(armful, first.row, seconds, deadline):
                    while armful.own:
                        self._create(armful, armful.own[-1].record, seconds, deadline)
                    break
                ticket.arm()  # it may be served again before this returns
                self.under_lock(self._start_again_locked, armful, ticket, batch)
            ticket.outcome = "served"
        finally:
            if ticket.slept:
                self.hooks.tell("waited", first.row.key, ticket.seconds, ticket.outcome)
        while armful.spare:
            record = armful.spare[-1].record
            record.phase = GONE
            record.holder = None  # the ticket, which refers to it
            self.put_away(armful.spare[-1])
            armful.spare.pop()

    def return_all(self, guards: list[Guard]) -> None:
        """Give back what was taken in vain; it was never in the user's hands."""
        armful = Armful()
        armful.guards = guards
        try:
            armful.put_back(self.inbox)
        finally:
            self.pump()

    def _guard_of(self, record: Record) -> Guard:
        guard = self.new_guard()
        guard.record = record
        return guard

    def _all_pass(self, armful: Armful, lane: Lane, seconds: float | None, deadline: float | None) -> bool:
        """See whether all that was idle is still good."""
        if self.hooks.validate is None and not self.timed:
            armful.guards, armful.unseen = armful.unseen, []
            return True
        while armful.unseen:
            self.be_in_time(lane, seconds, deadline)
            hand = Hand()
            hand.guard = armful.unseen.pop()
            try:
                if self._passes(hand):
                    armful.guards.append(hand.guard)
                    hand.guard = None
            finally:
                if hand.invalid is not None:
                    armful.invalid.append(hand.invalid)
                    hand.invalid = None
        return not armful.invalid

    def _check_possible_locked(self, lane: Lane, cost: int, count: int) -> None:
        if self.closed:
            self.refuse_closed()
        if not self.possible_locked(lane, cost, count):
            self.refuse_impossible_locked(lane, cost, count)

    def _start_again_locked(self, armful: Armful, ticket: Waiter, batch: Batch) -> None:
        """Let go of all that was granted, to wait for it anew: at the old place, before anybody else can have it."""
        armful.spare += armful.own
        armful.own = []
        for record in batch.records:
            if record.phase is CREATING and not record.row.dead:
                self.accounts.unmade(record)
            if record.phase is GONE:
                record.phase = QUEUED
        # Not before its records are as they should be: what is lost from here on takes the ticket out of line.
        if not self.closed:
            self.shut_locked()
            self.accounts.enter(ticket)
            ticket.keeps_place = True
        armful.put_back(self.inbox)
        self.again = True
