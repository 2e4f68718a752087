"""The books of a pool and the naive model, led through the same events and compared after each.

This part of it is what the engine does with `respool._accounting.Accounts` around each event: steps that may be cut short by
interrupts, guards that are lost on the way, serving, rows made and dropped, and then the comparison. The events themselves are
in `tests.core.accounting_stock` and `tests.core.accounting_events`.
"""

from __future__ import annotations

import itertools
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from respool._accounting import Accounts
from respool._rows import SERVED, SHUT, WAITING, Batch, Row, Ticket
from respool._slot import (
    CONDEMNED,
    CREATING,
    PENDING,
    QUARANTINED,
    READY,
    Bell,
    Guard,
    Record,
    guard_class,
    silence,
)
from tests.core import accounting_model as model
from tests.helpers.checkpoints import Interrupt, Visit

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from respool._rows import Ledger

PHASES: Final = {
    model.CREATING: CREATING,
    model.HELD: READY,
    model.IDLE: READY,
    model.PENDING: PENDING,
    model.STUCK: QUARANTINED,
    model.GOING: CONDEMNED,
    model.KEPT: QUARANTINED,
}
MARK: Final = None


class Lane(Row):
    """A row that knows its key."""

    __slots__ = ("key",)

    key: str


class Claim:
    """An acquire that went the slow way, for one resource or, where `count` is given, for so many at once."""

    def __init__(
        self, row: Any, cost: int, guards: type[Guard], count: int | None = None, *, evicts: bool = True
    ) -> None:
        self.records = [Record(row) for _ in range(count or 1)]
        self.own = [guards() for _ in self.records]
        for guard, record in zip(self.own, self.records, strict=True):
            guard.record = record
            record.cost = cost
        self.woken: list[None] = []
        self.ticket = Ticket(self.records[0], self.woken.append)
        self.ticket.batch = Batch(self.records) if count else None
        self.ticket.count = count or 1
        self.ticket.evicts = evicts
        self.waiter: model.Waiter  # none if it's created ahead of time

    def take(self) -> list[Guard]:
        """Take the idle ones that it was served with."""
        if self.ticket.batch is not None:
            taken, self.ticket.batch.grants = self.ticket.batch.grants, []
            return taken
        guard, self.ticket.grant = self.ticket.grant, None
        return [] if guard is None else [guard]

    def granted(self) -> list[Record]:
        """Give the records of the idle ones that it was served with."""
        ticket = self.ticket
        guards = [ticket.grant] if ticket.batch is None else ticket.batch.grants
        return [guard.record for guard in guards if guard is not None]

    def rooms(self) -> list[Record]:
        """Give its records that have a room to create in."""
        return [record for record in self.records if record.phase is CREATING]


def interrupt() -> None:
    """Raise what a signal handler would."""
    raise Interrupt


