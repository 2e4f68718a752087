"""Rooms, limits and the queue: who may create, who waits, whom to evict, who is next.

Pure: no lock, no clock, no hook, no thread.  The engine calls everything here under the pool's lock; a model
test checks it against naive lists.

A *room* is one unit of ``max_size`` and of a key's cap, with a cost.  A resource occupies a room from the
moment its creation is granted until its destroy hook has returned.  The accounts know rooms and tickets, not
hits: a hit moves a resource between its row's ``idle`` and its holder and changes no room.  That is why hits
need no lock.

How this module stays right when it's interrupted
-------------------------------------------------
A signal handler or ``PyThreadState_SetAsyncExc`` can raise at any call, loop or function entry, also in
here.  Hence:

- Each transition computes first and then commits in a straight line of plain attribute assignments, between
  which CPython cannot be interrupted.
- What orders the work (`_ready`, `_lru`) holds *lower bounds* that are repaired when they come to the top.
  A step that was cut short leaves an entry too many or too low, never one too few; calling `match` again
  finishes the work.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING

from respool._rows import CLOSED, IN_LINE, LEFT, OUT, PARKED, SERVED, SHUT, WAITING, Ledger, Use
from respool._slot import CONDEMNED, CREATING, GONE, QUARANTINED, READY
from respool.stats import HOOKS, REASONS

if TYPE_CHECKING:
    from collections import deque

    from respool._rows import Row, Ticket
    from respool._slot import Guard, Record

__all__ = ["Accounts"]


class Accounts:
    """The books of one pool.  Every method expects the pool's lock to be held."""

    __slots__ = (
        "_lru",
        "_ready",
        "arrivals",
        "blocked",
        "cost",
        "creating",
        "destroying",
        "destroying_cost",
        "max_cost",
        "max_size",
        "ordered",
        "quarantined",
        "rows",
        "size",
        "sleeping",
        "total",
        "use",
    )

    def __init__(self, max_size: int | None, max_cost: int | None, *, ordered: bool = False) -> None:
        self.max_size = max_size
        self.max_cost = max_cost
        # Whether the least recently used idle resource is ever asked for.
        self.ordered = ordered or max_size is not None or max_cost is not None
        self.use = Use()
        self.total = Ledger(REASONS, HOOKS)
        self.size = self.cost = 0
        self.creating = self.quarantined = 0
        self.destroying = self.destroying_cost = 0  # on their way out
        self.rows = 0  # rows in use, to judge the size of `_lru` by
        self.arrivals = 0  # tickets so far
        # The oldest who may be served waits for the total or the cost: nobody behind may pass, nor a
        # newcomer.
        self.blocked = False
        self.sleeping: OrderedDict[int, Ticket] = OrderedDict()  # whose owners sleep, by sequence number
        self._ready: list[tuple[int, Row]] = []  # heap of (lower bound of the head's seq, row)
        # Heap of (lower bound of the oldest idle resource's stamp, row.no, row).
        self._lru: list[tuple[int, int, Row]] = []

    # -- the queue -------------------------------------------------------------------------------------

    def enter(self, ticket: Ticket) -> None:
        """Put `ticket` in line by its sequence number: at the end, or at its old place if it comes back."""
        row = ticket.record.row
        row.gate = row.due = SHUT
        ticket.state = WAITING
        if not ticket.seq:
            self.arrivals += 1
            ticket.seq = seq = self.arrivals
            row.queue[seq] = ticket
        else:  # it comes back: a new order, which takes effect in one step
            seq = ticket.seq
            row.queue = OrderedDict(sorted([*row.queue.items(), (seq, ticket)]))
            row.where = OUT  # its bound, if any, may be too high now: push another; a duplicate does no harm
        if row.where is OUT:
            heappush(self._ready, (seq, row))
            row.where = IN_LINE

    def leave(self, ticket: Ticket) -> None:
        """Take `ticket` out of line.  Those behind it may fit now: call `match` afterwards."""
        if ticket.state is WAITING:
            ticket.state = LEFT
        self._take_out(ticket.record.row, ticket)

    def fail(self, row: Row) -> None:
        """Wake all who wait for `row`, with the state CLOSED."""
        for ticket in list(row.queue.values()):
            if ticket.state is WAITING:
                ticket.state = CLOSED
                ticket.wake(None)
            self._take_out(row, ticket)

    def stir(self, row: Row) -> None:
        """Note that something of `row` has come back: whoever waits for it is looked at again."""
        if row.where is PARKED:
            heappush(self._ready, (next(iter(row.queue)), row))  # a parked row has somebody who waits
            row.where = IN_LINE

    def _take_out(self, row: Row, ticket: Ticket) -> None:
        self.sleeping.pop(ticket.seq, None)
        queue = row.queue
        seq = ticket.seq
        # One straight line from here on: a row that nobody waits for may not stay shut.
        if seq in queue:
            del queue[seq]
        if not queue:
            if row.where is PARKED:
                row.where = OUT  # nobody is left to look at again, and what comes back now comes the fast way
            row.gate = row.calm_gate
            row.due = row.calm_due

    # -- rooms -----------------------------------------------------------------------------------------

    def fits_ever(self, cost: int) -> bool:
        """Tell whether a room of this cost could be had if the pool were empty."""
        return self.max_cost is None or cost <= self.max_cost

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

    # -- who is next -----------------------------------------------------------------------------------

    def match(self, condemned: deque[Guard]) -> None:
        """Serve, in order of arrival, everybody who can be served.

        The guards of idle resources that must go to make room are appended to `condemned`: just as many as
        needed, and only if that is enough.
        """
        ready = self._ready
        while ready:
            seq, row = ready[0]
            ticket = next(iter(row.queue.values()), None)
            if ticket is None:
                row.gate = row.calm_gate  # once more: whoever took the last one out may have been cut short
                row.due = row.calm_due
                row.where = OUT
                heappop(ready)
            elif ticket.seq != seq:  # the head has left, or one that came back is the head: repair
                heapreplace(ready, (ticket.seq, row))
            elif ticket.state is not WAITING:  # served by a step that was cut short
                self._take_out(row, ticket)
            elif row.idle:
                guard = row.idle.pop()
                ticket.grant = guard
                ticket.state = SERVED
                ticket.wake(None)
                self._take_out(row, ticket)
            elif row.cap is not None and row.size >= row.cap:
                row.where = PARKED
                heappop(ready)
            elif self._has_room(ticket.record.cost):
                self._grant_room(row, ticket)
            else:
                self._make_room(row, ticket.record.cost, condemned)
                self.blocked = True
                return
        self.blocked = False

    def _grant_room(self, row: Row, ticket: Ticket) -> None:
        record = ticket.record
        cost = record.cost
        self._list(row)
        self.size += 1
        self.cost += cost
        self.creating += 1
        row.size += 1
        row.cost += cost
        row.creating += 1
        record.phase = CREATING
        ticket.state = SERVED
        ticket.wake(None)
        self._take_out(row, ticket)

    def _has_room(self, cost: int) -> bool:
        return (self.max_size is None or self.size < self.max_size) and (
            self.max_cost is None or self.cost + cost <= self.max_cost
        )

    def _make_room(self, row: Row, cost: int, condemned: deque[Guard]) -> None:
        # What is on its way out already comes back by itself.
        rooms = 0 if self.max_size is None else self.size + 1 - self.max_size - self.destroying
        costs = 0 if self.max_cost is None else self.cost + cost - self.max_cost - self.destroying_cost
        if not self._can_evict(row, rooms, costs):
            return
        while rooms > 0 or costs > 0:
            guard = self.oldest_idle(row)
            if (
                guard is None
            ):  # pragma: no cover - an idle one was taken on the fast way between the two looks
                return
            self.condemn(guard.record, "evicted")
            condemned.append(guard)
            rooms -= 1
            costs -= guard.record.cost

    def _can_evict(self, row: Row, rooms: int, costs: int) -> bool:
        """Tell whether the idle resources of the other rows would do, without touching any."""
        seen = {row}  # and a step that was cut short may have left another row twice
        for _, _, other in self._lru:
            if rooms <= 0 and costs <= 0:
                break
            if other in seen:
                continue
            seen.add(other)
            for guard in other.idle.copy():  # a copy is atomic; the original may be in use without the lock
                rooms -= 1
                costs -= guard.record.cost
                if rooms <= 0 and costs <= 0:
                    break
        return rooms <= 0 and costs <= 0

    # -- the least recently used -----------------------------------------------------------------------

    def _list(self, row: Row) -> None:
        if row.listed or not self.ordered:
            return
        if len(self._lru) > 2 * self.rows + 16:  # mostly rows that are gone
            living = [entry for entry in self._lru if not entry[2].dead]
            heapify(living)
            self._lru = living
        heappush(self._lru, (0, row.no, row))
        row.listed = True

    def oldest_idle(self, but: Row | None = None) -> Guard | None:
        """Pop the idle resource that was given back the longest ago, over all rows but `but`."""
        # All stamps so far are below `tick` and all later ones above, so that a row that has nothing to give
        # can be put off until `tick`: a bound below whatever it gets later.
        use = self.use
        tick = use.tick + 1
        use.tick = tick
        use.last = None
        lru = self._lru
        while lru:
            stamp, no, row = lru[0]
            if row.dead:
                heappop(lru)
                continue
            if stamp >= tick:
                break
            try:
                oldest = tick if row is but else row.idle[0].record.stamp
                if oldest > stamp:
                    heapreplace(lru, (oldest, no, row))
                else:
                    return row.idle.popleft()
            except IndexError:  # nothing there, or taken on the fast way just now
                heapreplace(lru, (tick, no, row))
        return None
