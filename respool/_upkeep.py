"""The acting side: what changes a pool's stock other than by acquire and release.

Taking in, filling up, leaving behind, reaping, resizing; and what the background threads do for a pool.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from respool._ages import draw, end_of_life, overdue
from respool._batch import Batching
from respool._defer import ASK
from respool._free import snapshot
from respool._rows import IMPOSSIBLE, SHUT, WAITING
from respool._slot import QUARANTINED, Record
from respool._waiter import Hand
from respool._work import FORGOTTEN, RETURNED, UNUSED
from respool.errors import PoolError, PoolExhaustedError, safe_repr
from respool.limits import PoolLimits, check_number

if TYPE_CHECKING:
    from respool._slot import Guard
    from respool._work import Lane, Work

__all__ = ["Upkeep"]

_POLL = 0.05
"""Seconds until the reaper asks again what is pending in a pool that it looks after."""


class Upkeep(Batching):
    """What keeps a pool's stock as it should be."""

    __slots__ = ()

    # -- taking in -------------------------------------------------------------------------------------

    def adopt(self, lane: Lane, resource: object) -> None:
        """Put a resource that was made elsewhere under the pool, as idle."""
        hand = Hand()
        record = Record(lane)
        hand.open(self.guards(), record)
        try:
            if resource is None:
                raise PoolError(f"pool {self.name}: None can't be adopted")
            record.cost = self._cost_of(lane)
            adopted = self.work_under_lock(self._adopt_locked, record, resource)
            while not adopted:  # pragma: no cover - a race: the row was dropped in between
                record.row = record.lane = self.lane_of(record.row.key)
                adopted = self.work_under_lock(self._adopt_locked, record, resource)
            self.get_help()
            hand.keep_own()
            if hand.guard is not None:
                self.inbox.append([RETURNED, hand.guard])
        finally:
            self.inbox.append([UNUSED, record.row])
            self.pump()

    def _adopt_locked(self, record: Record, resource: object, work: Work) -> bool:
        self.settle_locked(work)
        row = record.row
        if self.closed:
            self.refuse_closed()
        if row.dead:  # pragma: no cover - a race, as above
            return False
        if id(resource) in self.by_id:
            raise PoolError(f"pool {self.name}: {safe_repr(resource)} is in the pool already")
        if not self._may_grow_locked(row, record.cost):
            raise PoolExhaustedError(
                f"pool {self.name}: no room to adopt a resource for key {safe_repr(row.key)} within {self.limits}, or somebody waits for one"
            )
        if self.timed:
            record.born = record.since = monotonic()
            record.draw = draw()
        # In one straight line: what is in the books has its resource.
        record.resource = resource
        self.by_id[id(resource)] = record
        self.accounts.adopt(record)
        return True

    def _may_grow_locked(self, row: Lane, cost: int) -> bool:
        """Tell whether one more may become idle now: within all limits, and passing nobody who waits."""
        accounts, most = self.accounts, self.limits.max_idle
        return (
            not row.queue
            and not accounts.blocked
            and not accounts.shrunk
            and (row.cap is None or row.size < row.cap)
            and accounts.has_room(cost)
            and (most is None or self.known_idle_locked() < most)
        )

    def prefill(self, lane: Lane, count: object) -> int:
        """Create up to so many idle ones now, within limits, passing nobody who waits; give how many."""
        try:
            number = check_number("n", count, 0)
            if self.closed:
                self.refuse_closed()
            for made in range(number):
                if not self._prefill_one(lane):
                    return made
        finally:
            self.post(UNUSED, lane)
        return number

    def _prefill_one(self, lane: Lane) -> bool:
        hand = Hand()
        record = Record(lane)
        hand.open(self.guards(), record)
        try:
            record.cost = self._cost_of(lane)
            may = self.work_under_lock(self._reserve_locked, record)
            while may is None:  # pragma: no cover - a race: the row was dropped in between
                record.row = record.lane = self.lane_of(record.row.key)
                may = self.work_under_lock(self._reserve_locked, record)
            if may:
                self._create(hand, record, None, None)
                if hand.guard is not None:
                    self.inbox.append([RETURNED, hand.guard])
                if self.closed:  # close() came while it was created: it's destroyed
                    self.refuse_closed()
            return bool(may)
        finally:
            hand.own = None  # its finaliser gives the room back, if it still has one
            self.post(UNUSED, record.row)

    def _reserve_locked(self, record: Record, work: Work) -> bool | None:
        """Give `record` a room if there's one to spare; None if its row has been dropped from the keys."""
        self.settle_locked(work)
        if self.closed:
            self.refuse_closed()
        if record.row.dead:  # pragma: no cover - a race, as above
            return None
        if not self._may_grow_locked(record.row, record.cost):
            return False
        self.accounts.reserve(record)
        return True

    # -- leaving behind --------------------------------------------------------------------------------

    def forget(self, lane: Lane) -> int:
        """Abandon all of a row without destroy: what isn't in use now, what is in use when it's given back."""
        count: int = self.work_under_lock(self._forget_locked, lane)
        return count

    def _forget_locked(self, lane: Lane, work: Work) -> int:
        self.settle_locked(work)
        lane.generation += 1
        lane.forgotten = lane.generation
        self.accounts.counted = False
        count = 0
        for record in list(self.by_id.values()):
            if record.row is lane:
                record.lane = FORGOTTEN
                if (
                    record.phase is QUARANTINED and record.when is None
                ):  # its destroy could not free it; nobody holds it
                    self.accounts.abandoned(record)
                    self.drop_resource_locked(record, work)
                    count += 1
        for guards in (lane.idle, lane.pending, lane.stuck):
            while guards:
                try:
                    guard: Guard = guards.popleft()
                except IndexError:  # pragma: no cover - taken on the fast way just now
                    break
                self.abandon_locked(guard, work)
                count += 1
        self.deferring.pop(lane, None)
        self.tidy_locked(lane, work)
        self.again = True  # there's room now
        return count

    # -- time ------------------------------------------------------------------------------------------

    def reap(self) -> int:
        """Ask all that is pending and all that is stuck, and destroy what the limits on time and on idle ones ask for."""
        if self.destroyer is not None:
            self.destroyer.revive()
        self.work_under_lock(self._unstick_locked)
        self.ask_all()
        count: int = self.work_under_lock(self._reap_locked)
        return count

    def _unstick_locked(self, work: Work) -> None:
        self.settle_locked(work)
        for lane in self.keys.all_locked():
            while lane.stuck:
                guard = lane.stuck.popleft()
                self.accounts.unstick(guard.record)
                self.defer_locked(guard, work, [None, None])

    def _reap_locked(self, work: Work) -> int:
        self.settle_locked(work)
        if not self.timed:
            return 0
        count = 0
        self.accounts.counted = False
        now = monotonic()
        limits = self.limits
        for lane in list(self.keys.all_locked()):
            if not any(overdue(guard.record, limits, now) for guard in snapshot(lane.idle)):
                continue
            # Each is looked at where it lies, at the left end, and the others are passed by, which leaves their order
            # as it was.  A pool with limits on time gives and takes on slow ways only, and those are shut now.
            self.shut_locked()
            for _ in range(len(lane.idle)):
                try:
                    reason = overdue(lane.idle[0].record, limits, now)
                    if reason is None:
                        lane.idle.rotate(-1)
                        continue
                    guard = lane.idle.popleft()
                except (
                    IndexError
                ):  # taken by somebody who had looked at the gate before; without the interpreter lock
                    break
                self.accounts.condemn(guard.record, reason)
                work.condemned.append(guard)
                count += 1
        self.again = True
        return count

    def look_after_time(self) -> float | None:
        """Do what the reaper does; give when it should come again, by `time.monotonic`, or None if it need not."""
        if self.dropped or not self.timed or (self.closed and not self.accounts.size):
            self.watched = False
            return None
        if self.accounts.pending:
            self.ask(None, ASK, others=True)
        self.work_under_lock(self._reap_locked)
        at: float = self.under_lock(self._next_look_locked)
        return at

    def _next_look_locked(self) -> float:
        """Tell when the first resource may be overdue, of those that there are now and those to come."""
        limits = self.limits
        now = monotonic()
        ages = [limits.idle_timeout] if limits.idle_timeout is not None else []
        if limits.max_lifetime is not None:
            # What is made from now on may live for so long at least; a hundredth is late enough to notice.
            ages.append(limits.max_lifetime * max(1 - limits.lifetime_jitter, 0.01))
        at = now + min(ages, default=0.0)
        for record in list(self.by_id.values()):
            end = end_of_life(record, limits)
            at = at if end is None or end <= now else min(at, end)
        if limits.idle_timeout is not None:
            for lane in self.keys.all_locked():
                for guard in snapshot(lane.idle):
                    at = min(at, guard.record.since + limits.idle_timeout)
        return min(at, now + _POLL) if self.accounts.pending else at

    # -- for the background thread ---------------------------------------------------------------------

    def destroy_here(self, guard: Guard) -> None:
        """Destroy what has been condemned."""
        try:
            self._destroy(guard)
        finally:
            self.pump()

    def poll_here(self, pause: float) -> float | None:
        """Ask what is pending; give the seconds until it should be asked again, or None if nothing is."""
        if self.inbox or self.has_notes():
            self.pump()
        if not self.accounts.pending:
            return None
        self.ask(None, ASK, others=True)
        return pause

    # -- limits ----------------------------------------------------------------------------------------

    def resize(self, limits: PoolLimits) -> None:
        """Put other limits in force."""
        if not isinstance(limits, PoolLimits):
            raise TypeError(f"limits must be a PoolLimits, got {safe_repr(limits)}")
        caps: dict[Lane, int | None] = {}
        while True:
            unknown: list[Lane] = self.work_under_lock(self._resize_locked, limits, caps)
            if not unknown:
                break
            for lane in unknown:  # the user's code: outside the lock
                caps[lane] = self.cap_of(lane.key, limits)
        self.pump()
        if self.accounts.size:
            self.watched = False  # so that the reaper looks at the new limits now
            self.get_help()

    def _resize_locked(self, limits: PoolLimits, caps: dict[Lane, int | None], work: Work) -> list[Lane]:
        """Apply `limits` if all rows' caps are known; else give the rows whose caps are not."""
        if self.closed:
            self.refuse_closed()
        rows = list(self.keys.all_locked())
        unknown = [row for row in rows if row not in caps]
        if unknown:
            return unknown
        # In one straight line: from here on it's done, by whoever settles next should it be cut short here.
        was_timed = self.timed
        self.limits = limits
        self.resizing = (caps, was_timed)
        self.settle_locked(work)
        return []

    def finish_resizing_locked(self) -> None:
        """Put the new limits in force.  Done twice, after an interrupt, it does no harm."""
        if self.resizing is None:
            return
        caps, was_timed = self.resizing
        limits, accounts = self.limits, self.accounts
        self.shut_locked()  # nothing moves on the fast way until all is as it should be
        self.apply(limits)
        if self.timed and not was_timed:  # nobody has looked at the clock: time begins now
            now = monotonic()
            for record in list(self.by_id.values()):
                record.since = now
                if not record.born:
                    record.born = now
                    record.draw = draw()
        accounts.max_size, accounts.max_cost = limits.max_size, limits.max_cost
        accounts.shrunk = True  # `shed` finds out
        accounts.counted = False
        for row in list(self.keys.all_locked()):
            self._resize_row_locked(
                row, caps.get(row, row.cap)
            )  # one that is newer has its cap by these limits
        self.resizing = None

    def _resize_row_locked(self, row: Lane, cap: int | None) -> None:
        accounts = self.accounts
        row.cap = cap
        accounts.over[row] = None
        row.calm_gate, row.calm_due = self.calm()
        if row.queue:
            accounts.stir(row)
            row.gate = row.due = SHUT
        else:
            row.gate, row.due = row.calm_gate, row.calm_due
        for ticket in list(row.queue.values()):
            record = ticket.record
            if ticket.state is WAITING and not self.possible_locked(row, record.cost, ticket.count):
                accounts.refuse(ticket, IMPOSSIBLE)
