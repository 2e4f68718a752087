"""The queue over the rooms: who may create, who waits, whom to evict, who is next.

Pure: no lock, no clock, no hook, no thread.  The engine calls everything here and in `respool._rooms` under
the pool's lock; a model test checks it against naive lists.

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

from respool._rooms import Rooms
from respool._rows import CLOSED, IN_LINE, LEFT, OUT, PARKED, SERVED, SHUT, WAITING
from respool._slot import CREATING

if TYPE_CHECKING:
    from collections import deque

    from respool._rows import Row, Ticket
    from respool._slot import Guard

__all__ = ["Accounts"]


class Accounts(Rooms):
    """The books of one pool: its rooms, who waits, and what is evicted for whom.  Every method expects the pool's lock to be held."""

    __slots__ = ("_lru", "arrivals", "blocked", "ordered", "sleeping")

    def __init__(self, max_size: int | None, max_cost: int | None, *, ordered: bool = False) -> None:
        Rooms.__init__(self, max_size, max_cost)
        # Whether the least recently used idle resource is ever asked for.
        self.ordered = ordered or max_size is not None or max_cost is not None
        self.arrivals = 0  # tickets so far
        # The oldest who may be served waits for the total or the cost: nobody behind may pass, nor a
        # newcomer.
        self.blocked = False
        self.sleeping: OrderedDict[int, Ticket] = OrderedDict()  # whose owners sleep, by sequence number
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
