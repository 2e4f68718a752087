"""Rooms: what is in existence, in what state, and how much of it there may be.

A *room* is one unit of ``max_size`` and of a key's cap, with a cost.  A resource occupies a room from the
moment its creation is granted until its destroy hook has returned.  The books know rooms and tickets, not
hits: a hit moves a resource between its row's ``idle`` and its holder and changes no room.  That is why hits
need no lock.

Pure, like all of the books; `respool._accounting` says how they stay right when they're interrupted.
"""

from __future__ import annotations

from heapq import heappush
from typing import TYPE_CHECKING

from respool._rows import IN_LINE, PARKED, Ledger, Use
from respool._slot import CONDEMNED, CREATING, GONE, PENDING, QUARANTINED, QUEUED, READY
from respool.stats import HOOKS, REASONS

if TYPE_CHECKING:
    from respool._rows import Row
    from respool._slot import Record

__all__ = ["Rooms"]


class Rooms:
    """What is in existence.  Every method expects the pool's lock to be held."""

    __slots__ = (
        "_ready",
        "cost",
        "counted",
        "creating",
        "destroying",
        "destroying_cost",
        "idle",
        "max_cost",
        "max_size",
        "over",
        "pending",
        "quarantined",
        "rows",
        "shrunk",
        "size",
        "total",
        "use",
    )

    def __init__(self, max_size: int | None, max_cost: int | None) -> None:
        self.max_size = max_size
        self.max_cost = max_cost
        self.use = Use()
        self.total = Ledger(REASONS, HOOKS)
        self.size: int = 0
        self.cost: int = 0
        self.creating: int = 0
        self.quarantined: int = 0
        self.pending: int = 0
        self.destroying: int = 0  # on their way out
        self.destroying_cost: int = 0
        self.rows = 0  # rows in use, to judge the size of `_lru` by
        # There may be too much of something, since limits have shrunk; and rows that may be beyond their caps.
        self.shrunk = False
        self.over: dict[Row, None] = {}
        # Idle resources over all rows, as long as `counted` says so: where there's a `max_idle`, all that moves them is
        # done under the lock.  Whoever moves many, or is cut short, leaves it to be counted anew.
        self.idle: int = 0
        self.counted = False
        self._ready: list[tuple[int, Row]] = []  # heap of (lower bound of the head's seq, row)

    # Each of these is told twice without harm, and its body is one straight line: an interrupt comes before
    # all of it or after.

    def made(self, record: Record) -> None:
        """Book that the creation in the room of `record` succeeded."""
        if record.phase is CREATING:
            row = record.row
            record.phase = READY
            self.creating -= 1
            row.creating -= 1
            self.total.created += 1
            row.ledger.created += 1

    def unmade(self, record: Record) -> None:
        """Book that the creation for `record` failed: its room is free again."""
        row = record.row
        if record.phase is CREATING:
            record.phase = GONE
            self.creating -= 1
            row.creating -= 1
            self.size -= 1
            self.cost -= record.cost
            row.size -= 1
            row.cost -= record.cost
        self.stir(row)

    def going(self, record: Record) -> None:
        """Book that `record` is being destroyed: its room is on its way out, and counts until `gone`."""
        if not record.booked:
            record.booked = True
            self.destroying += 1
            self.destroying_cost += record.cost
            record.row.destroying += 1

    def condemn(self, record: Record, reason: str) -> None:
        """Book that `record` must be destroyed, by the one who holds its guard."""
        if record.phase is not CONDEMNED:
            record.phase = CONDEMNED
            record.reason = reason
            record.booked = True
            self.destroying += 1
            self.destroying_cost += record.cost
            record.row.destroying += 1

    def leak(self, record: Record) -> None:
        """Condemn `record`, whose lease was dropped, and count the leak."""
        if record.phase is not CONDEMNED:
            row = record.row
            record.phase = CONDEMNED
            record.reason = "leaked"
            record.booked = True
            self.destroying += 1
            self.destroying_cost += record.cost
            row.destroying += 1
            self.total.leaked += 1
            row.ledger.leaked += 1

    def stays(self, record: Record) -> None:
        """Book that `record` can't be freed: it keeps its room for good."""
        if record.booked and record.phase is not QUARANTINED:
            record.phase = QUARANTINED
            self.destroying -= 1
            self.destroying_cost -= record.cost
            record.row.destroying -= 1
            self.quarantined += 1
            record.row.quarantined += 1
            # If it was to go because limits have shrunk, something else has to go now.
            self.shrunk = True
            self.over[record.row] = None

    def gone(self, record: Record) -> None:
        """Book that `record` has been destroyed: its room is free."""
        row, reason, uses = record.row, record.reason, record.uses
        total, ledger = self.total, row.ledger
        if reason not in ledger.destroyed_for:
            ledger.destroyed_for[reason] = 0
        if record.phase is not GONE:
            record.phase = GONE
            if record.booked:
                self.destroying -= 1
                self.destroying_cost -= record.cost
                row.destroying -= 1
            self.size -= 1
            self.cost -= record.cost
            row.size -= 1
            row.cost -= record.cost
            total.destroyed += 1
            ledger.destroyed += 1
            total.destroyed_for[reason] += 1
            ledger.destroyed_for[reason] += 1
            total.retired += uses
            ledger.retired += uses
            if uses:
                total.retired_firsts += 1
                ledger.retired_firsts += 1
        self.stir(row)

    def taken_out(self, record: Record) -> None:
        """Book that the leased `record` has left the pool for good: its room is free."""
        row, uses = record.row, record.uses
        total, ledger = self.total, row.ledger
        if record.phase is not GONE:
            record.phase = GONE
            self.size -= 1
            self.cost -= record.cost
            row.size -= 1
            row.cost -= record.cost
            total.detached += 1
            ledger.detached += 1
            total.retired += uses
            ledger.retired += uses
            total.retired_firsts += 1
            ledger.retired_firsts += 1
        self.stir(row)

    def abandoned(self, record: Record) -> None:
        """Book that `record`, in whatever state, has been left behind without destroy: its room is free."""
        row, uses = record.row, record.uses
        total, ledger = self.total, row.ledger
        if record.phase is not GONE:
            if record.phase is QUARANTINED:
                self.quarantined -= 1
                row.quarantined -= 1
            elif record.booked:
                self.destroying -= 1
                self.destroying_cost -= record.cost
                row.destroying -= 1
            if record.deferred:
                record.deferred = False
                self.pending -= 1
                row.deferred -= 1
            record.phase = GONE
            self.size -= 1
            self.cost -= record.cost
            row.size -= 1
            row.cost -= record.cost
            total.abandoned += 1
            ledger.abandoned += 1
            total.retired += uses
            ledger.retired += uses
            if uses:
                total.retired_firsts += 1
                ledger.retired_firsts += 1
        self.stir(row)

    # -- given back, but not free yet ------------------------------------------------------------------

    def defer(self, record: Record) -> None:
        """Book that `record` is pending."""
        if not record.deferred:
            record.deferred = True
            self.pending += 1
            record.row.deferred += 1

    def undefer(self, record: Record) -> None:
        """Book that `record` is free, or on its way out."""
        if record.deferred:
            record.deferred = False
            self.pending -= 1
            record.row.deferred -= 1

    def stick(self, record: Record) -> None:
        """Book that nobody can tell when the pending `record` is free."""
        if record.deferred:
            record.deferred = False
            record.phase = QUARANTINED
            self.pending -= 1
            record.row.deferred -= 1
            self.quarantined += 1
            record.row.quarantined += 1

    def unstick(self, record: Record) -> None:
        """Book that it's to be asked again when the quarantined `record` is free."""
        if record.phase is QUARANTINED:
            record.phase = PENDING
            record.deferred = True
            self.pending += 1
            record.row.deferred += 1
            self.quarantined -= 1
            record.row.quarantined -= 1

    # -- from outside ----------------------------------------------------------------------------------

    def has_room(self, cost: int, count: int = 1) -> bool:
        """Tell whether so many rooms of this cost each are free in the total."""
        return (self.max_size is None or self.size + count <= self.max_size) and (
            self.max_cost is None or self.cost + cost * count <= self.max_cost
        )

    def reserve(self, record: Record) -> None:
        """Give `record` a room to create in."""
        row, cost = record.row, record.cost
        if record.phase is QUEUED:
            self.size += 1
            self.cost += cost
            self.creating += 1
            row.size += 1
            row.cost += cost
            row.creating += 1
            record.phase = CREATING

    def adopt(self, record: Record) -> None:
        """Give `record`, whose resource was made elsewhere, a room."""
        row, cost = record.row, record.cost
        if record.phase is QUEUED:
            self.size += 1
            self.cost += cost
            row.size += 1
            row.cost += cost
            record.phase = READY
            self.total.adopted += 1
            row.ledger.adopted += 1

    def stir(self, row: Row) -> None:
        """Note that something of `row` has come back: whoever waits for it is looked at again."""
        if row.where is PARKED:
            heappush(self._ready, (next(iter(row.queue)), row))  # a parked row has somebody who waits
            row.where = IN_LINE
