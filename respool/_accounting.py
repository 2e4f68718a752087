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
from typing import TYPE_CHECKING, Final

from respool._rooms import Rooms
from respool._rows import CLOSED, IN_LINE, LEFT, OUT, PARKED, SERVED, SHUT, WAITING
from respool._slot import CREATING, QUEUED

if TYPE_CHECKING:
    from collections import deque

    from respool._rows import Batch, Row, Ticket
    from respool._slot import Guard

__all__ = ["Accounts"]

_FEW: Final = 16
"""To push one entry costs about as much as to order so many anew."""


class Accounts(Rooms):
    """The books of one pool: its rooms, who waits, and what is evicted for whom.  Every method expects the pool's lock to be held."""

    __slots__ = ("_aside", "_lru", "_unread", "arrivals", "blocked", "sleeping")

    def __init__(self, max_size: int | None, max_cost: int | None) -> None:
        Rooms.__init__(self, max_size, max_cost)
        self.arrivals = 0  # tickets so far
        # The oldest who may be served waits for the total or the cost: nobody behind may pass, nor a
        # newcomer.
        self.blocked = False
        self.sleeping: OrderedDict[int, Ticket] = OrderedDict()  # whose owners sleep, by sequence number
        # Heap of (lower bound of the oldest idle resource's stamp, row.no, row).  Each row that has something idle is in
        # there, or in `_aside`, or in `_unread`, or in `use.news`.
        self._lru: list[tuple[int, int, Row]] = []
        self._aside: list[tuple[int, int, Row]] = []  # what has been taken out of the heap for a moment
        self._unread: list[tuple[Row, None]] = []

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
            self.refuse(ticket, CLOSED)

    def refuse(self, ticket: Ticket, state: str) -> None:
        """Wake who waits with `ticket`, which can't be served."""
        if ticket.state is WAITING:
            ticket.state = state
            ticket.wake(None)
        self._take_out(ticket.record.row, ticket)

    def _take_out(self, row: Row, ticket: Ticket) -> None:
        seq = ticket.seq
        if self.sleeping.get(seq) is ticket:  # else it's from before a fork
            del self.sleeping[seq]
        queue = row.queue
        if row.where is PARKED and len(queue) > 1:
            self.stir(row)  # those behind may want less than a batch that leaves
        # One straight line from here on: a row that nobody waits for may not stay shut.
        if seq in queue:
            del queue[seq]
        if not queue:
            if row.where is PARKED:
                row.where = OUT  # nobody is left to look at again, and what comes back now comes the fast way
            row.gate = row.calm_gate
            row.due = row.calm_due

    # -- who is next -----------------------------------------------------------------------------------

    def match(self, condemned: deque[Guard]) -> None:  # noqa: C901 - one list of what the head of the line may be
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
            elif ticket.batch is not None:
                if not self._serve_batch(row, ticket, ticket.batch, condemned):
                    self.blocked = True
                    return
            elif row.idle:
                try:
                    guard = row.idle.pop()
                except IndexError:  # taken since the look, which only happens without the interpreter lock
                    continue
                ticket.grant = guard
                self.idle -= 1
                ticket.state = SERVED
                ticket.wake(None)
                self._take_out(row, ticket)
            elif row.cap is not None and row.size >= row.cap:
                row.where = PARKED
                heappop(ready)
            elif self.has_room(ticket.record.cost):
                self._grant_room(row, ticket)
            else:
                self._make_room(row, ticket, 1, condemned)
                self.blocked = True
                return
        self.blocked = False

    def _grant_room(self, row: Row, ticket: Ticket) -> None:
        record = ticket.record
        cost = record.cost
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

    def _serve_batch(self, row: Row, ticket: Ticket, batch: Batch, condemned: deque[Guard]) -> bool:
        """Serve who wants several at once, all or nothing; False if the total has no room for that yet.

        Cut short, what it has moved already stays with the ticket, and the next call goes on from there.
        """
        missing = batch.missing()
        new = max(0, missing - len(row.idle))
        if new and row.cap is not None and row.size + new > row.cap:
            row.where = PARKED
            heappop(self._ready)
            return True
        if new and not self.has_room(ticket.record.cost, new):
            self._make_room(row, ticket, new, condemned)
            return False
        for record in batch.records:
            if missing > new:
                try:
                    batch.grants.append(row.idle.pop())
                except IndexError:
                    # Taken since the look above, which only happens without the interpreter lock: there's no room instead.
                    return True
                self.idle -= 1
                missing -= 1
            elif missing and record.phase is QUEUED:
                self.reserve(record)
                missing -= 1
        ticket.state = SERVED
        ticket.wake(None)
        self._take_out(row, ticket)
        return True

    def _make_room(self, row: Row, ticket: Ticket, count: int, condemned: deque[Guard]) -> None:
        if row.size == self.size or not ticket.evicts:  # no other key has anything
            return
        # What is on its way out already comes back by itself.
        rooms, costs = self.beyond(count, ticket.record.cost * count)
        if not self._can_evict(row, ticket.seq, rooms, costs):
            return
        while rooms > 0 or costs > 0:
            guard = self.oldest_idle(row, ticket.seq)
            if guard is None:  # taken since `_can_evict` has counted
                return
            self.condemn(guard.record, "evicted")
            condemned.append(guard)
            rooms -= 1
            costs -= guard.record.cost

    def beyond(self, count: int, cost: int) -> tuple[int, int]:
        """Tell how many rooms, and what cost, are too many when so much is added and what is on its way out is gone."""
        rooms = 0 if self.max_size is None else self.size + count - self.max_size - self.destroying
        costs = 0 if self.max_cost is None else self.cost + cost - self.max_cost - self.destroying_cost
        return rooms, costs

    def _can_evict(self, row: Row, seq: int, rooms: int, costs: int) -> bool:
        """Tell whether the idle resources of the other rows would do, without touching any."""
        self._read_news()
        seen = {row}  # and a step that was cut short may have left another row twice
        while (rooms > 0 or costs > 0) and (other := self._next_row()) is not None:
            self._put_aside()
            if other in seen or _collects(other, seq):
                continue
            seen.add(other)
            idle = other.idle
            for position in range(len(idle)):
                try:
                    guard = idle[position]
                except IndexError:  # it may be in use without the lock
                    break
                rooms -= 1
                costs -= guard.record.cost
                if rooms <= 0 and costs <= 0:
                    break
        self._put_back()
        return rooms <= 0 and costs <= 0

    def shed(self, condemned: deque[Guard]) -> None:
        """After limits have shrunk: condemn idle resources beyond them, until there are no more than allowed."""
        for row in list(self.over):
            while _too_many(row):
                try:
                    guard = row.idle.popleft()
                except IndexError:
                    break
                self.idle -= 1
                self.condemn(guard.record, "surplus")
                condemned.append(guard)
            if not _too_many(row):
                self.over.pop(row, None)
        rooms, costs = self.beyond(0, 0)
        while rooms > 0 or costs > 0:
            oldest = self.oldest_idle()
            if oldest is None:
                return
            self.condemn(oldest.record, "surplus")
            condemned.append(oldest)
            rooms, costs = self.beyond(0, 0)
        self.shrunk = bool(self.over)

    # -- the least recently used -----------------------------------------------------------------------

    def oldest_idle(self, but: Row | None = None, seq: int = 0) -> Guard | None:
        """Pop the idle resource that was given back the longest ago.

        Over all rows but `but`, and but those whose idle resources are being collected by somebody who came before
        the ticket with the sequence number `seq`.
        """
        self._read_news()
        lru = self._lru
        found: Guard | None = None
        while found is None and (row := self._next_row()) is not None:
            if row is but or _collects(row, seq):
                self._put_aside()
                continue
            try:
                oldest = row.idle[0].record.stamp
                if oldest > lru[0][0]:
                    heapreplace(lru, (oldest, row.no, row))
                else:
                    found = row.idle.popleft()
                    self.idle -= 1
            except IndexError:  # taken since the look
                pass
        self._put_back()
        return found

    def _next_row(self) -> Row | None:
        """Give the row at the top of the heap, having dropped those that have nothing idle."""
        lru = self._lru
        while lru:
            row = lru[0][2]
            if row.idle and not row.dead:
                return row
            row.listed = False  # first: cut short here, it may come to be listed twice, which does no harm
            heappop(lru)
        return None

    def _put_aside(self) -> None:
        """Take the row at the top out of the heap for a moment."""
        self._aside.append(self._lru[0])  # cut short here, it's in both, which does no harm
        heappop(self._lru)

    def _put_back(self) -> None:
        while self._aside:
            heappush(self._lru, self._aside[-1])
            self._aside.pop()

    def _read_news(self) -> None:
        """List the rows that have taken something back since the last time.

        From here on `last` is None, so that a row which is dropped from the heap for having nothing idle is news again
        once it has.
        """
        use = self.use
        use.last = None
        try:
            # C code all the way, so that no row is lost on its way to an interrupt.  Emptied, not replaced: somebody else may
            # be about to note a row in it.
            self._unread.extend(iter(use.news.popitem, None))
        except KeyError:
            pass
        if len(self._lru) > 2 * self.rows + 16:  # mostly rows that are gone
            living = [entry for entry in self._lru if not entry[2].dead]
            heapify(living)
            self._lru = living
        unread = self._unread
        if unread:
            fresh = {
                row.no: (_stamp_of(row), row.no, row) for row, _ in unread if not row.listed and not row.dead
            }
            if len(fresh) * _FEW < len(self._lru):
                for entry in fresh.values():
                    heappush(self._lru, entry)
            else:
                merged = [*self._lru, *fresh.values()]
                heapify(merged)
                self._lru = merged
            for _, _, row in fresh.values():
                row.listed = True
            unread.clear()
        self._put_back()  # what an earlier call has left aside when it was cut short


def _stamp_of(row: Row) -> int:
    """Give the stamp of the oldest idle resource of `row`, or a bound below."""
    try:
        return row.idle[0].record.stamp
    except IndexError:
        return 0


def _collects(row: Row, seq: int) -> bool:
    """Tell whether the idle resources of `row` are being collected by somebody who came before `seq`."""
    return bool(row.queue) and next(iter(row.queue)) < seq


def _too_many(row: Row) -> bool:
    return row.cap is not None and row.size - row.destroying > row.cap
