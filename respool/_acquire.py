"""The acting side, part three: getting a resource, an idle one that is valid or a new one.

What an acquire is given it holds in a `Hand`, as guards.  If an interrupt ends it at any point, the
finalisers of the guards give everything back; the `except` clauses here are for prompt and well-named
endings.  No guard is in a local variable while the user's code runs: whoever keeps an exception keeps the
frames below it, and what their variables refer to.
"""

# ruff: noqa: TRY301 - the errors of a create that gives no new resource are counted like those of the hook itself

from __future__ import annotations

from _thread import get_ident
from time import monotonic
from typing import Any

from respool import _reaper, _stack
from respool._ages import draw, overdue
from respool._line import Queueing
from respool._slot import CHECKING, CONDEMNED, CREATING, GONE, READY, Record
from respool._waiter import Armful, Hand, Waiter
from respool._work import FORGOTTEN, GOING, LOST, RETURNED, STALE, UNMADE, UNUSED, Lane, Work
from respool.errors import PoolError, safe_repr
from respool.limits import check_cost, check_timeout

__all__ = ["Acquiring"]


class Acquiring(Queueing):
    """How an acquire that finds nothing on the fast way comes to its resource."""

    __slots__ = ()

    def take(  # noqa: C901 - a call more would be a place more where an interrupt can strike, and cost time
        self,
        lane: Lane,
        timeout: object,
        wait: bool,  # noqa: FBT001 - by keyword costs time
    ) -> Hand | None:
        """Get a resource of `lane`, ready, in a hand.

        None only without `wait`, where nothing is to be had at once.
        """
        seconds = deadline = None
        hand = Hand()
        try:
            if timeout is not None:
                seconds = check_timeout(timeout)
                if seconds == 0:
                    wait = False
                elif wait and seconds is not None:
                    deadline = monotonic() + seconds
            # Where nobody waits for this key or the total, an idle one is had at once; without the lock, unless idle ones
            # are counted.
            if self.counts_idle:
                self.under_lock(self._take_idle_locked, lane, hand)
            elif not (self.gate or lane.queue):
                try:
                    hand.guard = lane.idle.pop()
                except IndexError:
                    pass
            if (hand.guard is None or not self._passes(hand)) and not self._take_in_line(
                lane, hand, seconds, deadline, wait=wait
            ):
                return None
            if self.closed:  # close() came while it was validated, say
                self.refuse_closed()
            if self.track:
                hand.note((next(self.numbers), _stack.capture()))
        except BaseException:
            self._let_go(hand, lane)
            raise
        return hand

    def _take_idle_locked(self, lane: Lane, hand: Hand) -> None:
        if lane.idle and not (self.gate or lane.queue):
            hand.guard = lane.idle.pop()
            self.accounts.idle -= 1

    def _let_go(self, hand: Hand, lane: Lane) -> None:
        """End an acquire that failed: all that it has goes back."""
        work = Work()
        hand.pass_invalid(work.condemned)
        try:
            self.act(work)
        finally:
            if hand.guard is not None and hand.guard.record.phase is READY:
                self.inbox.append([RETURNED, hand.guard])  # it was never in the user's hands
            hand.guard = None
            if hand.own is not None:
                record = hand.own.record
                hand.own = None  # its finaliser takes the ticket out of line, or gives the room back
                self.inbox.append([UNUSED, record.row])
            elif not lane.size:  # its row may have been made for this call
                self.inbox.append([UNUSED, lane])
            self.pump()

    # -- validating ------------------------------------------------------------------------------------

    def _passes(self, hand: Hand) -> bool:
        """See whether the resource in hand is still good.  One that isn't becomes the hand's invalid one, which must be destroyed."""
        record = hand.guard.record  # type: ignore[union-attr]  # the caller has looked
        if self.timed and (reason := overdue(record, self.limits, monotonic())):
            record.reason = reason
            record.phase = CONDEMNED
            self.inbox.append([GOING, record])
            hand.invalid = hand.guard
            hand.guard = None
            return False
        hooks = self.hooks
        validate = hooks.validate
        if validate is None:
            return True
        marks = hooks.marks
        me = get_ident()
        outer = marks.get(me)
        if outer is not None:
            outer = hooks.living(outer, record)
        record.outer = outer
        record.phase = CHECKING
        marks[me] = record
        failure: BaseException | None = None
        try:
            if record.lane is LOST:  # pragma: no cover - in a forked child: test_fork_in_handlers
                raise self.forked("a resource was being validated")
            try:
                valid = True if validate(record.row.key, record.resource) else False  # noqa: SIM210 - no call
            except BaseException as error:  # noqa: BLE001 - raised again below, if it's no Exception
                failure = error
                valid = False
            # What `Hooks.leave` does, written out: this is the way of each acquire of a validating pool.
            marks[me] = outer
            record.outer = None
            if (
                record.phase is not CHECKING
            ):  # pragma: no cover - in a forked child, whose tracer sees no frame begun before
                hand.guard = None
                raise self.forked("a resource was being validated")
            if valid:
                record.phase = READY
                return True
            record.reason = "invalid"
            record.phase = CONDEMNED
            self.inbox.append([GOING, record])
            hand.invalid = hand.guard
            hand.guard = None
            if failure is not None:
                hooks.failed(record.row, record.row.key, "validate", failure)
                if not isinstance(failure, Exception):
                    raise failure
            return False
        finally:
            failure = None  # or it would refer to itself by way of this frame

    # -- in line ---------------------------------------------------------------------------------------

    def _take_in_line(
        self, lane: Lane, hand: Hand, seconds: float | None, deadline: float | None, *, wait: bool
    ) -> bool:
        record = Record(lane)
        hand.open(
            self.new_guard(), record
        )  # from here on the place in line, and whatever comes of it, can't be lost
        self.be_in_time(lane, seconds, deadline)
        record.cost = self._cost_of(lane)
        ticket = Waiter(record, get_ident())
        ticket.evicts = wait or self.destroyer is None
        record.holder = ticket
        try:
            while self.line_up(hand, ticket, seconds, deadline, wait=wait):
                if ticket.grant is None:
                    self._create(hand, record, seconds, deadline)
                    break
                hand.receive(ticket)
                if self.hooks.validate is None and not self.timed:
                    break
                self.be_in_time(record.row, seconds, deadline)
                if self._passes(hand):
                    break
            else:
                self._settle_own(hand)
                return False
            ticket.outcome = "served"
        finally:
            if ticket.slept:
                self.hooks.tell("waited", record.row.key, ticket.seconds, ticket.outcome)
        self._settle_own(hand)
        return True

    def _settle_own(self, hand: Hand) -> None:
        """Put away the record that was not needed after all."""
        if hand.own is not None:
            record = hand.own.record
            record.phase = GONE
            record.holder = None  # the ticket, which refers to it
            self.put_away(hand.own)
            hand.own = None
            if not record.row.size:
                self.post(UNUSED, record.row)

    def _cost_of(self, lane: Lane) -> int:
        hook = self.hooks.cost
        if hook is None:
            return 1
        try:
            return check_cost(hook(lane.key))
        except BaseException as error:
            self.hooks.failed(lane, lane.key, "cost", error)
            raise

    # -- creating --------------------------------------------------------------------------------------

    def _create(
        self, hand: Hand | Armful, record: Record, seconds: float | None, deadline: float | None
    ) -> None:
        """Create the resource of `record`, which has a room and is the hand's own."""
        hooks = self.hooks
        lane = record.row
        generation = lane.generation
        self.be_in_time(lane, seconds, deadline)
        self.get_help()
        began = monotonic() if hooks.times_creation else 0.0
        hooks.enter(record)
        try:
            try:
                if (
                    record.phase is not CREATING
                ):  # pragma: no cover - in a forked child: test_fork_in_handlers
                    raise self.forked("a resource was being created")
                record.resource = resource = hooks.create(lane.key)
            finally:
                hooks.leave(record)
            if (
                record.phase is not CREATING
            ):  # pragma: no cover - in a forked child, whose tracer sees no frame begun before
                raise self.forked("a resource was being created")
            if resource is None:
                raise PoolError(f"pool {self.name}: create returned None for key {safe_repr(lane.key)}")
            if self.by_id.setdefault(id(resource), record) is not record:
                record.resource = None
                raise PoolError(
                    f"pool {self.name}: create returned {safe_repr(resource)}, which the pool already holds"
                )
        except BaseException as error:
            self.inbox.append([UNMADE, record])
            hooks.failed(lane, lane.key, "create", error)
            raise
        seconds_taken = monotonic() - began if hooks.times_creation else 0.0
        self.under_lock(self._made_locked, record, generation)
        hand.keep_own()
        if hooks.times_creation:
            hooks.tell("created", lane.key, seconds_taken)

    def _made_locked(self, record: Record, generation: int) -> None:
        if record.row.dead:  # pragma: no cover - in a forked child: test_fork_in_handlers
            raise self.forked("a resource was being created")
        self.accounts.made(record)
        record.holder = None
        if self.timed:
            record.born = record.since = monotonic()
            record.draw = draw()
        row = record.row
        if generation < row.forgotten:
            record.lane = FORGOTTEN  # forget() came while it was created
        elif generation != row.generation:
            record.lane = STALE  # clear() came while it was created

    def get_help(self) -> None:
        """See that the threads are there that this pool will need for what is about to come into it."""
        if self.destroyer is not None:
            self.destroyer.start()
        if self.timed and not (self.watched and _reaper.is_there()):
            core: Any = self  # a Core, which isn't to be imported from here
            self.watched = _reaper.watch(core)