class Twin:
    """One pool twice: as the books under test, and as the model."""

    def __init__(
        self,
        max_size: int | None = None,
        max_cost: int | None = None,
        max_idle: int | None = None,
        caps: dict[str, int | None] | None = None,
    ) -> None:
        self.model = model.Model(max_size, max_cost, max_idle, caps or {})
        self.accounts = Accounts(max_size, max_cost)
        self.rows: dict[str, Lane] = {}
        self.numbers = itertools.count(1)
        self.gate: deque[None] = deque()  # as the engine's: non-empty while somebody waits for the total
        self.calm = self.gate if max_idle is None else SHUT
        self.lost: list[Guard] = []
        self.guards = guard_class(Bell(self.lost.append))
        self.things: dict[Record, model.Thing] = {}
        # Claims and guards by what they're at.
        self.waiting: list[Claim] = []
        self.creating: list[Claim] = []
        self.offered: list[Claim] = []
        self.batches: list[Claim] = []  # served
        self.held: list[Guard] = []
        self.pending: list[Guard] = []
        self.stuck: list[Guard] = []
        self.dying: list[Guard] = []
        self.kept: list[Record] = []
        self.condemned: deque[Guard] = deque()  # by the present matching
        # What is to go wrong next: places at which a step, or a matching, is interrupted.
        self.in_steps: list[int] = []
        self.in_matching: list[int] = []
        self.twice = False  # steps that may be told twice are
        self.careless = False  # a matching that is interrupted drops what it had condemned
        self.settled = True
        self.sound = True  # nothing failed so far
        self.lossy = False  # the matching that was interrupted has lost an idle resource
        # Size and cost when last compared, by key and in all.
        self.most: dict[str | None, tuple[int, int]] = {}

    # -- steps, and what interrupts them ---------------------------------------------------------------

    def attempt(self, places: list[int], step: Callable[..., object], *subjects: Any) -> bool:
        """Run a step, interrupted at the first of `places`; tell whether it came to its end."""
        self.sound = False
        if not places:
            step(*subjects)
            return True
        try:
            Visit(places.pop(0)).run(partial(step, *subjects), interrupt)
        except Interrupt:
            done = False
            self.accounts.counted = False
        else:
            done = True
        self.settle_lost()  # not in the `except` block: there the traceback holds what was lost
        return done

    def tell(self, step: Callable[..., object], *subjects: Any) -> None:
        """Run a step to its end, however often it's interrupted."""
        while not self.attempt(self.in_steps, step, *subjects):
            pass
        if self.twice:
            step(*subjects)

    def settle_lost(self) -> None:
        """Give back what lost guards stood for: as the engine, with a new guard for each."""
        while self.lost:
            lost = self.lost.pop(0)
            guard = self.guards()
            guard.record = record = lost.record
            if record.phase is READY:
                self.lossy = True
                self.accounts.leak(record)
                self.model.doom(self.things[record], "leaked")
                self.dying.append(guard)
            else:
                assert record.phase is CONDEMNED
                self.condemned.append(guard)
            self.accounts.condemn(record, record.reason)
            self.accounts.going(record)
            silence(lost)

    def settle(self, *, later: bool = False) -> list[Guard]:
        """Serve who can be served, here and in the model, and compare; or leave it to the next event.

        Gives the guards of what has to go for it.
        """
        self.settled = not later
        if later:
            self.sound = True
            return []
        blurred = self.lossy = False
        while not self.attempt(self.in_matching, self._match):
            if self.careless:
                blurred = True
                self.condemned.clear()
                self.settle_lost()
            self._look_for_parts()
        self.gate.clear()
        if self.accounts.blocked or self.accounts.shrunk:
            self.gate.append(MARK)
        condemned, self.condemned = list(self.condemned), deque()
        self.dying += condemned
        chosen = [self.things[guard.record] for guard in condemned]
        shed, expected = self.model.serve()
        if blurred:  # the order was lost with the list
            expected = sorted(shed + expected, key=id)
            chosen.sort(key=id)
        else:
            assert sorted(chosen[: len(shed)], key=id) == sorted(shed, key=id), "others were shed"
            del chosen[: len(shed)]
        assert chosen == expected, "others were condemned, or in another order"
        if (
            self.lossy
        ):  # what was lost makes room, too: what was condemned before as surplus could have stayed until now
            for guard in condemned:
                assert guard.record.reason in {"surplus", "evicted"}
                self.things[guard.record].reason = guard.record.reason
        self._sort_served()
        assert self.accounts.shrunk == self.model.is_shrinking()
        self.check()
        return condemned

    def _match(self) -> None:
        if self.accounts.shrunk:
            self.accounts.shed(self.condemned)
        self.accounts.match(self.condemned)
        most = self.model.max_idle
        if most is None:
            return
        if not self.accounts.counted:
            self.accounts.idle = sum(len(row.idle) for row in self.rows.values())
            self.accounts.counted = True
        for _ in range(self.accounts.idle - most):
            guard = self.accounts.oldest_idle()
            if guard is not None:
                self.accounts.condemn(guard.record, "surplus")
                self.condemned.append(guard)

    def _look_for_parts(self) -> None:
        """Tell the model what a matching that was interrupted has left with those who want several: what it had moved stays with them."""
        for claim in self.waiting:
            if claim.ticket.batch is None or claim.ticket.state is not WAITING:
                continue
            for record in claim.granted():
                if self.things[record] not in claim.waiter.got:
                    self.model.take_part(claim.waiter, self.things[record])
            for record in claim.rooms():
                if record not in self.things:
                    self.model.take_part(claim.waiter, None)
                    self.things[record] = claim.waiter.got[-1]

    def _sort_served(self) -> None:
        for claim in self.waiting.copy():
            ticket, waiter = claim.ticket, claim.waiter
            if waiter in self.model.waiters:
                assert (ticket.state, claim.woken) == (WAITING, [])
            else:
                assert ticket.state is SERVED, "the model serves this one"
                assert claim.woken == [None], "served and not woken, or woken twice"
                self.waiting.remove(claim)
                kind = self.creating if claim.rooms() else self.offered
                (kind if ticket.batch is None else self.batches).append(claim)
            new = [thing for thing in waiter.got if thing.state == model.CREATING]
            old = [thing for thing in waiter.got if thing.state != model.CREATING]
            assert [self.things[record] for record in claim.granted()] == old, "other idle ones"
            rooms = claim.rooms()
            assert len(rooms) == len(new), "too many rooms, or too few"
            for record in rooms:
                if record not in self.things:
                    known = self.things.values()
                    self.things[record] = next(thing for thing in new if thing not in known)

    # -- rows ------------------------------------------------------------------------------------------

    def row(self, key: str) -> Lane:
        """Find or make the row of a key."""
        if key not in self.rows:
            cap = self.model.caps.get(key)
            row = self.rows[key] = Lane(next(self.numbers), cap, self.accounts.use, self.calm, self.calm)
            row.key = key
            self.accounts.rows += 1
        return self.rows[key]

    def _tidy(self, row: Row) -> None:
        assert isinstance(row, Lane)
        if not row.dead and not row.size and not row.queue:
            row.dead = True
            del self.rows[row.key]
            self.accounts.rows -= 1
            self.accounts.use.news.pop(row, None)

    # -- comparing -------------------------------------------------------------------------------------

    def check(self) -> None:
        """Compare all that the books say with what the model counts, and see that no limit is passed: what is beyond one that
        has shrunk never grows.
        """
        self.sound = False
        accounts, there = self.accounts, self.model
        assert accounts.blocked == there.blocked
        assert accounts.rows == len(self.rows)
        assert self.rows.keys() == there.history.keys(), "a row forgotten too early, or kept for nothing"
        self._check_counts(accounts, None)
        assert accounts.destroying_cost == sum(thing.cost for thing in there.of(state=model.GOING))
        assert there.max_idle is None or not accounts.counted or accounts.idle == len(there.idle())
        size, cost = self.most.get(None, (0, 0))
        assert there.max_size is None or accounts.size <= max(there.max_size, size)
        assert there.max_cost is None or accounts.cost <= max(there.max_cost, cost)
        _check_ledger(accounts.total, there.total, accounts)
        for key, row in self.rows.items():
            self._check_counts(row, key)
            _check_ledger(row.ledger, there.history[key], row)
            assert row.cap == there.caps.get(key)
            assert row.cap is None or row.size <= max(row.cap, self.most.get(key, (0, 0))[0])
            assert [self.things[guard.record] for guard in row.idle] == there.idle(key)
            line = [claim.ticket for claim in self.waiting if claim.waiter.key == key]
            line.sort(key=lambda ticket: ticket.seq)
            assert list(row.queue.values()) == line
            assert list(row.queue) == [ticket.seq for ticket in line]
            assert [claim.ticket.seq for claim in self._in_order(key)] == [ticket.seq for ticket in line]
            closed = SHUT if line else self.calm
            assert row.gate is closed, "a hit passes those who wait, or goes the slow way for nobody"
            assert row.due is closed, "a release passes those who wait, or goes the slow way for nobody"
        for record, thing in self.things.items():
            assert record.phase is PHASES[thing.state]
        self.most = {key: (row.size, row.cost) for key, row in self.rows.items()}
        self.most[None] = (accounts.size, accounts.cost)
        self.sound = True

    def _check_counts(self, books: Accounts | Row, key: str | None) -> None:
        there = self.model
        assert books.size == len(there.of(key))
        assert books.cost == sum(thing.cost for thing in there.of(key))
        assert books.creating == len(there.of(key, model.CREATING))
        assert books.destroying == len(there.of(key, model.GOING))
        assert books.quarantined == len(there.of(key, model.KEPT) + there.of(key, model.STUCK))
        pending = books.deferred if isinstance(books, Row) else books.pending
        assert pending == len(there.of(key, model.PENDING))

    def _in_order(self, key: str) -> list[Claim]:
        claims = [claim for claim in self.waiting if claim.waiter.key == key]
        return sorted(claims, key=lambda claim: claim.waiter.place)


def _check_ledger(ledger: Ledger, happened: Counter[str], books: Accounts | Row) -> None:
    written = {"created": ledger.created, "destroyed": ledger.destroyed, "detached": ledger.detached}
    written |= {"adopted": ledger.adopted, "abandoned": ledger.abandoned}
    written |= {"leaked": ledger.leaked, "retired": ledger.retired, "retired firsts": ledger.retired_firsts}
    written |= {f"destroyed for {reason}": number for reason, number in ledger.destroyed_for.items()}
    books_say = {what: number for what, number in written.items() if number}
    assert books_say == +happened, f"the books say {books_say}, the model {happened}"
    came, went = ledger.created + ledger.adopted, ledger.destroyed + ledger.detached + ledger.abandoned
    assert came == went + books.size - books.creating
